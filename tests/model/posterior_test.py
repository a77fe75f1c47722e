"""The residual posterior: its equation, its ends, and a whole model."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import tiny_preset
from gtmm_jax import presets, train
from gtmm_jax.model import build, free_energy, maps
from gtmm_jax.model.distributions import DiagonalGaussian, kl_divergence
from gtmm_jax.problem import Problem
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_LATENT, _BATCH = 3, 2
_FRAME = (4, 4, 1)
_TASK = PerfectRecall(3, 2)
_TINY = tiny_preset.make(
  dense_hidden=(7,),
  latent_size=_LATENT,
  prior_hidden=(5,),
  posterior='residual',
  controller_size=dict.fromkeys(presets.MODELS, 6),
  attention_size=5,
)
_KEY = jax.random.key(0)
# Kernels for a context that does not count.
_NONE = np.zeros((1, 2 * _LATENT), np.float32)
_CLOSED = np.zeros((1, _LATENT), np.float32)


def _normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _gaussian(seed, *shape):
  return DiagonalGaussian(_normal(seed, *shape), _normal(seed + 1, *shape))


def _posterior(features, prior, bias, kernel=_NONE, gate=_CLOSED):
  """Returns the residual posterior of features, with a context of ones."""
  posterior_map = maps.PosteriorMap(None, _LATENT, is_residual=True)
  context = np.ones((*features.shape[:-1], len(kernel)), np.float32)
  params = {
    'from_context': {'kernel': kernel},
    'gate': {'kernel': gate, 'bias': np.full(_LATENT, bias, np.float32)},
  }
  return posterior_map.apply({'params': params}, features, context, prior)


def _by_hand(features, of_context, gate, prior):
  """Moves from the prior to the additive Gaussian, in float64."""
  mean, raw = np.split(np.float64(features) + of_context, 2, axis=-1)
  log_scale = 4 * np.tanh(raw / 4)
  share = 1 / (1 + np.exp(-np.float64(gate)))
  return (
    (1 - share) * prior.mean + share * mean,
    (1 - share) * prior.log_scale + share * log_scale,
  )


def test_residual_posterior_moves_from_the_prior_to_the_additive_one():
  features, kernel, gate = (
    _normal(0, 4, 5, 6),
    _normal(1, 2, 6),
    _normal(4, 2, 3),
  )
  prior = _gaussian(2, 4, 5, 3)
  found = _posterior(features, prior, 0.5, kernel, gate)
  expected = _by_hand(features, kernel.sum(0), gate.sum(0) + 0.5, prior)
  for each, by_hand in zip(found, expected, strict=True):
    np.testing.assert_allclose(each, by_hand, rtol=1e-5, atol=1e-6)


def test_its_ends_are_the_prior_and_the_additive_posterior():
  features, prior = 2 * _normal(0, 8, 6), _gaussian(1, 8, 3)
  additive = maps.PosteriorMap(None, _LATENT).apply(
    {'params': {'from_context': {'kernel': _NONE}}},
    features,
    np.ones((8, 1), np.float32),
  )
  divergences = [
    np.asarray(kl_divergence(_posterior(features, prior, bias), prior))
    for bias in (-100.0, -4.0, 0.0, 4.0, 100.0)
  ]
  np.testing.assert_array_equal(divergences[0], 0.0)
  assert np.all(np.diff([kl.mean() for kl in divergences]) > 0)
  np.testing.assert_allclose(
    divergences[-1], kl_divergence(additive, prior), rtol=1e-6
  )


def test_it_starts_nearly_additive_whatever_the_context():
  posterior_map = maps.PosteriorMap(None, _LATENT, is_residual=True)
  features, context, prior = (
    _normal(0, 8, 6),
    _normal(1, 8, 5),
    _gaussian(2, 8, 3),
  )
  params = posterior_map.init(_KEY, features, context, prior)['params']
  np.testing.assert_array_equal(params['gate']['kernel'], np.zeros((5, 3)))
  share = 1 / (1 + np.exp(-np.asarray(params['gate']['bias'])))
  assert np.all((share > 0.94) & (share < 1))


# The model.


def _model(name='introspective', store='sample', **sizes):
  preset = dataclasses.replace(_TINY, **sizes)
  return build.temporal_vae(name, preset, _FRAME, _TASK.length, store=store)


def test_a_residual_posterior_has_a_gate_and_is_no_default():
  residual, additive = (
    build.variable_shapes(_model(posterior=form), _FRAME)['params']
    for form in ('residual', 'additive')
  )
  gate = residual['posterior_map'].pop('gate')
  assert gate['bias'].shape == (_LATENT,)
  assert residual == additive
  assert presets.SMALL.posterior == presets.PAPER.posterior == 'additive'


def test_a_prior_that_is_a_mixture_is_refused():
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
def test_each_step_starts_from_its_own_prior(store):
  problem, variables, episode, noise = _case(store)
  model = problem.model
  inferred = jax.jit(functools.partial(free_energy.infer, model))(
    variables, episode.frames, episode.condition, noise
  )
  posterior, context = inferred.steps.posterior, inferred.steps.context
  features = model.apply(variables, episode.frames, method='encode')
  params = variables['params']['posterior_map']
  gate = context @ params['gate']['kernel'] + params['gate']['bias']
  prior = model.apply(variables, context, method='prior')
  of_context = context @ params['from_context']['kernel']
  mean, log_scale = _by_hand(features, of_context, gate, prior)
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
