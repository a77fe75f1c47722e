"""Files of episodes: what is read of them, and every way to be wrong."""

import hashlib
import io
import os
import re
import struct
import zipfile

import numpy as np
import pytest

import own_episodes
from gtmm_jax.tasks.sources import frame_files, npz, stored
from gtmm_jax.tasks.sources.dataset import DataError
from gtmm_jax.tasks.sources.stored import Stored

_RNG = np.random.default_rng(0)
_FRAMES = own_episodes.make(5, 4, (8, 12, 3))
_CONDITION = _RNG.normal(size=(5, 4, 2))
_MARKS = _RNG.integers(0, 2, (5, 4))
_SAVES = pytest.mark.parametrize('save', [np.savez, np.savez_compressed])


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'episodes.npz'


def _read(file):
  return frame_files.read(frame_files.locate(f'files:{file}'))


def _frames(episodes):
  """Returns all frames, whether in memory or in a file."""
  return episodes.frames[np.arange(len(episodes.frames))]


@_SAVES
def test_arrays_are_read_as_they_were_saved(file, save):
  save(file, frames=_FRAMES, condition=_CONDITION, predictable=_MARKS)
  assert frame_files.inspect(file) == (5, 4, (8, 12, 3), 2)
  episodes = _read(file)
  np.testing.assert_array_equal(_frames(episodes), _FRAMES)
  np.testing.assert_array_equal(
    episodes.condition, _CONDITION.astype(np.float32)
  )
  np.testing.assert_array_equal(episodes.predictable, _MARKS == 1)
  kinds = [each.dtype for each in episodes[:3]]
  assert kinds == [np.uint8, np.float32, bool]
  assert isinstance(episodes.frames, Stored) == (save is np.savez)
  assert episodes.doubts == ()


@_SAVES
def test_what_is_left_out_is_empty_or_false(file, save):
  save(file, frames=_FRAMES)
  assert frame_files.inspect(file).condition_size == 0
  episodes = _read(file)
  assert episodes.condition.shape == (5, 4, 0)
  assert episodes.predictable.shape == (5, 4)
  assert not episodes.predictable.any()


@pytest.mark.parametrize(
  ('name', 'change'),
  [
    ('condition', lambda x: x.astype('>f8')),
    ('condition', lambda x: (100 * x).astype(np.int64)),
    ('condition', lambda x: x > 0),
    ('condition', np.asfortranarray),
    ('condition', lambda x: x.astype(np.float16)),
    ('predictable', lambda x: x.astype(bool)),
    ('predictable', lambda x: x.astype(np.float64)),
    ('predictable', np.asfortranarray),
    ('frames', np.asfortranarray),
    ('frames', lambda x: x[::-1]),
  ],
)
def test_other_layouts_and_kinds_of_numbers_are_the_same(file, name, change):
  arrays = {
    'frames': _FRAMES,
    'condition': _CONDITION,
    'predictable': _MARKS,
  }
  arrays[name] = change(arrays[name])
  np.savez(file, **arrays)
  episodes = _read(file)
  np.testing.assert_array_equal(_frames(episodes), arrays['frames'])
  np.testing.assert_array_equal(
    episodes.condition, arrays['condition'].astype(np.float32)
  )
  np.testing.assert_array_equal(episodes.predictable, arrays['predictable'])
  assert episodes.predictable.flags.c_contiguous
  assert episodes.condition.flags.c_contiguous
  assert episodes.condition.dtype == np.dtype('=f4')


def test_the_checksum_is_of_the_data_however_they_are_stored(file):
  sums = []
  for save, frames in (
    (np.savez, _FRAMES),
    (np.savez_compressed, _FRAMES),
    (np.savez, np.asfortranarray(_FRAMES)),
  ):
    save(file, frames=frames, condition=_CONDITION, predictable=_MARKS)
    sums.append(_read(file).checksum)
  expected = hashlib.sha256(
    b'((5, 4, 8, 12, 3), (5, 4, 2))'
    + _FRAMES.tobytes()
    + _CONDITION.astype('<f4').tobytes()
    + _MARKS.astype(bool).tobytes()
  ).hexdigest()
  assert sums == [expected] * 3
  other = _FRAMES.copy()
  other[-1, -1, -1, -1, -1] ^= 1
  for changed in (
    {'frames': other},
    {'condition': _CONDITION + 1},
    {'predictable': 1 - _MARKS},
    {'frames': _FRAMES.reshape(5, 4, 12, 8, 3)},
  ):
    arrays = {'frames': _FRAMES, 'condition': _CONDITION, 'predictable': _MARKS}
    np.savez(file, **{**arrays, **changed})
    assert _read(file).checksum != expected


