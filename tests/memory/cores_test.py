"""The contract that every memory core keeps, and what holds of its states."""

import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import slow_cases
from gtmm_jax.memory import derivatives, scan
from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.ssm import SSM
from gtmm_jax.memory.transformer import Transformer

STEPS, BATCH, LATENT, WIDTH = 10, 6, 2, 3
# As many slots as sequences: each of a batch may see the slots turned its way.
SLOTS, WORD, HEADS, CONTROLLER = BATCH, 4, 2, 4
CORES = {
  'introspective': Introspective(LATENT, SLOTS, HEADS, CONTROLLER, 5),
  'associative': Associative(LATENT, SLOTS, 3, HEADS, CONTROLLER, 5),
  'sparse': Associative(LATENT, SLOTS, 3, HEADS, CONTROLLER, 5, top_k=2),
  'introspective_fourier': Introspective(
    LATENT, SLOTS, HEADS, CONTROLLER, 5, order='arrival', positions='fourier'
  ),
  'associative_fourier': Associative(
    LATENT, SLOTS, 3, HEADS, CONTROLLER, 5, positions='fourier'
  ),
  'lstm': LSTM(CONTROLLER),
  'transformer': Transformer(CONTROLLER, SLOTS, 2, HEADS, 2),
  'ssm': SSM(CONTROLLER, 3, 2),
  'ntm': NTM(SLOTS, WORD, HEADS, 1, CONTROLLER, LATENT),
  # Without a learned memory their empty slots are alike but for rounding, which
  # would decide whose turn it is: nothing of that is read, but states differ.
  'lru': LRU(SLOTS, WORD, HEADS, CONTROLLER, initial_memory='learned'),
  'dnc': DNC(
    SLOTS, WORD, HEADS, 2, CONTROLLER, LATENT, initial_memory='learned'
  ),
}
WRITERS = ('ntm', 'lru', 'dnc')
KEY = jax.random.key(0)

# The other form of positions differs in logits alone.
_WITH_TABLES = [name for name in CORES if not name.endswith('fourier')]
every_core = pytest.mark.parametrize(
  'name', slow_cases.but_for(_WITH_TABLES, CORES)
)
# What holds of any recurrence is shown by a core that stores latents, and by
# the one with the largest state; slow tests try the others.
quick_cores = pytest.mark.parametrize(
  'name', slow_cases.but_for(['introspective', 'dnc'], CORES)
)
every_writer = pytest.mark.parametrize('name', WRITERS)


def fresh(core: nn.RNNCellBase, *batch: int):
  return core.initialize_carry(KEY, (*batch, WIDTH))


@functools.cache
def forms(core: nn.RNNCellBase):
  """Returns the shapes of the parameters, and of a context without batch."""
  (_, context), variables = jax.eval_shape(
    core.init_with_output, KEY, fresh(core), jnp.zeros(WIDTH)
  )
  return variables, context.shape


def random_parameters(core: nn.RNNCellBase, scale: float = 1.0) -> dict:
  """Draws parameters of the right shapes, Gaussian with deviation `scale`.

  That of logarithms is 1: what they are of is large enough.
  """
  generator = np.random.default_rng(0)

  def draw(path, like):
    is_logarithm = path[-1].key.endswith(('_nu', '_log_phase', '_log_gamma'))
    deviation = 1.0 if is_logarithm else scale
    return (deviation * generator.normal(size=like.shape)).astype(like.dtype)

  return jax.tree.map_with_path(draw, forms(core)[0])


def run_steps(core, variables, carry, inputs):
  """Returns all states and contexts of inputs [T, ..., I], T in front."""

  def body(carry, x):
    carry, context = core.apply(variables, carry, x)
    return carry, (carry, context)

  return jax.lax.scan(body, carry, inputs)[1]


compiled_scan = jax.jit(run_steps, static_argnums=0)
compiled_step = jax.jit(
  lambda core, variables, carry, x: core.apply(variables, carry, x),
  static_argnums=0,
)


