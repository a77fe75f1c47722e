"""Every task with every model: a step of training at sizes that are quick."""

import functools
from unittest import mock

import jax
import numpy as np
import pytest

import slow_cases
import striped_rooms
import tiny_preset
from gtmm_jax import presets, train
from gtmm_jax.model import build
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe
from gtmm_jax.tasks import TASKS, frames, rooms
from gtmm_jax.tasks.sources import glyphs
from gtmm_jax.tasks.sources.dataset import Images

# Alike, so that a model is compiled once for all recall tasks, and once for
# navigation and frames, which have as many actions.
_ACTIONS = 4
_SIZES = {task: (10, 2) for task in presets.TASKS} | {
  'navigation': (2, 3, 12),
  'mixture': (10, 2, 2, 3, 13),
  'rotation': (14, 28),
  'frames': (12, _ACTIONS),
}
_BATCH = 2
_TINY = tiny_preset.make(dense_hidden=(8,), word_size=8)
_CELLS = [(task, model) for task in presets.TASKS for model in presets.MODELS]
# Three tasks with the model that compiles soonest. All others are traced, so
# that what is left for slow tests is what only a compiled step shows.
_QUICK = [(task, 'vrnn') for task in ('mixture', 'rotation', 'frames')]
# Every model on recall, which compiles once for five tasks, and every task with
# two of them.
_COMPILED = [
  (task, model)
  for task, model in _CELLS
  if model in ('vrnn', 'introspective')
  or task not in ('navigation', 'mixture', 'rotation', 'frames')
]
_KEY = jax.random.key(0)


@functools.cache
def _images(task):
  if task == 'one_shot_recall':
    return glyphs.split()[0]
  if task == 'rotation':
    return rooms.split(_SIZES[task][1])[0]
  rng = np.random.default_rng(0)
  if task == 'frames':
    return frames.Frames(
      rng.integers(0, 256, (5, 12, 28, 28, 1), dtype=np.uint8),
      rng.normal(size=(5, 12, _ACTIONS)).astype(np.float32),
      np.arange(12) >= np.full((5, 1), 8),
    )
  pixels = rng.integers(0, 256, (20, 28, 28, 1), dtype=np.uint8)
  return Images(pixels, np.arange(20, dtype=np.int32) % 10)


@functools.cache
def _episodes(name):
  """Draws two episodes of a task, [B, T, ...]."""
  sample = jax.vmap(TASKS[name](*_SIZES[name]).sample, in_axes=(0, None))
  # Rooms are long to compile, and no cell needs them.
  with mock.patch.object(rooms, 'render', striped_rooms.render):
    return jax.jit(sample)(jax.random.split(_KEY, _BATCH), _images(name))


def _one_of(key, episodes):
  """Picks one of the episodes that a task's `sample` has drawn."""
  index = jax.random.randint(key, (), 0, _BATCH)
  return jax.tree.map(lambda leaf: leaf[index], episodes)


def _network(task, length, shape, model, preset):
  return build.temporal_vae(
    model,
    preset,
    shape,
    length,
    store=preset.store[model],
    options=presets.OPTIONS.get((model, task), {}),
  )


@functools.cache
def _first_step(network, sample):
  """Returns (key, images) -> the states before and after a step, compiled."""
  problem, recipe = Problem(network, sample, _BATCH), Recipe(1e-3)

  def run(key, images):
    state = train.init_state(problem, recipe, key, images)
    return state, train.train_step(problem, recipe, state, key, images)

  return jax.jit(run)


def _check(before, after, length):
  assert (after.step, after.failed_at) == (1, -1)
  assert after.totals.kl.shape == (length,)
  for leaf in jax.tree.leaves((after.params, after.totals)):
    assert np.isfinite(leaf).all()
  pairs = zip(
    jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True
  )
  # All but what has no gradient before anything was learned.
  assert np.mean([(one != other).any() for one, other in pairs]) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(('task', 'model'), _CELLS)
def test_a_step_keeps_all_shapes(task, model):
  """Traces a step, without compiling it."""
  episodes = _episodes(task)
  length = episodes.frames.shape[1]
  network = _network(task, length, _images(task).shape, model, _TINY)
  before, after = jax.eval_shape(_first_step(network, _one_of), _KEY, episodes)
  assert before == after
  assert after.totals.kl.shape == (length,)


@pytest.mark.parametrize(
  ('task', 'model'), slow_cases.but_for(_QUICK, _COMPILED)
)
def test_a_step_at_tiny_sizes(task, model):
  episodes = _episodes(task)
  length = episodes.frames.shape[1]
  network = _network(task, length, _images(task).shape, model, _TINY)
  before, after = _first_step(network, _one_of)(_KEY, episodes)
  _check(before, after, length)
  # Of episodes that are drawn alike, each step's is one of the two.
  shares = np.asarray(episodes.predictable).mean(1)
  share = float(after.totals.predictable.mean())
  assert shares.min() - 1e-6 <= share <= shares.max() + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(('task', 'model'), _CELLS)
def test_a_step_of_the_paper_preset(task, model):
  sizes = dict(presets.PAPER.episodes[task])
  if task == 'frames':
    sizes = {'length': 12, 'condition_size': _ACTIONS}
  instance = TASKS[task](**sizes)
  images = rooms.split()[0] if task == 'rotation' else _images(task)
  preset = presets.choose('paper', images.shape[-1])
  network = _network(task, instance.length, images.shape, model, preset)
  _check(*_first_step(network, instance.sample)(_KEY, images), instance.length)
