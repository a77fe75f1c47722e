"""Evaluation against the same episodes put through the model by hand."""

import dataclasses
import functools

import jax
import numpy as np
from flax import linen as nn

import tiny_preset
from gtmm_jax import folds, train
from gtmm_jax.evaluation import evaluate, generation, metrics, retrieval
from gtmm_jax.model import build, free_energy, generate
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_BATCH, _LATENT = 3, 4
_TINY = tiny_preset.make(latent_size=_LATENT)
_KEY = jax.random.fold_in(jax.random.key(3), 1)


def _images(seed=0):
  rng = np.random.default_rng(seed)
  pixels = rng.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
  pixels[:, :2] = 0
  pixels[:, -2:] = 255
  return Images(pixels, rng.integers(0, 10, 12).astype(np.int32))


class _Normalised(nn.Module):
  """A network behind batch normalisation."""

  network: nn.Module

  @nn.compact
  def __call__(self, x, train, mask=None):
    x = nn.BatchNorm(use_running_average=not train)(x)
    return self.network(x, train, mask)


@functools.cache
def _case():
  """Returns a protocol, variables with averages that matter, and the step."""
  task = PerfectRecall(4, 2)
  model = build.temporal_vae(
    'introspective', _TINY, (8, 8, 1), task.length, store='denoised'
  )
  posterior_map, observation_map = model.posterior_map, model.observation_map
  model = model.clone(
    posterior_map=posterior_map.clone(
      encoder=_Normalised(posterior_map.encoder)
    ),
    observation_map=observation_map.clone(
      decoder=_Normalised(observation_map.decoder)
    ),
  )
  problem = Problem(model, task.sample, _BATCH)
  shapes = jax.eval_shape(
    lambda: train.init_state(problem, Recipe(0.1), _KEY, _images())
  )
  rng = np.random.default_rng(1)
  variables = jax.tree.map(
    lambda leaf: rng.uniform(-0.2, 0.3, leaf.shape).astype(np.float32),
    {'params': shapes.params, 'batch_stats': shapes.batch_stats},
  )
  variables['batch_stats'] = jax.tree.map(
    lambda leaf: np.abs(leaf) + np.float32(0.1), variables['batch_stats']
  )
  protocol = evaluate.Protocol(problem, task.prefix, task.asks)
  step = jax.jit(functools.partial(evaluate.evaluate_batch, protocol))
  return protocol, variables, step


def _zeros():
  """Returns the state before the first batch, with room for two batches."""
  return evaluate.zeros(_case()[0].problem, 6, 2)


@functools.cache
def _infer(model):
  return jax.jit(functools.partial(free_energy.infer, model))


@functools.cache
def _batch(problem):
  return jax.jit(problem.draw)


def _draw(problem, index):
  """Draws the episodes and the noise of evaluation batch `index`."""
  key = jax.random.fold_in(_KEY, np.uint32(folds.EVALUATION + index))
  return _batch(problem)(key, _images())


def _entropy(frames):
  """Returns -p log p - (1 - p) log(1 - p) with 0 log 0 = 0, [...]."""
  p = np.asarray(frames, np.float64)
  total = np.zeros_like(p)
  for q in (p, 1.0 - p):
    total -= q * np.log(np.where(q > 0, q, 1.0))
  return total


def test_batches_are_the_model_put_through_by_hand():
  protocol, variables, step = _case()
  problem = protocol.problem
  infer = _infer(problem.model)
  state = _zeros()
  log_likelihood, kl, masks, floors = [], [], [], []
  for index in range(3):
    state = step(state, variables, _KEY, _images())
    episode, noise = _draw(problem, index)
    terms = infer(variables, episode.frames, episode.condition, noise).terms
    log_likelihood.append(np.asarray(terms.log_likelihood))
    kl.append(np.asarray(terms.kl))
    masks.append(np.asarray(episode.predictable))
    floors.append(_entropy(episode.frames).sum((0, 2, 3, 4)).mean())
  totals, mask = state.totals, np.stack(masks)
  assert totals.batches == 3
  for got, expected in (
    (totals.log_likelihood, np.mean(log_likelihood, -1).sum(0)),
    (totals.kl, np.mean(kl, -1).sum(0)),
    (totals.kl_predictable, (kl * mask).mean((1, 2)).sum()),
    (totals.predictable, mask.mean(-1).sum(0)),
    (state.entropy, np.sum(floors)),
  ):
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_values_of_the_latest_batches_are_kept():
  protocol, variables, step = _case()
  state = _zeros()
  verdicts = []
  for index in range(3):
    state = step(state, variables, _KEY, _images())
    values = jax.tree.map(lambda leaf, row=index % 2: leaf[row], state.episodes)
    episode, noise = _draw(protocol.problem, index)
    terms = _infer(protocol.problem.model)(
      variables, episode.frames, episode.condition, noise
    ).terms
    np.testing.assert_allclose(values.kl, terms.kl, rtol=1e-4)
    np.testing.assert_allclose(
      values.log_likelihood, terms.log_likelihood, rtol=1e-5
    )
    np.testing.assert_array_equal(values.predictable, episode.predictable)
    np.testing.assert_array_equal(values.source, episode.source)
    verdicts.append((values.retrieved_ahead, values.retrieved_free))
  ahead, free = np.moveaxis(verdicts, 1, 0)
  np.testing.assert_array_equal(state.episodes.retrieved_ahead, ahead[[2, 1]])
  assert state.retrieved.frames == (ahead >= 0).sum()
  assert state.retrieved.ahead == (ahead == 1).sum()
  assert state.retrieved.frames_free == (free >= 0).sum()
  assert state.retrieved.free == (free == 1).sum()


