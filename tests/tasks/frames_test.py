"""Episodes of one's own as a task: drawing, three parts, windows."""

import jax
import numpy as np
import pytest

import own_episodes
from gtmm_jax.tasks import frames
from gtmm_jax.tasks.frames import OwnFrames
from gtmm_jax.tasks.sources import frame_files
from gtmm_jax.tasks.sources.dataset import DataError
from numbered_images import assert_even

_MANY = 1e9
_KEYS = jax.random.split(jax.random.key(0), 600)


def _save(folder, count, shape=(8, 12, 3), save=np.savez, **others):
  file = folder / 'episodes.npz'
  save(file, frames=own_episodes.make(count, 4, shape), **others)
  return file


def _companions(count):
  """Makes a condition and marks from the numbers of episode and step."""
  condition = np.arange(count * 8, dtype=np.float64).reshape(count, 4, 2)
  marks = (np.arange(count)[:, None] >> np.arange(4)) & 1
  return {'condition': condition, 'predictable': marks}


def _draw(task, images, keys=_KEYS):
  return jax.device_get(jax.jit(jax.vmap(task.sample, (0, None)))(keys, images))


def _every(count, place):
  """Returns the numbers of every tenth episode, the first one `place`."""
  return [number - 1 for number in range(place, count + 1, 10)]


@pytest.mark.parametrize('count', [3, 9, 10, 18, 19, 20, 57, 100])
def test_the_ninth_and_the_tenth_of_ten_are_not_trained_on(count):
  training, validation, test = frames.split(count)
  if count < 10:
    assert [list(validation), list(test)] == [[count - 2], [count - 1]]
  else:
    assert list(validation) == _every(count, 9)
    assert list(test) == _every(count, 10)
  assert sorted([*training, *validation, *test]) == list(range(count))


@pytest.mark.parametrize('save', [np.savez, np.savez_compressed])
def test_episodes_are_drawn_from_their_own_part(tmp_path, save):
  file = _save(tmp_path, 30, save=save)
  sets = frames.load(file, _MANY)
  task = OwnFrames(4)
  drawn = own_episodes.numbers(_draw(task, sets.training).frames)
  counts = np.bincount(drawn, minlength=30)
  assert set(np.flatnonzero(counts == 0)) == {8, 9, 18, 19, 28, 29}
  assert_even(counts[counts > 0])
  for part, expected in (
    (sets.validation, {8, 18, 28}),
    (sets.test, {9, 19, 29}),
  ):
    assert set(own_episodes.numbers(_draw(task, part).frames)) == expected
  assert '24 training, 3 validation and 3 test episodes' in sets.source
  assert 'the ninth of every ten, and test the tenth' in sets.source
  assert str(file) in sets.source and 'at a time' not in sets.source
  assert sets.doubts == ()


def test_of_a_few_episodes_the_last_two_are_not_trained_on(tmp_path):
  sets = frames.load(_save(tmp_path, 3), _MANY)
  parts = (sets.training, sets.validation, sets.test)
  numbers = [own_episodes.numbers(part.frames).tolist() for part in parts]
  assert numbers == [[0], [1], [2]]
  assert '1 training, 1 validation and 1 test episodes' in sets.source
  assert 'validation is episode 2, and test episode 3' in sets.source
  assert 'validation and test have a single episode' in sets.doubts[-1]
  # Of nineteen two are for validation, and one is for the test.
  (doubt,) = frames.load(_save(tmp_path, 19), _MANY).doubts
  assert doubt.startswith('test has a single episode')


def test_the_checksum_is_that_of_the_file_and_its_split(tmp_path, monkeypatch):
  file = _save(tmp_path, 30)
  checksum = frames.load(file, _MANY).checksum
  assert checksum == frames.load(file, _MANY).checksum
  assert checksum != frame_files.read(file).checksum
  with monkeypatch.context() as patch:
    patch.setattr(frames, 'by_tenths', lambda count: np.arange(count) % 3)
    assert frames.load(file, _MANY).checksum != checksum
  own = own_episodes.make(30, 4, (8, 12, 3))
  np.savez(file, frames=own ^ 1)
  assert frames.load(file, _MANY).checksum != checksum


