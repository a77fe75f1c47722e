"""Training of one replica: updates, failures, keys, sums."""

import dataclasses
import functools
import types
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import plain_training
import tiny_preset
from gtmm_jax import train
from gtmm_jax.evaluation import metrics
from gtmm_jax.memory.scan import Recompute
from gtmm_jax.model import build
from gtmm_jax.model.distributions import Bernoulli, kl_divergence
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe, make_optimizer
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_BATCH, _LATENT = 3, 4
_TASK = PerfectRecall(2, 2)
_TINY = tiny_preset.make(latent_size=_LATENT)


def _digits():
  """Draws ten images of a few bold patterns."""
  rng = np.random.default_rng(0)
  pixels = np.repeat(rng.random((10, 4, 4, 1)) < 0.4, 2, axis=1)
  pixels = np.repeat(pixels, 2, axis=2).astype(np.uint8) * 230
  return Images(pixels, np.arange(10, dtype=np.int32))


def _sample(key, images):
  """Draws an episode, and scales its frames, by NaN to let a step fail."""
  digits, scale = images
  episode = _TASK.sample(key, digits)
  return episode._replace(frames=episode.frames * scale)


_IMAGES = (_digits(), np.float32(1))
_BROKEN = (_digits(), np.float32(np.nan))
_PROBLEM = Problem(
  build.temporal_vae(
    'introspective', _TINY, (8, 8, 1), _TASK.length, store='denoised'
  ),
  _sample,
  _BATCH,
)
_KEY = jax.random.fold_in(jax.random.key(7), 0)


# Within five steps the rate rises, stays and falls.
_RECIPE = Recipe(
  learning_rate=0.01,
  schedule='decay',
  warmup_steps=2,
  decay_steps=9,
  gradient_norm=200.0,
  average=0.3,
)
_draw = jax.jit(_PROBLEM.draw)
_objective = jax.jit(functools.partial(train.objective, _PROBLEM))


_init = jax.jit(functools.partial(train.init_state, _PROBLEM, _RECIPE))


@functools.cache
def _compiled():
  """Returns a fresh state and the compiled step."""
  step = jax.jit(functools.partial(train.train_step, _PROBLEM, _RECIPE))
  return _init(_KEY, _IMAGES), step


def _same(one, other):
  """Tells whether two trees are equal bit for bit, NaN included."""
  leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
  return all(np.array_equal(a, b, equal_nan=True) for a, b in leaves)


def _all_differ(one, other):
  leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
  return all(not np.array_equal(a, b) for a, b in leaves)


def _close(one, other, **tolerance):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, **tolerance), one, other
  )


def test_fresh_state():
  state, _ = _compiled()
  assert state.step == 0
  assert state.failed_at == -1
  assert state.step.dtype == state.failed_at.dtype == jnp.int32
  assert _same(state.totals, metrics.zeros(_TASK.length))
  assert set(state.batch_stats) == {'posterior_variance'}
  assert _same(state.optimizer, make_optimizer(_RECIPE).init(state.params))
  assert _same(state.average, (state.params, state.batch_stats))


def test_batch_is_of_independent_episodes():
  episode, noise = _draw(_KEY, _IMAGES)
  length = _TASK.length
  assert episode.frames.shape == (length, _BATCH, 8, 8, 1)
  assert episode.condition.shape == (length, _BATCH, 0)
  assert episode.predictable.shape == (length, _BATCH)
  assert noise.shape == (length, _BATCH, _LATENT)
  frames = np.asarray(episode.frames)
  for b in range(_BATCH):
    np.testing.assert_array_equal(frames[2:, b], frames[:2, b])
  assert not np.array_equal(frames[:, 0], frames[:, 1])
  assert len(np.unique(noise)) == noise.size
  many = dataclasses.replace(_PROBLEM, batch_size=2_000)
  noise = np.asarray(jax.jit(lambda key: many.draw(key, _IMAGES)[1])(_KEY))
  count = noise.size
  assert abs(noise.mean()) < 5 / np.sqrt(count)
  assert abs(noise.var() - 1) < 5 * np.sqrt(2 / count)


