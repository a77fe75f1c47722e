"""Frames past an episode's end change nothing that counts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
import tiny_preset
from gtmm_jax import train
from gtmm_jax.model import build, free_energy, generate, networks
from gtmm_jax.problem import Problem
from gtmm_jax.tasks.mixture import Mixture
from gtmm_jax.tasks.sources.dataset import Images

_TINY = tiny_preset.make(word_size=8, key_size=8)
# T 14: walks end with frame 14, other episodes with frame 12.
_TASK = Mixture(pre_recall=10, recall=2, rows=2, columns=2, length=14)
_BATCH = 12
_MODELS = [('introspective', 'denoised'), ('dnc', 'sample'), ('vrnn', 'mean')]
_every_model = pytest.mark.parametrize(
  ('model', 'store'), slow_cases.but_for([_MODELS[0], _MODELS[2]], _MODELS)
)


def _problem(model, store):
  network = build.temporal_vae(
    model, _TINY, (8, 8, 1), _TASK.length, store=store
  )
  return Problem(network, _TASK.sample, _BATCH)


@functools.cache
def _drawn():
  """Returns episodes, some with padding, and noise, [T, B, ...]."""
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8)
  images = Images(pixels, np.arange(30, dtype=np.int32) % 10)
  draw = jax.jit(_problem(*_MODELS[0]).draw)
  episode, noise = draw(jax.random.key(4), images)
  assert set(np.asarray(episode.part[0])) == {0, 1, 2, 3}
  return episode, noise


@functools.cache
def _variables(model, store):
  problem = _problem(model, store)
  episode, noise = _drawn()
  first = (episode.frames[0], episode.condition[0], noise[0])
  return jax.jit(problem.model.init)(jax.random.key(1), None, *first)


@_every_model
def test_padding_changes_no_term_gradient_or_average(model, store):
  problem, variables = _problem(model, store), _variables(model, store)
  stats = variables.get('batch_stats', {})
  gradient = jax.jit(
    jax.value_and_grad(
      functools.partial(train.objective, problem), has_aux=True
    )
  )

  def compute(episode, noise):
    (loss, inference), gradients = gradient(
      variables['params'], stats, episode, noise
    )
    return loss, inference.terms, inference.batch_stats, gradients

  episode, noise = _drawn()
  rng = np.random.default_rng(1)

  def disturb(leaf):
    other = rng.uniform(size=leaf.shape).astype(np.float32)
    is_padding = ~np.asarray(episode.mask).reshape(
      *episode.mask.shape, *[1] * (leaf.ndim - 2)
    )
    return jnp.where(is_padding, other, leaf)

  before = compute(episode, noise)
  after = compute(
    episode._replace(
      frames=disturb(episode.frames), condition=disturb(episode.condition)
    ),
    disturb(noise),
  )
  jax.tree.map(np.testing.assert_array_equal, before, after)
  assert not np.asarray(before[1].kl)[~np.asarray(episode.mask)].any()
  # The test sees frames that count.
  changed = episode._replace(frames=episode.frames.at[11].set(0.5))
  assert compute(changed, noise)[0] != before[0]


def test_terms_are_those_of_the_episode_alone():
  model, store = _MODELS[1]
  network, variables = _problem(model, store).model, _variables(model, store)
  infer = jax.jit(functools.partial(free_energy.infer, network))
  episode, noise = _drawn()
  inputs = episode.frames, episode.condition, noise
  terms = infer(variables, *inputs, episode.mask).terms
  alone = infer(variables, *(each[:12] for each in inputs)).terms
  is_short = np.asarray(~episode.mask[-1])
  assert 0 < is_short.sum() < _BATCH
  for got, expected in zip(terms, alone, strict=True):
    np.testing.assert_allclose(
      got[:12, is_short], expected[:, is_short], rtol=1e-4, atol=1e-4
    )
    assert not got[12:, is_short].any()


def test_the_average_of_variances_leaves_padding_out():
  network, variables = (make(*_MODELS[0]) for make in (_problem, _variables))
  episode, noise = _drawn()
  inference = jax.jit(
    functools.partial(free_energy.infer, network.model, train=True)
  )(variables, episode.frames, episode.condition, noise, episode.mask)
  variance = np.exp(2 * np.asarray(inference.steps.posterior.log_scale))
  mean = variance[np.asarray(episode.mask)].mean(0)
  np.testing.assert_allclose(
    inference.batch_stats['posterior_variance'], 0.01 * mean, rtol=1e-5
  )


def test_batch_normalisation_leaves_padding_out():
  rng = np.random.default_rng(2)
  frames = rng.normal(size=(3, 2, 8, 8, 1)).astype(np.float32)
  mask = np.array([[1, 1], [1, 1], [1, 0]], bool)
  encoder = networks.DigitEncoder(4)
  initialise = jax.jit(encoder.init, static_argnums=2)
  variables = initialise(jax.random.key(0), frames, False)

  @jax.jit
  def encode(frames, mask):
    return encoder.apply(variables, frames, True, mask, mutable=['batch_stats'])

  whole, stats = encode(frames, mask)
  alone, stats_alone = encode(frames[mask], np.ones(5, bool))
  np.testing.assert_allclose(whole[mask], alone, rtol=1e-4, atol=1e-5)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6),
    stats,
    stats_alone,
  )
  other = np.where(mask[..., None, None, None], frames, 7.0)
  np.testing.assert_allclose(
    encode(other, mask)[0][mask], whole[mask], rtol=1e-5, atol=1e-6
  )


# Of the one whose dream sees the frames that it draws.
@pytest.mark.parametrize(
  ('model', 'store'), slow_cases.but_for(_MODELS[2:], _MODELS)
)
def test_each_episode_is_dreamed_after_its_own_prefix(model, store):
  network, variables = _problem(model, store).model, _variables(model, store)
  episode, noise = _drawn()
  inputs = variables, episode.frames, episode.condition, noise
  run_free = functools.partial(generate.run_free, network)
  least = _TASK.prefix
  frames = jax.jit(
    lambda *inputs: run_free(*inputs, least, None, episode.in_prefix)
  )(*inputs)
  prefixes = {part.prefix for part in _TASK.parts.values()}
  assert prefixes == {8, 10, 11}
  for prefix in prefixes:
    alone = jax.jit(functools.partial(run_free, prefix=prefix))(*inputs)
    columns = np.asarray(episode.in_prefix.sum(0) == prefix)
    assert columns.any()
    np.testing.assert_allclose(
      frames[:, columns], alone[:, columns], rtol=1e-4, atol=1e-5
    )
