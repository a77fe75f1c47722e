"""Dreams after N frames: what is observed, what is dreamt, what is true."""

import types

import jax
import numpy as np
import pytest

import gtmm_jax
from gtmm_jax.runs import prepare
from gtmm_jax.tasks import navigation
from gtmm_jax.tasks.episode import Episode
from gtmm_jax.tasks.frames import Frames, OwnFrames
from gtmm_jax.trained import dreams
from trained_runs import WALK, digits, prepare_run, write

_KEY = jax.random.key(3)


def _episode(length=6, count=2, actions=0, ends=None):
  """Makes episodes whose frames hold their number."""
  numbers = np.arange(length * count).reshape(length, count)
  frames = np.broadcast_to(
    numbers[..., None, None, None], (*numbers.shape, 4, 4, 1)
  )
  mask = None if ends is None else np.arange(length)[:, None] < ends
  condition = np.arange(length * count * actions, dtype=np.float32)
  return Episode(
    frames=frames / 100,
    condition=condition.reshape(length, count, actions),
    source=np.where(numbers > 4, 0, -1),
    predictable=numbers > 4,
    label=np.full(numbers.shape, -1),
    mask=mask,
  )


def _run(actions=0, replica=0):
  """Makes a run that notes the arguments of its functions."""
  notes = {}

  def observe(key, frames, condition):
    notes['observe'] = key, frames, condition
    return 'state', None

  def dream(key, state, length, condition, samples):
    notes['dream'] = key, state, condition
    shape = samples, length, condition.shape[1], 4, 4, 1
    return types.SimpleNamespace(frames=np.full(shape, 0.5))

  task = types.SimpleNamespace(condition_size=actions)
  return types.SimpleNamespace(
    task=task, replica=replica, observe=observe, dream=dream, notes=notes
  )


@pytest.mark.parametrize('length', [None, 2])
def test_dreams_go_on_from_the_state_after_n_frames(length):
  run, episode = _run(actions=3), _episode(actions=3)
  dreamt = dreams.dream(run, _KEY, episode, 3, samples=4, length=length)
  end = 3 + (length or 3)
  keys = jax.random.split(_KEY)
  key, frames, condition = run.notes['observe']
  assert (key == keys[0]).all()
  np.testing.assert_array_equal(frames, episode.frames[:3])
  np.testing.assert_array_equal(condition, episode.condition[:3])
  key, state, condition = run.notes['dream']
  assert (key == keys[1]).all() and state == 'state'
  np.testing.assert_array_equal(condition, episode.condition[3:end])
  assert dreamt.observed == 3
  assert dreamt.frames.shape == (4, end - 3, 2, 4, 4, 1)
  np.testing.assert_array_equal(dreamt.episode.frames, episode.frames[:end])
  np.testing.assert_array_equal(
    dreamt.episode.predictable, episode.predictable[:end]
  )


def test_from_nothing_no_frame_is_observed():
  run, episode = _run(actions=3), _episode(actions=3)
  dreamt = dreams.dream(run, _KEY, episode, 0)
  assert 'observe' not in run.notes
  assert run.notes['dream'][1] is None
  assert dreamt.frames.shape[:3] == (1, 6, 2)


def test_without_a_condition_dreams_go_beyond_the_episode():
  episode = _episode()
  dreamt = dreams.dream(_run(), _KEY, episode, 6, length=2)
  truth = dreamt.episode
  np.testing.assert_array_equal(truth.frames[:6], episode.frames)
  assert np.isnan(truth.frames[6:]).all() and len(truth.frames) == 8
  assert not truth.predictable[6:].any() and (truth.source[6:] == -1).all()
  with pytest.raises(ValueError, match='at most 1, since the model is told'):
    dreams.dream(_run(actions=3), _KEY, _episode(actions=3), 5, length=2)


def test_dreams_end_with_the_longest_episode():
  dreamt = dreams.dream(_run(), _KEY, _episode(ends=[3, 5]), 2)
  assert dreamt.frames.shape[:3] == (1, 3, 2)
  assert len(dreamt.episode.frames) == 5