def run(core, variables, carry, inputs):
  """Calls `run_steps`, compiled once for each form of its arguments."""
  inputs = np.asarray(inputs, np.float32)
  return jax.device_get(compiled_scan(core, variables, carry, inputs))


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws sequences [T, B, I] of numbers that bfloat16 has."""
  x = np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))
  return x.astype(jnp.bfloat16).astype(np.float32)


@pytest.fixture(scope='module')
def runs(inputs) -> dict:
  """Returns random parameters, states and contexts [T, B, P] of every core."""
  found = {}
  for name, core in CORES.items():
    variables = random_parameters(core)
    found[name] = (variables, *run(core, variables, fresh(core, BATCH), inputs))
  return found


def at(index, tree):
  return jax.tree.map(lambda x: x[index], tree)


def assert_trees_close(found, expected, tolerance=3e-5):
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  for x, y in zip(
    jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
  ):
    assert x.shape == y.shape
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


# The carry.


@every_core
@pytest.mark.parametrize(
  ('batch', 'dtype'),
  [((), jnp.float32), ((2, 3), jnp.bfloat16)],
)
def test_a_call_leaves_the_form_of_the_carry(name, batch, dtype):
  core = CORES[name]
  carry = fresh(core, *batch)
  for leaf in jax.tree.leaves(carry):
    assert leaf.shape[: len(batch)] == batch
    assert leaf.dtype in (jnp.float32, jnp.int32)
  inputs = jax.ShapeDtypeStruct((*batch, WIDTH), dtype)
  (after, context), _ = jax.eval_shape(
    core.init_with_output, KEY, carry, inputs
  )
  assert jax.tree.structure(after) == jax.tree.structure(carry)
  assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
    lambda x: (x.shape, x.dtype), carry
  )
  width = {
    Introspective: HEADS * LATENT,
    Associative: HEADS * LATENT + CONTROLLER,
    LSTM: CONTROLLER,
    Transformer: CONTROLLER,
    SSM: CONTROLLER,
  }.get(type(core), HEADS * WORD + CONTROLLER)
  assert context.shape == (*batch, width)


@every_core
def test_a_carry_begins_without_parameters_and_the_same_everywhere(name):
  core = CORES[name]
  one = fresh(core)
  other = core.initialize_carry(jax.random.key(7), (2, 3, WIDTH))
  for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
    np.testing.assert_array_equal(np.broadcast_to(x, y.shape), y)
  assert core.num_feature_axes == 1


# Every way of running it.


@quick_cores
def test_the_rnn_of_flax_with_two_batch_axes_equals_the_scan(
  name, inputs, runs
):
  variables, states, contexts = runs[name]
  rnn = nn.RNN(CORES[name], return_carry=True)
  shaped = np.moveaxis(inputs.reshape(STEPS, 2, 3, WIDTH), 0, 2)
  carry, found = jax.device_get(
    jax.jit(rnn.apply)({'params': {'cell': variables['params']}}, shaped)
  )
  assert_trees_close(
    jax.tree.map(lambda x: x.reshape(BATCH, *x.shape[2:]), carry),
    at(-1, states),
  )
  found = np.moveaxis(found.reshape(BATCH, STEPS, -1), 1, 0)
  assert_trees_close(found, contexts)


@quick_cores
def test_vmap_over_sequences_equals_a_batch(name, inputs, runs):
  variables, *expected = runs[name]
  core = CORES[name]
  over_sequences = jax.vmap(
    lambda x: run_steps(core, variables, fresh(core), x), in_axes=1, out_axes=1
  )
  assert_trees_close(jax.jit(over_sequences)(inputs), tuple(expected))


@quick_cores
@pytest.mark.parametrize(
  ('index', 'dtype'), [(4, jnp.float32), (slice(2, 3), jnp.bfloat16)]
)
def test_single_steps_equal_the_scan(name, inputs, runs, index, dtype):
  """Tries a sequence without a batch axis, and a batch of one in bfloat16."""
  variables, states, contexts = runs[name]
  carry = fresh(CORES[name], *inputs[0, index].shape[:-1])
  for t in range(STEPS):
    x = inputs[t, index].astype(dtype)
    carry, context = compiled_step(CORES[name], variables, carry, x)
    assert_trees_close(carry, at((t, index), states))
    assert_trees_close(context, contexts[t, index])


# What holds of every state.


def assert_simplex(weights, *, at_most: bool = False, tolerance=1e-5):
  assert np.all(weights >= -1e-6)
  total = np.sum(weights, axis=-1)
  assert np.all(total <= 1 + tolerance)
  if not at_most:
    assert np.all(total >= 1 - tolerance)


def assert_gates(*gates):
  for gate in gates:
    assert np.all((gate >= 0) & (gate <= 1))


def check_introspective(core, carry, states):
  del core, carry
  has_read = np.any(states.memory, axis=(-1, -2)) & (states.calls > 1)
  total = states.read_weights.sum(-1)
  np.testing.assert_allclose(total[has_read], 1.0, rtol=1e-5)
  assert_simplex(states.read_weights, at_most=True)
  assert_gates(states.gates)


def check_associative(core, carry, states):
  check_introspective(core, carry, states)
  assert_simplex(states.shares)
  lengths = np.linalg.norm(states.keys, axis=-1)
  assert np.all(lengths <= 1 + 1e-6)


def check_lstm(core, carry, states):
  del core, carry
  assert np.all(np.abs(states.hidden) <= 1)


def check_transformer(core, carry, states):
  del core, carry
  assert_simplex(states.read_weights)


def check_ssm(core, carry, states):
  del core, carry, states  # It is bounded by its inputs alone.


def check_ntm(core, carry, states):
  del core, carry
  assert_simplex(states.read_weights)
  assert_simplex(states.write_weights)
  assert_gates(states.read_gates, states.write_gates)


def check_lru(core, carry, states):
  assert_simplex(states.read_weights)
  assert_gates(states.gates)
  read_tm1 = np.concatenate([carry.read_weights[None], states.read_weights])[
    :-1
  ]
  np.testing.assert_allclose(
    states.write_weights.sum(-1),
    states.gates * read_tm1.sum(-1) + (1 - states.gates) * core.read_heads,
    rtol=1e-5,
    atol=1e-5,
  )
  assert np.all(states.write_weights >= 0)
  assert np.all(states.usage >= 0)
  # Each step adds at most 1 + n for each head; gamma forgets.
  heads = core.read_heads
  assert np.all(states.usage.sum(-1) <= 20.01 * heads * (1 + heads))


def check_dnc(core, carry, states):
  del core, carry
  assert np.all((states.usage >= 0) & (states.usage <= 1 + 1e-6))
  assert_simplex(states.read_weights, at_most=True)
  assert_simplex(states.write_weights, at_most=True)
  assert_simplex(states.precedence, at_most=True)
  assert_simplex(states.link, at_most=True)
  assert_simplex(np.swapaxes(states.link, -1, -2), at_most=True)
  assert not np.any(np.diagonal(states.link, axis1=-2, axis2=-1))
  gates = states.gates
  assert_gates(gates.free, gates.allocation, gates.write)
  assert_simplex(gates.read_modes)


CHECKS = {
  Introspective: check_introspective,
  Associative: check_associative,
  LSTM: check_lstm,
  Transformer: check_transformer,
  SSM: check_ssm,
  NTM: check_ntm,
  LRU: check_lru,
  DNC: check_dnc,
}


def assert_sound(core, carry, states, contexts):
  """Numbers are numbers, and all of the core's own rules hold."""
  for leaf in jax.tree.leaves((states, contexts)):
    assert np.all(np.isfinite(leaf))
  carry, states = jax.tree.map(np.asarray, (carry, states))
  CHECKS[type(core)](core, carry, states)


