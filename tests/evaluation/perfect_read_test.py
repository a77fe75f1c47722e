"""The floor of a perfect read, against plain NumPy and known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.evaluation import perfect_read
from gtmm_jax.model.distributions import DiagonalGaussian, kl_divergence

_LENGTH, _BATCH, _LATENT = 7, 4, 3


def _drawn(seed, batches=6):
  """Draws posteriors, what was stored, sources and masks, [P, T, B, ...]."""
  rng = np.random.default_rng(seed)
  shape = (batches, _LENGTH, _BATCH)
  source = np.array(
    [
      rng.integers(-1, t, (batches, _BATCH)) if t else [[-1] * _BATCH] * batches
      for t in range(_LENGTH)
    ]
  ).transpose(1, 0, 2)
  stored = rng.normal(1.0, 2.0, (*shape, _LATENT))
  mean = rng.normal(size=stored.shape)
  for t in range(1, _LENGTH):
    old = np.take_along_axis(
      stored, np.maximum(source[:, t], 0)[:, None, :, None], 1
    )[:, 0]
    mean[:, t] += np.array([0.8, -0.3, 0.0]) * old
  log_scale = rng.normal(-1.0, 0.5, stored.shape)
  asked = (rng.uniform(size=shape) < 0.7) & (np.arange(_LENGTH) > 0)[:, None]
  return mean, log_scale, stored, source, asked


def _moments(mean, log_scale, stored, source, asked):
  """Returns moments of one replica's batches, leaves [1, P, ...]."""
  each = jax.vmap(perfect_read.moments)(
    DiagonalGaussian(jnp.float32(mean), jnp.float32(log_scale)),
    jnp.float32(stored),
    jnp.asarray(source, jnp.int32),
    jnp.asarray(asked),
  )
  return jax.tree.map(lambda leaf: np.asarray(leaf)[None], each)


def _pairs(mean, log_scale, stored, source, asked):
  """Lists (m, log sigma, s) of the counted frames, a frame at a time."""
  rows = [
    (mean[p, t, b], log_scale[p, t, b], stored[p, source[p, t, b], b])
    for p, t, b in np.argwhere(asked & (source >= 0))
  ]
  return [np.array(column) for column in zip(*rows, strict=True)]


def _kl(pairs, slope, offset, variance):
  """Returns the mean KL to N(slope s + offset, variance), a frame at a time."""
  m, log_scale, s = pairs
  residual = m - slope * s - offset
  return np.mean(
    np.sum(
      0.5 * np.log(variance)
      - log_scale
      + (np.exp(2 * log_scale) + residual**2) / (2 * variance)
      - 0.5,
      axis=-1,
    )
  )


def test_the_fit_and_the_mean_are_those_of_plain_loops():
  fitted, reported = _drawn(0), _drawn(1)
  prior = perfect_read.fit(perfect_read.total(_moments(*fitted)))
  m, log_scale, s = _pairs(*fitted)
  for d in range(_LATENT):
    slope, offset = np.polyfit(s[:, d], m[:, d], 1)
    residual = m[:, d] - slope * s[:, d] - offset
    variance = np.mean(residual**2 + np.exp(2 * log_scale[:, d]))
    got = [each[0, d] for each in prior]
    np.testing.assert_allclose(got, (slope, offset, variance), rtol=1e-4)
  sums = perfect_read.total(_moments(*reported))
  np.testing.assert_allclose(
    perfect_read.mean_kl(sums, prior),
    [_kl(_pairs(*reported), *(each[0] for each in prior))],
    rtol=1e-5,
  )


def test_the_mean_is_that_of_the_models_own_kl():
  drawn = _drawn(2)
  sums = perfect_read.total(_moments(*drawn))
  prior = perfect_read.fit(sums)
  m, log_scale, s = (jnp.float32(each) for each in _pairs(*drawn))
  slope, offset, variance = (jnp.float32(each[0]) for each in prior)
  expected = kl_divergence(
    DiagonalGaussian(m, log_scale),
    DiagonalGaussian(slope * s + offset, 0.5 * jnp.log(variance)),
  ).mean()
  np.testing.assert_allclose(
    perfect_read.mean_kl(sums, prior), [expected], rtol=1e-5
  )


