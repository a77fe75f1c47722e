"""Usage, allocation, links and least used slots, against plain loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.memory import (
  addressing,
  allocation,
  derivatives,
  dnc,
  lru,
  ntm,
)

# Leading axes, slots, read heads, write heads.
SIZES = (
  ((), 1, 1, 1),
  ((), 6, 3, 2),
  ((3,), 4, 1, 1),
  ((2, 1, 3), 3, 2, 3),
)
NAMES = (
  'update_usage',
  'allocation_weights',
  'write_allocation_weights',
  'update_link',
  'update_precedence',
  'forward',
  'backward',
  'decayed_usage',
  'least_used',
)
DECAY = 0.9


# Slow answers for one memory, in float64.


def slow_update_usage(x):
  out = np.zeros(len(x['usage']))
  for n, usage in enumerate(x['usage']):
    kept, retained = 1.0, 1.0
    for weights in x['write']:
      kept *= 1 - weights[n]
    for gate, weights in zip(x['gates'], x['read'], strict=True):
      retained *= 1 - gate * weights[n]
    written = 1 - kept
    out[n] = (usage + written - usage * written) * retained
  return out


def slow_allocation(usage):
  """Allocates from the least used slot on, ties to the lowest index."""
  usage = [1e-6 + (1 - 1e-6) * float(u) for u in usage]
  out, product = np.zeros(len(usage)), 1.0
  for n in sorted(range(len(usage)), key=lambda n: (usage[n], n)):
    out[n] = (1 - usage[n]) * product
    product *= usage[n]
  return out


def slow_write_allocation(x):
  usage, out = list(x['usage']), []
  for gate in x['write_gates']:
    out.append(slow_allocation(usage))
    usage = [
      u + (1 - u) * gate * a for u, a in zip(usage, out[-1], strict=True)
    ]
  return np.array(out)


def slow_update_link(x):
  out = np.zeros_like(x['link'])
  for h, i, j in np.ndindex(out.shape):
    if i != j:
      w = x['write'][h]
      out[h, i, j] = (1 - w[i] - w[j]) * x['link'][h, i, j]
      out[h, i, j] += w[i] * x['precedence'][h, j]
  return out


def slow_update_precedence(x):
  out = np.zeros_like(x['precedence'])
  for h, i in np.ndindex(out.shape):
    written = sum(x['write'][h])
    out[h, i] = (1 - written) * x['precedence'][h, i] + x['write'][h, i]
  return out


def slow_follow(x, is_forward):
  heads, slots, _ = x['link'].shape
  out = np.zeros((len(x['read']), heads, slots))
  for r, h, i in np.ndindex(out.shape):
    for j in range(slots):
      entry = x['link'][h, i, j] if is_forward else x['link'][h, j, i]
      out[r, h, i] += entry * x['read'][r, j]
  return out


def slow_decayed_usage(x):
  out = np.zeros(len(x['usage']))
  for n, usage in enumerate(x['usage']):
    out[n] = DECAY * usage
    for weights in (*x['read'], *x['write']):
      out[n] += weights[n]
  return out


def slow_least_used(usage, count):
  out = np.zeros((count, len(usage)))
  ranked = sorted(range(len(usage)), key=lambda n: (usage[n], n))
  for k, n in enumerate(ranked[:count]):
    out[k, n] = 1.0
  return out


SLOW = {
  'update_usage': slow_update_usage,
  'allocation_weights': lambda x: slow_allocation(x['usage']),
  'write_allocation_weights': slow_write_allocation,
  'update_link': slow_update_link,
  'update_precedence': slow_update_precedence,
  'forward': lambda x: slow_follow(x, True),
  'backward': lambda x: slow_follow(x, False),
  'decayed_usage': slow_decayed_usage,
  'least_used': lambda x: slow_least_used(x['usage'], len(x['write'])),
}


def some_weights(generator, shape):
  """Draws weights whose last axis sums to less than one."""
  weights = generator.dirichlet(np.ones(shape[-1] + 1), size=shape[:-1])
  return weights[..., :-1]


def some_inputs(size, seed=0):
  """Draws valid arguments of every function, by name; some usages tie."""
  lead, slots, readers, writers = size
  generator = np.random.default_rng(seed)
  usage = generator.random((*lead, slots))
  tied = generator.choice([0.0, 0.25, 1.0], size=usage.shape)
  return {
    'usage': np.where(generator.random(usage.shape) < 0.5, usage, tied),
    'read': some_weights(generator, (*lead, readers, slots)),
    'write': some_weights(generator, (*lead, writers, slots)),
    'gates': generator.random((*lead, readers)),
    'write_gates': generator.random((*lead, writers)),
    'link': generator.random((*lead, writers, slots, slots)) / slots,
    'precedence': some_weights(generator, (*lead, writers, slots)),
  }


def everything(x):
  """Computes every function of the file by name, from arguments by name."""
  forward, backward = allocation.follow_links(x['link'], x['read'])
  count = min(x['write'].shape[-2:])
  return {
    'update_usage': allocation.update_usage(
      x['usage'], x['write'], x['gates'], x['read']
    ),
    'allocation_weights': allocation.allocation_weights(x['usage']),
    'write_allocation_weights': allocation.write_allocation_weights(
      x['usage'], x['write_gates']
    ),
    'update_link': allocation.update_link(
      x['link'], x['write'], x['precedence']
    ),
    'update_precedence': allocation.update_precedence(
      x['precedence'], x['write']
    ),
    'forward': forward,
    'backward': backward,
    'decayed_usage': allocation.decayed_usage(
      x['usage'], x['read'], x['write'], DECAY
    ),
    'least_used': allocation.least_used(x['usage'], count),
  }


compute_everything = jax.jit(everything)


@functools.cache
def found_of(size):
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, compute_everything(some_inputs(size)))


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('size', SIZES)
def test_equals_plain_loops(size, name):
  found, x = found_of(size)[name], some_inputs(size)
  lead = size[0]
  assert found.shape[: len(lead)] == lead
  for index in np.ndindex(lead):
    single = {key: value[index] for key, value in x.items()}
    expected = SLOW[name](single)
    assert found[index].shape == expected.shape
    np.testing.assert_allclose(found[index], expected, rtol=1e-10, atol=1e-14)


# Usage and allocation.


def test_nothing_written_and_nothing_freed_changes_no_usage():
  usage = jnp.array([0.0, 0.3, 1.0])
  nothing, weights = jnp.zeros((2, 3)), jnp.array([[0.2, 0.8, 0.0]])
  found = allocation.update_usage(usage, nothing, jnp.zeros(1), weights)
  np.testing.assert_array_equal(found, usage)


def test_what_is_freed_by_reading_is_unused_and_what_is_written_is_used():
  usage, one_hot = jnp.array([0.5, 0.5, 0.5]), jnp.eye(3)
  found = allocation.update_usage(usage, one_hot[:1], jnp.ones(1), one_hot[1:2])
  np.testing.assert_array_equal(found, [1.0, 0.0, 0.5])


def test_equal_usages_are_allocated_by_index():
  compute = jax.jit(allocation.allocation_weights)
  for used in (0.0, 0.25, 0.5):
    found = compute(jnp.full(4, used))
    u = 1e-6 + (1 - 1e-6) * used
    expected = [(1 - u) * u**n for n in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
  found = compute(jnp.ones(4))
  np.testing.assert_allclose(found, 0.0, atol=1e-6)


def test_usages_closer_than_the_resolution_of_one_are_ties():
  compute = jax.jit(allocation.allocation_weights)
  found = compute(jnp.float32([0.5, 3e-9, 0.0]))
  np.testing.assert_allclose(found, [5e-13, 1.0, 1e-6], rtol=0, atol=2e-6)
  found = compute(jnp.float32([0.5, 3e-7, 0.0]))
  np.testing.assert_allclose(found, [5e-13, 1e-6, 1.0], rtol=0, atol=2e-6)


def test_write_heads_take_one_free_slot_after_the_other():
  usage = jnp.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
  compute = jax.jit(allocation.write_allocation_weights)
  found = compute(usage, jnp.ones(3))
  # What the first head left over, 1e-6 of it, makes slot 4 freer than 3.
  np.testing.assert_allclose(found, np.eye(6)[[1, 4, 3]], atol=1e-5)
  # A head that does not write leaves the slot to the next one.
  found = compute(usage, jnp.array([0.0, 1.0, 1.0]))
  np.testing.assert_allclose(found, np.eye(6)[[1, 1, 4]], atol=1e-5)


USAGES = 6


@jax.jit
def allocate(usage, cotangent):
  weights, pull = jax.vjp(allocation.allocation_weights, usage)
  return weights, *pull(cotangent)


def test_allocation_of_any_usage():
  hypothesis = pytest.importorskip('hypothesis')
  strategies = pytest.importorskip('hypothesis.strategies')
  usages = strategies.one_of(
    strategies.sampled_from([0.0, 1e-30, 1e-7, 0.25, 0.5, 1 - 2**-24, 1.0]),
    strategies.floats(0, 1, width=32),
  )

  def row(element):
    return strategies.lists(element, min_size=USAGES, max_size=USAGES)

  @hypothesis.settings(max_examples=50, deadline=None, derandomize=True)
  @hypothesis.given(
    row(usages),
    row(strategies.floats(-1, 1, width=32)),
    strategies.permutations(range(USAGES)),
  )
  def check(usage, cotangent, order):
    usage, cotangent = np.float32(usage), np.float32(cotangent)
    weights, gradient = map(np.asarray, allocate(usage, cotangent))
    assert np.all((weights >= 0) & (weights <= 1))
    assert weights.sum() <= 1 + 1e-6
    # Every entry of the Jacobian is a product of numbers below one.
    assert np.all(np.abs(gradient) <= USAGES + 1e-5)
    for i, j in zip(*np.triu_indices(USAGES, 1), strict=True):
      if usage[i] == usage[j]:
        assert weights[i] >= weights[j]
    if np.diff(np.sort(usage)).min() > 1e-6:
      order = np.array(order)
      moved, moved_gradient = allocate(usage[order], cotangent[order])
      np.testing.assert_allclose(moved, weights[order], rtol=1e-5)
      np.testing.assert_allclose(moved_gradient, gradient[order], atol=1e-5)
      np.testing.assert_allclose(weights, slow_allocation(usage), atol=2e-6)

  check()


def spaced_usages(shape, seed=0):
  """Usages that are far from ties."""
  generator = np.random.default_rng(seed)
  places = generator.permuted(
    np.broadcast_to(np.arange(shape[-1]), shape), axis=-1
  )
  return (places + generator.uniform(0.2, 0.8, shape)) / shape[-1]


def test_gradient_of_allocation_equals_finite_differences():
  usage, step = spaced_usages((3, 7)), 1e-6
  with jax.enable_x64(True):
    jacobian = np.asarray(
      jax.jit(jax.vmap(jax.jacrev(allocation.allocation_weights)))(usage)
    )
  for row in range(3):
    for slot in range(7):
      moved = step * np.eye(7)[slot]
      expected = (
        slow_allocation(usage[row] + moved)
        - slow_allocation(usage[row] - moved)
      ) / (2 * step)
      np.testing.assert_allclose(jacobian[row, :, slot], expected, atol=1e-9)
  assert np.abs(jacobian).max() > 0.1


def plain_allocation(usage):
  """Computes the same weights, whose gradients are JAX's own."""
  usage = 1e-6 + (1.0 - 1e-6) * usage
  order = jnp.argsort(jax.lax.stop_gradient(usage - 1.0), stable=True)
  ordered = usage[order]
  products = jnp.cumprod(jnp.concatenate([jnp.ones(1), ordered[:-1]]))
  return jnp.zeros_like(usage).at[order].set((1.0 - ordered) * products)


