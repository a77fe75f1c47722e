"""Distributions against reference numbers, quadrature and plain NumPy."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.model.distributions import (
  Bernoulli,
  DiagonalGaussian,
  bernoulli_entropy,
  frame_sum,
  kl_divergence,
)
from gtmm_jax.tasks import TASKS
from gtmm_jax.tasks.frames import Frames
from gtmm_jax.tasks.sources.dataset import Images

TIGHT = {'rtol': 1e-9, 'atol': 1e-12}


def gaussian(mean, scale) -> DiagonalGaussian:
  return DiagonalGaussian(jnp.asarray(mean), jnp.log(jnp.asarray(scale)))


def in_double(function, *arguments):
  """Returns what a function computes in float64, as NumPy arrays."""
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


def density(x: np.ndarray, mean: float, scale: float) -> np.ndarray:
  return np.exp(-(((x - mean) / scale) ** 2) / 2) / (scale * np.sqrt(2 * np.pi))


def integrate(values: np.ndarray, x: np.ndarray) -> float:
  return float(((values[1:] + values[:-1]) / 2 * np.diff(x)).sum())


# Reference numbers.


def test_kl_divergence_of_reference(golden):
  reference = golden('kl_gaussian')

  def total(*parameters):
    return kl_divergence(
      gaussian(*parameters[:2]), gaussian(*parameters[2:])
    ).sum()

  def compute(*parameters):
    q, p = gaussian(*parameters[:2]), gaussian(*parameters[2:])
    standard = DiagonalGaussian(jnp.zeros(()), jnp.zeros(()))
    apart = [DiagonalGaussian(*(x[..., None] for x in g)) for g in (q, p)]
    values = {
      'kl_sum': kl_divergence(q, p),
      'kl_elementwise': kl_divergence(*apart),
      'kl_to_standard_sum': kl_divergence(q, standard),
      'kl_to_standard_elementwise': kl_divergence(apart[0], standard),
    }
    return values, jax.grad(total, argnums=(0, 1, 2, 3))(*parameters)

  names = ('mu_q', 'sigma_q', 'mu_p', 'sigma_p')
  found, gradients = in_double(compute, *(reference[name] for name in names))
  for name, gradient in zip(names, gradients, strict=True):
    found[f'grad_{name}'] = gradient
  for name, value in found.items():
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, reference[name], **TIGHT, err_msg=name)


def test_bernoulli_log_likelihood_of_reference(golden):
  reference = golden('bernoulli_loglik')

  def total(logits, targets):
    value = Bernoulli(logits).log_likelihood(targets)
    return value.sum(), value

  gradient, value = in_double(
    jax.grad(total, has_aux=True), reference['logits'], reference['targets']
  )
  np.testing.assert_allclose(value, reference['loglik_elementwise'], **TIGHT)
  np.testing.assert_allclose(value.sum(-1), reference['loglik_sum'], **TIGHT)
  np.testing.assert_allclose(gradient, reference['grad_logits'], **TIGHT)


def test_gaussian_log_likelihood_of_reference(golden):
  reference = golden('gaussian_loglik')

  def total(mean, scale, x):
    distribution = gaussian(mean, scale)
    value = distribution.log_likelihood(x)
    return value.sum(), (value, distribution.log_density(x))

  (by_mean, by_scale), (value, density) = in_double(
    jax.grad(total, argnums=(0, 1), has_aux=True),
    *(reference[name] for name in ('mu', 'sigma', 'x')),
  )
  np.testing.assert_allclose(value, reference['loglik_elementwise'], **TIGHT)
  np.testing.assert_allclose(density, reference['loglik_sum'], **TIGHT)
  np.testing.assert_allclose(by_mean, reference['grad_mu'], **TIGHT)
  np.testing.assert_allclose(by_scale, reference['grad_sigma'], **TIGHT)


# The Gaussian.


@pytest.mark.parametrize(
  ('mean', 'scale'), [(0.0, 1.0), (-3.0, 0.05), (40.0, 7.0)]
)
def test_gaussian_density_integrates_to_one(mean, scale):
  x = np.linspace(mean - 12 * scale, mean + 12 * scale, 4_001)
  found = np.exp(
    in_double(lambda x: gaussian(mean, scale).log_likelihood(x), x)
  )
  np.testing.assert_allclose(integrate(found, x), 1.0, rtol=1e-10)
  np.testing.assert_allclose(found, density(x, mean, scale), rtol=1e-9)


@pytest.mark.parametrize(
  ('q', 'p'),
  [
    ((0.0, 1.0), (0.0, 1.0)),
    ((0.3, 0.9), (0.0, 1.0)),
    ((-1.0, 0.2), (2.0, 3.0)),
    ((5.0, 2.0), (1.0, 0.7)),
  ],
)
def test_kl_divergence_equals_its_integral(q, p):
  x = np.linspace(q[0] - 14 * q[1], q[0] + 14 * q[1], 40_001)
  log_q = -(((x - q[0]) / q[1]) ** 2) / 2 - np.log(q[1])
  log_p = -(((x - p[0]) / p[1]) ** 2) / 2 - np.log(p[1])
  expected = integrate(density(x, *q) * (log_q - log_p), x)
  found = in_double(
    lambda q, p: kl_divergence(gaussian(*q), gaussian(*p)),
    np.array(q)[:, None],
    np.array(p)[:, None],
  )
  assert found.shape == ()
  np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_kl_divergence_is_zero_at_equality_and_never_below():
  generator = np.random.default_rng(0)
  mean = generator.normal(size=(400, 1)).astype(np.float32)
  log_scale = generator.normal(size=(400, 1)).astype(np.float32)
  p = DiagonalGaussian(jnp.asarray(mean), jnp.asarray(log_scale))
  assert not np.any(kl_divergence(p, p))
  for distance in (1e-1, 1e-2, 1e-3, 1e-4):
    for sign in (-1, 1):
      moved = np.float32(log_scale + sign * distance)
      found = kl_divergence(DiagonalGaussian(p.mean, jnp.asarray(moved)), p)
      ratio = np.float64(moved) - log_scale
      expected = ((np.expm1(2 * ratio) - 2 * ratio) / 2).sum(-1)
      # Rounding is in proportion to the distance, not to one.
      np.testing.assert_allclose(
        found, expected, rtol=1e-3, atol=1e-7 * distance
      )
      assert np.all(found > 0), distance


def test_kl_divergence_sums_the_last_axis_only():
  generator = np.random.default_rng(1)
  numbers = generator.normal(size=(4, 2, 3, 5))
  found = in_double(
    kl_divergence,
    DiagonalGaussian(*numbers[:2]),
    DiagonalGaussian(*numbers[2:]),
  )
  assert found.shape == (2, 3)
  for index in np.ndindex(2, 3):
    expected = 0.0
    for m_q, l_q, m_p, l_p in zip(*numbers[(slice(None), *index)], strict=True):
      v_q, v_p = np.exp(2 * l_q), np.exp(2 * l_p)
      expected += l_p - l_q + (v_q + (m_q - m_p) ** 2) / (2 * v_p) - 0.5
    np.testing.assert_allclose(found[index], expected, rtol=1e-11)


def test_gaussian_sample_shifts_and_scales_the_noise():
  noise = np.random.default_rng(2).normal(size=(2, 3, 4))
  mean = np.arange(24.0).reshape(2, 3, 4)
  log_scale = np.array([-1.0, 0.0, 0.5, 2.0])
  found, likelihood = in_double(
    lambda d, noise: (d.sample(noise), d.log_likelihood(noise)),
    DiagonalGaussian(mean, log_scale),
    noise,
  )
  assert found.shape == likelihood.shape == mean.shape
  for index in np.ndindex(mean.shape):
    scale = np.exp(log_scale[index[-1]])
    np.testing.assert_allclose(
      found[index], mean[index] + scale * noise[index], rtol=1e-14
    )
    expected = -0.5 * ((noise[index] - mean[index]) / scale) ** 2 - np.log(
      scale * np.sqrt(2 * np.pi)
    )
    np.testing.assert_allclose(likelihood[index], expected, rtol=1e-12)


@pytest.mark.parametrize('kind', ['divergence', 'likelihood'])
def test_gaussians_narrower_or_wider_than_floats_go(kind):
  """Has log-scales where exp(-log_scale) is infinite in float32, or zero."""
  log_scale = np.array(
    [
      -300,
      -171,
      -100,
      -90,
      -89,
      -88,
      -87,
      -86,
      -50,
      0,
      50,
      86,
      87,
      88,
      89,
      90,
      120,
    ]
  )
  # Distances in scales; what they come to must be a float32.
  log_scale, scales, ratio = (
    x.reshape(-1, 1).astype(np.float32)
    for x in np.meshgrid(log_scale, [0.0, 0.3, -2.0], [0.0, -0.7, 0.5])
  )
  with np.errstate(over='ignore', under='ignore'):
    distance = np.float32(scales * np.exp(np.float64(log_scale)))
  tiny = np.finfo(np.float32).tiny
  kept = (np.abs(distance) > tiny) | (scales == 0)
  kept = np.squeeze(kept & np.isfinite(distance), -1)
  log_q = log_scale + ratio

  def compute(distance, log_p, log_q):
    nothing = jnp.zeros_like(distance)
    p = DiagonalGaussian(nothing, log_p)
    if kind == 'likelihood':
      return p.log_likelihood(distance).sum(-1)
    return kl_divergence(DiagonalGaussian(distance, log_q), p)

  def with_gradients(*given):
    gradients = jax.grad(lambda *x: compute(*x).sum(), (0, 1, 2))(*given)
    return compute(*given), gradients

  given = [x[kept] for x in (distance, log_scale, log_q)]
  assert np.ptp(given[1][given[0] != 0]) > 170
  found, gradients = jax.tree.map(np.asarray, jax.jit(with_gradients)(*given))
  expected = in_double(with_gradients, *map(np.float64, given))
  close = {'rtol': 1e-4, 'atol': 1e-6}
  np.testing.assert_allclose(found, expected[0], **close)
  for mine, theirs in zip(gradients, expected[1], strict=True):
    fits = np.abs(theirs) < np.finfo(np.float32).max
    assert fits.mean() > 0.5
    np.testing.assert_allclose(mine[fits], theirs[fits], **close)
    np.testing.assert_array_equal(mine[~fits], np.sign(theirs[~fits]) * np.inf)


def test_bounded_log_scales_give_the_same_divergence():
  """Holds bit for bit: training takes the plainer way."""
  generator = np.random.default_rng(3)
  numbers = generator.normal(size=(4, 5, 3)).astype(np.float32)
  numbers[[1, 3]] = 40.0 * np.tanh(numbers[[1, 3]])
  q, p = DiagonalGaussian(*numbers[:2]), DiagonalGaussian(*numbers[2:])
  np.testing.assert_array_equal(
    kl_divergence(q, p, bounded=True), kl_divergence(q, p)
  )


def test_gaussian_sample_carries_gradients_to_both_parameters():
  noise = jnp.array([-1.5, 0.25, 2.0])
  by_mean, by_log_scale = jax.grad(
    lambda mean, log_scale: (
      DiagonalGaussian(mean, log_scale).sample(noise).sum()
    ),
    argnums=(0, 1),
  )(jnp.ones(3), jnp.array([-1.0, 0.0, 1.0]))
  np.testing.assert_array_equal(by_mean, 1.0)
  np.testing.assert_allclose(
    by_log_scale, np.exp([-1.0, 0.0, 1.0]) * noise, rtol=1e-6
  )


def test_gaussian_is_finite_at_extreme_log_scales():
  grid = np.meshgrid(
    *[[-1e2, 0.0, 1e2]] * 2, *[[-20.0, -8.0, 0.0, 8.0, 20.0]] * 2
  )
  mean_q, mean_p, log_q, log_p = (
    jnp.asarray(x.reshape(-1, 1), jnp.float32) for x in grid
  )

  def divergence(*parameters):
    return kl_divergence(
      DiagonalGaussian(*parameters[:2]), DiagonalGaussian(*parameters[2:])
    ).sum()

  def likelihood(mean, log_scale, x):
    return DiagonalGaussian(mean, log_scale).log_likelihood(x).sum()

  for function, parameters in (
    (divergence, (mean_q, log_q, mean_p, log_p)),
    (likelihood, (mean_q, log_q, mean_p)),
  ):
    every = tuple(range(len(parameters)))
    value, gradients = jax.jit(jax.value_and_grad(function, every))(*parameters)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients)


# The Bernoulli.

EXTREME_LOGITS = np.array(
  [-1e30, -1e4, -200.0, -90.0, -15.0, -1.0, 0.0, 0.3, 20.0, 90.0, 1e4, 1e30]
)


def slow_log_likelihood(x: float, logit: float) -> float:
  """Adds each outcome's share, from the logarithm that does not cancel."""
  log_on = -np.log1p(np.exp(-logit)) if logit > -500 else logit
  log_off = -np.log1p(np.exp(logit)) if logit < 500 else -logit
  return (x * log_on if x else 0.0) + ((1 - x) * log_off if x < 1 else 0.0)