def _reads_by_hand(problem, variables):
  """Sums over frames that come back, one at a time, of the second batch."""
  episode, noise = _draw(problem, 1)
  steps = _infer(problem.model)(
    variables, episode.frames, episode.condition, noise
  ).steps
  # Denoised, as the core is given it.
  z = steps.z * (1 - variables['batch_stats']['posterior_variance'])
  expected = np.zeros((7, _LATENT))
  for t, b in np.argwhere(episode.predictable):
    s, m = z[episode.source[t, b], b], steps.posterior.mean[t, b]
    log_scale = steps.posterior.log_scale[t, b]
    expected += (s, s * s, m, m * m, m * s, np.exp(2 * log_scale), log_scale)
  return expected


def test_moments_of_perfect_reads_are_of_what_the_core_was_given():
  protocol, variables, step = _case()
  state = _zeros()
  for _ in range(2):
    state = step(state, variables, _KEY, _images())
  expected = _reads_by_hand(protocol.problem, variables)
  # Two frames of each episode repeat another.
  np.testing.assert_array_equal(state.reads.count, [2 * _BATCH] * 2)
  np.testing.assert_allclose(
    [sums[1] for sums in state.reads[1:]], expected, rtol=1e-3, atol=1e-5
  )


def test_a_core_that_stores_no_latents_has_no_perfect_read():
  task = PerfectRecall(4, 2)
  model = build.temporal_vae('vrnn', _TINY, (8, 8, 1), task.length)
  problem = Problem(model, task.sample, _BATCH)
  variables = jax.eval_shape(
    lambda: train.init_state(problem, Recipe(0.1), _KEY, _images())
  )
  variables = jax.tree.map(
    lambda leaf: np.full(leaf.shape, 0.1, leaf.dtype),
    {'params': variables.params, 'batch_stats': variables.batch_stats},
  )
  protocol = evaluate.Protocol(problem, task.prefix, task.asks)
  state = jax.jit(functools.partial(evaluate.evaluate_batch, protocol))(
    evaluate.zeros(problem, 6, 1), variables, _KEY, _images()
  )
  assert state.episodes.predictable.any()
  assert not any(np.any(sums) for sums in state.reads)


def test_zeros_are_sums_over_nothing():
  state = _zeros()
  assert state.entropy == 0
  for zero, other in zip(state.totals, metrics.zeros(6), strict=True):
    np.testing.assert_array_equal(zero, other)


@jax.jit
def _generate(variables, episode, noise):
  """Generates frames one step ahead, and free-running after four."""
  protocol, _, _ = _case()
  inference = free_energy.infer(
    protocol.problem.model, variables, episode.frames, episode.condition, noise
  )
  return evaluate.generate_twice(
    protocol, variables, _KEY, episode, noise, inference
  )


def test_generated_frames_see_nothing_of_what_they_are_to_be():
  protocol, variables, _ = _case()
  episode, noise = _draw(protocol.problem, 0)
  ahead, free = _generate(variables, episode, noise)
  np.testing.assert_array_equal(free[:4], episode.frames[:4])
  assert ahead.shape == free.shape == episode.frames.shape
  for t in (0, 2, 5):
    other = episode._replace(frames=episode.frames.at[t].set(0.5))
    ahead_moved, free_moved = _generate(variables, other, noise)
    np.testing.assert_array_equal(ahead_moved[: t + 1], ahead[: t + 1])
    if t < 5:
      assert (ahead_moved[t + 1] != ahead[t + 1]).any()
    # Free-running, frame 2 is seen and frame 5 is not.
    assert (free_moved[4:] != free[4:]).any() == (t < 4)


def test_retrieval_is_tallied_over_batches():
  _, variables, step = _case()
  state = _zeros()
  for _ in range(4):
    state = step(state, variables, _KEY, _images())
  tally = state.retrieved
  # Two frames of six are asked for, in each of the sequences.
  assert tally.frames == tally.frames_free == 2 * 4 * _BATCH
  assert 0 <= tally.ahead <= tally.frames
  assert 0 <= tally.free <= tally.frames_free
  assert 0 < tally.chance < tally.frames