# Of the sequences of one batch: nothing comes in, or much, or too much.
SIZES = np.array([0.0, 1.0, 1.0, 10.0, 1e4, 1e4])[:, None]


@every_core
@pytest.mark.parametrize('scale', [1.0, 20.0])
def test_long_runs_in_single_precision_stay_sound(name, scale):
  core = CORES[name]
  variables = random_parameters(core, scale)
  generator = np.random.default_rng(5)
  carry, chunks = fresh(core, BATCH), []
  for _ in range(50):
    x = SIZES * generator.normal(size=(STEPS, BATCH, WIDTH))
    chunks.append(run(core, variables, carry, x))
    carry = at(-1, chunks[-1][0])
  found = jax.tree.map(lambda *x: np.concatenate(x), *chunks)
  assert len(found[1]) == 500
  assert_sound(core, fresh(core, BATCH), *found)
  if name not in ('lstm', 'ssm'):
    np.testing.assert_array_equal(carry.calls, 500)


TINY = {
  'introspective': Introspective(1, 1, 1, 1, 1),
  'associative': Associative(1, 1, 1, 1, 1, 1),
  'sparse': Associative(1, 1, 1, 1, 1, 1, top_k=1),
  'introspective_fourier': Introspective(
    1, 1, 1, 1, 1, order='arrival', positions='fourier'
  ),
  'associative_fourier': Associative(1, 1, 1, 1, 1, 1, positions='fourier'),
  'lstm': LSTM(1),
  'transformer': Transformer(1, 1, 1, 1, 2),
  'ssm': SSM(1, 1, 1),
  'ntm': NTM(1, 1, 1, 1, 1),
  'lru': LRU(1, 1, 1, 1),
  'dnc': DNC(1, 1, 1, 1, 1),
}