def run_through(allocate):
  """Returns the usage after steps of writing to free slots, with gates [T]."""

  def run(usage, gates):
    def step(usage, gate):
      weights = allocate(usage)
      usage = usage + (1.0 - usage) * gate * weights
      return 0.9 * usage, weights

    usage, weights = jax.lax.scan(step, usage, gates)
    return (jnp.sin(weights).sum(0) * jnp.arange(1.0, 8.0)).sum() + usage[0]

  return run


def test_allocation_is_transformed_as_any_function():
  usage = spaced_usages((4, 7), seed=1)
  weights = np.random.default_rng(2).normal(size=(4, 7))
  gates = np.array([0.3, 0.6, 0.2])

  def total(allocate):
    return lambda u, c: (allocate(u) * c).sum()

  def transformed(allocate):
    one = jax.grad(total(allocate))
    many = jax.grad(run_through(allocate), argnums=(0, 1))
    return {
      'vmap of grad': jax.vmap(one)(usage, weights),
      'grad of vmap': jax.grad(
        lambda u: jax.vmap(total(allocate))(u, weights).sum()
      )(usage),
      'vmap of scan': jax.vmap(many, in_axes=(0, None))(usage, gates),
      'second order': jax.grad(lambda u: jnp.sin(one(u, weights[0])).sum())(
        usage[0]
      ),
    }

  with jax.enable_x64(True):
    found = jax.jit(lambda: transformed(allocation.allocation_weights))()
    expected = jax.jit(lambda: transformed(plain_allocation))()
    found, expected = jax.tree.map(np.asarray, (found, expected))
  for name in expected:
    jax.tree.map(
      functools.partial(
        np.testing.assert_allclose, rtol=1e-9, atol=1e-12, err_msg=name
      ),
      found[name],
      expected[name],
    )
    assert all(map(np.any, jax.tree.leaves(found[name]))), name


