"""Reading the headers and arrays of an .npz file, without pickle."""

import contextlib
import math
import pathlib
import struct
import textwrap
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gtmm_jax.tasks.sources import doubts
from gtmm_jax.tasks.sources.dataset import DataError
from gtmm_jax.tasks.sources.stored import Stored

# Number of bytes to read at once.
_PIECE = 2**24
# The local header of a member in a zip file: its length up to the name, its
# first bytes, and the position of the lengths of the name and the extra field.
_LOCAL_HEADER, _LOCAL_MARK, _LOCAL_LENGTHS = 30, b'PK\x03\x04', 26
# Greatest number of characters quoted from an error, which may contain a whole
# header.
_LONGEST_REASON = 120
# Errors of zipfile and NumPy for members that are damaged, encrypted, packed by
# an unknown method, or nested more deeply than Python can read.
_DAMAGE = (
  zipfile.BadZipFile,
  zlib.error,
  EOFError,
  MemoryError,
  OSError,
  RuntimeError,
  SyntaxError,
  ValueError,
  struct.error,
  tokenize.TokenError,
)


class Member(NamedTuple):
  """One array of a file.

  Attributes:
    name: of the array.
    info: its entry in the zip file.
    shape: of the array.
    dtype: of its values.
    is_fortran: whether it is in Fortran order.
    start: number of bytes before its first value.
  """

  name: str
  info: zipfile.ZipInfo
  shape: tuple[int, ...]
  dtype: np.dtype
  is_fortran: bool
  start: int


@contextlib.contextmanager
def opened(file: pathlib.Path) -> Iterator[zipfile.ZipFile]:
  """Opens an .npz file.

  Raises:
    DataError: the file cannot be read, or is not a zip file; tells what it is.
  """
  try:
    archive = zipfile.ZipFile(file)
  except OSError as error:
    raise DataError(
      f'{file} cannot be read ({error}); make it readable, or name another '
      f'file.'
    ) from error
  except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
    raise DataError(f'{file} {_what_else(file)}') from error
  with archive:
    yield archive


def _what_else(file: pathlib.Path) -> str:
  """Tells what a file is that is not an .npz file, and what to do."""
  with open(file, 'rb') as stream:
    beginning = stream.read(6)
    stream.seek(0)
    if beginning == b'\x93NUMPY':
      return _single_array(file, stream)
  if beginning.startswith(b'PK'):
    return 'is cut short, or damaged; save or fetch it again.'
  return (
    'is not an .npz file; save your arrays with '
    "np.savez('episodes.npz', frames=...)."
  )


def _single_array(file: pathlib.Path, stream: Any) -> str:
  """Tells what to do with a file of `np.save`."""
  try:
    shape, _, dtype = _read_header(stream)
  except _DAMAGE as error:
    return f'is a damaged .npy file ({_brief(error)}); save or fetch it again.'
  way = 'uint8 [N, T, H, W, C]'
  if len(shape) == 4:
    way = doubts.to_five_axes(shape)
  return (
    f'is a single array as np.save writes it, {dtype} {shape}; save it with '
    f"its name: frames = np.load({file.name!r}), then np.savez('episodes.npz', "
    f'frames=...) of {way}.'
  )


def members(file: pathlib.Path, archive: zipfile.ZipFile) -> Iterator[Member]:
  """Reads the header of each array, in the order of the file.

  Raises:
    DataError: a header cannot be read, or an array holds objects.
  """
  for info in archive.infolist():
    name = info.filename.removesuffix('.npy')
    if name == info.filename:
      raise DataError(
        f'{file} holds {name!r}, which is not an array; save the file with '
        f"np.savez('episodes.npz', frames=...)."
      )
    try:
      with archive.open(info) as stream:
        header = _read_header(stream)
        start = stream.tell()
    except _DAMAGE as error:
      raise _damaged(file, name, error) from error
    shape, is_fortran, dtype = header
    if dtype.hasobject:
      raise DataError(
        f'{file}: {name} is an array of Python objects, which only pickle '
        f'could read; save an array of numbers, with episodes all of one '
        f'length and size.'
      )
    size = math.prod(shape) * dtype.itemsize
    if start + size != info.file_size:
      wrong = f'{info.file_size} bytes instead of {start + size}'
      raise _damaged(file, name, wrong)
    yield Member(name, info, shape, dtype, is_fortran, start)


