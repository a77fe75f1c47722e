"""Perfect recall against the paper's pseudocode, and the drawing of images."""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.images import Images
from gtmm_jax.tasks.recall import PerfectRecall

# Compiled quickly rather than to run quickly.
_jit = functools.partial(
  jax.jit, compiler_options={'xla_backend_optimization_level': 0}
)
_SIZES = [(6, 6), (6, 1), (1, 1), (2, 1), (5, 3), (20, 5)]


def _images(count=12, first=0, seed=0):
  """Random grey images whose first pixel is their number."""
  rng = np.random.default_rng(seed)
  pixels = rng.integers(0, 256, (count, 4, 5, 1), dtype=np.uint8)
  pixels[:, 0, 0, 0] = np.arange(first, first + count)
  return Images(pixels, rng.integers(0, 10, count).astype(np.int32))


def _numbers(frames):
  """Which images the frames are, [...]."""
  return np.rint(np.asarray(frames)[..., 0, 0, 0] * 255).astype(int)


def _pseudocode(drawn, l, k):  # noqa: E741 - the paper's name
  """Appendix D's PerfectRecall; its loops count from 1."""
  generator = iter(drawn)
  sequence = {}
  for i in range(1, l + 1):
    sequence[i] = next(generator)
  for j in range(1, k + 1):
    sequence[len(sequence) + 1] = sequence[j]
  return np.stack([sequence[i] for i in range(1, len(sequence) + 1)])


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
  task = PerfectRecall(pre_recall, recall, binarize)
  sample, (drawn, _) = _compiled(task)(jax.random.key(seed), images)
  expected = _pseudocode(np.asarray(drawn), pre_recall, recall)
  np.testing.assert_array_equal(sample.frames, expected)
  length = pre_recall + recall
  assert (task.length, task.prefix) == (length, pre_recall)
  assert task.condition_size == 0
  assert sample.condition.shape == (length, 0)
  assert sample.frames.shape == (length, *images.pixels.shape[1:])
  assert sample.frames.dtype == jnp.float32
  assert sample.source.dtype == jnp.int32
  assert sample.predictable.dtype == jnp.bool_
  source = [-1] * pre_recall + list(range(recall))
  np.testing.assert_array_equal(sample.source, source)
  np.testing.assert_array_equal(
    sample.predictable, np.arange(length) >= pre_recall
  )


@pytest.mark.parametrize(('pre_recall', 'recall'), _SIZES)
@pytest.mark.parametrize('binarize', [False, True])
def test_episode_is_the_pseudocode(pre_recall, recall, binarize):
  for seed in (0, 1):
    _check(pre_recall, recall, seed, binarize, _images())


def test_episode_of_any_seed_is_the_pseudocode():
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
    strategies.integers(0, 9),
  )
  def check(size, seed, binarize, images_seed):
    _check(*size, seed, binarize, _images(seed=images_seed))

  check()


def test_one_image_is_enough():
  sample = PerfectRecall(3, 2).sample(jax.random.key(0), _images(1))
  np.testing.assert_array_equal(_numbers(sample.frames), np.zeros(5))


@pytest.mark.parametrize('binarize', [False, True])
def test_runs_inside_jit_and_vmap(binarize):
  task, images = PerfectRecall(4, 3, binarize), _images()
  keys = jax.random.split(jax.random.key(1), 5)
  batch = _jit(jax.vmap(task.sample, in_axes=(0, None)))(keys, images)
  assert batch.frames.shape == (5, 7, 4, 5, 1)
  for b, key in enumerate(keys):
    jax.tree.map(
      lambda many, one, b=b: np.testing.assert_allclose(
        many[b], one, rtol=1e-6
      ),
      batch,
      task.sample(key, images),
    )
  assert len(np.unique(_numbers(batch.frames), axis=0)) > 1 or binarize


def test_images_are_an_argument_that_may_change():
  task = PerfectRecall(3, 1)
  sample = _jit(task.sample)
  one, other = _images(seed=0), _images(first=100, seed=1)
  key = jax.random.key(2)
  np.testing.assert_array_equal(
    _numbers(sample(key, one).frames) + 100,
    _numbers(sample(key, other).frames),
  )


@pytest.mark.parametrize(
  ('pre_recall', 'recall', 'message'),
  [
    (5, 0, 'perfect_recall: recall is 0; it must be at least 1'),
    (5, -2, 'recall is -2; it must be at least 1'),
    (0, 0, 'recall is 0; it must be at least 1'),
    (4, 5, 'recall is 5 and pre_recall 4; recall must not be larger'),
    (0, 1, 'recall is 1 and pre_recall 0; recall must not be larger'),
    (-3, 2, 'recall is 2 and pre_recall -3; recall must not be larger'),
  ],
)
def test_parameters_that_make_no_sense_are_refused(pre_recall, recall, message):
  with pytest.raises(ValueError, match=message):
    PerfectRecall(pre_recall, recall)