# Links, and long sequences.


@jax.jit
def link_up(weights):
  """Returns link, precedence and each slot's links for weights [T, H, N]."""
  heads, slots = weights.shape[1:]
  link, precedence = jnp.zeros((heads, slots, slots)), jnp.zeros((heads, slots))
  for write in weights:
    link = allocation.update_link(link, write, precedence)
    precedence = allocation.update_precedence(precedence, write)
  return link, precedence, *allocation.follow_links(link, jnp.eye(slots))


def test_slots_written_one_after_the_other_are_linked():
  weights = np.eye(4, dtype=np.float32)[[[2], [0], [3]]]
  link, precedence, forward, backward = jax.device_get(link_up(weights))
  expected = np.zeros((1, 4, 4))
  expected[0, 0, 2] = expected[0, 3, 0] = 1.0
  np.testing.assert_array_equal(link, expected)
  np.testing.assert_array_equal(precedence, [[0, 0, 0, 1]])
  np.testing.assert_array_equal(forward[2, 0], np.eye(4)[0])
  np.testing.assert_array_equal(forward[0, 0], np.eye(4)[3])
  np.testing.assert_array_equal(forward[3, 0], 0.0)
  np.testing.assert_array_equal(backward[3, 0], np.eye(4)[0])
  np.testing.assert_array_equal(backward[0, 0], np.eye(4)[2])
  np.testing.assert_array_equal(backward[2, 0], 0.0)


