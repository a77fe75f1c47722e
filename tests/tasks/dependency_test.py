"""Dynamic dependency, similarity-cued recall against the paper's pseudocode."""

import functools
import math

import jax
import numpy as np
import pytest

from gtmm_jax.tasks.dependency import DynamicDependency, SimilarityCuedRecall
from numbered_images import (
  assert_even,
  assert_frequency,
  make,
  numbers,
)

# l, k and whether to binarize.
_DYNAMIC = [(10, 1, False), (10, 10, False), (20, 5, True)]
_SIMILARITY = [(2, 2, False), (6, 6, False), (20, 5, True)]
_BATCH = 16


def _dynamic(drawn, images, l, k):  # noqa: E741 - the paper's name
  """Writes out appendix D's DynamicDependency.

  Its loops count from 1; labels are addresses from 0.

  Returns:
    The numbers of all images, and the step from 0 of each recalled one.
  """
  generator = ((number, images.labels[number]) for number in drawn)
  sequence, labels, addresses = {}, {}, []
  for i in range(1, l + 1):
    sequence[i], labels[i] = next(generator)
  for j in range(1, k + 1):
    address = int(labels[l + j - 1])
    sequence[l + j] = sequence[address + 1]
    labels[l + j] = labels[address + 1]
    addresses.append(address)
  return list(sequence.values()), addresses


def _similarity(drawn, offset, l, k):  # noqa: E741 - the paper's name
  """Writes out appendix D's SimilarityBasedDependency, for an offset from 0."""
  generator = iter(drawn)
  sequence = []
  for _ in range(l):
    sequence.append(next(generator))
  assert 0 <= offset <= l - k
  sub_sequence = sequence[offset : offset + k]
  return sequence + sub_sequence, list(range(offset, offset + k))


@functools.cache
def _compiled(task):
  return jax.jit(jax.vmap(task.sample, in_axes=(0, None)))


def _check(kind, pre_recall, recall, binarize, seed, images):
  """Compares a batch of episodes with the pseudocode."""
  task = kind(pre_recall, recall, binarize)
  length = pre_recall + recall
  prefix = pre_recall + (kind is SimilarityCuedRecall)
  assert (task.length, task.prefix) == (length, prefix)
  assert task.condition_size == 0
  keys = jax.random.split(jax.random.key(seed), _BATCH)
  batch = jax.device_get(_compiled(task)(keys, images))
  np.testing.assert_array_equal(batch.label, np.full((_BATCH, length), -1))
  for b, shown in enumerate(numbers(batch.frames)):
    if kind is DynamicDependency:
      written = _dynamic(shown, images, pre_recall, recall)
    else:
      offset = int(batch.source[b, pre_recall])
      written = _similarity(shown, offset, pre_recall, recall)
    expected, addresses = written
    np.testing.assert_array_equal(shown, expected)
    source = [-1] * pre_recall + addresses
    np.testing.assert_array_equal(batch.source[b], source)
    np.testing.assert_array_equal(
      batch.predictable[b], np.arange(length) >= prefix
    )
    np.testing.assert_array_equal(
      batch.frames[b, pre_recall:], batch.frames[b, addresses]
    )


_CASES = [(DynamicDependency, size) for size in _DYNAMIC] + [
  (SimilarityCuedRecall, size) for size in _SIMILARITY
]


@pytest.mark.parametrize(('kind', 'size'), _CASES)
def test_episode_is_the_pseudocode(kind, size):
  for seed in (0, 1):
    _check(kind, *size, seed, make())


def test_episode_of_any_labels_is_the_pseudocode():
  hypothesis = pytest.importorskip('hypothesis')
  from hypothesis import strategies

  # Of the sizes above: what is compiled for them serves here too.
  @hypothesis.settings(
    max_examples=20, deadline=None, database=None, derandomize=True
  )
  @hypothesis.given(
    strategies.sampled_from(_CASES),
    strategies.integers(0, 2**31 - 1),
    strategies.lists(strategies.integers(0, 9), min_size=40, max_size=40),
  )
  def check(case, seed, labels):
    kind, size = case
    _check(kind, *size, seed, make(labels=labels))

  check()