def test_a_file_can_say_what_is_held_out(tmp_path):
  # As floats, which hold the same numbers.
  parts = np.array([2, 0, 0, 1, 0, 0, 2, 0, 0, 0, 1, 0.0])
  file = _save(tmp_path, 12, held_out=parts)
  for budget in (_MANY, 3.5 * 4 * (8 * 12 * 3 + 1)):
    sets = frames.load(file, budget)
    training = sets.training
    if isinstance(training, frames.Windows):
      windows = [training.at(index).frames for index in range(9)]
      numbers = set(np.concatenate([*map(own_episodes.numbers, windows)]))
    else:
      numbers = set(own_episodes.numbers(training.frames))
    assert numbers == {1, 2, 4, 5, 7, 8, 9, 11}
    assert own_episodes.numbers(sets.validation.frames).tolist() == [3, 10]
    assert own_episodes.numbers(sets.test.frames).tolist() == [0, 6]
    assert 'held_out' in sets.source and 'ninth' not in sets.source
  # The same split has the same checksum, whoever says it.
  plain = frames.load(_save(tmp_path, 12), _MANY).checksum
  assert plain != sets.checksum
  as_always = np.zeros(12, int)
  as_always[[8, 9]] = 1, 2
  file = _save(tmp_path, 12, held_out=as_always)
  assert frames.load(file, _MANY).checksum == plain


@pytest.mark.parametrize('count', [1, 2])
def test_too_few_episodes_for_three_parts_are_refused(tmp_path, count):
  words = rf'are {count} episode\(s\); there must be at least 3, one to train'
  with pytest.raises(DataError, match=words):
    frames.load(_save(tmp_path, count), _MANY)


def test_an_episode_has_its_frames_condition_and_marks(tmp_path):
  others = _companions(12)
  sets = frames.load(_save(tmp_path, 12, **others), _MANY)
  task = OwnFrames(4, 2)
  made = _draw(task, sets.training, _KEYS[:40])
  truth = own_episodes.make(12, 4, (8, 12, 3))
  for index, number in enumerate(own_episodes.numbers(made.frames)):
    np.testing.assert_allclose(
      made.frames[index], truth[number] / 255, rtol=1e-6
    )
    np.testing.assert_array_equal(
      made.condition[index], others['condition'][number]
    )
    np.testing.assert_array_equal(
      made.predictable[index], others['predictable'][number] == 1
    )
  assert made.frames.dtype == made.condition.dtype == np.float32
  assert made.predictable.dtype == bool
  for field in (made.source, made.label):
    assert field.shape == (40, 4) and field.dtype == np.int32
    assert (field == -1).all()


def test_episodes_are_those_of_their_keys(tmp_path):
  training = frames.load(_save(tmp_path, 12), _MANY).training
  task, keys = OwnFrames(4), _KEYS[:5]
  batch = _draw(task, training, keys)
  for index, key in enumerate(keys):
    single = jax.jit(task.sample)(key, training)
    np.testing.assert_array_equal(single.frames, batch.frames[index])
  arguments = jax.device_put((keys[0], training))
  sample = jax.jit(task.sample)
  sample(*arguments)
  with jax.transfer_guard('disallow'):
    jax.block_until_ready(sample(*arguments))


def test_grey_frames_can_be_binarized(tmp_path):
  training = frames.load(_save(tmp_path, 12, (8, 8, 1)), _MANY).training
  made = _draw(OwnFrames(4, binarize=True), training, _KEYS[:20])
  assert set(np.unique(made.frames)) == {0.0, 1.0}
  # Bytes 0 and 1, which number the episodes, are hardly ever on.
  assert 0.4 < made.frames[:, 1:].mean() < 0.6


@pytest.mark.parametrize(
  ('length', 'prefix'), [(2, 1), (3, 1), (4, 2), (25, 12), (30, 15)]
)
def test_the_prefix_is_half_of_the_frames(length, prefix):
  assert OwnFrames(length).prefix == prefix
  assert OwnFrames(length, prefix=length - 1).prefix == length - 1