STEPS, HEADS, SLOTS = 3000, 2, 7


def valid_weights(generator, kind):
  """Draws write weights [T, H, N] in float32; no head's sum is above one."""
  shape = (STEPS, HEADS)
  one_hot = np.eye(SLOTS)[generator.integers(SLOTS, size=shape)]
  simplex = generator.dirichlet(np.full(SLOTS, 0.3), size=shape)
  gates = generator.random((*shape, 1))
  saturated = (1 - 1e-6) * one_hot + 1e-6 * simplex
  weights = {
    'gated': gates * simplex,
    'full': simplex,
    'one-hot': one_hot,
    'saturated': saturated,
    'sparse': np.where(gates < 0.05, one_hot, 1e-4 * simplex),
  }
  if kind in weights:
    return weights[kind].astype(np.float32)
  chosen = generator.integers(len(weights), size=(STEPS, 1, 1))
  return np.choose(chosen, list(weights.values())).astype(np.float32)


@jax.jit
def run_long(write, read, gates):
  """Returns the extremes of every value over a long sequence."""

  def step(carry, x):
    usage, link, precedence = carry
    write, read, gates = x
    usage = allocation.update_usage(usage, write, gates, read)
    link = allocation.update_link(link, write, precedence)
    precedence = allocation.update_precedence(precedence, write)
    forward, backward = allocation.follow_links(link, read)
    return (usage, link, precedence), {
      'least': jnp.array(
        [usage.min(), link.min(), precedence.min(), forward.min()]
      ),
      'usage': usage.max(),
      'rows': link.sum(-1).max(),
      'columns': link.sum(-2).max(),
      'precedence': precedence.sum(-1).max(),
      'forward': forward.sum(-1).max(),
      'backward': backward.sum(-1).max(),
      'diagonal': jnp.abs(jnp.diagonal(link, axis1=-2, axis2=-1)).max(),
    }

  start = (
    jnp.zeros(SLOTS),
    jnp.zeros((HEADS, SLOTS, SLOTS)),
    jnp.zeros((HEADS, SLOTS)),
  )
  return jax.lax.scan(step, start, (write, read, gates))[1]


