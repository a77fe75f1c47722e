"""Perfect, parity and one-shot recall against the paper's pseudocode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.recall import OneShotRecall, ParityRecall, PerfectRecall
from numbered_images import assert_even, make, numbers

# l, k and whether to binarize.
_SIZES = [
  (6, 6, False),
  (6, 1, False),
  (1, 1, False),
  (20, 5, False),
  (5, 3, True),
]
_BATCH = 16


def _perfect(drawn, labels, l, k):  # noqa: E741 - the paper's name
  """Writes out appendix D's PerfectRecall, whose loops count from 1.

  `drawn` are what the generator gives, in turn.
  """
  del labels
  generator = iter(drawn)
  sequence = {}
  for i in range(1, l + 1):
    sequence[i] = next(generator)
  for j in range(1, k + 1):
    sequence[len(sequence) + 1] = sequence[j]
  return list(sequence.values()), list(range(k))


def _parity(drawn, labels, l, k):  # noqa: E741 - the paper's name
  """Writes out appendix D's ParityRecall, whose loops count from 1.

  An even digit is answered by a 0.
  """
  instances = iter(drawn)

  def generator(label=None):
    number = next(instances)
    assert label in (None, labels[number])
    return number, labels[number]

  sequence, shown = {}, {}
  for i in range(1, l + 1):
    sequence[i], shown[i] = generator()
  answers = []
  for j in range(1, k + 1):
    answers.append(0 if shown[j] in (0, 2, 4, 6, 8) else 1)
    sequence[len(sequence) + 1], _ = generator(label=answers[-1])
  return list(sequence.values()), answers


_PSEUDOCODE = {
  PerfectRecall: _perfect,
  OneShotRecall: _perfect,
  ParityRecall: _parity,
}


@functools.cache
def _compiled(task):
  return jax.jit(jax.vmap(task.sample, in_axes=(0, None)))


def _check(kind, pre_recall, recall, binarize, seed, images):
  """Compares a batch of episodes with the pseudocode."""
  task = kind(pre_recall, recall, binarize)
  length = pre_recall + recall
  assert (task.length, task.prefix) == (length, pre_recall)
  assert task.condition_size == 0
  keys = jax.random.split(jax.random.key(seed), _BATCH)
  batch = jax.device_get(_compiled(task)(keys, images))
  for b, shown in enumerate(numbers(batch.frames)):
    expected, answers = _PSEUDOCODE[kind](
      shown, images.labels, pre_recall, recall
    )
    np.testing.assert_array_equal(shown, expected)
    by_class = kind is ParityRecall
    unknown, nothing = [-1] * pre_recall, [-1] * recall
    np.testing.assert_array_equal(
      batch.source[b], unknown + (nothing if by_class else answers)
    )
    np.testing.assert_array_equal(
      batch.label[b], unknown + (answers if by_class else nothing)
    )
    np.testing.assert_array_equal(
      batch.predictable[b], np.arange(length) >= pre_recall
    )
    if not by_class:
      np.testing.assert_array_equal(
        batch.frames[b, pre_recall:], batch.frames[b, :recall]
      )


@pytest.mark.parametrize('kind', [PerfectRecall, ParityRecall])
@pytest.mark.parametrize('size', _SIZES)
def test_episode_is_the_pseudocode(kind, size):
  for seed in (0, 1):
    _check(kind, *size, seed, make())


def test_one_shot_recall_is_perfect_recall_of_other_images():
  characters = make(labels=1_500 + np.arange(40) // 4)
  _check(OneShotRecall, 20, 5, False, 0, characters)
  keys = jax.random.split(jax.random.key(0), _BATCH)
  one, other = (
    _compiled(kind(20, 5))(keys, characters)
    for kind in (OneShotRecall, PerfectRecall)
  )
  jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize('kind', [PerfectRecall, ParityRecall])
def test_episode_of_any_seed_and_labels_is_the_pseudocode(kind):
  hypothesis = pytest.importorskip('hypothesis')
  from hypothesis import strategies

  # Of the sizes above: what is compiled for them serves here too.
  @hypothesis.settings(
    max_examples=15, deadline=None, database=None, derandomize=True
  )
  @hypothesis.given(
    strategies.sampled_from(_SIZES),
    strategies.integers(0, 2**31 - 1),
    strategies.lists(strategies.integers(0, 9), min_size=38, max_size=38),
  )
  def check(size, seed, labels):
    # Each answer has an image at least.
    _check(kind, *size, seed, make(labels=[*labels, 1, 0]))

  check()


def test_one_image_is_enough():
  sample = PerfectRecall(3, 2).sample(jax.random.key(0), make(1))
  np.testing.assert_array_equal(numbers(sample.frames), np.zeros(5))


@pytest.mark.parametrize('kind', [PerfectRecall, ParityRecall])
def test_episodes_show_no_image_that_was_not_passed(kind):
  keys = jax.random.split(jax.random.key(5), _BATCH)
  for first in (0, 100):
    images = make(first=first, labels=np.arange(40) % 10)
    shown = numbers(_compiled(kind(20, 5))(keys, images).frames)
    # 400 draws miss one of 40 images once in 600.
    assert set(shown.ravel()) <= set(range(first, first + 40))
    assert len(set(shown.ravel())) > 35


def test_any_recalled_steps_make_an_episode():
  frames = np.random.default_rng(10).uniform(size=(4, 2, 3, 3))
  frames = frames.astype(np.float32)
  recalled = np.array([3, 3, 0, 2, 1, 0])
  made = episode.recall_episode(jnp.asarray(frames), jnp.asarray(recalled))
  np.testing.assert_array_equal(made.source, [-1] * 4 + recalled.tolist())
  np.testing.assert_array_equal(made.predictable, [False] * 4 + [True] * 6)
  np.testing.assert_array_equal(made.label, [-1] * 10)
  for t, source in enumerate(np.asarray(made.source)):
    expected = frames[t] if source < 0 else frames[source]
    np.testing.assert_array_equal(made.frames[t], expected)


# --- Parity.


@pytest.mark.parametrize('digit', range(10))
def test_every_digit_has_its_answer(digit):
  # The only 0 and the only 1 are never among the digits that ask, unless 0 or 1
  # is asked of.
  images = make(labels=[0, 1] + [digit] * 38)
  keys = jax.random.split(jax.random.key(digit), _BATCH)
  shown = numbers(_compiled(ParityRecall(6, 6))(keys, images).frames)
  asked, answers = shown[:, :6], shown[:, 6:]
  assert (asked > 1).any()
  for question, answer in zip(asked.ravel(), answers.ravel(), strict=True):
    assert images.labels[answer] == images.labels[question] % 2
  if digit > 1:
    np.testing.assert_array_equal(answers[asked > 1], digit % 2)


@functools.cache
def _parity_episodes():
  """Draws 4,000 episodes, l 3 and k 2; returns images' numbers and labels."""
  labels = np.array([0, 1, 2, 3, 0, 1, 5, 0, 8, 1, 9, 0])
  keys = jax.random.split(jax.random.key(6), 4_000)
  batch = _compiled(ParityRecall(3, 2))(keys, make(12, labels))
  return numbers(batch.frames), labels