@pytest.mark.parametrize(
  ('sizes', 'words'),
  [
    ((1,), 'length is 1'),
    ((4, -1), 'condition_size is -1'),
    ((4, 0, False, 4), 'prefix is 4; it must be 1 to 3'),
    ((4, 0, False, -1), 'prefix is -1'),
  ],
)
def test_sizes_that_make_no_sense_are_refused(sizes, words):
  with pytest.raises(ValueError, match=f'^frames: {words}'):
    OwnFrames(*sizes)


@pytest.mark.parametrize(
  ('task', 'words'),
  [
    (OwnFrames(5), 'length is 5 and condition_size 0'),
    (OwnFrames(4, 2), 'condition_size 2, and the episodes have 4 and 0'),
    (OwnFrames(4, binarize=True), 'in colour'),
  ],
)
def test_episodes_of_other_sizes_are_refused(tmp_path, task, words):
  training = frames.load(_save(tmp_path, 3), _MANY).training
  with pytest.raises(ValueError, match=words):
    task.sample(_KEYS[0], training)


# --- Windows.


_EACH = 4 * (8 * 12 * 3 + 4 * 2 + 1)


def _windows(folder, count=30, size=5, seed=0, **changes):
  file = _save(folder, count, **{**_companions(count), **changes})
  return frames.load(file, _EACH * (size + 0.5), seed)


def test_windows_are_as_large_as_there_is_room(tmp_path):
  for size in (1, 5, 23):
    sets = _windows(tmp_path, size=size)
    assert isinstance(sets.training, frames.Windows)
    window = sets.training.at(0)
    assert {len(leaf) for leaf in window} == {size}
    assert sum(leaf.nbytes for leaf in window) == size * _EACH
    assert f'trained on {size} at a time' in sets.source
  sets = _windows(tmp_path, size=24)
  assert isinstance(sets.training, frames.Frames)
  assert len(sets.training.frames) == 24


def test_a_window_is_that_of_its_number_and_seed(tmp_path):
  one, same, other = (
    [windows.at(index) for index in range(4)]
    # Each reads its file before the next one writes it anew.
    for windows in (_windows(tmp_path, seed=s).training for s in (0, 0, 1))
  )
  jax.tree.map(np.testing.assert_array_equal, one, same)
  numbers = {tuple(own_episodes.numbers(each.frames)) for each in one + other}
  assert len(numbers) == 8


def test_windows_show_all_training_episodes_and_no_others(tmp_path):
  sets = _windows(tmp_path)
  counts = np.zeros(30, int)
  for index in range(200):
    numbers = own_episodes.numbers(sets.training.at(index).frames)
    assert len(set(numbers)) == 5
    counts[numbers] += 1
  assert set(np.flatnonzero(counts == 0)) == {8, 9, 18, 19, 28, 29}
  assert_even(counts[counts > 0])


def test_a_window_keeps_together_what_belongs_together(tmp_path):
  window = _windows(tmp_path).training.at(3)
  others = _companions(30)
  numbers = own_episodes.numbers(window.frames)
  truth = own_episodes.make(30, 4, (8, 12, 3))
  np.testing.assert_array_equal(window.frames, truth[numbers])
  np.testing.assert_array_equal(window.condition, others['condition'][numbers])
  np.testing.assert_array_equal(
    window.predictable, others['predictable'][numbers] == 1
  )
  assert [type(leaf) for leaf in window] == [np.ndarray] * 3


def test_no_more_are_evaluated_than_a_window_has(tmp_path):
  for size, validation, test in (
    (2, [8, 18], [9, 19]),
    (3, [8, 18, 28], [9, 19, 29]),
  ):
    sets = _windows(tmp_path, size=size)
    assert own_episodes.numbers(sets.validation.frames).tolist() == validation
    assert own_episodes.numbers(sets.test.frames).tolist() == test
    said = 'evaluated on the first 2 of validation or test' in sets.source
    assert said == (size == 2)


def test_an_episode_that_has_no_room_is_told(tmp_path):
  file = _save(tmp_path, 30)
  with pytest.raises(DataError, match=r'0.001156 mega.*--device_megabytes'):
    frames.load(file, 1000.0)