def test_padding_is_no_truth():
  dreamt = dreams.dream(_run(), _KEY, _episode(ends=[6, 4]), 3)
  ended = np.isnan(dreamt.episode.frames).all(axis=(2, 3, 4))
  np.testing.assert_array_equal(ended, ~dreamt.episode.mask)
  with pytest.raises(ValueError, match=r'episode 2 has 4; observe 0 .* to 4'):
    dreams.dream(_run(), _KEY, _episode(ends=[6, 4]), 5)


@pytest.mark.parametrize(
  ('observed', 'options', 'message'),
  [
    (-1, {}, '-1 frames cannot be observed'),
    (7, {}, 'observe 0 .dream from nothing. to 6'),
    (6, {}, 'All 6 frames of the episode are observed'),
    (3, {'length': 0}, 'length is 0'),
    (3, {'samples': 0}, 'samples is 0'),
  ],
)
def test_numbers_out_of_range_are_told(observed, options, message):
  run = _run()
  with pytest.raises(ValueError, match=message):
    dreams.dream(run, _KEY, _episode(), observed, **options)
  assert not run.notes


def test_dreams_are_of_one_replica():
  with pytest.raises(ValueError, match='replica=0'):
    dreams.dream(_run(replica=None), _KEY, _episode(), 3)


@pytest.fixture(scope='module')
def walker(tmp_path_factory):
  """Returns a run of navigation."""
  folder = tmp_path_factory.mktemp('walk')
  write(prepare_run(folder, **WALK), {2: [-1, -1]})
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(prepare.digit_images, 'load_digits', digits)
    run = gtmm_jax.load(folder, replica=0)
    assert run.data
  return run


def test_ones_own_actions_lead_on_from_the_frames_of_an_episode(walker):
  drawn = dreams.draw(walker, _KEY, 2)
  before = navigation.LETTERS[int(drawn.condition[2, 0].argmax())]
  # Back to where it was before frame 3, and there again.
  letters = {'u': 'd', 'd': 'u', 'l': 'r', 'r': 'l'}[before] + before
  walked = dreams.walk(walker, _KEY, 3, letters)
  assert walked.frames.shape[:2] == (5, 1)
  frames = walked.frames[:, 0]
  np.testing.assert_array_equal(frames[:3], drawn.frames[:3, 0])
  np.testing.assert_array_equal(frames[3:], frames[1:3])
  np.testing.assert_array_equal(walked.source[3:, 0], [1, 2])
  np.testing.assert_array_equal(
    walked.condition[3:, 0], navigation.one_hot(letters)
  )


def test_wrong_actions_and_numbers_are_told(walker):
  for options, message in (
    ({'actions': 'rrx'}, 'are no walk'),
    ({'actions': 'uuu'}, r'Action \d \(up\) leaves the grid of 2 x 2'),
    ({'actions': 'u', 'observed': 7}, '7 frames cannot be observed'),
    ({'actions': 'u', 'count': 0}, 'episodes is 0'),
  ):
    with pytest.raises(ValueError, match=message):
      dreams.walk(walker, _KEY, **{'observed': 3, **options})


def test_recorded_episodes_are_drawn_once_each():
  shown = np.arange(5, dtype=np.uint8).repeat(4 * 64).reshape(5, 4, 8, 8, 1)
  held_out = Frames(shown, np.zeros((5, 4, 0)), np.zeros((5, 4), bool))
  run = types.SimpleNamespace(
    task=OwnFrames(length=4),
    data=types.SimpleNamespace(held_out=lambda split: held_out),
    settings=types.SimpleNamespace(evaluate_on='test'),
  )
  episodes = dreams.draw(run, _KEY, 5)
  assert episodes.frames.shape == (4, 5, 8, 8, 1)
  numbers = np.rint(episodes.frames[0, :, 0, 0, 0] * 255)
  assert sorted(numbers) == [0, 1, 2, 3, 4]
  assert (dreams.draw(run, _KEY, 2).frames == episodes.frames[:, :2]).all()
  with pytest.raises(
    ValueError, match='episodes is 6; the file has 5 for test'
  ):
    dreams.draw(run, _KEY, 6)