def test_bound_rises():
  state, step = _compiled()
  losses = []
  for _ in range(40):
    state = step(train.reset_totals(state), _KEY, _IMAGES)
    terms = state.totals
    losses.append(float(np.sum(terms.kl - terms.log_likelihood)))
  assert state.failed_at == -1
  assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_steps_are_the_recipe_applied_to_gradients_of_a_plain_loop():
  start, step = _compiled()
  model = _PROBLEM.model

  @jax.jit
  def gradient(params, batch_stats, episode, noise):
    def loss(params):
      variables = {'params': params, 'batch_stats': batch_stats}
      state, total = None, 0.0
      for t in range(_TASK.length):
        frame = episode.frames[t]
        state, inferred, prior, decoded = model.apply(
          variables, state, frame, episode.condition[t], noise[t]
        )
        plain = decoded.log_likelihood(frame).sum((1, 2, 3))
        kl = kl_divergence(inferred.posterior, prior)
        total += (kl - plain).sum() / _BATCH
      return total

    return jax.grad(loss)(params)

  state, norms, is_clipped = start, 0.0, []
  plain = plain_training.begin(start.params)
  for number in range(1, 6):
    drawn = _draw(jax.random.fold_in(_KEY, number), _IMAGES)
    gradients = gradient(plain.params, state.batch_stats, *drawn)
    norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(gradients)))
    norms += norm
    is_clipped.append(norm > _RECIPE.gradient_norm)
    plain = plain_training.update(_RECIPE, plain, gradients)
    before = state
    state = step(state, _KEY, _IMAGES)
    assert state.step == number
    _close(state.params, plain.params, rtol=1e-3, atol=1e-4)
    _close(state.average.params, plain.average, rtol=1e-3, atol=1e-4)
    decay = min(0.3, number / (number + 9))
    _close(
      state.average.batch_stats,
      jax.tree.map(
        lambda old, new, decay=decay: decay * old + (1 - decay) * new,
        before.average.batch_stats,
        state.batch_stats,
      ),
      rtol=1e-6,
    )
    # Of gradients before clipping.
    np.testing.assert_allclose(state.gradient_norm, norms, rtol=1e-3)
  assert {*is_clipped} == {True, False}
  assert _all_differ(start.params, state.params)
  assert _all_differ(start.batch_stats, state.batch_stats)
  assert _all_differ(state.average, (state.params, state.batch_stats))


def test_objective_is_the_mean_over_the_batch_of_the_bound():
  state, _ = _compiled()
  loss, inference = _objective(
    state.params, state.batch_stats, *_draw(_KEY, _IMAGES)
  )
  kl, log_likelihood = inference.terms.kl, inference.terms.log_likelihood
  expected = np.mean(np.sum(np.asarray(kl) - log_likelihood, axis=0))
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  # A training pass: it moves the running averages.
  assert _all_differ(state.batch_stats, inference.batch_stats)


def test_step_that_is_not_finite_is_marked_and_changes_nothing():
  state, step = _compiled()
  for _ in range(2):
    state = step(state, _KEY, _IMAGES)
  assert state.failed_at == -1
  failed = step(state, _KEY, _BROKEN)
  assert failed.failed_at == 3
  assert failed.step == 3
  expected = state._replace(step=failed.step, failed_at=failed.failed_at)
  assert _same(failed, expected)
  # Neither sound images nor broken ones change it any more.
  for number, images in ((4, _IMAGES), (5, _BROKEN), (6, _IMAGES)):
    failed = step(failed, _KEY, images)
    assert failed.step == number
    assert _same(failed, expected._replace(step=failed.step))


def test_parameters_that_are_not_finite_fail_at_once():
  start, step = _compiled()
  params = jax.tree.map(lambda leaf: leaf, start.params)
  params['prior_map']['Dense_0']['bias'] = np.full(8, np.nan, np.float32)
  state = step(start._replace(params=params), _KEY, _IMAGES)
  assert state.failed_at == 1
  assert _same(state, start._replace(params=params, step=1, failed_at=1))


class _Kink(nn.Module):
  """Finite logits whose gradient is not: 0 times the slope of a root at 0."""

  @nn.compact
  def __call__(self, z, context, train, mask=None):
    weight = self.param('weight', nn.initializers.zeros, (64,))
    logits = nn.Dense(64)(z) + jnp.sqrt(0.0 * weight)
    return Bernoulli(logits.reshape(*z.shape[:-1], 8, 8, 1))


def test_gradient_that_is_not_finite_fails_though_the_bound_is():
  model = build.temporal_vae('vrnn', _TINY, (8, 8, 1), _TASK.length)
  problem = Problem(model.clone(observation_map=_Kink()), _sample, _BATCH)
  shapes = jax.eval_shape(
    lambda: train.init_state(problem, _RECIPE, _KEY, _IMAGES)
  )
  start = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
  start = start._replace(failed_at=np.int32(-1))
  loss, _ = jax.jit(functools.partial(train.objective, problem))(
    start.params, start.batch_stats, *_draw(_KEY, _IMAGES)
  )
  assert np.isfinite(loss)
  state = jax.jit(functools.partial(train.train_step, problem, _RECIPE))(
    start, _KEY, _IMAGES
  )
  assert _same(state, start._replace(step=1, failed_at=1))


