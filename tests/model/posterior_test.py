"""The posterior as a product with the prior: equation, limits, a model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax import presets, train
from gtmm_jax.model import build, free_energy, maps
from gtmm_jax.model.distributions import DiagonalGaussian, kl_divergence
from gtmm_jax.problem import Problem
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_LATENT, _BATCH = 3, 2
_FRAME = (4, 4, 1)
_TASK = PerfectRecall(3, 2)
_TINY = dataclasses.replace(
  presets.SMALL,
  dense_hidden=(7,),
  latent_size=_LATENT,
  prior_hidden=(5,),
  posterior='product',
  read_heads=2,
  controller_size=dict.fromkeys(presets.MODELS, 6),
  attention_size=5,
)
_KEY = jax.random.key(0)
# The context's part of f_q, where it has none.
_NONE = np.zeros((1, 2 * _LATENT), np.float32)


def _normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _gaussian(seed, *shape):
  return DiagonalGaussian(_normal(seed, *shape), _normal(seed + 1, *shape))


def _posterior(features, prior, kernel=_NONE):
  """Returns the posterior of features, with a context of ones."""
  posterior_map = maps.PosteriorMap(None, _LATENT)
  context = np.ones((*features.shape[:-1], len(kernel)), np.float32)
  variables = {'params': {'from_context': {'kernel': kernel}}}
  return posterior_map.apply(variables, features, context, prior)


def _by_hand(features, context, prior):
  """Multiplies the two Gaussians' precisions and means, in float64."""
  raw = np.float64(features) + np.float64(context)
  mean, raw_scale = np.split(raw, 2, axis=-1)
  precision = np.exp(-2 * 4 * np.tanh(raw_scale / 4))
  of_prior = np.exp(-2 * np.float64(prior.log_scale))
  total = precision + of_prior
  mean = (precision * mean + of_prior * np.float64(prior.mean)) / total
  return mean, -0.5 * np.log(total)


def test_product_weighs_means_by_precisions():
  features, kernel = _normal(0, 4, 5, 6), _normal(1, 2, 6)
  prior = _gaussian(2, 4, 5, 3)
  found = _posterior(features, prior, kernel)
  mean, log_scale = _by_hand(features, kernel.sum(0), prior)
  np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(found.log_scale, log_scale, rtol=1e-5, atol=1e-6)


def test_product_is_the_exact_posterior_of_a_linear_gaussian_model():
  # p(z) = N(m, s^2), x = a z + e with e of variance r: the mean and the scale
  # of z given x, by conditioning their joint Gaussian.
  m, s, a, r, x = 0.7, 0.6, -1.3, 0.4, 1.1
  of_x = a * a * s * s + r
  mean = m + a * s * s / of_x * (x - a * m)
  variance = s * s - (a * s * s) ** 2 / of_x
  # As a function of z, p(x | z) is N(x / a, r / a^2) but for a constant.
  raw = 4 * np.arctanh(0.5 * np.log(r / a**2) / 4)
  features = np.float32([x / a] * _LATENT + [raw] * _LATENT)
  prior = DiagonalGaussian(*(jnp.full(_LATENT, v) for v in (m, np.log(s))))
  found = _posterior(features, prior)
  np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
  np.testing.assert_allclose(np.exp(2 * found.log_scale), variance, rtol=1e-5)


def test_kl_falls_to_zero_as_the_context_widens_the_frame():
  features, prior = 2 * _normal(0, 8, 6), _gaussian(1, 8, 3)
  prior = prior._replace(log_scale=prior.log_scale - 1)
  divergences = []
  for width in (0.0, 2.0, 4.0, 1e3):
    kernel = np.float32([[0.0] * _LATENT + [width] * _LATENT])
    kl = kl_divergence(_posterior(features, prior, kernel), prior)
    assert np.all(np.asarray(kl) >= 0)
    divergences.append(float(kl.mean()))
    additive = kl_divergence(_posterior(features, None, kernel), prior)
  assert np.all(np.diff(divergences) < 0)
  # Whatever the frame; where it is added, the KL grows instead.
  assert divergences[-1] < 0.01 < 100 < float(additive.mean())
  assert divergences[0] > 1


