"""Tests of all tasks, and of how images are drawn."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks import TASKS, episode
from gtmm_jax.tasks.sources.dataset import Images
from numbered_images import assert_even, assert_frequency, make, numbers

_CASES = [
  ('perfect_recall', (5, 3)),
  ('parity_recall', (5, 3)),
  ('one_shot_recall', (6, 2)),
  ('dynamic_dependency', (11, 4)),
  ('similarity_cued_recall', (6, 3)),
  ('navigation', (2, 3, 9)),
]
_BATCH = 6
_KEYS = jax.random.split(jax.random.key(1), _BATCH)


def _task(name, sizes, binarize=False):
  return TASKS[name](*sizes, binarize)


@functools.cache
def _compiled(task):
  return jax.jit(jax.vmap(task.sample, in_axes=(0, None)))


@functools.cache
def _batch(task):
  """Draws six episodes of numbered images, on the host."""
  return jax.device_get(_compiled(task)(_KEYS, make()))


def _same(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_names_are_the_papers():
  # Rotation, whose frames are rendered, has tests of its own, and so have the
  # mixture and frames that are given, which the paper does not know.
  names = [name for name, _ in _CASES]
  assert list(TASKS) == [*names, 'mixture', 'rotation', 'frames']


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
@pytest.mark.parametrize('binarize', [False, True])
def test_contract(name, sizes, binarize):
  task = _task(name, sizes, binarize)
  made, length = _batch(task), task.length
  assert 1 <= task.prefix < length
  assert made.frames.shape == (_BATCH, length, 4, 5, 1)
  assert made.condition.shape == (_BATCH, length, task.condition_size)
  for field, kind in (
    ('source', jnp.int32),
    ('label', jnp.int32),
    ('predictable', jnp.bool_),
  ):
    values = getattr(made, field)
    assert values.shape == (_BATCH, length), field
    assert values.dtype == kind, field
  assert made.frames.dtype == made.condition.dtype == jnp.float32
  assert made.frames.min() == 0
  assert made.frames.max() == 1
  images = make()
  for b in range(_BATCH):
    for t in range(length):
      source = made.source[b, t]
      assert -1 <= source < t
      if source >= 0:
        _same(made.frames[b, t], made.frames[b, source])
      if not binarize:
        number = numbers(made.frames[b, t])
        np.testing.assert_allclose(
          made.frames[b, t], images.pixels[number] / 255.0, rtol=1e-6
        )
  # Whatever is predictable is a repeat, or of a class that answers.
  assert ((made.source >= 0) | (made.label >= 0))[made.predictable].all()
  assert not ((made.source >= 0) & (made.label >= 0)).any()
  assert made.predictable[:, task.prefix :].any()
  assert (made.label >= -1).all()


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
def test_episodes_of_a_batch_differ(name, sizes):
  frames = _batch(_task(name, sizes)).frames
  assert len(np.unique(frames.reshape(_BATCH, -1), axis=0)) == _BATCH


# The two whose draws are most entangled.
@pytest.mark.parametrize(('name', 'sizes'), [_CASES[1], _CASES[5]])
def test_batch_is_its_singles(name, sizes):
  task = _task(name, sizes)
  made, sample = _batch(task), jax.jit(task.sample)
  for b, key in enumerate(_KEYS):
    _same(sample(key, make()), jax.tree.map(lambda leaf, b=b: leaf[b], made))


def test_outside_jit_it_is_the_same():
  task = _task(*_CASES[1])
  eager = task.sample(_KEYS[0], make())
  compiled = jax.tree.map(lambda leaf: leaf[0], _batch(task))
  np.testing.assert_allclose(eager.frames, compiled.frames, rtol=1e-6)
  _same(eager._replace(frames=()), compiled._replace(frames=()))


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
def test_nothing_leaves_the_device(name, sizes):
  sample = _compiled(_task(name, sizes))
  arguments = jax.device_put((_KEYS, make()))
  sample(*arguments)
  with jax.transfer_guard('disallow'):
    jax.block_until_ready(sample(*arguments))


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
def test_images_are_an_argument_that_may_change(name, sizes):
  sample = _compiled(_task(name, sizes))
  labels = make().labels
  one, other = make(labels=labels), make(labels=labels, first=100, seed=1)
  one, other = (numbers(sample(_KEYS, x).frames) for x in (one, other))
  np.testing.assert_array_equal(one + 100, other)


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
def test_binarized_frames_are_draws_that_come_back_unchanged(name, sizes):
  made = _batch(_task(name, sizes, True))
  assert set(np.unique(made.frames)) == {0.0, 1.0}
  # Two draws of one image are two draws: no more frames are alike than repeat.
  for frames, source in zip(made.frames, made.source, strict=True):
    distinct = len(np.unique(frames.reshape(len(frames), -1), axis=0))
    assert distinct == (source < 0).sum()


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
def test_task_is_frozen_and_equal_by_its_parameters(name, sizes):
  task = _task(name, sizes)
  with pytest.raises(dataclasses.FrozenInstanceError):
    task.binarize = True
  assert task == _task(name, sizes) != _task(name, sizes, True)
  assert hash(task) == hash(_task(name, sizes))


def test_tasks_of_one_size_are_not_equal():
  sizes = [TASKS[name](12, 5) for name, _ in _CASES[:-1]]
  assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize('name', [name for name, _ in _CASES[:-1]])
@pytest.mark.parametrize(
  ('pre_recall', 'recall', 'message'),
  [
    (15, 0, r'recall is 0; it must be at least \d'),
    (15, -2, r'recall is -2; it must be at least \d'),
    (0, 0, r'recall is 0; it must be at least \d'),
    (14, 15, 'recall is 15 and pre_recall 14; recall must not be larger'),
    (0, 2, 'recall is 2 and pre_recall 0; recall must not be larger'),
    (-3, 2, 'recall is 2 and pre_recall -3; recall must not be larger'),
  ],
)
def test_intervals_that_make_no_sense_are_refused(
  name, pre_recall, recall, message
):
  with pytest.raises(ValueError, match=f'^{name}: {message}'):
    TASKS[name](pre_recall, recall)


# --- Images that are made on the device.


class _Drawn(NamedTuple):
  """A sampler that draws as arrays are drawn from."""

  pixels: jax.Array
  labels: jax.Array

  def draw(self, key, count):
    index = jax.random.randint(key, (count,), 0, len(self.labels))
    return jnp.asarray(self.pixels)[index], jnp.asarray(self.labels)[index]


@functools.cache
def _draw(binarize):
  return jax.jit(
    functools.partial(episode.draw_images, count=50, binarize=binarize)
  )


@pytest.mark.parametrize('binarize', [False, True])
@pytest.mark.parametrize('kind', [np.uint8, np.float32])
def test_sampler_serves_as_arrays_do(binarize, kind):
  images = make()
  pixels = images.pixels if kind is np.uint8 else images.pixels / kind(255)
  drawn, expected = (
    _draw(binarize)(jax.random.key(2), x)
    for x in (_Drawn(pixels, images.labels), images)
  )
  np.testing.assert_allclose(drawn[0], expected[0], rtol=1e-6)
  np.testing.assert_array_equal(drawn[1], expected[1])
  assert drawn[0].dtype == jnp.float32


@pytest.mark.parametrize(
  ('name', 'sizes'), [case for case in _CASES if case[0] != 'parity_recall']
)
def test_task_takes_a_sampler(name, sizes):
  task, images = _task(name, sizes), make()
  shapes = (
    jax.eval_shape(task.sample, _KEYS[0], x) for x in (_Drawn(*images), images)
  )
  assert next(shapes) == next(shapes)


# --- The pseudocode's generator().


def test_draws_are_images_with_their_labels():
  images = make()
  frames, labels = _draw(False)(jax.random.key(3), images)
  drawn = numbers(frames)
  np.testing.assert_array_equal(labels, images.labels[drawn])
  np.testing.assert_allclose(
    frames, images.pixels[drawn].astype(np.float64) / 255.0, rtol=1e-6
  )
  assert frames.dtype == jnp.float32


def test_draws_are_uniform_and_independent():
  images, count = make(8), 5
  keys = jax.random.split(jax.random.key(4), 4_000)
  frames, _ = jax.jit(
    jax.vmap(lambda key: episode.draw_images(key, images, count, False))
  )(keys)
  drawn = numbers(frames)
  for i in range(count):
    assert_even(np.bincount(drawn[:, i], minlength=8))
  for first, second in ((0, 1), (1, 2), (0, 4)):
    pairs = 8 * drawn[:, first] + drawn[:, second]
    assert_even(np.bincount(pairs, minlength=64))
  # Neighbouring keys have nothing to do with each other.
  pairs = 8 * drawn[:-1, 0] + drawn[1:, 0]
  assert_even(np.bincount(pairs, minlength=64))


def test_binarized_pixels_are_on_as_often_as_they_are_grey():
  images, count = make(1), 20_000
  frames, _ = jax.jit(
    lambda key: episode.draw_images(key, images, count, True)
  )(jax.random.key(7))
  grey = images.pixels[0] / 255.0
  error = np.sqrt(grey * (1 - grey) / count)
  assert (np.abs(np.mean(frames, axis=0) - grey) <= 5 * error).all()
  # Pixels are drawn apart from each other.
  pixels = np.asarray(frames).reshape(count, -1)[:, 8:]
  correlation = np.corrcoef(pixels, rowvar=False) - np.eye(pixels.shape[1])
  assert np.abs(correlation).max() < 5 / np.sqrt(count)


# --- The pseudocode's generator(label).


@functools.cache
def _of_classes(binarize=False):
  draw = functools.partial(episode.draw_of_classes, count=3, binarize=binarize)
  return jax.jit(jax.vmap(draw, in_axes=(0, None, 0)))


def _draw_of_classes(labels, classes, binarize=False, seed=5):
  """Draws frames of `classes` [B, K] among images of `labels`."""
  keys = jax.random.split(jax.random.key(seed), len(classes))
  images = make(len(labels), labels)
  return _of_classes(binarize)(keys, images, np.asarray(classes, np.int32))


@pytest.mark.parametrize(
  'labels',
  [
    [0, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9],
    [9, 9, 9, 9, 9, 9, 9, 9, 9, 2, 1, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
    [1, 9, 9, 0, 5, 1, 7, 2, 1, 1, 2, 8],
  ],
)
@pytest.mark.parametrize('binarize', [False, True])
def test_draws_of_a_class_are_all_its_images_alike(labels, binarize):
  labels = np.asarray(labels)
  classes = np.random.default_rng(1).integers(0, 3, (4_000, 4))
  drawn = numbers(_draw_of_classes(labels, classes, binarize))
  np.testing.assert_array_equal(labels[drawn], classes)
  for kind in range(3):
    members = np.flatnonzero(labels == kind)
    counts = np.bincount(drawn[classes == kind], minlength=len(labels))
    assert set(np.flatnonzero(counts)) == set(members)
    if len(members) > 1:
      assert_even(counts[members])


def test_draws_of_a_class_are_independent():
  labels = [0] * 5 + [1] * 5 + [2] * 2
  drawn = numbers(_draw_of_classes(labels, [[0, 1, 0, 0]] * 4_000))
  for i, first in enumerate(drawn.T):
    for second in drawn.T[:i]:
      assert_even(np.bincount(5 * (first % 5) + second % 5, minlength=25))


def test_draws_of_a_class_are_its_images_grey_or_binarized():
  images = make(12, np.arange(12) % 3)
  classes = [[0, 1, 2, 0]] * 4_000
  frames = np.asarray(_draw_of_classes(images.labels, classes))
  np.testing.assert_allclose(
    frames, images.pixels[numbers(frames)] / 255.0, rtol=1e-6
  )
  frames = np.asarray(_draw_of_classes(images.labels, classes, binarize=True))
  assert set(np.unique(frames)) == {0.0, 1.0}
  grey = images.pixels[numbers(frames)] / 255.0
  assert_frequency(int(frames.sum()), frames.size, float(grey.mean()))


@pytest.mark.parametrize('binarize', [False, True])
def test_class_without_images_is_not_a_number(binarize):
  labels = [0, 2, 2, 2, 5, 5, 5, 5, 5, 5, 5, 5]
  frames = _draw_of_classes(labels, [[0, 1, 2, 1]] * 4_000, binarize)
  missing = np.isnan(np.asarray(frames[0])).all(axis=(1, 2, 3))
  np.testing.assert_array_equal(missing, [False, True, False, True])
  assert np.isfinite(frames[0, 0]).all()
  np.testing.assert_array_equal(numbers(frames[0, 0]), 0)


def test_classes_of_sixty_thousand_images():
  # As many as MNIST has; sums of that many do not fit a narrow integer.
  labels = np.random.default_rng(2).integers(0, 10, 60_000).astype(np.int32)
  pixels = (np.arange(60_000)[:, None] >> np.arange(16) & 1) * np.uint8(255)
  images = Images(pixels.reshape(-1, 4, 4, 1), labels)
  classes = np.arange(8_000, dtype=np.int32) % 2
  frames = jax.jit(
    lambda key, images: episode.draw_of_classes(key, images, classes, 2, False)
  )(jax.random.key(8), images)
  drawn = np.asarray(frames).reshape(-1, 16).astype(int) @ (1 << np.arange(16))
  np.testing.assert_array_equal(labels[drawn], classes)
  for kind in range(2):
    ranks = np.cumsum(labels == kind)[drawn[classes == kind]] - 1
    share = ranks / (labels == kind).sum()
    assert_even(np.histogram(share, 20, (0, 1))[0])