def test_task_is_frozen_and_equal_by_its_parameters():
  task = PerfectRecall(4, 2)
  with pytest.raises(dataclasses.FrozenInstanceError):
    task.recall = 1
  assert task == PerfectRecall(4, 2) != PerfectRecall(4, 2, binarize=True)
  assert hash(task) == hash(PerfectRecall(4, 2))


# --- The pseudocode's generator().


def _chi_square(counts):
  """Pearson's statistic of counts that should be even."""
  counts = np.asarray(counts, np.float64)
  return ((counts - counts.mean()) ** 2 / counts.mean()).sum()


def test_draws_are_images_with_their_labels():
  images = _images()
  frames, labels = episode.draw_images(jax.random.key(3), images, 50, False)
  numbers = _numbers(frames)
  np.testing.assert_array_equal(labels, images.labels[numbers])
  np.testing.assert_allclose(
    frames, images.pixels[numbers].astype(np.float64) / 255.0, rtol=1e-6
  )
  assert frames.dtype == jnp.float32
  white = Images(np.full((1, 2, 2, 1), 255, np.uint8), np.zeros(1, np.int32))
  frames, _ = episode.draw_images(jax.random.key(3), white, 1, False)
  np.testing.assert_array_equal(frames, 1.0)


def test_draws_are_uniform_and_independent():
  images, count = _images(8), 5
  keys = jax.random.split(jax.random.key(4), 4_000)
  frames, _ = _jit(
    jax.vmap(lambda key: episode.draw_images(key, images, count, False))
  )(keys)
  numbers = _numbers(frames)
  # Far beyond chance: one in a million for 7 and for 63 degrees of freedom.
  for i in range(count):
    assert _chi_square(np.bincount(numbers[:, i], minlength=8)) < 41
  for first, second in ((0, 1), (1, 2), (0, 4)):
    pairs = 8 * numbers[:, first] + numbers[:, second]
    assert _chi_square(np.bincount(pairs, minlength=64)) < 130
  # Neighbouring keys have nothing to do with each other.
  pairs = 8 * numbers[:-1, 0] + numbers[1:, 0]
  assert _chi_square(np.bincount(pairs, minlength=64)) < 130


def test_episodes_show_no_image_that_was_not_passed():
  training, held_out = _images(7), _images(5, first=7)
  keys = jax.random.split(jax.random.key(5), 400)
  sample = _jit(jax.vmap(PerfectRecall(4, 4).sample, in_axes=(0, None)))
  seen = collections.Counter(_numbers(sample(keys, training).frames).ravel())
  assert set(seen) == set(range(7))
  seen = collections.Counter(_numbers(sample(keys, held_out).frames).ravel())
  assert set(seen) == set(range(7, 12))


def test_binarized_frames_are_draws_that_come_back_unchanged():
  images, task = _images(3), PerfectRecall(6, 6, binarize=True)
  keys = jax.random.split(jax.random.key(6), 50)
  batch = _jit(jax.vmap(task.sample, in_axes=(0, None)))(keys, images)
  frames = np.asarray(batch.frames)
  assert set(np.unique(frames)) == {0.0, 1.0}
  np.testing.assert_array_equal(frames[:, 6:], frames[:, :6])
  # Two draws of one image are two draws: six frames of three images differ.
  for sequence in frames[:, :6].reshape(50, 6, -1):
    assert len(np.unique(sequence, axis=0)) == 6


def test_binarized_pixels_are_on_as_often_as_they_are_grey():
  images, count = _images(1), 20_000
  frames, _ = episode.draw_images(jax.random.key(7), images, count, True)
  grey = images.pixels[0] / 255.0
  error = np.sqrt(grey * (1 - grey) / count)
  assert (np.abs(np.mean(frames, axis=0) - grey) <= 5 * error).all()
  # Pixels are drawn apart from each other.
  pixels = np.asarray(frames).reshape(count, -1)[:, 1:]
  correlation = np.corrcoef(pixels, rowvar=False) - np.eye(pixels.shape[1])
  assert np.abs(correlation).max() < 5 / np.sqrt(count)


@pytest.mark.parametrize('binarize', [False, True])
def test_key_decides(binarize):
  task, images = PerfectRecall(5, 2, binarize), _images()
  one, again, other = (
    task.sample(jax.random.key(seed), images).frames for seed in (8, 8, 9)
  )
  np.testing.assert_array_equal(one, again)
  assert (one != other).any()


def test_any_recalled_steps_make_an_episode():
  frames = np.random.default_rng(10).uniform(size=(4, 2, 3, 3))
  frames = frames.astype(np.float32)
  recalled = np.array([3, 3, 0, 2, 1, 0])
  made = episode.recall_episode(jnp.asarray(frames), jnp.asarray(recalled))
  np.testing.assert_array_equal(made.source, [-1] * 4 + recalled.tolist())
  np.testing.assert_array_equal(made.predictable, [False] * 4 + [True] * 6)
  for t, source in enumerate(np.asarray(made.source)):
    expected = frames[t] if source < 0 else frames[source]
    np.testing.assert_array_equal(made.frames[t], expected)
