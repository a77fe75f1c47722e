"""Recordings of every kind become the episodes that the task frames reads."""

import functools
import os
import pathlib
import sys
import types

import numpy as np
import pytest
from PIL import Image

import pack_frames
import program_flags
from gtmm_jax.process import command
from gtmm_jax.tasks import frames
from gtmm_jax.tasks.sources import frame_files
from packing import episodes

_RNG = np.random.default_rng(0)


def _frames(count, height=8, width=12):
  """Makes grey frames; the first pixel numbers them."""
  recording = _RNG.integers(0, 256, (count, height, width), np.uint8)
  recording[:, 0, 0] = np.arange(count)
  return recording


@pytest.fixture(autouse=True)
def _program(tmp_path, monkeypatch):
  """Defines the flags, and lets words be beside them."""
  monkeypatch.chdir(tmp_path)
  parse = functools.partial(command.parse_flags, has_words=True)
  monkeypatch.setattr(program_flags.command, 'parse_flags', parse)
  with program_flags.defined(pack_frames.define_flags):
    yield


def _main(words):
  return program_flags.exit_code(['pack_frames.py', *words], pack_frames.main)


def _pack(*words):
  """Packs recordings; returns the episodes of the file."""
  assert _main([*words, 'out.npz']) == 0
  return frame_files.read(pathlib.Path('out.npz'))


def _refused(capsys, *words, output='out.npz'):
  """Checks that words are refused in one line and nothing is written."""
  capsys.readouterr()
  before = sorted(os.listdir())
  assert _main([*words, output]) == 2
  out, err = capsys.readouterr()
  assert out == '' and err.count('\n') == 1, err
  assert sorted(os.listdir()) == before
  return err


def _all(packed):
  return packed.frames[np.arange(len(packed.frames))]


def _save_pictures(folder, pictures, form='frame{}.png'):
  os.makedirs(folder)
  for number, pixels in enumerate(pictures):
    Image.fromarray(pixels).save(f'{folder}/{form.format(number)}')


def test_a_folder_of_pictures_is_read_in_the_order_of_numbers(capsys):
  recording = _frames(13)
  _save_pictures('clip', recording)
  (pathlib.Path('clip') / 'notes.txt').write_text('no picture')
  packed = _pack('clip', '--length=4')
  assert _all(packed).shape == (3, 4, 8, 12, 1)
  np.testing.assert_array_equal(
    _all(packed)[..., 0].reshape(12, 8, 12), recording[:12]
  )
  assert packed.held_out.tolist() == [0, 1, 2]
  said = capsys.readouterr().out
  assert '1 recording(s), 3 episodes of 4 frames, 8 x 12 x 1' in said
  assert '1 frames left over' in said
  # The task reads what was written.
  sets = frames.load(pathlib.Path('out.npz'), 1e9)
  np.testing.assert_array_equal(sets.test.frames, _all(packed)[2:])


def test_every_nth_frame_is_taken_of_each_recording():
  for name, count in (('a', 9), ('b', 12), ('c', 7)):
    np.save(f'{name}.npy', _frames(count))
  packed = _pack('a.npy', 'b.npy', 'c.npy', '--length=2', '--stride=3')
  # Frames 0 and 3 of each, and 6 and 9 of the longest.
  numbers = _all(packed)[:, :, 0, 0, 0].tolist()
  assert numbers == [[0, 3], [0, 3], [6, 9], [0, 3]]


@pytest.mark.parametrize(
  ('shape', 'expected'),
  [
    ((6, 8, 12), (3, 2, 8, 12, 1)),
    ((6, 8, 12, 1), (3, 2, 8, 12, 1)),
    ((6, 8, 12, 3), (3, 2, 8, 12, 3)),
    ((4, 3, 8, 12), (4, 2, 8, 12, 1)),
    ((4, 3, 8, 12, 3), (4, 2, 8, 12, 3)),
  ],
)
def test_arrays_are_one_recording_or_several(shape, expected):
  recording = _RNG.integers(0, 256, shape, np.uint8)
  np.save('array.npy', recording)
  packed = _all(_pack('array.npy', '--length=2'))
  assert packed.shape == expected
  np.testing.assert_array_equal(packed.ravel()[:96], recording.ravel()[:96])