@every_core
def test_no_sequences_are_none(name):
  core = CORES[name]
  carry = fresh(core, 0)
  inputs = np.zeros((STEPS, 0, WIDTH))
  states, contexts = run(core, random_parameters(core), carry, inputs)
  assert contexts.shape[:2] == (STEPS, 0)
  for x, y in zip(jax.tree.leaves(states), jax.tree.leaves(carry), strict=True):
    assert x.shape == (STEPS, *y.shape)


@every_core
def test_one_slot_one_head_one_unit(name, inputs):
  core, carry = TINY[name], fresh(TINY[name])
  found = run(core, random_parameters(core, 2.0), carry, inputs[:, 0])
  assert_sound(core, carry, *found)


# Slots that change places.


def random_state(name: str, generator: np.random.Generator):
  """Returns a state amid one sequence, with no two numbers alike."""
  carry, normal = fresh(CORES[name]), generator.normal

  def weights(*shape):
    return generator.dirichlet(np.ones(SLOTS), size=shape)

  moved = {
    'memory': normal(size=(SLOTS, WORD)),
    'read_weights': weights(HEADS),
    'write_weights': weights(carry.write_weights.shape[-2]),
    'reads': normal(size=(HEADS, WORD)),
    'controller': LSTM(CONTROLLER).initialize_carry(KEY, (WIDTH,)),
  }
  if name == 'lru':
    moved['usage'] = generator.permutation(SLOTS) + generator.uniform()
  if name == 'dnc':
    moved['usage'] = (generator.permutation(SLOTS) + 0.5) / SLOTS
    moved['precedence'] = weights(2)
    link = weights(2, SLOTS) * (1 - np.eye(SLOTS))
    moved['link'] = link / np.maximum(link.sum(-2, keepdims=True), 1.0)
  state = carry._replace(**moved, calls=np.int32(3))
  return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), state, carry)


def reorder(state, order):
  """Returns the state with slot `order[n]` at place n; any leading axes."""
  moved = {'memory': state.memory[..., order, :]}
  for leaf in ('usage', 'read_weights', 'write_weights', 'precedence'):
    if hasattr(state, leaf):
      moved[leaf] = getattr(state, leaf)[..., order]
  if hasattr(state, 'link'):
    moved['link'] = state.link[..., order, :][..., order]
  return state._replace(**moved)