@pytest.mark.parametrize('x', [0.0, 0.25, 1.0])
def test_bernoulli_at_extreme_logits(x):
  logits = jnp.asarray(EXTREME_LOGITS, jnp.float32)
  found = Bernoulli(logits).log_likelihood(x)
  gradient = jax.grad(lambda logits: Bernoulli(logits).log_likelihood(x).sum())(
    logits
  )
  expected = [slow_log_likelihood(x, float(logit)) for logit in logits]
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=3e-6)
  assert np.all(np.abs(gradient) <= 1)
  with np.errstate(over='ignore'):
    mean = 1 / (1 + np.exp(-EXTREME_LOGITS))
  np.testing.assert_allclose(gradient, x - mean, atol=1e-6)
  np.testing.assert_allclose(
    Bernoulli(logits).mean, mean, rtol=1e-5, atol=1e-37
  )


def test_bernoulli_likelihoods_of_both_outcomes_sum_to_one():
  on, off, mean = in_double(
    lambda d: (d.log_likelihood(1.0), d.log_likelihood(0.0), d.mean),
    Bernoulli(np.linspace(-30.0, 30.0, 61)),
  )
  on, off = np.exp(on), np.exp(off)
  np.testing.assert_allclose(on + off, 1.0, rtol=1e-13)
  np.testing.assert_allclose(on, mean, rtol=1e-13)