def test_no_other_linear_prior_costs_less():
  drawn = _drawn(3)
  sums = perfect_read.total(_moments(*drawn))
  best = perfect_read.fit(sums)
  least = perfect_read.mean_kl(sums, best)
  rng = np.random.default_rng(0)
  for scale in (1e-3, 0.03, 0.3):
    for _ in range(50):
      shifts = scale * rng.normal(size=(3, 1, _LATENT))
      other = perfect_read.LinearPrior(
        best.slope + shifts[0],
        best.offset + shifts[1],
        best.variance * np.exp(shifts[2]),
      )
      assert perfect_read.mean_kl(sums, other) > least


@pytest.mark.parametrize('form', ['mean', 'sample'])
def test_known_floors(form):
  # Every frame comes back with the posterior it had: N(m, v).
  rng = np.random.default_rng(4)
  batches, spread, scale = 200, 2.0, 0.5
  shape = (batches, _LENGTH, _BATCH, _LATENT)
  mean = np.broadcast_to(
    rng.normal(0.0, spread, (batches, 1, _BATCH, _LATENT)), shape
  )
  source = np.broadcast_to(np.arange(-1, _LENGTH - 1)[:, None], shape[:3])
  stored = mean
  if form == 'sample':
    stored = mean + scale * rng.normal(size=shape)
  log_scale = np.full(shape, np.log(scale))
  sums = perfect_read.total(
    _moments(mean, log_scale, stored, source, source >= 0)
  )
  floor = perfect_read.mean_kl(sums, perfect_read.fit(sums))
  # The mean of m given s has error variance r; the best c^2 is v + r.
  error = 0.0
  if form == 'sample':
    error = spread**2 * scale**2 / (spread**2 + scale**2)
  expected = _LATENT * 0.5 * np.log1p(error / scale**2)
  np.testing.assert_allclose(floor, [expected], rtol=0.03, atol=1e-4)


def test_new_frames_and_those_not_predictable_do_not_count():
  mean, log_scale, stored, source, asked = _drawn(5)
  is_counted = asked & (source >= 0)
  one = _moments(mean, log_scale, stored, source, asked)
  mean, log_scale = (
    np.where(is_counted[..., None], each, np.nan) for each in (mean, log_scale)
  )
  other = _moments(mean, log_scale, stored, source, asked)
  jax.tree.map(np.testing.assert_array_equal, one, other)
  assert one.count.sum() == is_counted.sum()


@pytest.mark.filterwarnings('error')
def test_there_is_no_floor_without_frames():
  drawn = _drawn(6)
  nothing = perfect_read.total(_moments(*drawn[:-1], np.zeros_like(drawn[-1])))
  something = perfect_read.total(_moments(*drawn))
  for fitted, reported in (
    (nothing, something),
    (something, nothing),
    (nothing, nothing),
  ):
    floor = perfect_read.mean_kl(reported, perfect_read.fit(fitted))
    np.testing.assert_array_equal(floor, [np.nan])


@pytest.mark.filterwarnings('error')
def test_a_dimension_that_is_stored_as_a_constant_is_no_help():
  mean, log_scale, stored, source, asked = _drawn(7)
  stored[..., 0] = 1.7
  sums = perfect_read.total(_moments(mean, log_scale, stored, source, asked))
  prior = perfect_read.fit(sums)
  assert prior.slope[0, 0] == 0
  m = _pairs(mean, log_scale, stored, source, asked)[0]
  np.testing.assert_allclose(prior.offset[0, 0], m[:, 0].mean(), rtol=1e-4)
  assert np.isfinite(perfect_read.mean_kl(sums, prior)).all()


def test_halves_are_every_other_batch():
  sums = _moments(*_drawn(8, batches=5))
  one, other = perfect_read.halves(sums)
  for half, rows in ((one, [0, 2, 4]), (other, [1, 3])):
    for got, leaf in zip(half, sums, strict=True):
      np.testing.assert_allclose(got, leaf[:, rows].sum(1), rtol=1e-6)
      assert got.dtype == np.float64