def read(
  file: pathlib.Path, archive: zipfile.ZipFile, member: Member
) -> np.ndarray:
  """Reads an array into memory.

  Raises:
    DataError: the array is damaged, or larger than the memory.
  """
  values = _empty(file, member)
  start = 0
  for piece in _pieces(file, archive, member):
    values[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
    start += len(piece)
  values = values.view(member.dtype)
  if member.is_fortran:
    return np.ascontiguousarray(values.reshape(member.shape[::-1]).T)
  return values.reshape(member.shape)


def leave_or_read(
  file: pathlib.Path,
  archive: zipfile.ZipFile,
  member: Member,
  look: Callable[[Any], None],
) -> np.ndarray | Stored:
  """Leaves an array in its file if possible, and otherwise reads it.

  An array that is compressed or in Fortran order must be read: the values of an
  episode would not be contiguous.

  Args:
    file: path of the file.
    archive: the open file.
    member: the array to read.
    look: is called with all bytes of the array, in C order and in pieces.

  Returns:
    The array.

  Raises:
    DataError: the array is damaged, changes while it is read, or is larger than
      the memory.
  """
  is_stored = member.info.compress_type == zipfile.ZIP_STORED
  if not is_stored or member.is_fortran:
    values = read(file, archive, member)
    look(values.reshape(-1).view(np.uint8))
    return values
  try:
    offset = _data_offset(file, member.info)
    header = Stored(file, offset, (member.start,), np.dtype(np.uint8))
    checksum = zlib.crc32(next(header.pieces()))
    array = Stored(file, offset + member.start, member.shape, member.dtype)
  except _DAMAGE as error:
    raise _damaged(file, member.name, error) from error
  # Reads all of it once, which also finds damage.
  for piece in array.pieces():
    look(piece)
    checksum = zlib.crc32(piece, checksum)
  if checksum != member.info.CRC:
    raise _damaged(
      file, member.name, 'its checksum differs from the stored one'
    )
  return array


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
  """Reads shape, order (True for Fortran) and dtype from an array's stream."""
  version = np.lib.format.read_magic(stream)
  if version == (1, 0):
    return np.lib.format.read_array_header_1_0(stream)
  if version == (2, 0):
    return np.lib.format.read_array_header_2_0(stream)
  # Later versions are for field names, and NumPy has no public reader for them.
  raise ValueError(f'its format {version} is not that of an array of numbers')


def _pieces(
  file: pathlib.Path, archive: zipfile.ZipFile, member: Member
) -> Iterator[bytes]:
  """Reads the bytes of an array after its header, in pieces."""
  left = member.info.file_size - member.start
  try:
    with archive.open(member.info) as stream:
      stream.read(member.start)
      while piece := stream.read(_PIECE):
        left -= len(piece)
        if left < 0:
          break
        yield piece
  except _DAMAGE as error:
    raise _damaged(file, member.name, error) from error
  if left:
    raise _damaged(file, member.name, 'its length is not the stored one')


def _empty(file: pathlib.Path, member: Member) -> np.ndarray:
  """Allocates memory for an array, as bytes."""
  size = member.info.file_size - member.start
  try:
    return np.empty(size, np.uint8)
  except MemoryError as error:
    raise DataError(
      f'{file}: {member.name} takes {size / 1e6:,.0f} megabytes, more memory '
      f'than there is; save it uncompressed, with np.savez and in C order, to '
      f'have it read in parts.'
    ) from error


def _data_offset(file: pathlib.Path, info: zipfile.ZipInfo) -> int:
  """Finds the offset of an uncompressed member's bytes in the file."""
  with open(file, 'rb') as stream:
    stream.seek(info.header_offset)
    header = stream.read(_LOCAL_HEADER)
  if len(header) < _LOCAL_HEADER or not header.startswith(_LOCAL_MARK):
    raise zipfile.BadZipFile('it is not at its place in the file')
  # These may differ from the lengths in the zip file's central directory.
  name, extra = struct.unpack_from('<HH', header, _LOCAL_LENGTHS)
  return info.header_offset + _LOCAL_HEADER + name + extra


def _damaged(file: pathlib.Path, name: str, why: Any) -> DataError:
  return DataError(
    f'{file}: {name} cannot be read ({_brief(why)}); save or fetch the file '
    f'again.'
  )


def _brief(why: Any) -> str:
  brief = textwrap.shorten(str(why), _LONGEST_REASON, placeholder=' ...')
  return brief or 'it is nested too deeply'