@pytest.mark.parametrize(
  'kind', ['gated', 'full', 'one-hot', 'saturated', 'sparse', 'mixed']
)
def test_usage_links_and_precedence_stay_in_range(kind):
  generator = np.random.default_rng(5)
  write = valid_weights(generator, kind)
  read = valid_weights(generator, 'mixed')
  gates = generator.random((STEPS, HEADS)).astype(np.float32)
  found = jax.tree.map(np.asarray, run_long(write, read, gates))
  assert found.pop('diagonal').max() == 0.0
  assert found.pop('least').min() >= -1e-6
  for name, largest in found.items():
    assert np.all(largest <= 1 + 2e-6), name
    assert largest.max() > 0.1, name


# Least used slots.


def test_usage_decays_to_nothing_and_counts_every_head():
  usage = jnp.array([1.0, 0.0, 2.0])
  read, write = jnp.eye(3)[:2], jnp.array([[0.0, 0.5, 0.5]])
  found = allocation.decayed_usage(usage, read, write, 0.5)
  np.testing.assert_allclose(found, [1.5, 1.5, 1.5])
  found = allocation.decayed_usage(usage, 0 * read, 0 * write, 0.0)
  np.testing.assert_array_equal(found, 0.0)


LEAST_USED = {
  count: jax.jit(functools.partial(allocation.least_used, count=count))
  for count in (1, 2, 5)
}


def test_exactly_so_many_slots_are_least_used():
  hypothesis = pytest.importorskip('hypothesis')
  strategies = pytest.importorskip('hypothesis.strategies')
  usages = strategies.one_of(
    strategies.sampled_from([0.0, 0.5, 1.0, 1e-7, 3e38]),
    strategies.floats(0, 4, width=32),
  )

  @hypothesis.settings(max_examples=30, deadline=None, derandomize=True)
  @hypothesis.given(strategies.lists(usages, min_size=5, max_size=5))
  def check(usage):
    usage = np.float32(usage)
    # XLA takes what is below the smallest normal number for zero.
    usage[usage < np.finfo(np.float32).tiny] = 0.0
    for count, compute in LEAST_USED.items():
      found = np.asarray(compute(usage))
      np.testing.assert_array_equal(found.sum(-1), 1.0)
      assert set(np.unique(found.sum(-2))) <= {0.0, 1.0}
      np.testing.assert_array_equal(found, slow_least_used(usage, count))

  check()


@pytest.mark.parametrize('tied', [0.0, 0.3, 1.0])
def test_least_used_of_all_that_tie_are_the_first(tied):
  for count in (1, 2, 5):
    found = LEAST_USED[count](np.full(5, tied, np.float32))
    np.testing.assert_array_equal(found, np.eye(5)[:count])


