"""Reading digits from the four idx files in which MNIST was published."""

import gzip
import hashlib
import pathlib
import zlib
from typing import NamedTuple

import numpy as np

from gtmm_jax.tasks.sources.dataset import DataError, Images

# Checksums of the uncompressed content, so that files that are compressed again
# or not at all are recognised.
_PUBLISHED_SHA256 = {
  'train-images-idx3-ubyte': (
    'ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db'
  ),
  'train-labels-idx1-ubyte': (
    '65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5'
  ),
  't10k-images-idx3-ubyte': (
    '0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7'
  ),
  't10k-labels-idx1-ubyte': (
    'ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2'
  ),
}
_PUBLISHED_COUNTS = (60_000, 10_000)

# The first four bytes of an idx file of unsigned bytes with 3 axes or 1 axis.
_MAGIC_NUMBERS = {'images': 2051, 'labels': 2049}


class _Content(NamedTuple):
  """One idx file, unpacked and checked."""

  file: pathlib.Path
  array: np.ndarray
  published: bool


def read(folder: pathlib.Path) -> tuple[Images, Images, str]:
  """Reads the four idx files in a folder, compressed by gzip or not.

  Args:
    folder: has the files under their published names, or with a dot before idx,
      and with .gz at the end or without.

  Returns:
    The digits of the train and of the t10k files, pixels uint8 [N, 28, 28, 1]
    and labels int32 [N], and their origin in words.

  Raises:
    DataError: the folder or a file is missing, wrong or damaged.
  """
  if not folder.is_dir():
    state = 'is not a folder' if folder.exists() else 'does not exist'
    raise DataError(
      f'--data=files:FOLDER: {folder} {state}; name the folder that has '
      f'{", ".join(_PUBLISHED_SHA256)} (with or without .gz).'
    )
  # Looks for all four before it reads any.
  files = {name: _find_idx(folder, name) for name in _PUBLISHED_SHA256}
  contents = {name: _read_idx(file, name) for name, file in files.items()}
  training = _pair(contents, 'train')
  test = _pair(contents, 't10k')
  unknown = [c.file.name for c in contents.values() if not c.published]
  if not unknown:
    what = 'the published MNIST'
  elif (len(training.labels), len(test.labels)) == _PUBLISHED_COUNTS:
    what = (
      f"idx files of MNIST's size whose checksum is not the published one "
      f'({", ".join(unknown)})'
    )
  else:
    what = 'idx files'
  return training, test, f'{what}, from {folder}'


def _find_idx(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Finds the file of a name, or with a dot in it, compressed or not."""
  dotted = name.replace('-idx', '.idx')
  spellings = (name, dotted, f'{name}.gz', f'{dotted}.gz')
  for spelling in spellings:
    if (folder / spelling).is_file():
      return folder / spelling
  raise DataError(
    f'{folder} has no file {name}; put it there under one of the names '
    f'{", ".join(spellings)}.'
  )


def _read_idx(file: pathlib.Path, name: str) -> _Content:
  """Reads one idx file: a magic number, the size of each axis, the bytes."""
  content = _unpack(file)
  kind = 'images' if 'images' in name else 'labels'
  header_size = 16 if kind == 'images' else 8
  if len(content) < header_size:
    raise DataError(
      f'{file} is empty or cut short: it has {len(content)} bytes, and its '
      f'header alone takes {header_size}; fetch it again.'
    )
  magic, count, *sides = np.frombuffer(
    content, '>u4', header_size // 4
  ).tolist()
  if magic != _MAGIC_NUMBERS[kind]:
    raise DataError(
      f'{file} starts with the magic number {magic}, but an idx file of {kind} '
      f'starts with {_MAGIC_NUMBERS[kind]}; check that it is {name}.'
    )
  if sides not in ([], [28, 28]):
    raise DataError(
      f'{file} holds images of {sides[0]} x {sides[1]}; digits must be 28 x 28.'
    )
  if count == 0:
    raise DataError(f'{file} is empty: it declares 0 {kind}; fetch it again.')
  expected = header_size + count * (784 if kind == 'images' else 1)
  if len(content) != expected:
    raise DataError(
      f'{file} declares {count} {kind}, which take {expected} bytes, but has '
      f'{len(content)}; it is damaged: fetch it again.'
    )
  array = np.frombuffer(content, np.uint8, offset=header_size)
  if kind == 'labels' and array.max() > 9:
    raise DataError(
      f'{file} holds the label {array.max()}; labels of digits must be 0 to 9.'
    )
  published = hashlib.sha256(content).hexdigest() == _PUBLISHED_SHA256[name]
  return _Content(file, array, published)


def _unpack(file: pathlib.Path) -> bytes:
  """Reads a file, decompressed if its first bytes, not its name, are gzip's."""
  try:
    content = file.read_bytes()
    # An idx file starts with two zero bytes, so this cannot be one.
    if content.startswith(b'\x1f\x8b'):
      content = gzip.decompress(content)
  except (OSError, EOFError, zlib.error) as error:
    raise DataError(
      f'{file} cannot be read ({error}); fetch it again or make it readable.'
    ) from error
  return content


def _pair(contents: dict[str, _Content], part: str) -> Images:
  """Joins images with their labels."""
  images = contents[f'{part}-images-idx3-ubyte']
  labels = contents[f'{part}-labels-idx1-ubyte']
  pixels = images.array.reshape(-1, 28, 28, 1)
  if len(pixels) != len(labels.array):
    raise DataError(
      f'{images.file} holds {len(pixels)} images but {labels.file.name} '
      f'{len(labels.array)} labels; there must be one label for each image.'
    )
  # Copied, because a view of a file's bytes is neither writable nor aligned.
  return Images(pixels.copy(), labels.array.astype(np.int32))