def test_extreme_scales_have_finite_values_and_gradients():
  far = np.float32([-1e30, -9.0, 9.0, 1e30])
  raw, of_prior = (each.ravel() for each in np.meshgrid(far, [-4.0, 4.0]))

  def divergence(raw):
    features = jnp.stack([jnp.ones(8), raw], axis=-1)
    prior = DiagonalGaussian(jnp.zeros((8, 1)), jnp.float32(of_prior)[:, None])
    posterior_map = maps.PosteriorMap(None, 1)
    variables = {'params': {'from_context': {'kernel': jnp.zeros((1, 2))}}}
    q = posterior_map.apply(variables, features, jnp.ones((8, 1)), prior)
    return kl_divergence(q, prior).sum()

  value, gradient = jax.jit(jax.value_and_grad(divergence))(raw)
  assert np.isfinite(value)
  assert np.all(np.isfinite(gradient))


# The model.


def _model(name='introspective', store='sample', **sizes):
  preset = dataclasses.replace(_TINY, **sizes)
  return build.temporal_vae(name, preset, _FRAME, _TASK.length, store=store)


def test_both_forms_have_the_same_parameters():
  product, additive = (
    build.variable_shapes(_model(posterior=form), _FRAME)
    for form in ('product', 'additive')
  )
  assert product == additive
  assert presets.SMALL.posterior == presets.PAPER.posterior == 'additive'


def test_a_product_with_a_mixture_is_refused():
  with pytest.raises(ValueError, match='set prior_components to 1, or post'):
    _model(prior_components=2)


@functools.cache
def _case(store):
  """Returns a problem, its variables, none zero, and an episode with noise."""
  problem = Problem(_model(store=store), _TASK.sample, _BATCH)
  rng = np.random.default_rng(1)
  variables = jax.tree.map(
    lambda leaf: rng.normal(0.0, 0.4, leaf.shape).astype(np.float32),
    build.variable_shapes(problem.model, _FRAME),
  )
  images = rng.integers(0, 256, (9, *_FRAME), dtype=np.uint8)
  images = Images(images, np.arange(9, dtype=np.int32))
  return problem, variables, *jax.jit(problem.draw)(_KEY, images)


@pytest.mark.parametrize('store', ['sample', 'mean'])
def test_each_step_multiplies_with_its_own_prior(store):
  problem, variables, episode, noise = _case(store)
  model = problem.model
  inferred = jax.jit(functools.partial(free_energy.infer, model))(
    variables, episode.frames, episode.condition, noise
  )
  posterior, context = inferred.steps.posterior, inferred.steps.context
  features = model.apply(variables, episode.frames, method='encode')
  kernel = variables['params']['posterior_map']['from_context']['kernel']
  prior = model.apply(variables, context, method='prior')
  mean, log_scale = _by_hand(features, context @ kernel, prior)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  close(posterior.mean, mean)
  close(posterior.log_scale, log_scale)
  close(inferred.terms.kl, kl_divergence(posterior, inferred.prior))


def test_written_out_gradients_reach_all_parts_and_are_those_of_jax():
  problem, variables, episode, noise = _case('sample')

  def bound(params):
    terms = free_energy.infer(
      problem.model,
      {'params': params},
      episode.frames,
      episode.condition,
      noise,
    ).terms
    return free_energy.negative_bound(terms).mean()

  def written_out(params):
    return train.objective(problem, params, {}, episode, noise)[0]

  plain, found = (
    jax.jit(jax.grad(each))(variables['params'])
    for each in (bound, written_out)
  )
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-4),
    found,
    plain,
  )
  for part in ('prior_map', 'posterior_map'):
    for leaf in jax.tree.leaves(found[part]):
      assert np.abs(leaf).max() > 0