def test_no_gradient_flows_through_the_choice_of_slots():
  usage = jnp.array([0.3, 0.1, 0.2])
  gradient = jax.grad(
    lambda u: (allocation.least_used(u, 2) * jnp.arange(3.0)).sum()
  )(usage)
  np.testing.assert_array_equal(gradient, 0.0)


# Edges.


EDGE = ((), 5, 2, 2)
EDGE_USAGES = {
  'none': np.zeros(5),
  'all': np.ones(5),
  'tied': np.full(5, 0.5),
  'tied in part': np.array([0.0, 1.0, 0.0, 1.0, 0.5]),
  'almost all': np.full(5, 1 - 1e-7),
  'almost none': np.full(5, 1e-9),
}
EDGE_WEIGHTS = {
  'none': np.zeros(5),
  'one-hot': np.eye(5)[1],
  'almost one-hot': (1 - 1e-7) * np.eye(5)[1] + 2e-8,
  'even': np.full(5, 0.2),
}


def edges():
  """Makes each function's arguments by name: an edge a row, and a plain row."""
  rows = [some_inputs(EDGE, seed=6)]
  rows[0]['usage'] = np.array([0.9, 0.125, 0.5, 0.25, 0.75])
  for usage in EDGE_USAGES.values():
    for write in EDGE_WEIGHTS.values():
      for gate in (0.0, 1.0):
        x = some_inputs(EDGE)
        x['usage'] = usage
        x['write'] = np.stack([write, write])
        x['read'] = np.stack([write, write[::-1]])
        x['precedence'] = np.stack([write, write])
        x['link'] = 0.0 * x['link'] if gate else x['link']
        x['gates'], x['write_gates'] = np.full(2, gate), np.full(2, gate)
        rows.append(x)
  return {key: np.stack([x[key] for x in rows]) for key in rows[0]}


def _gradients(function, arguments, signs):
  """Differentiates the sum of a function's values, each times its signs."""

  def total(*arguments):
    made = jax.tree.leaves(function(*arguments))
    return sum((m * s).sum() for m, s in zip(made, signs, strict=True))

  return jax.grad(total, argnums=range(len(arguments)))(*arguments)


@pytest.mark.parametrize('heads', [1, 3])
@pytest.mark.parametrize('writes', [1, 2])
def test_gradients_of_links_are_those_of_their_formulas(heads, writes):
  rng = np.random.default_rng(heads + 10 * writes)
  link = rng.uniform(size=(4, writes, 6, 6))
  weights, precedence = rng.uniform(size=(2, 4, writes, 6))
  reads = rng.uniform(size=(4, heads, 6))
  for_link = rng.normal(size=link.shape)
  for_ways = rng.normal(size=(2, 4, heads, writes, 6))

  def plain_link(link, weights, precedence):
    to, since = weights[..., :, None], weights[..., None, :]
    made = (1 - to - since) * link + to * precedence[..., None, :]
    return made * (1 - jnp.eye(6))

  def plain_ways(link, reads):
    forward = jnp.einsum('bhij,brj->brhi', link, reads)
    return forward, jnp.einsum('bhij,bri->brhj', link, reads)

  @functools.partial(jax.jit, static_argnums=(0, 1))
  def gradients(of_link, of_ways):
    return (
      *_gradients(of_link, (link, weights, precedence), [for_link]),
      *_gradients(of_ways, (link, reads), for_ways),
    )

  with jax.enable_x64(True):
    for one, other in zip(
      gradients(allocation.update_link, allocation.follow_links),
      gradients(plain_link, plain_ways),
      strict=True,
    ):
      np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@jax.jit
def everything_and_its_gradients(x):
  """Computes every value by name, and gradients of signed sums by argument."""

  def total(x):
    values = everything(x)
    signs = jnp.float32([1, -1, 1, 1, -1])
    totals = [(v * signs.astype(v.dtype)).sum() for v in values.values()]
    return sum(totals), values

  return jax.grad(total, has_aux=True)(x)[::-1]