def test_bernoulli_sample_is_on_as_often_as_its_mean_says():
  count = 10_000
  noise = (jnp.arange(count)[:, None] + 0.5) / count
  logits = jnp.array([-4.0, -0.5, 0.0, 1.0, 3.0])
  drawn = Bernoulli(jnp.broadcast_to(logits, (count, 5))).sample(noise)
  assert drawn.shape == (count, 5)
  assert drawn.dtype == logits.dtype
  assert set(np.unique(drawn)) == {0.0, 1.0}
  expected = 1 / (1 + np.exp(-np.float64(logits)))
  np.testing.assert_allclose(drawn.mean(0), expected, atol=1.01 / count)


def test_bernoulli_sample_is_certain_at_extreme_logits():
  noise = jnp.array([0.0, 0.5, np.nextafter(np.float32(1), np.float32(0))])
  for logit, outcome in ((-1e4, 0.0), (1e4, 1.0)):
    drawn = Bernoulli(jnp.full(3, logit)).sample(noise)
    np.testing.assert_array_equal(drawn, outcome)


# The entropy.


def test_entropy_equals_its_definition():
  p = np.concatenate([np.logspace(-12, -1, 12), np.linspace(0.1, 0.9, 9)])
  p = np.concatenate([p, 1 - p])
  found = in_double(bernoulli_entropy, p)
  expected = [-(x * np.log(x) + (1 - x) * np.log1p(-x)) for x in p]
  np.testing.assert_allclose(found, expected, rtol=1e-12)
  assert found.max() <= np.log(2) + 1e-15


