"""Addressing against plain loops, their derivatives, and extreme logits."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.memory import addressing

LARGEST = float(np.finfo(np.float32).max)
FUNCTIONS = {
  'softmax': jax.jit(addressing.masked_softmax),
  'linear': jax.jit(addressing.linear_attention),
}


# Slow answers in float64.


def slow_log_softplus(x: float) -> float:
  if x > 0:
    return math.log(x + math.log1p(math.exp(-x)))
  power = math.exp(x)
  return x + math.log(math.log1p(power) / power) if power > 1e-300 else x


def slow_slope(x: float) -> float:
  """Returns the derivative of log(softplus(x)), sigmoid(x) / softplus(x)."""
  if x < -30:
    return 1.0
  return 1 / ((1 + math.exp(-x)) * math.exp(slow_log_softplus(x)))


def slow_weights(logs: list[float], mask: list[bool]) -> list[float]:
  """Numbers in proportion to e^log over the slots of the mask."""
  held = [log for log, holds in zip(logs, mask, strict=True) if holds]
  if not held:
    return [0.0] * len(logs)
  powers = [
    math.exp(log - max(held)) if holds else 0.0
    for log, holds in zip(logs, mask, strict=True)
  ]
  return [power / sum(powers) for power in powers]


def slow_gradient(weights: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
  """Differentiates sum(cotangent * weights) by the logarithms of the powers."""
  gradient = np.zeros(len(weights))
  for i, j in np.ndindex(len(weights), len(weights)):
    gradient[i] += cotangent[j] * weights[j] * ((i == j) - weights[i])
  return gradient


def slow_attention(kind: str, logits: np.ndarray, mask: np.ndarray):
  """Computes weights [..., N], logit after logit."""
  mask = np.broadcast_to(mask, logits.shape)
  out = np.zeros(logits.shape)
  for index in np.ndindex(logits.shape[:-1]):
    logs = [float(x) for x in logits[index]]
    if kind == 'linear':
      logs = [slow_log_softplus(x) for x in logs]
    out[index] = slow_weights(logs, list(mask[index]))
  return out


def some_masks(generator: np.random.Generator, shape) -> np.ndarray:
  """Draws masks, the first row empty and the second full."""
  mask = generator.random(shape) < 0.6
  rows = mask.reshape(-1, shape[-1])
  rows[0], rows[1] = False, True
  return mask


# log(softplus).


def test_log_softplus_equals_the_slow_one():
  x = np.concatenate(
    [
      np.linspace(-40, 40, 401),
      np.linspace(-15.01, -14.99, 41),
      [-LARGEST, -1e4, -700.0, -100.0, 100.0, 1e4, LARGEST],
    ]
  ).astype(np.float32)
  found = addressing.log_softplus(jnp.asarray(x))
  expected = [slow_log_softplus(float(v)) for v in x]
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_slope_of_log_softplus_is_above_zero_and_at_most_one():
  x = np.concatenate(
    [np.linspace(-40, 40, 401), [-LARGEST, -1e4, -15.0, 1e4, 1e30]]
  ).astype(np.float32)
  slope = jax.jit(jax.vmap(jax.grad(addressing.log_softplus)))(x)
  expected = [slow_slope(float(v)) for v in x]
  np.testing.assert_allclose(slope, expected, rtol=2e-6)
  assert np.all(slope > 0)
  assert np.all(slope <= 1 + 1e-6)


# Softmax and linear attention.


@pytest.mark.parametrize('kind', FUNCTIONS)
@pytest.mark.parametrize(
  ('shape', 'mask_shape'),
  [((6,), (6,)), ((3, 6), (3, 6)), ((4, 2, 5), (4, 1, 5)), ((3, 2, 1), (1,))],
)
def test_weights_equal_plain_loops(kind, shape, mask_shape):
  generator = np.random.default_rng(0)
  logits = generator.normal(scale=4.0, size=shape)
  mask = generator.random(mask_shape) < 0.7
  if len(mask_shape) > 1:
    mask = some_masks(generator, mask_shape)
  with jax.enable_x64(True):
    found = np.asarray(FUNCTIONS[kind](jnp.asarray(logits), mask))
  expected = slow_attention(kind, logits, mask)
  np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_linear_attention_is_softplus_over_its_sum():
  logits = np.random.default_rng(1).normal(scale=3.0, size=(5, 7))
  with jax.enable_x64(True):
    found = np.asarray(
      addressing.linear_attention(jnp.asarray(logits), np.ones(7, bool))
    )
  k = np.log1p(np.exp(logits))
  np.testing.assert_allclose(found, k / k.sum(-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize('kind', FUNCTIONS)
@pytest.mark.parametrize('size', [1.0, 1e4, LARGEST])
def test_weights_at_extreme_logits(kind, size):
  rows = [
    [-1, -1, -1],
    [1, 1, 1],
    [-1, 1, 0],
    [0.5, 1, -0.5],
    [0, 0, -1],
    [-0.25, -1, -1],
  ]
  logits = np.array(rows, np.float32) * np.float32(size)
  for mask in ([True] * 3, [False, True, True], [True, False, False]):
    found = FUNCTIONS[kind](jnp.asarray(logits), jnp.array(mask))
    expected = slow_attention(kind, logits, np.array(mask))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)


@pytest.mark.parametrize('kind', FUNCTIONS)
def test_gradients_equal_their_formula(kind):
  generator = np.random.default_rng(2)
  logits = generator.normal(scale=4.0, size=(6, 5))
  cotangent = generator.normal(size=(6, 5))
  mask = some_masks(generator, (6, 5))
  with jax.enable_x64(True):
    found = np.asarray(
      jax.grad(lambda x: (FUNCTIONS[kind](x, mask) * cotangent).sum())(logits)
    )
  weights = slow_attention(kind, logits, mask)
  for row in range(6):
    expected = slow_gradient(weights[row], cotangent[row])
    if kind == 'linear':
      expected *= [slow_slope(x) for x in logits[row]]
    np.testing.assert_allclose(found[row], expected, rtol=1e-10, atol=1e-14)
  np.testing.assert_array_equal(found[~mask], 0.0)
  assert np.any(found)


@pytest.mark.parametrize('kind', FUNCTIONS)
def test_what_the_mask_hides_has_no_influence(kind):
  generator = np.random.default_rng(3)
  logits = generator.normal(size=(4, 6)).astype(np.float32)
  mask = some_masks(generator, (4, 6))
  function = FUNCTIONS[kind]
  expected = function(jnp.asarray(logits), mask)
  signs = np.float32([1, 1, -1, 1, 1, 1])
  compute = jax.jit(jax.grad(lambda x: (signs * function(x, mask)).sum()))
  for hidden in (-LARGEST, -1e4, 1e4, LARGEST, np.inf):
    changed = jnp.asarray(np.where(mask, logits, np.float32(hidden)))
    np.testing.assert_array_equal(function(changed, mask), expected)
    gradient = compute(changed)
    assert np.all(np.isfinite(gradient)), hidden
    np.testing.assert_array_equal(gradient[~mask], 0.0)


# Gaussian attention.


def slow_gaussian(center: float, width: float, mask) -> list[float]:
  width = max(width, 1e-2)
  logs = [-((n - center) ** 2) / (2 * width**2) for n in range(len(mask))]
  return slow_weights(logs, list(mask))


def test_gaussian_attention_equals_plain_loops_with_its_gradients():
  generator = np.random.default_rng(4)
  center = generator.uniform(-1, 6, size=(6, 2))
  width = generator.uniform(0.2, 3, size=(6, 2))
  width[2] = 1e-3  # Below the floor.
  mask = some_masks(generator, (6, 2, 5))
  cotangent = generator.normal(size=(6, 2, 5))

  def total(center, width):
    weights = addressing.gaussian_attention(center, width, mask)
    return (weights * cotangent).sum(), weights

  with jax.enable_x64(True):
    compute = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    gradients, found = compute(center, width)
    by_center, by_width, found = map(np.asarray, (*gradients, found))
  assert found.shape == (6, 2, 5)
  for index in np.ndindex(6, 2):
    c, w = float(center[index]), float(width[index])
    expected = np.array(slow_gaussian(c, w, mask[index]))
    np.testing.assert_allclose(found[index], expected, rtol=1e-10, atol=1e-15)
    by_log = slow_gradient(expected, cotangent[index])
    distance = np.arange(5) - c
    floored = max(w, 1e-2)
    np.testing.assert_allclose(
      by_center[index], (by_log * distance).sum() / floored**2, atol=1e-9
    )
    np.testing.assert_allclose(
      by_width[index],
      (by_log * distance**2).sum() / floored**3 if w > 1e-2 else 0.0,
      atol=1e-9,
    )


def test_gaussian_attention_at_extreme_positions():
  masks = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)

  @jax.jit
  @jax.vmap
  def compute(center, width, mask):
    weights, pull = jax.vjp(
      lambda *x: addressing.gaussian_attention(*x, mask), center, width
    )
    return weights, jnp.stack(jax.vmap(pull)(jnp.eye(5)))

  center, width, case = (
    x.reshape(-1)
    for x in np.meshgrid(
      np.float32([-1e4, 0.0, 1.0, 2.5, 5.0, 1e4]),
      np.float32([1e-38, 1e-2, 1.0, 1e4, 1e30]),
      [0, 1, 2],
    )
  )
  found, gradients = compute(center, width, masks[case])
  assert np.all(np.abs(gradients) < 1e6)
  np.testing.assert_allclose(found.sum(-1), masks[case].any(-1), rtol=1e-6)
  # Far away the exponent itself, 1e12, is known to seven digits only.
  near = (np.abs(center) < 1e3) | (width >= 1e4)
  for i in np.flatnonzero(near):
    expected = slow_gaussian(float(center[i]), float(width[i]), masks[case[i]])
    np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-6)


# All of them.


@functools.partial(jax.jit, static_argnums=0)
def by_name(kind: str, logits, mask):
  """Computes weights [..., N] from logits [..., N] by any of the three."""
  if kind == 'gaussian':
    return addressing.gaussian_attention(
      logits[..., 0], jax.nn.softplus(logits[..., 1]), mask
    )
  return FUNCTIONS[kind](logits, mask)


@pytest.mark.parametrize('kind', ['softmax', 'linear', 'gaussian'])
def test_nothing_to_read_gives_zeros_and_no_gradient(kind):
  normal = np.random.default_rng(0).normal(size=(2, 4))
  logits = np.multiply.outer([0.0, 1.0, 1e4], normal).astype(np.float32)
  mask = jnp.zeros((3, 2, 4), bool)
  weights, pull = jax.vjp(lambda x: by_name(kind, x, mask), logits)
  np.testing.assert_array_equal(weights, 0.0)
  np.testing.assert_array_equal(*pull(np.ones_like(weights)), 0.0)


@pytest.mark.parametrize('kind', ['softmax', 'linear', 'gaussian'])
def test_weights_keep_the_type_of_the_logits(kind):
  mask = jnp.ones(4, bool)
  for kept in (jnp.float16, jnp.bfloat16):
    weights = by_name(kind, jnp.array([0.5, 2.0, -1.0, 0.0], kept), mask)
    assert weights.dtype == kept
    np.testing.assert_allclose(np.float32(weights).sum(), 1.0, rtol=2e-2)


@pytest.mark.parametrize('kind', FUNCTIONS)
def test_any_logits_and_any_mask(kind):
  hypothesis = pytest.importorskip('hypothesis')
  strategies = pytest.importorskip('hypothesis.strategies')
  size = 5
  number = strategies.one_of(
    strategies.floats(-1e4, 1e4, width=32),
    strategies.floats(-20, 20, width=32),
    strategies.floats(width=32, allow_nan=False, allow_infinity=False),
  )

  @jax.jit
  def compute(logits, mask, cotangent):
    weights, pull = jax.vjp(lambda x: FUNCTIONS[kind](x, mask), logits)
    return weights, *pull(cotangent)

  def row(element):
    return strategies.lists(element, min_size=size, max_size=size)

  @hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
  @hypothesis.given(
    row(number),
    row(strategies.booleans()),
    row(strategies.floats(-1, 1, width=32)),
    strategies.permutations(range(size)),
  )
  def check(logits, mask, cotangent, order):
    logits, cotangent = np.float32(logits), np.float32(cotangent)
    mask, order = np.array(mask), np.array(order)
    weights, gradient = compute(logits, mask, cotangent)
    assert np.all(weights >= 0)
    np.testing.assert_array_equal(weights[~mask], 0.0)
    np.testing.assert_allclose(weights.sum(), float(mask.any()), rtol=1e-6)
    # |w_i (g_i - sum_j g_j w_j)| <= 1/2 for |g| <= 1, and slopes are below 1.
    assert np.all(np.abs(gradient) <= 0.5 + 1e-5)
    # In two places of a row a larger logit never has the smaller weight.
    held = np.flatnonzero(mask)
    ranked = held[np.argsort(logits[held], kind='stable')]
    assert np.all(np.diff(weights[ranked]) >= -1e-6)
    moved, moved_gradient = compute(
      logits[order], mask[order], cotangent[order]
    )
    np.testing.assert_allclose(moved, weights[order], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(moved_gradient, gradient[order], atol=1e-5)

  check()


# Content, place and the use of memory, against plain loops for one memory.


def slow_cosine(keys, memory):
  out = np.zeros((len(keys), len(memory)))
  for r, n in np.ndindex(out.shape):
    k, m = keys[r], memory[n]
    product, k_square, m_square = 0.0, 1e-6, 1e-6
    for w in range(len(k)):
      product += k[w] * m[w]
      k_square += k[w] ** 2
      m_square += m[w] ** 2
    out[r, n] = product / (math.sqrt(k_square) * math.sqrt(m_square) + 1e-6)
  return out


def slow_content(x):
  logits = slow_cosine(x['keys'], x['memory']) * x['strengths'][:, None]
  return slow_attention('softmax', logits, np.True_)


def slow_interpolate(x):
  out = np.zeros_like(x['weights'])
  for r, n in np.ndindex(out.shape):
    g = x['gates'][r]
    out[r, n] = g * x['other'][r, n] + (1 - g) * x['weights'][r, n]
  return out


def slow_shift(weights, distribution):
  """Moves weight from each slot j to every slot i that it reaches."""
  heads, slots = weights.shape
  shifts = distribution.shape[-1]
  out = np.zeros((heads, slots))
  for r, j, s in np.ndindex(heads, slots, shifts):
    i = (j + s - (shifts - 1) // 2) % slots
    out[r, i] += weights[r, j] * distribution[r, s]
  return out


def slow_sharpen(x):
  out = np.zeros_like(x['weights'])
  for r, n in np.ndindex(out.shape):
    power = x['powers'][r]
    total = sum(float(w) ** power for w in x['weights'][r])
    out[r, n] = float(x['weights'][r, n]) ** power / total
  return out


def slow_erase_and_add(x):
  out = x['memory'].copy()
  heads = range(len(x['writes']))
  for n, w in np.ndindex(out.shape):
    for h in heads:
      out[n, w] *= 1 - x['writes'][h, n] * x['erase'][h, w]
    for h in heads:
      out[n, w] += x['writes'][h, n] * x['add'][h, w]
  return out


def slow_read(x):
  out = np.zeros_like(x['keys'])
  for r, w in np.ndindex(out.shape):
    for n in range(len(x['memory'])):
      out[r, w] += x['weights'][r, n] * x['memory'][n, w]
  return out


SLOW = {
  'oneplus': lambda x: 1 + np.log1p(np.exp(x['strengths'])),
  'cosine_similarity': lambda x: slow_cosine(x['keys'], x['memory']),
  'content_weights': slow_content,
  'interpolate': slow_interpolate,
  'shift': lambda x: slow_shift(x['weights'], x['shifts']),
  'sharpen': slow_sharpen,
  'erase_and_add': slow_erase_and_add,
  'read': slow_read,
}
# Leading axes, slots, words, heads that read, heads that write, shifts.
SIZES = (
  ((), 1, 1, 1, 1, 1),
  ((), 5, 3, 2, 3, 3),
  ((4,), 3, 1, 3, 1, 7),
  ((2, 1, 3), 2, 4, 1, 2, 5),
)


def some_inputs(size, seed=0):
  """Draws valid arguments of every function, by name."""
  lead, slots, words, readers, writers, shifts = size
  generator = np.random.default_rng(seed)

  def simplex(*shape):
    return generator.dirichlet(np.ones(shape[-1]), size=(*lead, *shape[:-1]))

  return {
    'memory': generator.normal(size=(*lead, slots, words)),
    'keys': generator.normal(size=(*lead, readers, words)),
    'strengths': generator.uniform(0, 5, size=(*lead, readers)),
    'gates': generator.random((*lead, readers)),
    'weights': simplex(readers, slots),
    'other': simplex(readers, slots),
    'shifts': simplex(readers, shifts),
    'powers': generator.uniform(1, 4, size=(*lead, readers)),
    'writes': simplex(writers, slots),
    'erase': generator.random((*lead, writers, words)),
    'add': generator.normal(size=(*lead, writers, words)),
  }


def everything(x):
  """Computes every function of content, place and memory, by name."""
  return {
    'oneplus': addressing.oneplus(x['strengths']),
    'cosine_similarity': addressing.cosine_similarity(x['keys'], x['memory']),
    'content_weights': addressing.content_weights(
      x['keys'], x['memory'], x['strengths']
    ),
    'interpolate': addressing.interpolate(x['gates'], x['other'], x['weights']),
    'shift': addressing.shift(x['weights'], x['shifts']),
    'sharpen': addressing.sharpen(x['weights'], x['powers']),
    'erase_and_add': addressing.erase_and_add(
      x['memory'], x['writes'], x['erase'], x['add']
    ),
    'read': addressing.read(x['memory'], x['weights']),
  }


compute_everything = jax.jit(everything)


@functools.cache
def found_of(size):
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, compute_everything(some_inputs(size)))


@pytest.mark.parametrize('name', SLOW)
@pytest.mark.parametrize('size', SIZES)
def test_content_place_and_memory_equal_plain_loops(size, name):
  found, x = found_of(size)[name], some_inputs(size)
  lead = size[0]
  for index in np.ndindex(lead):
    single = {key: value[index] for key, value in x.items()}
    expected = SLOW[name](single)
    assert found[index].shape == expected.shape
    np.testing.assert_allclose(found[index], expected, rtol=1e-10, atol=1e-14)


# Shifts.


@pytest.mark.parametrize('slots', [1, 2, 3, 5, 6])
def test_shift_is_the_modular_sum_for_every_range(slots):
  generator = np.random.default_rng(slots)
  weights = generator.dirichlet(np.ones(slots), size=2)
  distributions = [
    generator.dirichlet(np.ones(count), size=2) for count in (1, 3, 5, 9, 15)
  ]
  compute = jax.jit(lambda w, all_of: [addressing.shift(w, d) for d in all_of])
  with jax.enable_x64(True):
    found = compute(weights, distributions)
  for distribution, value in zip(distributions, found, strict=True):
    np.testing.assert_allclose(
      value, slow_shift(weights, distribution), rtol=1e-12, atol=1e-15
    )


def test_the_last_shift_moves_weight_to_the_next_slot():
  weights = jnp.eye(4)
  found = addressing.shift(weights, jnp.broadcast_to(jnp.eye(3)[2], (4, 3)))
  np.testing.assert_array_equal(found, np.eye(4)[[1, 2, 3, 0]])
  found = addressing.shift(weights, jnp.broadcast_to(jnp.eye(3)[0], (4, 3)))
  np.testing.assert_array_equal(found, np.eye(4)[[3, 0, 1, 2]])


@pytest.mark.parametrize('count', [0, 2, 4])
def test_an_even_number_of_shifts_is_refused(count):
  with pytest.raises(ValueError, match=f'{count} shifts.* must be odd'):
    addressing.shift(jnp.ones((1, 3)), jnp.ones((1, count)))


@jax.jit
def weigh(keys, memory, strengths, cotangent):
  weights, pull = jax.vjp(addressing.content_weights, keys, memory, strengths)
  return weights, pull(cotangent)


def test_a_later_head_erases_nothing_that_an_earlier_one_adds():
  memory = jnp.ones((2, 3))
  weights = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
  add = jnp.arange(9.0).reshape(3, 3)
  write, erase = jax.jit(addressing.erase_and_add), jnp.ones((3, 3))
  found = write(memory, weights, erase, add)
  expected = np.stack([add[0] + add[1] + 0.5 * add[2], np.ones(3)])
  np.testing.assert_allclose(found, expected)
  order = jnp.array([2, 0, 1])
  moved = write(memory, weights[order], erase, add[order])
  np.testing.assert_allclose(moved, expected)


# Edges.


VECTORS = np.float32(
  [
    [0, 0, 0],
    [1e-20, 0, 0],
    [1e-7, -1e-7, 0],
    [1e-3, 1e-3, 1e-3],
    [1, -2, 0.5],
    [1e4, 1e4, -1e4],
    [0, 0, 1e4],
  ]
)


@jax.jit
def cosine_and_slopes(keys, memory):
  return addressing.cosine_similarity(keys, memory), jax.jacrev(
    addressing.cosine_similarity, argnums=(0, 1)
  )(keys, memory)


def test_cosine_of_zero_and_of_huge_vectors():
  found, slopes = cosine_and_slopes(VECTORS, VECTORS)
  assert np.all(np.abs(found) <= 1 + 1e-6)
  np.testing.assert_array_equal(found[0], 0.0)
  np.testing.assert_array_equal(found[:, 0], 0.0)
  np.testing.assert_allclose(np.diag(found)[4:], 1.0, rtol=1e-5)
  for slope in slopes:
    assert np.all(np.abs(slope) <= 1e3 * (1 + 1e-6))
  # At zero the slope is there, not cut off.
  assert np.abs(slopes[0][0, :, 0]).max() > 900
  assert np.abs(slopes[1][:, 0, 0]).max() > 900


def test_content_weights_at_extreme_strengths():
  generator = np.random.default_rng(7)
  memories = np.float32([VECTORS[:5], 0 * VECTORS[:5], VECTORS[2:]])
  keys = np.float32([[0, 0, 0], [1, -2, 0.5]])
  for memory in memories:
    for strength in (0.0, 1.0, 1e4):
      strengths = np.full(2, strength, np.float32)
      cotangent = np.float32(generator.uniform(-1, 1, size=(2, 5)))
      weights, gradients = weigh(keys, memory, strengths, cotangent)
      np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
      for gradient in gradients[:2]:
        assert np.all(np.abs(gradient) <= max(strength, 1.0) * 1e4)
      if strength == 0.0 or not memory.any():
        np.testing.assert_allclose(weights, 0.2, rtol=1e-6)


@jax.jit
@jax.vmap
def sharpen_and_slopes(weights, power):
  def one(weights, power):
    return addressing.sharpen(weights[None], power[None])[0]

  return one(weights, power), jax.jacrev(one, argnums=(0, 1))(weights, power)


def test_sharpening_of_extreme_weights_and_powers():
  rows = np.float32(
    [
      [0, 0, 0, 0, 0],
      [0, 1, 0, 0, 0],
      [0.2, 0.2, 0.2, 0.2, 0.2],
      [1 - 4e-7, 1e-7, 1e-7, 1e-7, 1e-7],
      [1, 1e-29, 1e-31, 2e-38, 1e-45],
      [0.5, 0.5, 0, 0, 0],
      [0.5 + 6e-8, 0.5 - 6e-8, 0, 0, 0],
      [0.4, 0.3, 0.2, 0.05, 0.05],
    ]
  )
  powers = np.float32([1, 1.5, 20, 1e4])
  weights = np.repeat(rows, len(powers), axis=0)
  power = np.tile(powers, len(rows))
  found, slopes = sharpen_and_slopes(weights, power)
  by_weights, by_power = map(np.asarray, slopes)
  np.testing.assert_allclose(found.sum(-1), weights.any(-1), rtol=1e-6)
  # A slope by a weight is at most N power, as is promised.
  assert np.all(np.abs(by_weights) <= 5 * power[:, None, None] * (1 + 1e-5))
  assert np.all(np.abs(by_power) <= 70)
  zero = ~weights.any(-1)
  np.testing.assert_array_equal(found[zero], 0.0)
  np.testing.assert_array_equal(by_weights[zero], 0.0)
  np.testing.assert_array_equal(by_power[zero], 0.0)
  one_hot = weights.max(-1) == 1.0
  np.testing.assert_allclose(
    found[one_hot], np.round(weights[one_hot]), rtol=1e-6, atol=1e-20
  )
  # Of weights of 1e-29, 1e-31 and 2e-38 the first alone counts.
  tiny = weights[:, 2] == rows[4, 2]
  assert found[tiny, 1].max() > 9e-30
  np.testing.assert_array_equal(found[tiny, 2:], 0.0)
  np.testing.assert_array_equal(by_weights[tiny][..., 2:], 0.0)
  ties = (rows[5] == weights).all(-1)
  np.testing.assert_allclose(found[ties, :2], 0.5, rtol=1e-6)


def test_oneplus_is_at_least_one_at_any_number():
  x = np.float32([-LARGEST, -1e4, -20, 0, 20, 1e4])
  value, slope = jax.jit(jax.vmap(jax.value_and_grad(addressing.oneplus)))(x)
  expected = [1 + math.exp(slow_log_softplus(float(v))) for v in x[1:]]
  np.testing.assert_allclose(value[1:], expected, rtol=1e-6)
  assert value[0] == 1.0
  assert np.all((slope >= 0) & (slope <= 1))


EDGE = ((), 5, 3, 2, 2, 3)


@jax.jit
def everything_and_its_gradients(x):
  """Computes every value by name, and gradients of signed sums by argument."""

  def total(x):
    values = everything(x)
    return sum((v * jnp.cos(v)).sum() for v in values.values()), values

  return jax.grad(total, has_aux=True)(x)[::-1]


def edges():
  """Makes the arguments of every function by name, for each edge by name."""
  ordinary = some_inputs(EDGE, seed=8)
  zeros = {name: 0 * value for name, value in ordinary.items()}
  first = np.eye(5)[[0, 0]]
  one_hot = dict(weights=first, other=first, writes=first)
  ones = {name: np.ones_like(ordinary[name]) for name in ('gates', 'erase')}
  return {
    'ordinary': ordinary,
    'blank': {**ordinary, 'memory': zeros['memory'], 'keys': zeros['keys']},
    'no weights': {**ordinary, **{name: zeros[name] for name in one_hot}},
    'one-hot': {**ordinary, **one_hot, 'shifts': np.eye(3)[[2, 2]]},
    'open': {**ordinary, **one_hot, **ones},
    'closed': {**ordinary, 'gates': zeros['gates'], 'erase': zeros['erase']},
    'sharp': {
      **ordinary,
      'strengths': np.full(2, 1e4),
      'powers': np.full(2, 1e4),
    },
    'huge': {
      **ordinary,
      **{name: 1e4 * ordinary[name] for name in ('memory', 'keys', 'add')},
    },
  }


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_edges_are_finite_and_keep_their_type(dtype):
  cases = {
    edge: {name: jnp.asarray(value, dtype) for name, value in x.items()}
    for edge, x in edges().items()
  }
  found = {}
  for edge, x in cases.items():
    found[edge], gradients = everything_and_its_gradients(x)
    for name, value in found[edge].items():
      assert value.dtype == dtype, (edge, name)
      assert np.all(np.isfinite(np.float32(value))), (edge, name)
    for name, gradient in gradients.items():
      assert np.all(np.isfinite(np.float32(gradient))), (edge, name)
  for name, value in found['ordinary'].items():
    expected = SLOW[name](edges()['ordinary'])
    tolerance = 5e-2 if dtype == 'bfloat16' else 1e-5
    np.testing.assert_allclose(
      np.float32(value), expected, atol=tolerance, err_msg=name
    )


def test_directions_are_steep_at_nothing_and_no_more_than_that():
  vectors = np.array([[0.0, 0.0, 0.0], [1e-3, 0.0, 0.0], [3.0, 0.0, -4.0]])
  with jax.enable_x64(True):
    found = addressing.of_length_one(vectors)
    slopes = jax.vmap(jax.jacobian(addressing.of_length_one))(vectors)
  np.testing.assert_allclose(
    found, [[0, 0, 0], [math.sqrt(0.5), 0, 0], [0.6, 0, -0.8]], atol=1e-7
  )
  for vector, slope in zip(vectors, slopes, strict=True):
    norm = math.sqrt(vector @ vector + 1e-6)
    direction = vector / norm
    expected = (np.eye(3) - np.outer(direction, direction)) / norm
    np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-9)
  assert np.abs(slopes).max() == pytest.approx(1e3)