@functools.cache
def edges_in(dtype):
  x = {name: np.asarray(value, dtype) for name, value in edges().items()}
  return jax.device_get(everything_and_its_gradients(x))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_edges_are_finite_with_bounded_gradients(dtype):
  values, gradients = edges_in(dtype)
  for name, value in values.items():
    assert value.dtype == dtype, name
    value = np.float32(value)
    assert np.all(np.isfinite(value)), name
    if name != 'decayed_usage':
      assert np.all((value >= -1e-6) & (value <= 1 + 1e-2)), name
  for name, gradient in gradients.items():
    gradient = np.float32(gradient)
    assert np.all(np.isfinite(gradient)), name
    assert np.all(np.abs(gradient) <= 40), name
    assert np.any(gradient), name


def test_bfloat16_is_near_float32():
  found, expected = (edges_in(dtype)[0] for dtype in ('bfloat16', 'float32'))
  for name, value in found.items():
    np.testing.assert_allclose(
      np.float32(value[0]), expected[name][0], atol=2e-2, err_msg=name
    )


def test_many_free_slots_leave_a_finite_gradient():
  # Products along the free list fall below the smallest float32.
  usage = np.float32([np.zeros(40), np.linspace(0.0, 1e-3, 40)])
  weights, gradient = jax.device_get(allocate(usage, np.ones_like(usage)))
  for row in range(2):
    np.testing.assert_allclose(
      weights[row], slow_allocation(usage[row]), rtol=1e-4, atol=1e-9
    )
  assert np.all(np.isfinite(gradient))
  assert np.all(np.abs(gradient) <= 40)


# What programs are made of.


def every_equation(jaxpr):
  """Lists all equations of a program, and of the programs inside it."""
  for equation in jaxpr.eqns:
    yield equation
    for value in jax.tree.leaves(
      list(equation.params.values()),
      is_leaf=lambda x: hasattr(x, 'eqns') or hasattr(x, 'jaxpr'),
    ):
      inner = getattr(value, 'jaxpr', value)
      if hasattr(inner, 'eqns'):
        yield from every_equation(inner)


def programs(function, *arguments):
  """Collects primitives and shapes of a function and of its gradient."""

  def total(*arguments):
    leaves = jax.tree.leaves(function(*arguments))
    return sum((x * jnp.cos(x)).sum() for x in leaves)

  argnums = tuple(range(len(arguments)))
  with_gradient = jax.value_and_grad(total, argnums)
  for traced in (function, with_gradient):
    yield jax.make_jaxpr(traced)(*arguments).jaxpr


def primitives_and_shapes(function, *arguments):
  names, shapes = set(), set()
  for program in programs(function, *arguments):
    for equation in every_equation(program):
      names.add(equation.primitive.name)
      for variable in (*equation.invars, *equation.outvars):
        shapes.add(getattr(variable.aval, 'shape', ()))
  return names, shapes


# No other size is like the number of slots, or its square.
BATCH, N, W, R, H, S = 3, 11, 5, 2, 4, 7


def floats(*shape):
  return jnp.full((BATCH, *shape), 0.25)


def heads(count):
  return ntm.NTMHead(
    strengths=floats(count),
    gates=floats(count),
    shifts=floats(count, S),
    powers=1.0 + floats(count),
    keys=floats(count, W),
  )


def ntm_step(memory, read_weights, write_weights, asked):
  state = ntm.NTMState(
    (), memory, read_weights, write_weights, (), (), (), (), ()
  )
  state = ntm.access(state, asked, reads='after')
  return state.memory, state.read_weights, state.reads


def lru_step(memory, usage, read_weights, asked):
  state = lru.LRUState((), memory, usage, read_weights, (), (), (), (), ())
  state = lru.access(state, asked)
  return state.memory, state.usage, state.read_weights, state.reads


def dnc_step(memory, usage, link, asked):
  state = dnc.DNCState(
    (),
    memory,
    usage,
    link,
    floats(H, N),
    floats(R, N),
    floats(H, N),
    (),
    (),
    (),
    (),
  )
  state = dnc.access(state, asked)
  return state.memory, state.usage, state.reads