@every_writer
def test_reordered_slots_stay_reordered(name, inputs, runs):
  """Reorders slots: a rotation for the NTM, which shifts; else any order."""
  core, (variables, *_) = CORES[name], runs[name]
  generator = np.random.default_rng(8)
  state = random_state(name, generator)
  orders = [np.roll(np.arange(SLOTS), n) for n in range(BATCH)]
  if name != 'ntm':
    orders[1:] = [generator.permutation(SLOTS) for _ in orders[1:]]
  carry = jax.tree.map(
    lambda *x: np.stack(x), *(reorder(state, order) for order in orders)
  )
  same = np.broadcast_to(inputs[:, :1], inputs.shape)
  states, contexts = run(core, variables, carry, same)
  # There is something to be told apart, to the end.
  last = states.memory[-1, 0]
  apart = np.abs(last[:, None] - last[None]).max(-1) + np.eye(SLOTS)
  assert apart.min() > 1e-2
  for b, order in enumerate(orders):
    expected = reorder(at((slice(None), 0), states), order)
    assert_trees_close(at((slice(None), b), states), expected, 2e-4)
    assert_trees_close(contexts[:, b], contexts[:, 0], 2e-4)


# Gradients.


def random_sum(core, weights, variables, inputs):
  """Sums all contexts, by the scan that makes weights' gradients at once.

  It is `jax.lax.scan`, and all is plain JAX, unless `written_out` is on.
  """
  carry = fresh(core, *inputs.shape[1:-1])
  _, contexts = scan.scan(core.apply, variables, carry, inputs)
  return (weights * contexts).sum()


@functools.partial(jax.jit, static_argnums=0)
def compiled_gradients(core, variables, inputs, weights):
  total = functools.partial(random_sum, core, weights)
  return jax.grad(total, argnums=(0, 1))(variables, inputs)


@functools.partial(jax.jit, static_argnums=0)
def compiled_slope(core, variables, inputs, weights, directions):
  total = functools.partial(random_sum, core, weights)
  return jax.jvp(total, (variables, inputs), directions)[1]


def summed_by(core, inputs):
  """Draws weights of all contexts, for `random_sum`."""
  shape = (*inputs.shape[:-1], *forms(core)[1])
  return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def gradients(core, variables, inputs):
  """Differentiates a random sum of contexts by parameters and inputs."""
  weights = summed_by(core, inputs)
  return jax.device_get(compiled_gradients(core, variables, inputs, weights))


def written_out_gradients(core, variables, inputs):
  """Returns the same by the written-out backward passes."""
  with derivatives.written_out():
    return gradients(core, variables, inputs)


def assert_bounded(core, of, scale, inputs):
  """Returns gradients with random parameters of some scale."""
  found = of(core, random_parameters(core, scale), np.float32(inputs))
  biggest = np.array([np.abs(x).max() for x in jax.tree.leaves(found)])
  # Of a key of zero the cosine's slope is up to 1e3; what is read, and what
  # the controller is given, are each as large as the inputs.
  bound = 1e3 * max(1e2, np.abs(inputs).max()) ** 2
  if isinstance(core, SSM):
    # Three maps in a row have no norm between them.
    bound *= max(1.0, scale)
  assert np.all(biggest < bound), (scale, biggest.max())


@pytest.fixture(scope='module')
def long_inputs() -> np.ndarray:
  """Draws sequences [30, 2, I]."""
  x = np.random.default_rng(6).normal(size=(30, 2, WIDTH))
  return x.astype(np.float32)


# What sparse reads do not choose has no gradient; nor has the reach by age, of
# as few slots as these.
@pytest.mark.parametrize(
  'name', [n for n in CORES if n not in ('sparse', 'associative_fourier')]
)
def test_gradients_at_the_start_reach_every_number(name, long_inputs):
  core = CORES[name]
  variables = jax.jit(core.init)(KEY, fresh(core), long_inputs[0, 0])
  by_parameter, by_input = gradients(core, variables, long_inputs)
  if name == 'lru':
    # The first write erases slot 0, before it was ever read.
    memory = by_parameter['params']['initial_memory']
    np.testing.assert_array_equal(memory[0], 0.0)
    by_parameter['params']['initial_memory'] = memory[1:]
  for path, leaf in jax.tree_util.tree_leaves_with_path(by_parameter):
    assert np.all(np.isfinite(leaf)), path
    assert np.all(leaf), path
  assert np.all(np.isfinite(by_input))
  assert np.all(by_input)


