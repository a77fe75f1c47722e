"""The temporal VAE with a mixture as its prior, against its parts by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_preset
from gtmm_jax import recipe, train
from gtmm_jax.evaluation import evaluate
from gtmm_jax.model import build, free_energy, generate, maps
from gtmm_jax.model.distributions import DiagonalGaussian, Mixture, kl_bound
from gtmm_jax.problem import Problem
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_BATCH, _LATENT, _COMPONENTS = 3, 4, 3
_TASK = PerfectRecall(3, 2)
_TINY = tiny_preset.make(latent_size=_LATENT, prior_components=_COMPONENTS)
_IMAGES = Images(
  np.random.default_rng(0).integers(0, 256, (9, 8, 8, 1), dtype=np.uint8),
  np.arange(9, dtype=np.int32),
)
_KEY = jax.random.key(3)
_cases = pytest.mark.parametrize(
  ('name', 'store'), [('vrnn', 'sample'), ('introspective', 'mean')]
)


@functools.cache
def _case(name, store):
  """Returns a problem and variables in which no part is zero."""
  model = build.temporal_vae(name, _TINY, (8, 8, 1), _TASK.length, store=store)
  shapes = build.variable_shapes(model, (8, 8, 1))
  rng = np.random.default_rng(1)
  variables = jax.tree.map(
    lambda leaf: rng.normal(0.0, 0.4, leaf.shape).astype(np.float32), shapes
  )
  return Problem(model, _TASK.sample, _BATCH), variables


@functools.cache
def _drawn(name, store):
  return jax.jit(_case(name, store)[0].draw)(_KEY, _IMAGES)


@functools.cache
def _inferred(name, store):
  problem, variables = _case(name, store)
  episode, noise = _drawn(name, store)
  infer = jax.jit(functools.partial(free_energy.infer, problem.model))
  return infer(variables, episode.frames, episode.condition, noise)


def _chosen(prior: Mixture, noise):
  """Draws from a mixture [B, K, Z] by a plain loop."""
  z = []
  for log_weights, mean, log_scale, numbers in zip(
    prior.log_weights, *prior.components, noise, strict=True
  ):
    rank = jax.scipy.stats.norm.cdf(numbers[-1])
    component, passed = 0, np.exp(log_weights[0])
    while rank >= passed:
      component += 1
      passed += np.exp(log_weights[component])
    scale = np.exp(log_scale[component])
    z.append(mean[component] + scale * numbers[:-1])
  return np.stack(z)


# The prior map.


def test_prior_map_splits_the_last_layer_by_component():
  prior_map = maps.PriorMap(_LATENT, (6,), _COMPONENTS)
  context = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
  variables = prior_map.init(_KEY, context)
  prior = prior_map.apply(variables, context)
  first, last = (variables['params'][f'Dense_{layer}'] for layer in range(2))
  hidden = np.maximum(context @ first['kernel'] + first['bias'], 0)
  raw = hidden @ last['kernel'] + last['bias']
  raw = np.float64(raw).reshape(2, 5, _COMPONENTS, 2 * _LATENT + 1)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
  close(prior.components.mean, raw[..., :_LATENT])
  close(prior.components.log_scale, 4 * np.tanh(raw[..., _LATENT:-1] / 4))
  logits = raw[..., -1]
  close(prior.log_weights, logits - np.logaddexp.reduce(logits, -1)[..., None])
  close(np.exp(prior.log_weights).sum(-1), 1.0)


def test_components_start_apart_even_without_a_context():
  prior_map = maps.PriorMap(32, (6,), _COMPONENTS)
  context = np.zeros(7, np.float32)
  prior = prior_map.apply(prior_map.init(_KEY, context), context)
  means = np.asarray(prior.components.mean)
  assert 0.4 < means.std() < 0.6
  distances = np.linalg.norm(means[:, None] - means, axis=-1)
  assert distances[np.triu_indices(_COMPONENTS, 1)].min() > 2
  np.testing.assert_array_equal(prior.components.log_scale, 0.0)
  np.testing.assert_allclose(np.exp(prior.log_weights), 1 / _COMPONENTS)


def test_one_component_is_the_plain_gaussian():
  plain, one = (maps.PriorMap(_LATENT, (6,), *k) for k in ((), (1,)))
  context = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)
  variables = plain.init(_KEY, context)
  assert jax.tree.map(np.shape, variables) == {
    'params': {
      'Dense_0': {'kernel': (7, 6), 'bias': (6,)},
      'Dense_1': {'kernel': (6, 2 * _LATENT), 'bias': (2 * _LATENT,)},
    }
  }
  prior = one.apply(one.init(_KEY, context), context)
  assert isinstance(prior, DiagonalGaussian)
  jax.tree.map(
    np.testing.assert_array_equal, prior, plain.apply(variables, context)
  )


@pytest.mark.parametrize('count', [0, -1])
def test_no_component_is_refused(count):
  with pytest.raises(ValueError, match='prior_components is .*at least 1'):
    maps.PriorMap(_LATENT, (), count).init(_KEY, np.zeros(3, np.float32))


# The model.


@pytest.mark.parametrize('count', [1, 2, 3])
def test_noise_has_one_number_more_for_a_choice_of_components(count):
  model = build.temporal_vae(
    'vrnn',
    dataclasses.replace(_TINY, prior_components=count),
    (8, 8, 1),
    _TASK.length,
  )
  problem = Problem(model, _TASK.sample, _BATCH)
  _, noise = jax.eval_shape(problem.draw, _KEY, _IMAGES)
  assert noise.shape == (_TASK.length, _BATCH, _LATENT + (count > 1))
  assert noise.shape[-1] == model.noise_size


@_cases
def test_terms_are_those_of_a_plain_loop(name, store):
  problem, variables = _case(name, store)
  episode, noise = _drawn(name, store)
  inferred, state = _inferred(name, store), None
  apply = jax.jit(problem.model.apply)
  for t in range(_TASK.length):
    state, step, prior, decoded = apply(
      variables, state, episode.frames[t], episode.condition[t], noise[t]
    )
    assert isinstance(prior, Mixture)
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-4)
    mean, log_scale = step.posterior
    # The last number chooses a component of the prior, and nothing here.
    close(step.z, mean + np.exp(log_scale) * noise[t, :, :-1])
    close(inferred.terms.kl[t], kl_bound(step.posterior, prior))
    likelihood = decoded.log_likelihood(episode.frames[t]).sum((1, 2, 3))
    close(inferred.terms.log_likelihood[t], likelihood)
    jax.tree.map(
      close, prior, jax.tree.map(lambda leaf, t=t: leaf[t], inferred.prior)
    )


@_cases
def test_frames_ahead_and_dreamed_choose_components(name, store):
  problem, variables = _case(name, store)
  model = problem.model
  episode, noise = _drawn(name, store)
  inferred = _inferred(name, store)
  protocol = evaluate.Protocol(problem, _TASK.prefix, _TASK.asks)
  ahead, free = jax.jit(
    lambda *parts: evaluate.generate_twice(protocol, variables, _KEY, *parts)
  )(episode, noise, inferred)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  z = np.stack(
    [
      _chosen(jax.tree.map(lambda leaf, t=t: leaf[t], inferred.prior), noise[t])
      for t in range(_TASK.length)
    ]
  )
  decoded = model.apply(variables, z, inferred.steps.context, method='decode')
  close(ahead, decoded.mean)
  # The first dreamed frame has the same past, and the same noise.
  close(free[_TASK.prefix], ahead[_TASK.prefix])
  dream = jax.jit(functools.partial(generate.continue_episode, model))(
    variables, episode.frames[: _TASK.prefix], episode.condition, noise
  )
  close(dream.frames, free[_TASK.prefix :])
  close(dream.z[0], z[_TASK.prefix])
  assert dream.z.shape == (_TASK.recall, _BATCH, _LATENT)


@functools.cache
def _training():
  """Returns a fresh state and the compiled step."""
  problem, _ = _case('introspective', 'mean')
  optimizer = recipe.Recipe(learning_rate=1e-2)
  state = jax.jit(functools.partial(train.init_state, problem, optimizer))(
    _KEY, _IMAGES
  )
  return state, jax.jit(functools.partial(train.train_step, problem, optimizer))


@pytest.mark.parametrize('logit', [-30.0, -1e9])
def test_a_component_that_died_lets_the_others_learn(logit):
  """Its weight is 0, or too small to count, in every context."""
  state, step = _training()
  last = state.params['prior_map']['Dense_1']
  numbers = 2 * _LATENT + 1
  bias = np.array(last['bias'])
  bias[numbers - 1] = logit
  kernel = np.array(last['kernel'])
  kernel[:, numbers - 1] = 0.0
  params = {
    **state.params,
    'prior_map': {
      **state.params['prior_map'],
      'Dense_1': {'bias': jnp.asarray(bias), 'kernel': jnp.asarray(kernel)},
    },
  }
  state = state._replace(params=params)
  for _ in range(3):
    state = step(state, _KEY, _IMAGES)
  assert state.failed_at == -1
  after = np.asarray(state.params['prior_map']['Dense_1']['bias'])
  assert np.isfinite(after).all()
  moved = np.abs(after - bias).reshape(_COMPONENTS, numbers)
  assert (moved[1:, :_LATENT] > 1e-3).all()
  if logit < -100:
    np.testing.assert_array_equal(moved[0], 0.0)
