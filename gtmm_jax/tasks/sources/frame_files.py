"""The user's own episodes, from an .npz file as NumPy writes it.

The file holds

  frames        uint8 [N, T, H, W, C]: N >= 3 episodes of T >= 2 frames, H and W
                multiples of 4, at least 8, C 1 (grey) or 3 (colour)
  condition     numbers [N, T, A], the condition c_t; optional
  predictable   bool, or 0 and 1, [N, T], which frames a perfect memory could
                predict; optional
  held_out      integers [N], the part of each episode: 0 for training, 1 for
                validation, 2 for the test, each at least once; optional

and is read without pickle. Uncompressed frames, as `np.savez` writes them, stay
in the file and are read when they are used.
"""

import difflib
import hashlib
import pathlib
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gtmm_jax.tasks.sources import data_flag, doubts, frame_arrays, npz
from gtmm_jax.tasks.sources.dataset import DataError
from gtmm_jax.tasks.sources.stored import Stored

_NAMES = ('frames', 'condition', 'predictable', 'held_out')
_LEAST_SIDE = 8


class Header(NamedTuple):
  """The sizes of a file's arrays, read without reading the arrays.

  Attributes:
    count: N, episodes.
    length: T, frames of each.
    shape: (H, W, C) of a frame.
    condition_size: A, 0 if there is no condition.
  """

  count: int
  length: int
  shape: tuple[int, int, int]
  condition_size: int

  @property
  def episode_bytes(self) -> int:
    """Bytes of one episode on a device, condition and marks included."""
    height, width, channels = self.shape
    frame = height * width * channels
    return self.length * (frame + 4 * self.condition_size + 1)


class Episodes(NamedTuple):
  """Episodes in memory, or in their file.

  Attributes:
    frames: uint8 [N, T, H, W, C]; `frames[numbers]` takes some episodes.
    condition: float32 [N, T, A]; A = 0 if there is none.
    predictable: bool [N, T]; all false if the file does not say.
    held_out: uint8 [N], 0 for training, 1 for validation, 2 for the test; None
      if the file does not say.
    checksum: SHA-256, hexadecimal, of the shapes of frames, condition and
      predictable and their bytes in this order, floats as little-endian.
    doubts: sentences on what is likely to be wrong with them.
  """

  frames: np.ndarray | Stored
  condition: np.ndarray
  predictable: np.ndarray
  held_out: np.ndarray | None
  checksum: str
  doubts: tuple[str, ...]


def locate(data: str) -> pathlib.Path:
  """Returns the file that the flag `--data` names.

  Raises:
    DataError: the value is not files:FILE, or FILE is not a file.
  """
  file = data_flag.read(
    data,
    'frames takes your own episodes, give --data=files:FILE, where FILE is an '
    '.npz file that holds frames [N, T, H, W, C].',
    words=(),
  )
  if file.is_file():
    return file
  if not file.exists():
    raise DataError(
      f'--data=files:FILE: {file} does not exist; name the .npz file of your '
      f'episodes.'
    )
  raise DataError(
    f'--data=files:FILE: {file} is a folder, or no plain file; name the .npz '
    f'file of your episodes itself.'
  )


def inspect(file: pathlib.Path) -> Header:
  """Reads the sizes of a file's arrays, fast for files of any size.

  Raises:
    DataError: it is not such a file, or an array's type or shape is wrong.
  """
  with npz.opened(file) as archive:
    return _inspect(file, archive)[1]