@every_core
def test_written_out_gradients_are_those_of_plain_jax(name, long_inputs):
  core = CORES[name]
  variables = random_parameters(core, 0.3)
  found = written_out_gradients(core, variables, long_inputs)
  assert_trees_close(found, gradients(core, variables, long_inputs), 1e-3)
  for scale, size in [(0.0, 0.0), (0.0, 1e4), (20.0, 1e4)]:
    assert_bounded(core, written_out_gradients, scale, size * long_inputs)


def slope_of(core, inputs):
  """Returns a function that computes the slope of a random sum."""
  variables = random_parameters(core, 0.3)
  directions = jax.tree.map(np.cos, (variables, inputs))
  weights = summed_by(core, inputs)
  return functools.partial(
    compiled_slope, core, variables, inputs, weights, directions
  )


@every_core
def test_a_bare_core_has_forward_derivatives(name, long_inputs):
  """Traces them, which fails in a rule that has a backward pass alone."""
  slope = jax.eval_shape(slope_of(CORES[name], long_inputs))
  assert slope.shape == ()


# Sorted usage and links; the choice of the strongest.
@pytest.mark.parametrize('name', ['dnc', 'sparse'])
def test_forward_derivatives_are_the_gradient_along_a_direction(
  name, long_inputs
):
  core = CORES[name]
  variables = random_parameters(core, 0.3)
  directions = jax.tree.map(np.cos, (variables, long_inputs))
  slope = slope_of(core, long_inputs)()
  found = gradients(core, variables, long_inputs)
  expected = jax.tree.map(np.vdot, found, directions)
  np.testing.assert_allclose(
    slope, sum(jax.tree.leaves(expected)), rtol=1e-3, atol=1e-2
  )


@every_core
def test_gradients_stay_bounded(name, long_inputs):
  for scale, size in itertools.product([0.0, 1.0, 20.0], [0.0, 1.0, 1e4]):
    assert_bounded(CORES[name], gradients, scale, size * long_inputs)


@pytest.mark.slow
@every_core
def test_second_derivatives_of_cores(name):
  """Compares them with plain JAX's, over either scan, in double precision."""
  core = CORES[name]
  with jax.enable_x64(True):
    inputs = np.random.default_rng(9).normal(size=(3, 2, WIDTH))
    x = jax.tree.map(jnp.float64, (random_parameters(core), inputs))
    carry = jax.tree.map(
      lambda leaf: leaf.astype(float) if leaf.dtype == np.float32 else leaf,
      fresh(core, 2),
    )

    def second(scan, variables, inputs):
      def loss(*x):
        return (scan(core.apply, x[0], carry, x[1])[1] ** 2).sum()

      gradient = jax.grad(loss, argnums=(0, 1))
      return jax.jvp(gradient, x, jax.tree.map(jnp.cos, x))[1]

    expected = jax.jit(functools.partial(second, plain_scan))(*x)
    with derivatives.written_out():
      for scan_steps in (plain_scan, scan.scan):
        found = jax.jit(functools.partial(second, scan_steps))(*x)
        for one, other in zip(
          *map(jax.tree.leaves, (expected, found)), strict=True
        ):
          scale = np.abs(one).max()
          np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-9 * scale)
  assert any(np.any(leaf) for leaf in jax.tree.leaves(expected))


def plain_scan(step, weights, carry, inputs):
  return jax.lax.scan(functools.partial(step, weights), carry, inputs)


# Calls that make no sense.


def refusal(core, shape, carry=None) -> str:
  """Returns the message of a first call, which comes before compiling."""

  def call(inputs):
    first = core.initialize_carry(KEY, shape) if carry is None else carry
    return core.init(KEY, first, inputs)

  with pytest.raises(ValueError) as e:
    jax.eval_shape(call, jax.ShapeDtypeStruct(shape, jnp.float32))
  return str(e.value)


