"""The tighter bounds against exact answers and plain loops."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import linear_gaussian
import plain_loops
import tiny_preset
from gtmm_jax.evaluation import importance
from gtmm_jax.model import build, free_energy
from gtmm_jax.model.distributions import DiagonalGaussian
from gtmm_jax.model.temporal_vae import TemporalVAE

_KEY = jax.random.key(7)
# Estimates of each sequence, so many that means of programs can be compared.
_COPIES = 4000
_weighted = jax.jit(
  importance.importance_weighted,
  static_argnames=('model', 'samples', 'chunk'),
)
_particle = jax.jit(
  importance.particle,
  static_argnames=('model', 'samples', 'threshold', 'chunk'),
)


def _noise(sequence, samples, length, size):
  """Draws the noise of a sequence's samples, [T, K, Z], and the offsets [T]."""
  noise_key, resampling_key = jax.random.split(
    jax.random.fold_in(_KEY, sequence)
  )
  noise = [
    jax.random.normal(jax.random.fold_in(noise_key, k), (length, size))
    for k in range(samples)
  ]
  return np.stack(noise, 1), jax.random.uniform(resampling_key, (length,))


# --- Linear-Gaussian state-space models, whose likelihood is known exactly.


def _estimates(bound, data, kind, copies, samples, length=None, **options):
  """Returns estimates for each sequence, [copies, sequences]."""
  frames, condition = linear_gaussian.inputs(data, kind, copies)
  values = bound(
    linear_gaussian.model(data),
    {},
    frames[:length],
    condition[:length],
    _KEY,
    samples=samples,
    chunk=10_000,
    **options,
  )
  return np.float64(values).reshape(copies, -1)


def _mean_and_error(values):
  return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def test_importance_weighted_bound_closes_the_gap_as_it_should(golden):
  data, kind = golden('lgssm_z2_x3'), 'diag'
  below = data[f'{kind}_elbo']
  for samples, copies in ((5, 1600), (50, 300)):
    mean, error = _mean_and_error(
      _estimates(_weighted, data, kind, copies, samples)
    )
    at = list(data['iwae_K']).index(samples)
    expected, its_error = (
      data[f'{kind}_iwae_{name}'][:, at] for name in ('mean', 'se')
    )
    assert (np.abs(mean - expected) < 5 * np.hypot(error, its_error)).all()
    assert (error < 0.02).all()
    assert (mean > below + 5 * error).all()
    assert (mean < data['log_marginal'] + 5 * error).all()
    below = mean


