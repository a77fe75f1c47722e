"""Recordings: folders of pictures, animations, videos and arrays of frames.

Each is read frame by frame, as uint8 [H, W] or [H, W, 3].
"""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageSequence, UnidentifiedImageError

from gtmm_jax.tasks.sources import doubts

# Modes of pillow with one channel of at most 8 bits, and with several.
_GREY, _COLOUR = ('1', 'L', 'LA'), ('P', 'PA', 'RGB', 'RGBA', 'CMYK', 'YCbCr')
# Errors of pillow for a file that is damaged, or too large to be a picture.
_DAMAGE = (
  UnidentifiedImageError,
  Image.DecompressionBombError,
  EOFError,
  OSError,
  SyntaxError,
  ValueError,
)
_VIDEO = (
  'pip install "gtmm_jax[video]", or save its frames as pictures in a folder'
)


class CannotRead(ValueError):
  """A recording that is missing or wrong; the message says what to do."""


class Recording(NamedTuple):
  """A recording.

  Attributes:
    name: for messages.
    frames: uint8 [H, W] or [H, W, 3].
    doubts: sentences on what is likely to be wrong with it.
  """

  name: str
  frames: Iterator[np.ndarray]
  doubts: tuple[str, ...] = ()


def recordings(path: pathlib.Path) -> Iterator[Recording]:
  """Yields the recordings of a folder or a file.

  Args:
    path: a folder of pictures, in the order of their names, where 10 comes
      after 9; an animation; a video; or an .npy file of one recording [T, H, W]
      or [T, H, W, C], or of several [N, T, H, W] or [N, T, H, W, C].

  Raises:
    CannotRead: there is no such recording, or it is not one.
  """
  if path.is_dir():
    yield Recording(str(path), _pictures(path))
  elif not path.exists():
    raise CannotRead(f'{path} does not exist; name a folder or a file.')
  elif path.suffix.lower() == '.npy':
    yield from _arrays(path)
  elif path.suffix.lower() in Image.registered_extensions():
    yield Recording(str(path), _animation(path))
  else:
    yield Recording(str(path), _video(path))


def _pictures(folder: pathlib.Path) -> Iterator[np.ndarray]:
  known = Image.registered_extensions()
  files = [
    path
    for path in folder.iterdir()
    if path.suffix.lower() in known and not path.name.startswith('.')
  ]
  if not files:
    has_folders = any(path.is_dir() for path in folder.iterdir())
    hint = f'; name those inside it, {folder}/*' if has_folders else ''
    raise CannotRead(
      f'{folder} has no pictures, such as .png and .jpg files{hint}.'
    )
  for path in sorted(files, key=_place):
    yield from _animation(path)


def _place(path: pathlib.Path) -> list[tuple[int, str]]:
  """Returns what a name is sorted by: its numbers as numbers."""
  parts = re.split(r'(\d+)', path.name)
  return [(int(part), '') if part.isdecimal() else (-1, part) for part in parts]


def _animation(path: pathlib.Path) -> Iterator[np.ndarray]:
  """Yields the frames of a file that pillow reads: a picture, or a GIF."""
  try:
    with Image.open(path) as image:
      for frame in ImageSequence.Iterator(image):
        if frame.mode not in (*_GREY, *_COLOUR):
          raise CannotRead(
            f'{path} has pixels of the mode {frame.mode}; convert them to 8 '
            f'bits, grey or RGB.'
          )
        yield np.asarray(frame.convert('L' if frame.mode in _GREY else 'RGB'))
  except CannotRead:
    raise
  except _DAMAGE as error:
    raise _unreadable(path, error) from error


def _video(path: pathlib.Path) -> Iterator[np.ndarray]:
  try:
    import imageio.v3 as imageio  # An optional package.
  except ImportError as error:
    raise CannotRead(
      f'{path} is no picture and no array; as a video it needs imageio: '
      f'{_VIDEO}.'
    ) from error
  try:
    # Without a plugin for videos it raises ImportError or OSError, and what
    # the plugins raise for damage is not documented.
    for frame in imageio.imiter(path):
      yield np.asarray(frame)
  except Exception as error:
    raise CannotRead(
      f'{path} cannot be read as a video ({_brief(error)}); it may be damaged, '
      f'or the reader missing: {_VIDEO}.'
    ) from error


def _arrays(path: pathlib.Path) -> Iterator[Recording]:
  try:
    # Only mapped: recordings may be larger than the memory.
    array = np.load(path, mmap_mode='r', allow_pickle=False)
  except _DAMAGE as error:
    raise _unreadable(path, error) from error
  shape = array.shape
  is_one = len(shape) == 3 or len(shape) == 4 and shape[-1] in (1, 3)
  if array.dtype.kind not in 'biuf' or len(shape) not in (3, 4, 5):
    raise CannotRead(
      f'{path} is {array.dtype} {shape}; it must be numbers [T, H, W], [T, H, '
      f'W, C], [N, T, H, W] or [N, T, H, W, C].'
    )
  if len(shape) == 5 and shape[-1] not in (1, 3):
    raise CannotRead(
      f'{path} has the shape {shape}; its last axis is C and must be 1 (grey) '
      f'or 3 (colour).'
    )
  if is_one:
    yield Recording(str(path), _frames(str(path), array))
    return
  sentences = tuple(f'{path}: {each}' for each in doubts.of_axes(*shape[:2]))
  for number in range(len(array)):
    name = f'{path}[{number}]'
    frames = _frames(name, array[number])
    yield Recording(name, frames, () if number else sentences)


def _frames(name: str, array: np.ndarray) -> Iterator[np.ndarray]:
  """Yields the frames of an array, in bytes."""
  for step, frame in enumerate(array):
    values = _bytes(f'{name}, frame {step}', np.asarray(frame))
    yield values[..., 0] if values.shape[2:] == (1,) else values


def _bytes(what: str, values: np.ndarray) -> np.ndarray:
  """Returns pixels as bytes, 0 to 255."""
  if values.dtype == np.uint8:
    return values
  if values.dtype.kind == 'b':
    return 255 * values.astype(np.uint8)
  if not np.isfinite(values).all():
    raise CannotRead(
      f'{what} has values that are not finite; replace them, by 0 say.'
    )
  is_float = values.dtype.kind == 'f'
  most = 1 if is_float else 255
  least, greatest = values.min(), values.max()
  if least < 0 or greatest > most:
    raise CannotRead(
      f'{what} has values from {least} to {greatest}; {values.dtype} must be '
      f'from 0 to {most}: scale them, or save bytes (uint8) from 0 to 255.'
    )
  return np.round(255 * values if is_float else values).astype(np.uint8)


def _unreadable(path: pathlib.Path, error: Exception) -> CannotRead:
  return CannotRead(
    f'{path} cannot be read ({_brief(error)}); repair it, or leave it out.'
  )


def _brief(error: Exception) -> str:
  """Returns the first line of an error."""
  return (str(error).splitlines() or [type(error).__name__])[0]