@pytest.mark.parametrize('kind', [np.float32, np.int64, bool])
def test_numbers_of_other_types_become_bytes(kind):
  recording = _frames(6)
  array = {
    np.float32: recording / np.float32(255),
    np.int64: recording.astype(np.int64),
    bool: recording > 99,
  }[kind]
  np.save('array.npy', array)
  packed = _all(_pack('array.npy', '--length=2')).reshape(6, 8, 12)
  expected = 255 * (recording > 99) if kind is bool else recording
  np.testing.assert_array_equal(packed, expected)


def test_a_gif_is_a_recording_and_becomes_grey():
  colours = [Image.new('RGB', (16, 8), (40 * n, 0, 0)) for n in range(6)]
  colours[0].save('a.gif', save_all=True, append_images=colours[1:])
  packed = _all(_pack('a.gif', '--length=2', '--grey'))
  assert packed.shape == (3, 2, 8, 16, 1)
  means = packed.mean((2, 3, 4)).ravel()
  np.testing.assert_allclose(means, 0.299 * 40 * np.arange(6), atol=2)


def test_frames_are_cut_to_the_form_and_resized():
  wide = np.zeros((6, 16, 32), np.uint8)
  wide[:, :, 8:24] = 200
  np.save('wide.npy', wide)
  np.save('large.npy', np.full((2, 40, 40), 200, np.uint8))
  packed = _all(_pack('wide.npy', 'large.npy', '--length=2', '--size=8'))
  # The middle, but for its edges without the black of the wide frames.
  assert packed.shape == (4, 2, 8, 8, 1) and (packed[..., 1:-1, :] == 200).all()


def test_an_oblong_size_is_height_and_width():
  np.save('wide.npy', _frames(6, 16, 32))
  assert _all(_pack('wide.npy', '--length=2', '--size=8x24')).shape[2:4] == (
    8,
    24,
  )


def test_a_video_is_read_by_imageio(monkeypatch):
  colours = [np.full((8, 16, 3), 30 * n, np.uint8) for n in range(6)]
  reader = types.SimpleNamespace(imiter=lambda _: iter(colours))
  monkeypatch.setitem(sys.modules, 'imageio', types.SimpleNamespace(v3=reader))
  monkeypatch.setitem(sys.modules, 'imageio.v3', reader)
  pathlib.Path('a.mp4').write_bytes(b'video')
  packed = _all(_pack('a.mp4', '--length=2'))
  np.testing.assert_array_equal(packed.reshape(6, 8, 16, 3), colours)


def test_neighbours_are_in_one_part():
  parts = episodes.held_out(57)
  assert np.bincount(parts).tolist() == [47, 5, 5]
  assert (np.diff(parts.astype(int)) >= 0).all()


def test_an_array_with_time_first_is_doubted(capsys):
  np.save('moving.npy', _frames(3 * 8).reshape(3, 8, 8, 12))
  _pack('moving.npy', '--length=4')
  said = capsys.readouterr().out
  assert said.startswith('warning  moving.npy: frames are taken as 3 episodes')
  assert said.count('warning') == 1


def _make_everything():
  """Makes recordings that cannot be packed, and one that can."""
  np.save('good.npy', _frames(6))
  np.save('other_size.npy', _frames(6, 16, 16))
  np.save('colour.npy', _RNG.integers(0, 256, (6, 8, 12, 3), np.uint8))
  np.save('odd.npy', _frames(6, 9, 12))
  np.save('nan.npy', np.full((6, 8, 12), np.nan))
  np.save('large.npy', np.full((6, 8, 12), 255.0))
  np.save('black.npy', np.zeros((6, 8, 12), np.uint8))
  np.save('flat.npy', np.zeros((6, 8)))
  np.save('objects.npy', np.array([{}]), allow_pickle=True)
  os.makedirs('empty')
  os.makedirs('nested/clip')
  _save_pictures('sizes', [*_frames(3), *_frames(3, 16, 16)])
  _save_pictures('deep', _frames(6).astype(np.uint16) * 256)
  for name in ('broken.png', 'broken.npy', 'broken.gif', 'a.mp4'):
    pathlib.Path(name).write_bytes(b'nothing')
  pathlib.Path('there.npz').touch()