def test_run_is_a_function_of_seed_replica_and_step():
  start, step = _compiled()
  one = step(start, _KEY, _IMAGES)
  assert _same(one, step(start, _KEY, _IMAGES))
  totals = [one.totals]
  # Another step, another replica, another seed: other batches.
  later = step(start._replace(step=jnp.int32(1)), _KEY, _IMAGES)
  totals.append(later.totals)
  for seed, replica in ((7, 1), (8, 0)):
    key = jax.random.fold_in(jax.random.key(seed), replica)
    totals.append(step(start, key, _IMAGES).totals)
  for i, first in enumerate(totals):
    for second in totals[:i]:
      assert (first.log_likelihood != second.log_likelihood).all()


def test_initial_parameters_depend_on_the_replica():
  other_key = jax.random.fold_in(jax.random.key(7), 1)
  one, again, other = (
    _init(key, _IMAGES).params for key in (_KEY, _KEY, other_key)
  )
  assert _same(one, again)
  kernels = [one['core']['controller'], other['core']['controller']]
  assert not np.array_equal(kernels[0]['kernel'], kernels[1]['kernel'])


def test_totals_are_those_of_the_training_batches():
  state, step = _compiled()
  terms, masks = [], []
  for number in (1, 2, 3):
    episode, noise = _draw(jax.random.fold_in(_KEY, number), _IMAGES)
    _, inference = _objective(state.params, state.batch_stats, episode, noise)
    terms.append(inference.terms)
    masks.append(np.asarray(episode.predictable))
    state = step(state, _KEY, _IMAGES)
    _close(state.batch_stats, inference.batch_stats, rtol=1e-4)
  log_likelihood, kl = (np.stack(x) for x in zip(*terms, strict=True))
  mask = np.stack(masks)
  totals = state.totals
  assert totals.batches == 3
  for got, expected in (
    (totals.log_likelihood, log_likelihood.mean(-1).sum(0)),
    (totals.kl, kl.mean(-1).sum(0)),
    (totals.kl_predictable, (kl * mask).mean((1, 2)).sum()),
    (totals.predictable, mask.mean(-1).sum(0)),
  ):
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_resetting_totals_changes_nothing_else():
  start, step = _compiled()
  state = step(start, _KEY, _IMAGES)
  reset = train.reset_totals(state)
  assert _same(reset.totals, metrics.zeros(_TASK.length))
  assert state.gradient_norm > 0 and reset.gradient_norm == 0
  sums = {'totals': state.totals, 'gradient_norm': state.gradient_norm}
  assert _same(reset._replace(**sums), state)
  for old, new in zip(state.totals, reset.totals, strict=True):
    assert old.dtype == new.dtype
  after = [step(x, _KEY, _IMAGES) for x in (state, reset)]
  assert _same(after[0].params, after[1].params)
  assert after[1].totals.batches == 1


def test_means_are_over_the_batches_of_a_replica():
  state, step = _compiled()
  for _ in range(2):
    state = step(state, _KEY, _IMAGES)
  sums = (state.totals, state.gradient_norm, state.failed_at)
  three = jax.tree.map(lambda leaf: np.stack([leaf] * 3), sums)
  three[0].batches[1] = 0
  three[2][2] = 7
  means = train.means(*three)
  norm = float(state.gradient_norm) / 2
  np.testing.assert_allclose(means.pop('gradient_norm'), [norm, *[np.nan] * 2])
  expected = metrics.means(three[0], three[2])
  assert means.keys() == expected.keys()
  assert _same(
    [means['kl'], means['kl_new']], [expected['kl'], expected['kl_new']]
  )


@pytest.mark.parametrize('recompute', get_args(Recompute))
def test_training_computes_again_what_is_asked(monkeypatch, recompute):
  calls = []

  def infer(*_, **options):
    calls.append((options['recompute'], options['train']))
    raise StopIteration

  monkeypatch.setattr(train.free_energy, 'infer', infer)
  problem = Problem(None, None, 1, recompute)
  episode = types.SimpleNamespace(frames=None, condition=None, mask=None)
  with pytest.raises(StopIteration):
    train.objective(problem, {}, {}, episode, None)
  assert calls == [(recompute, True)]