# --- Dynamic dependency.


@pytest.mark.parametrize('label', [0, 7, 9])
def test_digits_of_one_class_lead_to_one_frame(label):
  images = make(labels=[label] * 40)
  keys = jax.random.split(jax.random.key(1), _BATCH)
  batch = _compiled(DynamicDependency(10, 10))(keys, images)
  np.testing.assert_array_equal(batch.source[:, 10:], label)
  shown = numbers(batch.frames)
  np.testing.assert_array_equal(
    shown[:, 10:], np.repeat(shown[:, label, None], 10, axis=1)
  )


@functools.cache
def _dynamic_episodes(pre_recall):
  """Numbers and sources of 4,000 episodes of 40 images, four of each class."""
  images = make(labels=np.arange(40) % 10)
  keys = jax.random.split(jax.random.key(2), 4_000)
  batch = _compiled(DynamicDependency(pre_recall, 5))(keys, images)
  return numbers(batch.frames), np.asarray(batch.source), images.labels


def test_pre_recall_frames_and_first_jumps_are_uniform():
  shown, source, _ = _dynamic_episodes(12)
  for t in (0, 5, 11):
    assert_even(np.bincount(shown[:, t], minlength=40))
  assert_even(np.bincount(source[:, 12], minlength=10))
  # All ten positions are called for, and none after them.
  assert set(source[:, 12:].ravel()) == set(range(10))


@pytest.mark.parametrize('pre_recall', [10, 12])
def test_frames_come_again_as_often_as_in_random_maps(pre_recall):
  _, source, _ = _dynamic_episodes(pre_recall)
  # With l = 10 the last frame before the recall is among the ten addresses.
  steps = source[:, pre_recall:]
  if pre_recall == 10:
    steps = np.concatenate([np.full((len(steps), 1), 9), steps], axis=1)
  for j in range(1, steps.shape[1]):
    # Not until the walk over addresses has met itself, after i new ones, is
    # its next address other than one of ten anew.
    fresh = [math.perm(10, i) / 10**i for i in range(1, j + 2)]
    met = 1 - fresh[j]
    seen = (steps[:, :j] == steps[:, j, None]).any(axis=1)
    assert_frequency(int(seen.sum()), len(seen), met)
    at_once = sum(fresh[:j]) / 10
    same = steps[:, j] == steps[:, j - 1]
    assert_frequency(int(same.sum()), len(same), at_once)


@pytest.mark.parametrize(
  ('pre_recall', 'recall', 'message'),
  [
    (9, 5, 'pre_recall is 9; it must be at least 10'),
    (1, 1, 'pre_recall is 1; it must be at least 10'),
  ],
)
def test_positions_that_no_label_has_are_refused(pre_recall, recall, message):
  with pytest.raises(ValueError, match=f'^dynamic_dependency: {message}'):
    DynamicDependency(pre_recall, recall)


# --- Similarity-cued recall.


def test_offsets_are_uniform_and_independent_of_the_images():
  images = make(12)
  keys = jax.random.split(jax.random.key(4), 6_000)
  batch = _compiled(SimilarityCuedRecall(8, 3))(keys, images)
  shown, offsets = numbers(batch.frames), np.asarray(batch.source)[:, 8]
  assert set(offsets) == set(range(6))
  assert_even(np.bincount(offsets))
  assert_even(np.bincount(6 * shown[:, 0] + offsets, minlength=72))
  # The recalled images are as any others.
  for t in (0, 7, 8, 10):
    assert_even(np.bincount(shown[:, t], minlength=12))
  # Neighbouring keys have nothing to do with each other.
  assert_even(np.bincount(6 * offsets[1:] + offsets[:-1], minlength=36))


@pytest.mark.parametrize('recall', [1, 0, -1])
def test_cue_alone_is_refused(recall):
  message = f'^similarity_cued_recall: recall is {recall}; it must be at least '
  with pytest.raises(ValueError, match=f'{message}2, since its first frame'):
    SimilarityCuedRecall(5, recall)