@pytest.mark.parametrize(
  ('words', 'said'),
  [
    (['nowhere'], 'nowhere does not exist'),
    (['empty'], 'empty has no pictures'),
    (['nested'], 'name those inside it, nested/*'),
    (['sizes'], '16 x 16 pixels, and the first frame has 8 x 12; give --size'),
    (['good.npy', 'other_size.npy'], 'other_size.npy has a frame of 16 x 16'),
    (['good.npy', 'colour.npy'], '3 channel(s), and the first frame has 1'),
    (['odd.npy'], '9 x 12 pixels; height and width must be multiples of 4'),
    (['nan.npy'], 'nan.npy, frame 0 has values that are not finite'),
    (['large.npy'], 'values from 255.0 to 255.0; float64 must be from 0 to 1'),
    (['black.npy'], 'are 0 in every pixel'),
    (['flat.npy'], 'flat.npy is float64 (6, 8); it must be numbers [T, H, W]'),
    (['objects.npy'], 'objects.npy cannot be read'),
    (['deep'], 'pixels of the mode I;16'),
    (['broken.png'], 'broken.png cannot be read'),
    (['broken.gif'], 'broken.gif cannot be read'),
    (['broken.npy'], 'broken.npy cannot be read'),
    (['a.mp4'], 'pip install "gtmm_jax[video]"'),
    (['good.npy', '--length=7'], 'good.npy has fewer than 7 frames'),
    (['good.npy', '--length=3', '--stride=4'], 'than 3 frames at --stride=4'),
    (
      ['good.npy', '--length=3'],
      'There are 2 episode(s) of 3 frames; at least',
    ),
    (['good.npy', '--length=1'], '--length is 1'),
    (['good.npy', '--stride=0'], '--stride is 0'),
    (['good.npy', '--size=10'], '--size is 10'),
    (['good.npy', '--size=8x'], '--size is 8x'),
    (['good.npy', '--size=8x4'], '--size is 8x4'),
    ([], 'Name recordings, and after them the file'),
  ],
)
def test_mistakes_are_told_in_one_line(words, said, capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, 'imageio', None)
  _make_everything()
  flags = [] if any('--length' in word for word in words) else ['--length=2']
  assert said in _refused(capsys, *words, *flags)


def test_a_file_that_is_there_stays(capsys):
  np.save('good.npy', _frames(6))
  _pack('good.npy', '--length=2')
  before = pathlib.Path('out.npz').read_bytes()
  assert 'out.npz exists' in _refused(capsys, 'good.npy', '--length=2')
  assert pathlib.Path('out.npz').read_bytes() == before
  words = ('good.npy', '--length=2')
  assert 'not the name of an .npz' in _refused(capsys, *words, output='out.npy')
  assert 'cannot be written' in _refused(
    capsys, *words, output='good.npy/a.npz'
  )
  assert '--length is None' in _refused(capsys, 'good.npy', output='new.npz')


def test_frames_beyond_the_memory_are_told(capsys, monkeypatch):
  np.save('good.npy', _frames(6))
  monkeypatch.setattr(episodes, '_room', lambda: 500.0)
  said = _refused(capsys, 'good.npy', '--length=2')
  assert 'more than half of the memory' in said


def test_half_of_the_memory_is_for_frames(monkeypatch):
  sizes = {'SC_PHYS_PAGES': 10**6, 'SC_PAGE_SIZE': 4096}
  monkeypatch.setattr(os, 'sysconf', sizes.__getitem__, raising=False)
  assert episodes._room() == 2_048_000_000
