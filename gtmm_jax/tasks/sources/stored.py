"""An array that stays in its file and is read in parts."""

import math
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from gtmm_jax.tasks.sources.dataset import DataError

# Number of bytes to read at once when all are read.
_PIECE = 2**24


class Stored:
  """An array in a file; parts along its first axis are read by their numbers.

  It is not mapped into memory: a file that is cut short would end the program
  with a bus error, and one that is written to would change the array. Here both
  are found before anything that was read is used. A file that another one
  replaces under its name stays open, and is read as it was.

  Attributes:
    shape: of the array.
    dtype: of its values.
  """

  def __init__(
    self,
    file: pathlib.Path,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
  ) -> None:
    """Opens the file, in which the array begins after `offset` bytes."""
    self.shape, self.dtype = shape, dtype
    self._file, self._offset = file, offset
    # Closed with the array, which has no end of its own.
    self._stream = open(file, 'rb', buffering=0)  # noqa: SIM115
    self._state = self._read_state()

  def __len__(self) -> int:
    """Returns the size of the first axis."""
    return self.shape[0]

  def __getitem__(self, chosen: np.ndarray) -> np.ndarray:
    """Reads parts of the array into memory.

    Args:
      chosen: their numbers on the first axis, int [M].

    Returns:
      [M, ...].

    Raises:
      DataError: the file was changed since it was opened.
    """
    parts = np.empty((len(chosen), *self.shape[1:]), self.dtype)
    size = math.prod(self.shape[1:]) * self.dtype.itemsize
    self.require_unchanged()
    rows = parts.reshape(len(chosen), -1).view(np.uint8)
    for row, number in zip(rows, chosen, strict=True):
      self._stream.seek(self._offset + int(number) * size)
      self._fill(row)
    self.require_unchanged()
    return parts

  def pieces(self) -> Iterator[np.ndarray]:
    """Reads all bytes of the array, uint8 [M] a piece.

    Raises:
      DataError: as `__getitem__` does.
    """
    left = math.prod(self.shape) * self.dtype.itemsize
    self._stream.seek(self._offset)
    while left:
      piece = np.empty(min(left, _PIECE), np.uint8)
      self._fill(piece)
      left -= len(piece)
      yield piece
    self.require_unchanged()

  def require_unchanged(self) -> None:
    """Raises `DataError` if the file was cut or written to meanwhile."""
    if self._read_state() != self._state:
      raise self._changed()

  def _read_state(self) -> tuple[int, int]:
    now = os.fstat(self._stream.fileno())
    return now.st_size, now.st_mtime_ns

  def _fill(self, row: np.ndarray) -> None:
    """Reads as many bytes as `row` has; a system may give fewer at a time."""
    view = memoryview(row)
    while view:
      count = self._stream.readinto(view)
      if not count:
        raise self._changed()
      view = view[count:]

  def _changed(self) -> DataError:
    before, now = self._state[0], self._read_state()[0]
    how = f'cut from {before:,} to {now:,} bytes' if now < before else 'changed'
    return DataError(
      f'{self._file} was {how} while it was in use, and is read no further. '
      f'What was computed is kept: with the file as it was, the same command '
      f'continues from the last checkpoint.'
    )