def test_entropy_is_zero_at_certainty():
  np.testing.assert_array_equal(bernoulli_entropy(jnp.array([0.0, 1.0])), 0.0)


@pytest.fixture
def optimised():
  """Compiles as programs do, which tests as a rule do not."""
  name = 'jax_disable_most_optimizations'
  jax.config.update(name, False)
  yield
  # As conftest.py has set it, which jax does not tell.
  jax.config.update(name, os.environ.get(name.upper()) == '1')


@pytest.mark.parametrize(
  ('name', 'sizes'),
  [
    ('perfect_recall', (3, 2)),
    ('parity_recall', (3, 2)),
    ('one_shot_recall', (3, 2)),
    ('dynamic_dependency', (10, 2)),
    ('similarity_cued_recall', (3, 2)),
    ('navigation', (2, 1, 3)),
    ('frames', (5,)),
  ],
)
def test_entropy_of_bytes_is_that_of_their_grey_values(name, sizes, optimised):
  # Of one episode or image alone, or of two that are alike, so that no gather
  # has to lie between bytes and logarithm.
  task, batch = TASKS[name](*sizes), 3
  pixels = np.where(np.arange(784) % 3, np.arange(784) % 256, 255)
  pixels = pixels.astype(np.uint8).reshape(1, 28, 28, 1)
  if name == 'frames':
    images = Frames(
      np.repeat(pixels[None], 5, 1), np.zeros((1, 5, 0)), np.zeros((1, 5), bool)
    )
  elif name == 'parity_recall':
    images = Images(np.repeat(pixels, 2, 0), np.arange(2, dtype=np.int32))
  else:
    images = Images(pixels, np.zeros(1, np.int32))

  @jax.jit
  def floor(keys, images):
    frames = jax.vmap(task.sample, (0, None), 1)(keys, images).frames
    return bernoulli_entropy(frames).sum((0, -3, -2, -1)).mean()

  found = floor(jax.random.split(jax.random.key(0), batch), images)
  grey = pixels / 255
  expected = -sum(
    (p * np.log(np.where(p > 0, p, 1))).sum() for p in (grey, 1 - grey)
  )
  np.testing.assert_allclose(found, task.length * expected, rtol=1e-5)