def test_a_large_file_is_read_in_pieces(file, monkeypatch):
  monkeypatch.setattr(stored, '_PIECE', 1000)
  pieces, fill = [], Stored._fill
  monkeypatch.setattr(
    Stored,
    '_fill',
    lambda self, row: pieces.append(row.size) or fill(self, row),
  )
  np.savez(file, frames=_FRAMES)
  episodes = _read(file)
  # The header of the array is read, too.
  assert pieces[1:] == [1000] * 5 + [_FRAMES.size - 5000]
  pieces.clear()
  np.testing.assert_array_equal(episodes.frames[[3, 0]], _FRAMES[[3, 0]])
  assert pieces == [_FRAMES[0].size] * 2


def _truncate(file):
  os.truncate(file, file.stat().st_size // 2)


def _rewrite(file):
  np.savez(file, frames=_FRAMES[::-1])


def _replace(file):
  other = file.with_suffix('.other')
  other.write_bytes(b'')
  other.replace(file)


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    (_truncate, 'was cut from'),
    (_rewrite, 'was changed while'),
    (_replace, ''),
  ],
)
def test_a_file_that_changes_in_use_is_told(file, change, words):
  np.savez(file, frames=_FRAMES)
  os.utime(file, ns=(0, 0))
  frames = _read(file).frames
  change(file)
  if words:
    with pytest.raises(DataError, match=f'{file} {words}.* continues from'):
      frames[[4]]
  else:
    # What was opened is still there.
    np.testing.assert_array_equal(frames[[4]], _FRAMES[[4]])


def _npy_header(shape):
  text = str({'descr': '|u1', 'fortran_order': False, 'shape': shape})
  text = text.ljust(117) + '\n'
  return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text.encode()


# --- Files that are wrong.


def _refused(file, *words):
  """Asserts that both ways to open a file say these words, in one line."""
  with pytest.raises(DataError) as error:
    _read(file)
  message = str(error.value)
  assert '\n' not in message and str(file) in message
  for word in words:
    assert word in message, message


def test_what_is_no_file_is_told(file):
  _refused(file, 'does not exist')
  _refused(file.parent, 'is a folder')


@pytest.mark.skipif(
  not hasattr(os, 'geteuid') or os.geteuid() == 0,
  reason='the superuser may read everything',
)
def test_a_file_that_may_not_be_read_is_told(file):
  np.savez(file, frames=_FRAMES)
  file.chmod(0)
  _refused(file, 'cannot be read', 'Permission')


@pytest.mark.parametrize('content', [b'', b'PNG', b'x' * 5000])
def test_what_is_no_zip_file_is_told(file, content):
  file.write_bytes(content)
  _refused(file, 'is not an .npz file', 'np.savez')


def test_a_single_array_is_told(file):
  with open(file, 'wb') as stream:
    np.save(stream, _FRAMES)
  words = 'a single array', 'uint8 (5, 4, 8, 12, 3)', "np.load('episodes.npz')"
  _refused(file, *words, "np.savez('episodes.npz', frames=...)")
  file.write_bytes(file.read_bytes()[:50])
  _refused(file, 'damaged .npy')


@pytest.mark.parametrize(
  'shape', [f'({"-" * 8000}1,)', f'({"1+" * 4000}1,)', '(' * 999 + ')' * 999]
)
def test_a_header_that_is_nested_too_deep_is_told(file, shape):
  header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n"
  length = struct.pack('<H', len(header))
  array = b'\x93NUMPY\x01\x00' + length + header.encode()
  with zipfile.ZipFile(file, 'w') as archive:
    archive.writestr('frames.npy', array)
  _refused(file, 'frames cannot be read', 'fetch the file again')
  with pytest.raises(DataError) as error:
    _read(file)
  assert len(str(error.value)) < len(str(file)) + 200
  file.write_bytes(array)
  _refused(file, 'damaged .npy')
  with pytest.raises(DataError) as error:
    _read(file)
  assert len(str(error.value)) < len(str(file)) + 200