def test_views_are_measured_and_not_retrieved():
  protocol, variables, _ = _case()
  model = protocol.problem.model
  # Of likelihoods that are no Bernoulli, no entropy is told.
  gaussian = model.observation_map.clone(likelihood='gaussian')
  problem = dataclasses.replace(
    protocol.problem, model=model.clone(observation_map=gaussian)
  )
  observation = {
    **variables['params']['observation_map'],
    'log_scale': np.full(1, -2, np.float32),
  }
  variables = {
    **variables,
    'params': {**variables['params'], 'observation_map': observation},
  }
  protocol = evaluate.Protocol(problem, 4, 'view')
  step = jax.jit(functools.partial(evaluate.evaluate_batch, protocol))
  state = step(_zeros(), variables, _KEY, _images())
  assert state.entropy == 0
  assert state.retrieved == retrieval.zeros()
  assert (state.episodes.retrieved_ahead[0] == -1).all()
  own, every = state.closeness
  assert own.frames == every.frames == 2 * _BATCH
  # The two frames are repeats: a copy is perfect, what was dreamed is not.
  assert own.copy.error == 0
  np.testing.assert_allclose(own.copy.similarity, 2 * _BATCH, rtol=1e-5)
  np.testing.assert_allclose(own.copy.psnr, 100 * 2 * _BATCH, rtol=1e-6)
  assert own.dream.error > 0 and own.last.error > 0
  assert own.dream.similarity < own.copy.similarity


def test_running_averages_stand_in_for_batch_statistics():
  protocol, variables, step = _case()
  problem = protocol.problem
  before = jax.tree.map(np.array, variables)
  state = step(_zeros(), variables, _KEY, _images())
  # They are read, not moved, and what is read counts.
  jax.tree.map(np.testing.assert_array_equal, before, variables)
  assert 'batch_stats' not in state._fields
  for name, averages in variables['batch_stats'].items():
    doubled = jax.tree.map(lambda x: 2 * x, averages)
    other = {**variables['batch_stats'], name: doubled}
    moved = step(
      _zeros(),
      {**variables, 'batch_stats': other},
      _KEY,
      _images(),
    ).totals
    change = moved.log_likelihood - state.totals.log_likelihood
    assert (change[1:] != 0).all(), name
  # Each sequence alone gives what the batch gives: nothing is mixed.
  episode, noise = _draw(problem, 0)
  alone = [
    _infer(problem.model)(
      variables,
      episode.frames[:, b : b + 1],
      episode.condition[:, b : b + 1],
      noise[:, b : b + 1],
    ).terms
    for b in range(_BATCH)
  ]
  for name in ('kl', 'log_likelihood'):
    expected = np.mean([getattr(terms, name)[:, 0] for terms in alone], axis=0)
    np.testing.assert_allclose(getattr(state.totals, name), expected, rtol=1e-4)


def test_entropy_is_the_floor_of_the_negative_log_likelihood():
  protocol, variables, step = _case()
  images = _images()
  binary = images._replace(pixels=images.pixels // 128 * np.uint8(255))
  assert step(_zeros(), variables, _KEY, binary).entropy == 0
  state = step(_zeros(), variables, _KEY, images)
  frames = _draw(protocol.problem, 0)[0].frames
  # Black and white pixels have none, 0 log 0 included.
  assert (_entropy(frames)[..., :2, :, :] == 0).all()
  assert (_entropy(frames)[..., -2:, :, :] == 0).all()
  assert np.isfinite(state.entropy)
  assert 0 < state.entropy < 6 * 4 * 8 * np.log(2)
  assert -np.sum(state.totals.log_likelihood) > state.entropy


def test_batches_and_replicas_have_their_own_episodes():
  _, variables, step = _case()
  fresh = _zeros()
  one = step(fresh, variables, _KEY, _images())
  again = step(fresh, variables, _KEY, _images())
  np.testing.assert_array_equal(one.totals.kl, again.totals.kl)
  second = step(one, variables, _KEY, _images()).totals.kl - one.totals.kl
  replica = step(
    fresh, variables, jax.random.fold_in(jax.random.key(3), 2), _images()
  )
  assert (np.abs(second - one.totals.kl) > 1e-4).any()
  assert (replica.totals.kl != one.totals.kl).any()


def test_episodes_are_none_that_training_draws():
  protocol, _, _ = _case()
  keys = [0, 1, 2, 3, *(folds.EVALUATION + i for i in range(4))]
  draw = _batch(protocol.problem)
  noises = [
    draw(jax.random.fold_in(_KEY, np.uint32(key)), _images())[1] for key in keys
  ]
  for i, noise in enumerate(noises):
    for other in noises[:i]:
      assert (noise != other).all()


def test_images_are_those_that_are_passed():
  _, variables, step = _case()
  one = step(_zeros(), variables, _KEY, _images(0))
  other = step(_zeros(), variables, _KEY, _images(1))
  assert one.entropy != other.entropy


def test_pixels_are_drawn_where_the_model_watches_black_and_white(monkeypatch):
  protocol, variables, _ = _case()
  problem = protocol.problem
  episode, noise = _draw(problem, 0)
  inference = _infer(problem.model)(
    variables, episode.frames, episode.condition, noise
  )
  keys = []
  monkeypatch.setattr(generate, 'run_free', lambda *args: keys.append(args[6]))
  for binarize in (False, True):
    generation.generate_twice(
      dataclasses.replace(protocol, binarize=binarize),
      variables,
      _KEY,
      episode,
      noise,
      inference,
    )
  assert keys == [None, _KEY]