def test_with_the_smoothing_proposal_the_bound_is_exact(golden):
  data = golden('lgssm_z1_x1')
  for bound, options in ((_weighted, {}), (_particle, {'threshold': 0.0})):
    found = _estimates(bound, data, 'smoothing', _COPIES, 4, **options)
    expected = np.broadcast_to(data['log_marginal'], found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_with_one_sample_it_is_the_bound_in_expectation(golden):
  data = golden('lgssm_z1_x1')
  mean, error = _mean_and_error(
    _estimates(_weighted, data, 'prior', _COPIES, 1)
  )
  assert (np.abs(mean - data['prior_elbo']) < 5 * error).all()
  assert (error < 0.02).all()


@pytest.mark.parametrize('bound', [_weighted, _particle])
def test_with_one_sample_it_is_the_bound_with_a_sampled_kl(golden, bound):
  data, copies = golden('lgssm_z2_x3'), 4
  found = _estimates(bound, data, 'diag', copies, 1)
  frames, condition = linear_gaussian.inputs(data, 'diag', copies)
  length, count = frames.shape[:2]
  noise = np.concatenate(
    [_noise(each, 1, length, 2)[0] for each in range(count)], 1
  )
  inference = jax.jit(
    lambda *args: free_energy.infer(linear_gaussian.model(data), {}, *args)
  )(frames, condition, noise)
  posterior, z = inference.steps.posterior, inference.steps.z
  sampled_kl = posterior.log_likelihood(z) - inference.prior.log_likelihood(z)
  expected = (
    inference.terms.kl.sum(0)
    - sampled_kl.sum((0, -1))
    - free_energy.negative_bound(inference.terms)
  )
  np.testing.assert_allclose(found.ravel(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize('kind', ['prior', 'diag'])
def test_the_particle_filter_is_unbiased_in_probability(golden, kind):
  data, copies, samples = golden('lgssm_z1_x1'), _COPIES, 4
  values = _estimates(_particle, data, kind, copies, samples, threshold=0.9)
  ratio, error = _mean_and_error(np.exp(values - data['log_marginal']))
  assert (np.abs(ratio - 1) < 4 * error).all()
  assert (error < 0.01).all()
  mean, error = _mean_and_error(values)
  assert (data[f'{kind}_elbo'] + 5 * error < mean).all()
  assert (mean < data['log_marginal'] + 5 * error).all()
  # Sequences were resampled.
  never = _estimates(_particle, data, kind, copies, samples, threshold=0.0)
  assert (np.abs(values - never) > 1e-4).mean() > 0.3


def test_resampling_tightens_a_bound_whose_weights_degenerate(golden):
  data, samples = golden('lgssm_z2_x3'), 50
  mean, error = _mean_and_error(
    _estimates(_particle, data, 'prior', 200, samples)
  )
  without = data['prior_iwae_mean'][:, list(data['iwae_K']).index(samples)]
  assert (mean > without + 5 * error + 1).all()
  assert (mean < data['log_marginal'] + 5 * error).all()


def test_with_one_frame_both_are_the_same(golden):
  data = golden('lgssm_z1_x1')
  one, other = (
    _estimates(bound, data, 'prior', 20, 4, length=1, **options)
    for bound, options in ((_weighted, {}), (_particle, {'threshold': 1.0}))
  )
  np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
  assert one.std(0).min() > 0.01


@pytest.mark.parametrize('padding', [0, 2])
def test_constant_weights_give_the_likelihood_of_frames(golden, padding):
  data = dict(golden('lgssm_z1_x1'))
  data['C'] = np.zeros_like(data['C'])
  scale = np.sqrt(data['r_var'])
  log_likelihood = -0.5 * ((data['x'] - data['d']) / scale) ** 2 - np.log(
    scale * np.sqrt(2 * np.pi)
  )
  count, length = log_likelihood.shape[:2]
  is_frame = np.arange(length) < length - padding
  expected = np.tile(log_likelihood[:, is_frame].sum((1, 2)), (5, 1))
  mask = np.repeat(is_frame[:, None], 5 * count, 1) if padding else None
  found = _estimates(_particle, data, 'prior', 5, 4, threshold=0.99, mask=mask)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


# --- Weights of zero.


class _Last(nn.RNNCellBase):
  """A core whose context is its input."""

  num_feature_axes = 1

  def __call__(self, carry, inputs):
    return carry + 1, inputs

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    return jnp.zeros(input_shape[:-1], jnp.int32)


class _Standard(nn.Module):
  """N(0, 1): the prior and the posterior map."""

  def encode(self, frames, train, mask=None):
    return frames.reshape(*frames.shape[:-3], -1)

  def __call__(self, *given):
    zero = jnp.zeros_like(given[-1])
    return DiagonalGaussian(zero, zero)


@dataclasses.dataclass
class _IfPositive:
  """A likelihood that is 1 where z is positive, and 0 elsewhere."""

  z: jax.Array

  def log_likelihood(self, x):
    return jnp.where(self.z[..., None, None, :] > 0, 0.0, -jnp.inf) + 0.0 * x


class _Positive(nn.Module):
  """The observation map of that likelihood."""

  def __call__(self, z, context, train, mask=None):
    return _IfPositive(z)


def test_particles_of_weight_zero_count_as_such():
  samples, length, count = 8, 3, 30
  model = TemporalVAE(_Last(), _Standard(), _Standard(), _Positive(), 1)
  frames = np.zeros((length, count, 1, 1, 1), np.float32)
  inputs = (model, {}, frames, np.zeros((length, count, 0), np.float32), _KEY)
  weighted, particle = [], []
  for sequence in range(count):
    noise, _ = _noise(sequence, samples, length, 1)
    lives = noise[..., 0] > 0
    weighted.append(np.log(lives.all(0).mean() or 1e-300))
    alive, estimate = np.ones(samples, bool), 0.0
    for now in lives:
      if alive.sum() < samples / 2:
        alive[:] = True
      estimate += np.log(now[alive].mean() or 1e-300)
      alive &= now
      if not alive.any():
        break
    particle.append(estimate)
  for bound, expected in ((_weighted, weighted), (_particle, particle)):
    found = np.asarray(bound(*inputs, samples=samples))
    expected = np.array(expected)
    is_dead = expected < -600
    np.testing.assert_array_equal(found[is_dead], -np.inf)
    np.testing.assert_allclose(
      found[~is_dead], expected[~is_dead], rtol=1e-5, atol=1e-6
    )
    assert 0 < is_dead.sum() < count


# --- The models.

_LENGTH, _BATCH, _SAMPLES, _LATENT = 5, 2, 7, 3
_TINY = tiny_preset.make(dense_hidden=(8,), latent_size=_LATENT, word_size=6)


def _case(name, store, components):
  """Returns a model and variables in which no part is zero."""
  preset = dataclasses.replace(_TINY, prior_components=components)
  model = build.temporal_vae(name, preset, (4, 4, 1), _LENGTH, store=store)
  shapes = build.variable_shapes(model, (4, 4, 1), 2)
  rng = np.random.default_rng(1)
  variables = jax.tree.map(
    lambda leaf: rng.normal(0.0, 0.5, leaf.shape).astype(np.float32), shapes
  )
  return model, variables


@functools.cache
def _step(model):
  """Compiles one step of a plain loop."""
  return jax.jit(model.apply)


def _log_normal(x, gaussian):
  mean, log_scale = map(np.float64, gaussian)
  squares = np.square((np.float64(x) - mean) * np.exp(-log_scale))
  return (-0.5 * squares - log_scale - 0.5 * np.log(2 * np.pi)).sum(-1)


def _log_weights(frame, step, prior, decoded):
  """Returns the logarithms of the factors of one step, [K], in float64."""
  if isinstance(prior, DiagonalGaussian):
    log_prior = _log_normal(step.z, prior)
  else:
    parts = _log_normal(step.z[:, None], prior.components)
    log_prior = np.logaddexp.reduce(np.float64(prior.log_weights) + parts, -1)
  logits = np.float64(decoded.logits)
  pixels = frame * logits - np.logaddexp(0, logits)
  log_posterior = _log_normal(step.z, step.posterior)
  return pixels.sum((-3, -2, -1)) + log_prior - log_posterior


def _slow_filter(step, state, frames, condition, noise, offsets, threshold):
  """Runs a particle filter by a plain loop; counts how often it resamples."""
  count = noise.shape[1]
  log_weights, estimate, resampled = np.full(count, -np.log(count)), 0.0, 0
  for frame, c, numbers, offset in zip(
    frames, condition, noise, offsets, strict=True
  ):
    weights = np.exp(log_weights)
    if 1 / np.square(weights).sum() < threshold * count:
      ancestors = plain_loops.systematic(weights, offset)
      state = jax.tree.map(
        lambda leaf, a=ancestors: np.stack([leaf[each] for each in a]), state
      )
      log_weights, resampled = np.full(count, -np.log(count)), resampled + 1
    repeated = (np.stack([x] * count) for x in (frame, c))
    state, *factors = step(state, *repeated, numbers)
    log_weights = log_weights + _log_weights(np.float64(frame), *factors)
    total = np.logaddexp.reduce(log_weights)
    log_weights, estimate = log_weights - total, estimate + total
  return estimate, resampled


@pytest.mark.parametrize(
  ('bound', 'name', 'store', 'components', 'chunk'),
  [
    # In two parts, of which one is padded.
    (_weighted, 'introspective', 'mean', 3, 4),
    # Both sequences at a time, or one.
    pytest.param(
      *(_particle, 'introspective', 'mean', 3, 100), marks=pytest.mark.slow
    ),
    (_particle, 'vrnn', 'sample', 1, 100),
    (_particle, 'dnc', 'denoised', 1, 1),
  ],
)
def test_bounds_are_those_of_plain_loops(bound, name, store, components, chunk):
  model, variables = _case(name, store, components)
  rng = np.random.default_rng(2)
  frames = rng.uniform(size=(_LENGTH, _BATCH, 4, 4, 1)).astype(np.float32)
  condition = rng.normal(size=(_LENGTH, _BATCH, 2)).astype(np.float32)
  step = functools.partial(_step(model), variables)
  inputs = (model, variables, frames, condition, _KEY)
  features = np.zeros((_SAMPLES, 2 * _LATENT), np.float32)
  start = model.apply(
    variables,
    features,
    condition[0, :1].repeat(_SAMPLES, 0),
    method='initial_state',
  )
  found = bound(*inputs, samples=_SAMPLES, chunk=chunk)
  threshold = 0.5 if bound is _particle else 0.0
  resamplings = 0
  for b in range(_BATCH):
    noise, offsets = _noise(b, _SAMPLES, _LENGTH, _LATENT)
    # One number may choose a component, which the posterior does not need.
    missing = model.noise_size - _LATENT
    noise = np.pad(noise, ((0, 0), (0, 0), (0, missing)))
    expected, resampled = _slow_filter(
      step, start, frames[:, b], condition[:, b], noise, offsets, threshold
    )
    np.testing.assert_allclose(found[b], expected, rtol=1e-5)
    resamplings += resampled
  assert (resamplings > 0) == (threshold > 0)


def test_wrong_numbers_are_refused(golden):
  data = golden('lgssm_z1_x1')
  for bound in (importance.importance_weighted, importance.particle):
    for name, options in (
      ('samples', {'samples': 0}),
      ('chunk', {'samples': 2, 'chunk': 0}),
    ):
      with pytest.raises(ValueError, match=f'{name} is 0; it must be at least'):
        bound(
          linear_gaussian.model(data),
          {},
          *linear_gaussian.inputs(data, 'prior', 1),
          _KEY,
          **options,
        )
  for threshold in (-0.1, 1.5, float('nan')):
    with pytest.raises(ValueError, match='threshold is .*from 0 to 1'):
      importance.particle(
        linear_gaussian.model(data),
        {},
        *linear_gaussian.inputs(data, 'prior', 1),
        _KEY,
        4,
        threshold=threshold,
      )