@pytest.mark.parametrize('bracket', [b'(', b')', b'{', b'}', b"'"])
def test_a_header_that_has_lost_a_bracket_is_told(file, bracket):
  written = io.BytesIO()
  np.save(written, _FRAMES)
  array = written.getvalue().replace(bracket, b' ', 1)
  file.write_bytes(array)
  _refused(file, 'damaged .npy')
  # So large that its checksum is not looked at with the header.
  with zipfile.ZipFile(file, 'w') as archive:
    archive.writestr('frames.npy', array + bytes(2**20))
  _refused(file, 'frames cannot be read', 'fetch the file again')


# What a message says of arrays that hold twenty episodes.
_WAY = r'(frames(?:\.swapaxes\(0, 1\))?\[\.\.\., None\]) if [^(]*\(20 episodes'


@pytest.mark.parametrize('shape', [(3, 20, 8, 8), (20, 3, 8, 8)])
def test_messages_lead_from_the_array_of_moving_mnist_to_a_right_file(
  file, shape
):
  """Follows them as one would who knows whether time comes first."""
  is_time_first = shape[0] == 3
  rng = np.random.default_rng(0)
  frames = rng.integers(0, 256, shape, dtype=np.uint8)
  with open(file, 'wb') as stream:
    np.save(stream, frames)
  for _ in range(2):
    with pytest.raises(DataError) as error:
      _read(file)
    (way,) = re.findall(_WAY, str(error.value))
    # Asked again of four axes with their name.
    np.savez(file, frames=frames)
  right = eval(way, {'frames': frames})
  assert right.shape == (20, 3, 8, 8, 1)
  axes = (1, 0) if is_time_first else (0, 1)
  np.testing.assert_array_equal(right[..., 0], frames.transpose(*axes, 2, 3))
  np.savez(file, frames=right)
  assert _read(file).doubts == ()
  # The other way is doubted.
  np.savez(file, frames=right.swapaxes(0, 1))
  (doubt,) = _read(file).doubts
  assert 'as 3 episodes of 20 frames' in doubt
  assert 'frames.swapaxes(0, 1)' in doubt


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    (lambda x: x // 255, 'no values but 0 and 1'),
    (lambda x: x * 0, 'are 0 in every pixel'),
    (lambda x: x * 0 + 128, 'are 128 in every pixel'),
  ],
)
@_SAVES
def test_frames_that_show_nothing_are_refused(file, save, change, words):
  save(file, frames=change(_FRAMES))
  _refused(file, 'frames', words)


