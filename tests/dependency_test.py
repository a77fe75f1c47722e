"""Dynamic dependency against the paper's pseudocode."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.dependency import DynamicDependency
from gtmm_jax.tasks.images import Images

# Compiled quickly rather than to run quickly.
_jit = functools.partial(
  jax.jit, compiler_options={'xla_backend_optimization_level': 0}
)
_SIZES = [(10, 1), (10, 10), (13, 4), (20, 5)]


def _images(count=40, labels=None, seed=0):
  """Random grey images whose first pixel is their number."""
  rng = np.random.default_rng(seed)
  pixels = rng.integers(0, 256, (count, 4, 5, 1), dtype=np.uint8)
  pixels[:, 0, 0, 0] = np.arange(count)
  if labels is None:
    labels = rng.integers(0, 10, count)
  return Images(pixels, np.asarray(labels, np.int32))


def _numbers(frames):
  """Which images the frames are, [...]."""
  return np.rint(np.asarray(frames)[..., 0, 0, 0] * 255).astype(int)


def _pseudocode(drawn, drawn_labels, l, k):  # noqa: E741 - the paper's name
  """Appendix D's DynamicDependency: loops from 1, labels are addresses from 0.

  Returns:
    The frames, and the step from 0 of each recalled one.
  """
  generator = iter(zip(drawn, drawn_labels, strict=True))
  sequence, labels, addresses = {}, {}, []
  for i in range(1, l + 1):
    sequence[i], labels[i] = next(generator)
  for j in range(1, k + 1):
    address = int(labels[l + j - 1])
    sequence[l + j] = sequence[address + 1]
    labels[l + j] = labels[address + 1]
    addresses.append(address)
  return np.stack([sequence[i] for i in range(1, l + k + 1)]), addresses


@functools.cache
def _compiled(task):
  """An episode, and what its generator() drew."""
  return _jit(
    lambda key, images: (
      task.sample(key, images),
      episode.draw_images(key, images, task.pre_recall, task.binarize),
    )
  )


def _check(pre_recall, recall, seed, binarize, images):
  task = DynamicDependency(pre_recall, recall, binarize)
  sample, drawn = _compiled(task)(jax.random.key(seed), images)
  frames, addresses = _pseudocode(*map(np.asarray, drawn), pre_recall, recall)
  np.testing.assert_array_equal(sample.frames, frames)
  length = pre_recall + recall
  assert (task.length, task.prefix) == (length, pre_recall)
  assert task.condition_size == 0
  assert sample.condition.shape == (length, 0)
  assert sample.frames.dtype == jnp.float32
  assert sample.source.dtype == jnp.int32
  assert sample.predictable.dtype == jnp.bool_
  np.testing.assert_array_equal(sample.source, [-1] * pre_recall + addresses)
  np.testing.assert_array_equal(
    sample.predictable, np.arange(length) >= pre_recall
  )


@pytest.mark.parametrize(('pre_recall', 'recall'), _SIZES)
@pytest.mark.parametrize('binarize', [False, True])
def test_episode_is_the_pseudocode(pre_recall, recall, binarize):
  for seed in (0, 1):
    _check(pre_recall, recall, seed, binarize, _images())


def test_episode_of_any_labels_is_the_pseudocode():
  hypothesis = pytest.importorskip('hypothesis')
  from hypothesis import strategies

  # Of the sizes above: what is compiled for them serves here too.
  @hypothesis.settings(
    max_examples=20, deadline=None, database=None, derandomize=True
  )
  @hypothesis.given(
    strategies.sampled_from(_SIZES),
    strategies.integers(0, 2**31 - 1),
    strategies.booleans(),
    strategies.lists(strategies.integers(0, 9), min_size=40, max_size=40),
  )
  def check(size, seed, binarize, labels):
    _check(*size, seed, binarize, _images(labels=labels))

  check()


@pytest.mark.parametrize('label', [0, 7, 9])
def test_digits_of_one_class_lead_to_one_frame(label):
  images = _images(labels=[label] * 40)
  task = DynamicDependency(10, 5)
  sample, _ = _compiled(task)(jax.random.key(1), images)
  np.testing.assert_array_equal(sample.source[10:], [label] * 5)
  np.testing.assert_array_equal(
    _numbers(sample.frames)[10:], [_numbers(sample.frames)[label]] * 5
  )


def test_each_recalled_frame_shows_where_the_next_one_was():
  images, task = _images(), DynamicDependency(12, 10)
  keys = jax.random.split(jax.random.key(2), 100)
  batch = _jit(jax.vmap(task.sample, in_axes=(0, None)))(keys, images)
  numbers, source = _numbers(batch.frames), np.asarray(batch.source)
  labels = images.labels[numbers]
  for b in range(100):
    for t in range(12, 22):
      assert source[b, t] == labels[b, t - 1]
      assert numbers[b, t] == numbers[b, source[b, t]]
  # All ten positions are called for, and none after them.
  assert set(source[:, 12:].ravel()) == set(range(10))


@pytest.mark.parametrize('binarize', [False, True])
def test_runs_inside_jit_and_vmap(binarize):
  task, images = DynamicDependency(11, 3, binarize), _images()
  keys = jax.random.split(jax.random.key(3), 4)
  batch = _jit(jax.vmap(task.sample, in_axes=(0, None)))(keys, images)
  for b, key in enumerate(keys):
    jax.tree.map(
      lambda many, one, b=b: np.testing.assert_allclose(
        many[b], one, rtol=1e-6
      ),
      batch,
      task.sample(key, images),
    )


def test_pre_recall_frames_and_first_jumps_are_uniform():
  count = 20
  images = _images(count, np.arange(count) % 10)
  keys = jax.random.split(jax.random.key(4), 4_000)
  task = DynamicDependency(10, 2)
  batch = _jit(jax.vmap(task.sample, in_axes=(0, None)))(keys, images)
  numbers = _numbers(batch.frames)
  assert numbers.min() == 0
  assert numbers.max() == count - 1

  def chi_square(values, classes):
    counts = np.bincount(values, minlength=classes)
    return ((counts - counts.mean()) ** 2 / counts.mean()).sum()

  # One in a million for 19 and for 9 degrees of freedom.
  for t in (0, 4, 9):
    assert chi_square(numbers[:, t], count) < 66
  assert chi_square(np.asarray(batch.source)[:, 10], 10) < 46


def test_binarized_frames_come_back_unchanged():
  task = DynamicDependency(10, 8, binarize=True)
  sample = task.sample(jax.random.key(5), _images())
  frames = np.asarray(sample.frames)
  assert set(np.unique(frames)) == {0.0, 1.0}
  np.testing.assert_array_equal(frames[10:], frames[sample.source[10:]])
  assert len(np.unique(frames[:10].reshape(10, -1), axis=0)) == 10


@pytest.mark.parametrize(
  ('pre_recall', 'recall', 'message'),
  [
    (9, 5, 'pre_recall is 9; it must be at least 10'),
    (1, 1, 'pre_recall is 1; it must be at least 10'),
    (10, 0, 'dynamic_dependency: recall is 0; it must be at least 1'),
    (10, 11, 'recall is 11 and pre_recall 10; recall must not be larger'),
    (12, -1, 'recall is -1; it must be at least 1'),
  ],
)
def test_parameters_that_make_no_sense_are_refused(pre_recall, recall, message):
  with pytest.raises(ValueError, match=message):
    DynamicDependency(pre_recall, recall)


def test_task_is_frozen():
  with pytest.raises(dataclasses.FrozenInstanceError):
    DynamicDependency(10, 5).pre_recall = 11