@every_core
@pytest.mark.parametrize('shape', [(), (0,), (2, 0), (LATENT - 1,), (3, 1)])
def test_narrow_inputs_are_refused(name, shape):
  core = CORES[name]
  wanted = getattr(core, 'latent_size', 0) or 1
  if shape and shape[-1] >= wanted:
    jax.eval_shape(core.init, KEY, fresh(core, *shape[:-1]), jnp.zeros(shape))
    return
  message = refusal(core, shape)
  for words in (
    f'{type(core).__name__} takes inputs [..., I] with I >= {wanted}',
    str(shape),
  ):
    assert words in message


@every_writer
@pytest.mark.parametrize(
  ('batch', 'sizes'),
  [
    ((), {}),
    ((5,), {}),
    ((1,), {}),
    ((4, 1), {}),
    ((4,), {'slots': 9}),
    # The LRU has as many slots as heads, or more.
    ((4,), {'slots': 1, 'read_heads': 1}),
    ((4,), {'word_size': 6}),
  ],
)
def test_a_carry_of_another_batch_or_size_is_refused(name, batch, sizes):
  core = CORES[name]
  carry = fresh(core.clone(**sizes), *batch)
  message = refusal(core, (4, WIDTH), carry)
  for words in (
    f"{type(core).__name__}'s carry",
    str(carry.memory.shape),
    str((4, SLOTS, WORD)),
    'initialize_carry',
  ):
    assert words in message


@pytest.mark.parametrize('batch', [(), (5,), (1,), (4, 1)])
@pytest.mark.parametrize(
  'name', [name for name in CORES if name not in WRITERS]
)
def test_a_carry_of_another_batch_is_refused(name, batch):
  core = CORES[name]
  message = refusal(core, (4, WIDTH), fresh(core, *batch))
  assert f"{type(core).__name__}'s carry" in message
  assert f'inputs of shape {(4, WIDTH)}' in message
  assert 'initialize_carry' in message


@every_core
def test_a_carry_of_another_core_is_refused(name):
  core = CORES[name]
  own = type(fresh(core)).__name__
  other = CORES['dnc' if name == 'lstm' else 'lstm']
  for carry in (fresh(other), tuple(fresh(core)), ()):
    message = refusal(core, (WIDTH,), carry)
    for words in (type(core).__name__, type(carry).__name__, own):
      assert words in message


@pytest.mark.parametrize(
  ('name', 'sizes'),
  [
    *itertools.product(
      (*WRITERS, 'introspective', 'associative', 'sparse'),
      [{'read_heads': 1}, {'read_heads': 3}, {'controller_size': 7}],
    ),
    # What is one would be broadcast in silence, too.
    *itertools.product(
      ['introspective', 'associative', 'sparse'],
      [{'slots': 1}, {'slots': 9}, {'latent_size': 1}],
    ),
    *itertools.product(['associative', 'sparse'], [{'key_size': 1}]),
    *itertools.product(['lstm'], [{'size': 1}, {'size': 5}]),
    # Of one head where there are several, it would be broadcast in silence.
    *itertools.product(
      ['ntm-2', 'dnc'], [{'write_heads': 1}, {'write_heads': 3}]
    ),
    *itertools.product(['ntm', 'dnc'], [{'latent_size': 1}]),
  ],
)
def test_a_carry_of_other_heads_is_refused(name, sizes):
  core = CORES[name.removesuffix('-2')]
  core = core.clone(write_heads=2) if name == 'ntm-2' else core
  # Of all slots, since there may be fewer than two.
  whole = {'top_k': 0} if name == 'sparse' else {}
  carry = fresh(core.clone(**whole, **sizes), 4)
  message = refusal(core, (4, WIDTH), carry)
  assert f"{type(core).__name__}'s carry" in message
  assert 'initialize_carry' in message