NTM_ASKED = ntm.NTMInterface(heads(R), heads(H), floats(H, W), floats(H, W))
LRU_ASKED = lru.LRUInterface(floats(R, W), floats(R, W), floats(R), floats(R))
DNC_ASKED = dnc.DNCInterface(
  read_keys=floats(R, W),
  read_strengths=floats(R),
  write_keys=floats(H, W),
  write_strengths=floats(H),
  erase=floats(H, W),
  write_vectors=floats(H, W),
  gates=dnc.DNCGates(floats(R), floats(H), floats(H), floats(R, H + 1 + H)),
)
WITHOUT_LINKS = {
  'cosine_similarity': (
    addressing.cosine_similarity,
    floats(R, W),
    floats(N, W),
  ),
  'content_weights': (
    addressing.content_weights,
    floats(R, W),
    floats(N, W),
    floats(R),
  ),
  'interpolate': (
    addressing.interpolate,
    floats(R),
    floats(R, N),
    floats(R, N),
  ),
  'shift': (addressing.shift, floats(R, N), floats(R, S)),
  'sharpen': (addressing.sharpen, floats(R, N), floats(R)),
  'erase_and_add': (
    addressing.erase_and_add,
    floats(N, W),
    floats(H, N),
    floats(H, W),
    floats(H, W),
  ),
  'read': (addressing.read, floats(N, W), floats(R, N)),
  'update_usage': (
    allocation.update_usage,
    floats(N),
    floats(H, N),
    floats(R),
    floats(R, N),
  ),
  'allocation_weights': (allocation.allocation_weights, floats(N)),
  'write_allocation_weights': (
    allocation.write_allocation_weights,
    floats(N),
    floats(H),
  ),
  'update_precedence': (
    allocation.update_precedence,
    floats(H, N),
    floats(H, N),
  ),
  'decayed_usage': (
    functools.partial(allocation.decayed_usage, decay=DECAY),
    floats(N),
    floats(R, N),
    floats(H, N),
  ),
  'least_used': (
    functools.partial(allocation.least_used, count=R),
    floats(N),
  ),
  'ntm': (ntm_step, floats(N, W), floats(R, N), floats(H, N), NTM_ASKED),
  'lru': (lru_step, floats(N, W), floats(N), floats(R, N), LRU_ASKED),
}
WITH_LINKS = {
  'update_link': (
    allocation.update_link,
    floats(H, N, N),
    floats(H, N),
    floats(H, N),
  ),
  'follow_links': (allocation.follow_links, floats(H, N, N), floats(R, N)),
  'dnc': (dnc_step, floats(N, W), floats(N), floats(H, N, N), DNC_ASKED),
}


def is_square(shape):
  return shape.count(N) > 1 or N * N in shape or BATCH * N * N in shape


@pytest.mark.parametrize('name', WITHOUT_LINKS)
def test_only_links_are_square(name):
  _, shapes = primitives_and_shapes(*WITHOUT_LINKS[name])
  assert any(N in shape for shape in shapes)
  assert not [shape for shape in shapes if is_square(shape)]


@pytest.mark.parametrize('name', WITH_LINKS)
def test_links_are_square(name):
  _, shapes = primitives_and_shapes(*WITH_LINKS[name])
  assert any(is_square(shape) for shape in shapes)
  # Nothing is larger than the links, an axis for every read head aside.
  largest = max(int(np.prod(shape)) for shape in shapes)
  assert largest <= BATCH * H * N * N * R


@pytest.mark.parametrize('name', ['least_used', 'lru', 'ntm'])
def test_nothing_is_sorted_but_for_allocation(name):
  names, _ = primitives_and_shapes(*WITHOUT_LINKS[name])
  assert 'sort' not in names
  assert ('top_k' in names) == (name != 'ntm')


def test_sorts_are_seen_and_no_written_out_gradient_scatters():
  with derivatives.written_out():
    names, _ = primitives_and_shapes(*WITHOUT_LINKS['allocation_weights'])
  assert 'sort' in names
  # Scatters that add; one that inverts the permutation of slots is not of it.
  assert not [name for name in names if name.startswith('scatter-')]
