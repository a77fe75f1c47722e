"""Particles and their resampling, against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import plain_loops
from gtmm_jax.evaluation import particles
from gtmm_jax.evaluation.particles import Observed, Particles
from gtmm_jax.model.distributions import DiagonalGaussian
from gtmm_jax.model.temporal_vae import TemporalVAE
from reference_numbers import in_double

_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
_systematic = jax.jit(particles.systematic)
_resample = jax.jit(particles.resample)


def _weights(seed, count):
  """Draws weights of which some are zero."""
  rng = np.random.default_rng(seed)
  weights = rng.exponential(size=count).astype(np.float32)
  weights[rng.uniform(size=count) < 0.3] = 0.0
  weights[rng.integers(count)] = 1.0
  return weights / weights.sum()


@pytest.mark.parametrize('count', [1, 7, 1000])
def test_systematic_ancestors_are_those_of_a_plain_loop(count):
  for seed in range(10):
    weights = np.float64(_weights(seed, count))
    offset = np.random.default_rng(seed).uniform()
    ancestors = in_double(particles.systematic, weights, offset)
    expected = plain_loops.systematic(weights, offset)
    np.testing.assert_array_equal(ancestors, expected)
    counts = np.bincount(ancestors, minlength=count)
    assert (np.abs(counts - count * weights / weights.sum()) < 1).all()


def test_particles_are_drawn_as_often_as_their_weights_say():
  weights = _weights(3, 7)
  offsets = (jnp.arange(4000) + 0.5) / 4000
  ancestors = jax.vmap(_systematic, (None, 0))(weights, offsets)
  counts = np.bincount(np.ravel(ancestors), minlength=7) / 4000
  np.testing.assert_allclose(counts, 7 * weights, atol=1e-3)


@pytest.mark.parametrize('offset', [0.0, 0.5, _BELOW_ONE])
@pytest.mark.parametrize('count', [1, 7, 1000])
def test_no_particle_without_weight_is_drawn(count, offset):
  for seed in range(10):
    weights = _weights(seed, count)
    ancestors = np.asarray(_systematic(weights, np.float32(offset)))
    assert (weights[ancestors] > 0).all()
    assert (np.diff(ancestors) >= 0).all()


def _of_weights(weights):
  """Makes particles whose state is a number each."""
  count = len(weights)
  with np.errstate(divide='ignore'):
    log_weights = np.log(np.float32(weights))
  state = {'number': np.arange(count), 'rows': np.arange(2 * count)}
  state['rows'] = state['rows'].reshape(count, 2)
  return Particles(state, log_weights, np.float32(-3.5))


def test_particles_are_resampled_below_the_threshold_alone():
  weights = np.array([0.5, 0.125, 0.25, 0.125])
  effective = 1 / np.square(weights).sum()
  before = _of_weights(weights)
  for threshold in (0.0, 0.5, effective / 4 - 1e-3):
    after = _resample(before, 0.9, threshold)
    jax.tree.map(np.testing.assert_array_equal, after, before)
  after = _resample(before, 0.9, effective / 4 + 1e-3)
  ancestors = [0, 0, 2, 3]
  np.testing.assert_array_equal(after.state['number'], ancestors)
  np.testing.assert_array_equal(
    after.state['rows'], before.state['rows'][ancestors]
  )
  np.testing.assert_allclose(np.exp(after.log_weights), 0.25, rtol=1e-6)
  assert after.log_likelihood == before.log_likelihood


@pytest.mark.parametrize('offset', [0.0, _BELOW_ONE])
def test_one_particle_with_all_the_weight_is_continued_by_all(offset):
  for alive in range(4):
    before = _of_weights(np.eye(4)[alive])
    after = _resample(before, offset, 0.5)
    np.testing.assert_array_equal(after.state['number'], alive)
    np.testing.assert_allclose(np.exp(after.log_weights), 0.25, rtol=1e-6)


def test_equal_weights_are_left_alone():
  before = _of_weights(np.full(1000, 1e-3))
  after = _resample(before, 0.3, 0.999)
  jax.tree.map(np.testing.assert_array_equal, after, before)


# --- A model whose core remembers all that it was given.


class _History(nn.RNNCellBase):
  """A core that keeps all latents and sums of them; its context is a sum."""

  length: int

  num_feature_axes = 1

  def __call__(self, carry, inputs):
    is_row = jnp.arange(self.length) == carry['calls'][..., None]
    carry = {
      'latents': jnp.where(
        is_row[..., None], inputs[..., None, :], carry['latents']
      ),
      'sums': (carry['sums'][0] + inputs, carry['sums'][1] + inputs.sum(-1)),
      'calls': carry['calls'] + 1,
    }
    return carry, carry['sums'][0]

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    *batch, size = input_shape
    return {
      'latents': jnp.zeros((*batch, self.length, size)),
      'sums': (jnp.zeros(input_shape), jnp.zeros(batch)),
      'calls': jnp.zeros(batch, jnp.int32),
    }


class _Standard(nn.Module):
  """N(0, 1), and N(context, 1) given features: prior and posterior map."""

  def encode(self, frames, train, mask=None):
    return frames.reshape(*frames.shape[:-3], -1)

  def __call__(self, *given):
    mean = given[-1] if len(given) > 1 else jnp.zeros_like(given[0])
    return DiagonalGaussian(mean, jnp.zeros_like(mean))


class _Near(nn.Module):
  """x_t ~ N(z_t, 0.2^2): the observation map."""

  def __call__(self, z, context, train, mask=None):
    return DiagonalGaussian(z[..., None, None, :], jnp.log(0.2))


def test_ancestors_carry_the_whole_state():
  length, count, size = 6, 8, 2
  model = TemporalVAE(_History(length), _Standard(), _Standard(), _Near(), size)
  rng = np.random.default_rng(0)
  frames = rng.normal(size=(length, 1, 1, size)).astype(np.float32)
  noise = rng.normal(size=(length, count, size)).astype(np.float32)
  nothing = np.zeros((count, 0), np.float32)
  state = model.apply({}, noise[0], nothing, method='initial_state')
  current = Particles(
    state, np.full(count, -np.log(count), np.float32), np.float32(0)
  )

  @jax.jit
  def advance(current, frame, noise):
    observed = Observed(frame, frame.ravel(), nothing[0])
    return particles.advance(model, {}, current, observed, noise)

  dropped = 0
  for t in range(length):
    # All are resampled unless their weights are equal.
    current = _resample(current, np.float32(0.4), 1.0)
    current = jax.tree.map(np.asarray, advance(current, frames[t], noise[t]))
    core, z = current.state.core, current.state.stored_tm1
    # The core was given z_0 = 0 first.
    np.testing.assert_array_equal(core['calls'], t + 1)
    history = core['latents']
    assert not history[:, t + 1 :].any()
    sums = history.sum(1)
    np.testing.assert_allclose(core['sums'][0], sums, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
      core['sums'][1], sums.sum(-1), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(z, sums + noise[t], rtol=1e-5, atol=1e-5)
    if t:
      # Each latent came after those that the core has before it.
      for past in range(1, t + 1):
        steps = history[:, past] - history[:, :past].sum(1)
        drawn = (np.abs(steps[:, None] - noise[past - 1]) < 1e-4).all(-1)
        assert drawn.any(1).all()
      dropped += count - len(np.unique(history[:, t], axis=0))
  assert dropped > count


def test_particles_that_are_all_dead_stay_so_and_give_no_nan():
  model = TemporalVAE(_History(1), _Standard(), _Standard(), _Near(), 1)
  noise, nothing = np.zeros((3, 1), np.float32), np.zeros((3, 0), np.float32)
  state = model.apply({}, noise, nothing, method='initial_state')
  before = Particles(
    state, np.log(np.float32([0.25, 0.5, 0.25])), np.float32(-1)
  )
  frame = np.full((1, 1, 1), np.inf, np.float32)
  after = particles.advance(
    model, {}, before, Observed(frame, frame.ravel(), nothing[0]), noise
  )
  assert after.log_likelihood == -np.inf
  np.testing.assert_array_equal(after.log_weights, before.log_weights)