def read(file: pathlib.Path) -> Episodes:
  """Reads a file once; leaves its frames there if they are uncompressed.

  Raises:
    DataError: as `inspect`; or the file is damaged, or a value is wrong.
  """
  with npz.opened(file) as archive:
    members, header = _inspect(file, archive)
    steps = header.count, header.length
    condition = np.zeros((*steps, 0), np.float32)
    predictable = np.zeros(steps, bool)
    held_out = None
    sentences = doubts.of_axes(*steps)
    # Small arrays first: a mistake in them is reported at once.
    if 'condition' in members:
      values = npz.read(file, archive, members['condition'])
      condition = frame_arrays.as_condition(file, values)
      sentences += doubts.of_condition(f'{file}: condition', condition)
    if 'predictable' in members:
      values = npz.read(file, archive, members['predictable'])
      predictable = frame_arrays.as_marks(file, values)
      sentences += doubts.of_marks(f'{file}: predictable', predictable)
    if 'held_out' in members:
      values = npz.read(file, archive, members['held_out'])
      held_out = frame_arrays.as_parts(file, values)
    shape = (*steps, *header.shape)
    digest = hashlib.sha256(repr((shape, condition.shape)).encode())
    extremes = []

    def look(piece: np.ndarray) -> None:
      digest.update(piece)
      extremes.extend((int(piece.min()), int(piece.max())))

    frames = npz.leave_or_read(file, archive, members['frames'], look)
    digest.update(np.ascontiguousarray(condition, '<f4').data)
    digest.update(predictable.view(np.uint8).data)
  sentences += doubts.of_bytes(f'{file}: frames', min(extremes), max(extremes))
  return Episodes(
    frames, condition, predictable, held_out, digest.hexdigest(), sentences
  )


def _inspect(
  file: pathlib.Path, archive: zipfile.ZipFile
) -> tuple[dict[str, npz.Member], Header]:
  """Returns the checked members by name, and their sizes."""
  members = {each.name: each for each in npz.members(file, archive)}
  for name in members:
    if name not in _NAMES:
      raise DataError(
        f'{file} holds an array {name!r}{_likely(name)}; it may hold '
        f'{", ".join(_NAMES)}: rename or remove what has another name.'
      )
  if 'frames' not in members:
    names = ', '.join(members) or 'nothing'
    raise DataError(
      f'{file} holds no array frames, only {names}; save it with '
      f'np.savez({file.name!r}, frames=...), uint8 [N, T, H, W, C].'
    )
  frames = members['frames']
  problem = next(_problems_of_frames(frames), None)
  if problem:
    raise DataError(f'{file}: frames {problem}')
  count, length, *shape = frames.shape
  for name, axes in (
    ('condition', '[N, T, A]'),
    ('predictable', '[N, T]'),
    ('held_out', '[N]'),
  ):
    if name in members:
      frame_arrays.require_axes(file, members[name], axes, (count, length))
  condition = members.get('condition')
  size = 0 if condition is None else condition.shape[2]
  return members, Header(count, length, tuple(shape), size)


def _likely(name: str) -> str:
  close = difflib.get_close_matches(name.lower(), _NAMES, 1)
  return f', a misspelling of {close[0]}, maybe' if close else ''


def _problems_of_frames(frames: npz.Member) -> Iterator[str]:
  """Yields what is wrong with the array of frames, and what to do about it."""
  shape, kind = frames.shape, frames.dtype
  if kind != np.uint8:
    if kind.kind == 'f':
      way = (
        'of grey values in [0, 1] save np.round(255 * frames).astype(np.uint8)'
      )
    elif kind.kind == 'b':
      way = 'save 255 * frames.astype(np.uint8)'
    else:
      way = 'bring them to 0 to 255 and save frames.astype(np.uint8)'
    yield f'are {kind}; they must be uint8, {way}.'
  if len(shape) != 5:
    is_one_short = len(shape) == 4
    hint = f': save {doubts.to_five_axes(shape)}' if is_one_short else ''
    yield (
      f'have the shape {shape}; it must be [N, T, H, W, C], five axes{hint}.'
    )
    return
  count, length, height, width, channels = shape
  if channels not in (1, 3):
    hint = ''
    if height in (1, 3):
      hint = '; np.moveaxis(frames, 2, -1) puts the channels last'
    yield (
      f'have the shape {shape}, with {channels} on the last axis; that is C, '
      f'and must be 1 (grey) or 3 (colour){hint}.'
    )
  if count < 3:
    yield (
      f'are {count} episode(s); there must be at least 3, one to train on, one '
      f'for validation and one for the test: record more, or cut long ones.'
    )
  if length < 2:
    yield (
      f'are episodes of {length} frame(s); T must be at least 2, one to see '
      f'and one to generate.'
    )
  if not has_room_to_halve(height, width):
    yield (
      f'are {height} x {width} pixels; height and width must be multiples of '
      f'4, at least {_LEAST_SIDE}: crop or pad them.'
    )


def has_room_to_halve(height: int, width: int) -> bool:
  """Returns whether networks can halve both sides twice, to 2 or more."""
  return not (height % 4 or width % 4) and min(height, width) >= _LEAST_SIDE
