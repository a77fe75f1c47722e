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
  """The derivative of log(softplus(x)), sigmoid(x) / softplus(x)."""
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
  """Of sum(cotangent * weights), by the logarithms of what is normalised."""
  gradient = np.zeros(len(weights))
  for i, j in np.ndindex(len(weights), len(weights)):
    gradient[i] += cotangent[j] * weights[j] * ((i == j) - weights[i])
  return gradient


def slow_attention(kind: str, logits: np.ndarray, mask: np.ndarray):
  """Weights [..., N], logit after logit."""
  mask = np.broadcast_to(mask, logits.shape)
  out = np.zeros(logits.shape)
  for index in np.ndindex(logits.shape[:-1]):
    logs = [float(x) for x in logits[index]]
    if kind == 'linear':
      logs = [slow_log_softplus(x) for x in logs]
    out[index] = slow_weights(logs, list(mask[index]))
  return out


def some_masks(generator: np.random.Generator, shape) -> np.ndarray:
  """Masks of which the first row is empty and the second full."""
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
  """Weights [..., N] from logits [..., N], of any of the three."""
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

  @hypothesis.settings(max_examples=50, deadline=None, derandomize=True)
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