@pytest.mark.parametrize(
  ('arrays', 'words'),
  [
    ({'frames': _FRAMES // 16}, 'from 0 to 15, .* multiply them by 17'),
    (
      {'condition': 1e3 * _CONDITION},
      'condition has numbers of magnitudes up to',
    ),
    ({'predictable': 0 * _MARKS}, 'predictable marks no frame'),
    ({'predictable': 0 * _MARKS + 1}, 'predictable marks every frame'),
  ],
)
def test_what_is_likely_to_be_wrong_is_doubted(file, arrays, words):
  np.savez(file, **{'frames': _FRAMES, **arrays})
  (doubt,) = _read(file).doubts
  assert re.search(words, doubt) and str(file) in doubt


def test_a_condition_beyond_all_measure_is_refused(file):
  np.savez(file, frames=_FRAMES, condition=1.7e9 + _CONDITION)
  _refused(file, 'condition has numbers of magnitudes up to 1.7e+09')


@_SAVES
@pytest.mark.parametrize('share', [0.01, 0.5, 0.99])
def test_a_file_cut_short_is_told(file, save, share):
  save(file, frames=_FRAMES)
  content = file.read_bytes()
  file.write_bytes(content[: int(share * len(content))])
  _refused(file, 'cut short')


@_SAVES
@pytest.mark.parametrize('name', ['frames', 'condition', 'predictable'])
@pytest.mark.parametrize('where', ['local', 'header', 'values'])
def test_a_damaged_member_is_told(file, save, name, where):
  save(file, frames=_FRAMES, condition=_CONDITION, predictable=_MARKS)
  with zipfile.ZipFile(file) as archive:
    info = archive.getinfo(f'{name}.npy')
  content = bytearray(file.read_bytes())
  start = info.header_offset
  lengths = struct.unpack_from('<HH', content, start + 26)
  begin = start + 30 + sum(lengths)
  at = {
    'local': start,
    'header': begin + 1,
    'values': begin + info.compress_size - 20,
  }
  content[at[where]] ^= 0x55
  file.write_bytes(content)
  _refused(file, name, 'cannot be read', 'fetch the file again')


@pytest.mark.parametrize('change', [-1, 1])
def test_a_header_that_says_another_size_is_told(file, change):
  shape = (5, 4, 8, 12 + 4 * change, 3)
  with zipfile.ZipFile(file, 'w') as archive:
    content = _npy_header(shape) + _FRAMES.tobytes()
    archive.writestr('frames.npy', content)
  _refused(file, 'frames', 'bytes instead of')


def test_objects_are_refused_and_nothing_is_unpickled(file):
  class Trap:
    def __reduce__(self):
      return (pytest.fail, ('unpickled',))

  trap = np.array([Trap(), Trap()], dtype=object)
  np.savez(file, frames=trap)
  _refused(file, 'frames', 'Python objects', 'pickle')
  np.savez(file, frames=_FRAMES, condition=trap)
  _refused(file, 'condition', 'Python objects')


@pytest.mark.parametrize(
  ('names', 'words'),
  [
    (['frames', 'condtion'], ("'condtion'", 'misspelling of condition')),
    (['Frames'], ("'Frames'", 'misspelling of frames')),
    (['frames', 'labels'], ("'labels'", 'it may hold')),
    (['condition'], ('holds no array frames, only condition',)),
    ([], ('only nothing',)),
  ],
)
def test_other_names_are_told(file, names, words):
  arrays = {'frames': _FRAMES, 'condition': _CONDITION}
  np.savez(file, **{name: arrays.get(name, _MARKS) for name in names})
  _refused(file, *words)


def test_arrays_without_a_name_are_told(file):
  np.savez(file, _FRAMES)
  _refused(file, "'arr_0'", 'rename')


def test_what_is_no_array_is_told(file):
  np.savez(file, frames=_FRAMES)
  with zipfile.ZipFile(file, 'a') as archive:
    archive.writestr('README', 'text')
  _refused(file, "'README'", 'not an array')


_SOME = np.zeros((3, 4, 8, 8, 1), np.uint8)


@pytest.mark.parametrize(
  ('frames', 'words'),
  [
    (_SOME / 255, ('float64', 'uint8', '255 * frames')),
    (_SOME.astype(np.float16), ('float16', '255 * frames')),
    (_SOME > 0, ('bool', '255 * frames.astype(np.uint8)')),
    (_SOME.astype(np.int64), ('int64', 'frames.astype(np.uint8)')),
    (_SOME.astype(complex), ('complex128', 'uint8')),
    (_SOME.astype(str), ('<U', 'uint8')),
    (_SOME[..., 0], ('(3, 4, 8, 8)', 'five axes', 'frames[..., None]')),
    (_SOME[..., 0, :], ('(3, 4, 8, 1)', 'frames.reshape(N, T, H, W, C)')),
    (_SOME[..., None], ('(3, 4, 8, 8, 1, 1)', 'five axes')),
    (_SOME[:, 0, :, 0, 0], ('(3, 8)', 'five axes')),
    (np.uint8(1), ('()', 'five axes')),
    (np.zeros((3, 4, 8, 8, 2), np.uint8), ('2 on the last axis',)),
    (np.zeros((3, 4, 8, 8, 4), np.uint8), ('4 on the last axis',)),
    (np.zeros((3, 4, 8, 8, 0), np.uint8), ('0 on the last axis',)),
    (np.zeros((3, 4, 3, 8, 8), np.uint8), ('last axis', 'np.moveaxis')),
    (np.zeros((3, 4, 10, 8, 1), np.uint8), ('10 x 8', 'multiples of 4')),
    (np.zeros((3, 4, 8, 14, 3), np.uint8), ('8 x 14', 'multiples of 4')),
    (np.zeros((3, 4, 4, 8, 1), np.uint8), ('4 x 8', 'at least 8')),
    (np.zeros((3, 4, 8, 0, 1), np.uint8), ('8 x 0', 'at least 8')),
    (_SOME[:2], ('2 episode(s)', 'at least 3')),
    (_SOME[:0], ('0 episode(s)', 'at least 3')),
    (_SOME[:, :1], ('1 frame(s)', 'at least 2')),
    (_SOME[:, :0], ('0 frame(s)', 'at least 2')),
  ],
)
def test_frames_that_are_not_as_they_should_be_are_told(file, frames, words):
  np.savez(file, frames=frames)
  _refused(file, 'frames', *words)
  # Told before the file is read.
  with pytest.raises(DataError):
    frame_files.inspect(file)


def _with(array, value):
  array = np.array(array)
  array[2, 3] = value
  return array


@pytest.mark.parametrize(
  ('name', 'values', 'words'),
  [
    ('condition', _CONDITION[:4], ('(4, 4, 2)', '[N, T, A]', 'N 5 and T 4')),
    ('condition', _CONDITION[:, :3], ('(5, 3, 2)', 'N 5 and T 4')),
    ('condition', _CONDITION[..., 0], ('(5, 4)', '[N, T, A]')),
    ('condition', _CONDITION.astype(complex), ('complex128', 'real')),
    ('condition', _CONDITION.astype(str), ('<U', 'real')),
    ('condition', _with(_CONDITION, np.nan), ('[2, 3, 0], nan', 'finite')),
    ('condition', _with(_CONDITION, [1, -np.inf]), ('[2, 3, 1], -inf',)),
    ('condition', _with(_CONDITION, 1e300), ('[2, 3, 0], 1e+300',)),
    ('predictable', _MARKS[:4], ('(4, 4)', '[N, T]', 'N 5 and T 4')),
    ('predictable', _MARKS.T, ('(4, 5)', '[N, T]')),
    ('predictable', _MARKS[..., None], ('(5, 4, 1)', '[N, T]')),
    ('predictable', _MARKS.astype(str), ('<U', 'bool')),
    ('predictable', _with(_MARKS, 2), ('[2, 3], 2', 'neither 0 nor 1')),
    ('predictable', _with(_MARKS, -1), ('[2, 3], -1',)),
    ('predictable', _with(_MARKS * 1.0, 0.5), ('[2, 3], 0.5',)),
    ('predictable', _with(_MARKS * 1.0, np.nan), ('[2, 3], nan',)),
    ('held_out', np.array([0, 0, 1, 2]), ('(4,)', '[N]', 'N 5')),
    ('held_out', np.zeros((5, 4), int), ('(5, 4)', '[N]')),
    ('held_out', np.array(['0'] * 5), ('<U', 'real')),
    ('held_out', np.array([0, 1, 2, 3, 0]), ('is 3 at episode 3', '0 for')),
    ('held_out', np.array([0, 1, 2, 0.5, 0]), ('is 0.5 at episode 3',)),
    ('held_out', np.array([0, 1, 2, np.nan, 0]), ('is nan at episode 3',)),
    (
      'held_out',
      np.array([1, 1, 0, 0, 1], bool),
      ('is bool', '2 for the test'),
    ),
    ('held_out', np.array([0, 1, 0, 1, 0]), ('has no 2', 'for test')),
    ('held_out', np.array([2, 1, 2, 1, 1]), ('has no 0', 'for training')),
  ],
)
def test_what_does_not_go_with_frames_is_told(file, name, values, words):
  np.savez(file, frames=_FRAMES, **{name: values})
  _refused(file, name, *words)


def test_too_little_memory_for_a_compressed_file_is_told(file, monkeypatch):
  np.savez_compressed(file, frames=_FRAMES)

  def exhausted(*_):
    raise MemoryError

  monkeypatch.setattr(npz.np, 'empty', exhausted)
  _refused(file, 'frames', 'megabytes', 'uncompressed')


def test_an_encrypted_member_is_told(file):
  np.savez(file, frames=_FRAMES)
  content = bytearray(file.read_bytes())
  for mark in (b'PK\x03\x04', b'PK\x01\x02'):
    (place,) = [match.start() for match in re.finditer(mark, content)][:1]
    content[place + (6 if mark.endswith(b'\x04') else 8)] |= 1
  file.write_bytes(content)
  _refused(file, 'frames cannot be read', 'encrypted')