def test_answers_are_drawn_afresh_from_the_whole_class():
  shown, labels = _parity_episodes()
  answers = shown[:, 3:]
  for kind, members in ((0, [0, 4, 7, 11]), (1, [1, 5, 9])):
    counts = np.bincount(answers[labels[answers] == kind], minlength=12)
    assert set(np.flatnonzero(counts)) == set(members)
    assert_even(counts[members])
    # Neither the digit that asks, nor the next digit, nor the next answer.
    rank = np.searchsorted(members, answers[:, 0])
    for other in (0, 1, 2):
      for asked in np.unique(shown[:, other]):
        fits = (labels[answers[:, 0]] == kind) & (shown[:, other] == asked)
        if fits.sum() >= 100:
          assert_even(np.bincount(rank[fits], minlength=len(members)))
    both = (labels[answers] == kind).all(axis=1)
    ranks = np.searchsorted(members, answers[both])
    pairs = len(members) * ranks[:, 0] + ranks[:, 1]
    assert_even(np.bincount(pairs, minlength=len(members) ** 2))


def test_digits_that_ask_are_uniform():
  shown, _ = _parity_episodes()
  for t in range(3):
    assert_even(np.bincount(shown[:, t], minlength=12))


def test_missing_answer_is_not_a_number():
  images = make(labels=[0, 2] * 20)._replace(labels=np.full(40, 1, np.int32))
  keys = jax.random.split(jax.random.key(7), 4)
  sample = _compiled(ParityRecall(6, 6))
  assert np.isfinite(sample(keys, images).frames).all()
  images = images._replace(labels=np.full(40, 3, np.int32))
  frames = np.asarray(sample(keys, images).frames)
  assert np.isfinite(frames[:, :6]).all()
  assert np.isnan(frames[:, 6:]).all()