BAD = [
  ({'slots': 0}, 'slots is 0; it must be >= 1'),
  ({'word_size': 0}, 'word_size is 0; it must be >= 1'),
  ({'slots': -1}, 'slots is -1; it must be >= 1'),
  ({'read_heads': 0}, 'read_heads is 0; it must be >= 1'),
  ({'latent_size': -1}, 'latent_size is -1; it must be >= 0'),
  ({'latent_size': WORD}, f'latent_size is {WORD} and word_size {WORD}'),
  ({'latent_size': 9}, f'latent_size is 9 and word_size {WORD}'),
  ({'reads': 'never'}, 'must be before or after'),
  ({'strength': 'exp'}, 'softplus or oneplus'),
  ({'key_activation': 'relu'}, 'must be identity or tanh'),
  ({'initial_memory': 'zeros'}, 'must be constant or learned'),
  (
    {'initial_strength': 0.5},
    'initial_strength is 0.5; it must be a number above 1',
  ),
  ({'initial_strength': float('nan')}, 'it must be a number above 1'),
  ({'controller_size': 0}, 'controller_size is 0; it must be >= 1'),
  ({'controller_weight': 0.0}, 'is 0.0; it must be a number above 0'),
  (
    {'initial_strength': 1.0},
    'initial_strength is 1.0; it must be a number above 1',
  ),
]


@pytest.mark.parametrize(
  ('name', 'settings', 'words'),
  [
    *((name, *bad) for name in WRITERS for bad in BAD),
    *(
      (name, {size: number}, f'{size} is {number}; it must be >= 1')
      for name in ('introspective', 'associative')
      for size, number in (
        ('latent_size', 0),
        ('latent_size', -1),
        ('slots', 0),
        ('read_heads', 0),
        ('controller_size', 0),
        ('attention_size', 0),
      )
    ),
    ('associative', {'key_size': 0}, 'key_size is 0; it must be >= 1'),
    ('associative', {'controller_weight': -1}, 'it must be a number above 0'),
    (
      'associative',
      {'without': 'age'},
      "without is 'age'; it must be a tuple of names, such as ('age',)",
    ),
    ('associative', {'top_k': True}, 'top_k is True; it must be a whole'),
    ('associative', {'top_k': -1}, 'top_k is -1; it must be >= 0'),
    ('lru', {'decay': '0.9'}, "decay is '0.9'; it must be a number in [0, 1)"),
    ('ntm', {'initial_strength': '5'}, "is '5'; it must be a number above 1"),
    ('introspective', {'attention': 'hard'}, 'must be linear or softmax'),
    ('introspective', {'order': 'size'}, 'must be age or arrival'),
    ('lstm', {'size': 0}, 'size is 0; it must be >= 1'),
    ('ntm', {'write_heads': 0}, 'write_heads is 0; it must be >= 1'),
    ('dnc', {'write_heads': 0}, 'write_heads is 0; it must be >= 1'),
    ('ntm', {'shift_range': -1}, 'shift_range is -1; it must be >= 0'),
    ('lru', {'decay': 1.0}, 'decay is 1.0; it must be a number in [0, 1)'),
    ('lru', {'write_vector': 'both'}, 'must be key or separate'),
    ('lru', {'read_heads': SLOTS + 1}, f'slots {SLOTS}; each head writes to'),
  ],
)
def test_settings_that_make_no_sense_are_refused(name, settings, words):
  core = CORES[name].clone(**settings)
  message = refusal(core, (4, WIDTH))
  assert re.search(next(iter(settings)), message)
  assert words in message


def sizes_of(core: nn.RNNCellBase) -> list[str]:
  """Lists the names of a core's sizes: its settings that are whole numbers."""
  return [
    field.name
    for field in dataclasses.fields(core)
    if type(getattr(core, field.name)) is int
  ]


@every_core
def test_sizes_are_whole_numbers_of_any_kind(name):
  core = CORES[name]
  sizes = sizes_of(core)
  assert sizes
  for size in sizes:
    own = getattr(core, size)
    for wrong in (float(own), own + 0.5, str(own), None, bool(own), [own]):
      with pytest.raises(ValueError) as e:
        fresh(core.clone(**{size: wrong}))
      message = f'{size} is {wrong!r}; it must be a whole number.'
      assert str(e.value) == message
    shapes = jax.tree.map(jnp.shape, fresh(core.clone(**{size: np.int64(own)})))
    assert shapes == jax.tree.map(jnp.shape, fresh(core))