def test_entropy_takes_what_is_rounded_beyond_certainty_as_certain():
  beyond = np.nextafter(np.float32([0.0, 1.0]), np.float32([-1.0, 2.0]))
  np.testing.assert_array_equal(bernoulli_entropy(beyond), 0.0)
  assert np.isnan(bernoulli_entropy(jnp.nan))


def test_no_logit_does_better_on_a_grey_value_than_minus_its_entropy():
  grey = np.linspace(0.0, 1.0, 18)[1:-1, None]
  best = np.log(grey / (1 - grey))
  others = np.linspace(-10.0, 10.0, 400)[None]
  floor = -in_double(bernoulli_entropy, grey)
  reached = in_double(Bernoulli.log_likelihood, Bernoulli(best), grey)
  missed = in_double(Bernoulli.log_likelihood, Bernoulli(others), grey)
  np.testing.assert_allclose(reached, floor, rtol=1e-12)
  assert np.all(missed < floor)


def test_frame_sum_adds_the_last_three_axes():
  x = np.random.default_rng(0).normal(size=(3, 2, 5, 4, 2)).astype(np.float32)
  expected = x.astype(np.float64).sum((2, 3, 4))
  np.testing.assert_allclose(frame_sum(jnp.asarray(x)), expected, atol=1e-5)
