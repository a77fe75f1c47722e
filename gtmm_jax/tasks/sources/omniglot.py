"""Reading Omniglot's drawings from the published zip files.

Source: B. M. Lake, R. Salakhutdinov, J. B. Tenenbaum, "Human-level concept
learning through probabilistic program induction", Science 350 (6266), 2015.
"""

import hashlib
import io
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gtmm_jax.tasks.sources.dataset import DataError

_PUBLISHED_SHA256 = {
  'images_background.zip': (
    'ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640'
  ),
  'images_evaluation.zip': (
    '1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee'
  ),
  'images_background_small1.zip': (
    'f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4'
  ),
  'images_background_small2.zip': (
    '3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f'
  ),
}
_NAMES = ', '.join(_PUBLISHED_SHA256)

_PATH = re.compile(r'[^/]+/([^/]+)/character(\d+)/\d+_(\d+)\.png')
# Files that file managers add to an archive.
_LITTER = re.compile(r'(^|/)(__MACOSX/|\.DS_Store$|Thumbs\.db$)')

SIDE = 28
_WIDTH = 105
_BATCH = 500


class Drawings(NamedTuple):
  """Drawings of characters.

  Attributes:
    pixels: uint8 [N, 28, 28, 1]; 0 is background, 255 ink.
    names: N pairs of alphabet and number of the character in it, from 1.
  """

  pixels: np.ndarray
  names: list[tuple[str, int]]


class _Entry(NamedTuple):
  """A picture in a zip file."""

  archive: zipfile.ZipFile
  info: zipfile.ZipInfo


def read(folder: pathlib.Path) -> tuple[Drawings, str]:
  """Reads the published zip files in a folder, without unpacking them.

  Args:
    folder: has some of them under their published names. The small ones are
      parts of the background set: pictures in several files are read once.

  Returns:
    The drawings, and their origin in words.

  Raises:
    DataError: the folder is missing or has none of the files, or a file is
      wrong or damaged.
  """
  files = _find(folder)
  entries: dict[tuple[str, int, int], _Entry] = {}
  unknown = []
  for file in files:
    content = _read_bytes(file)
    if hashlib.sha256(content).hexdigest() != _PUBLISHED_SHA256[file.name]:
      unknown.append(file.name)
    _add(entries, file, content)
  what = 'the published Omniglot'
  if unknown:
    what = (
      f'zip files like those of Omniglot, whose checksum is not the published '
      f'one ({", ".join(unknown)})'
    )
  else:
    what += f' ({", ".join(file.name for file in files)})'
  pixels = reduce(_ink(entry) for entry in entries.values())
  names = [(alphabet, number) for alphabet, number, _ in entries]
  return Drawings(pixels, names), f'{what}, from {folder}'


def decode(content: bytes) -> np.ndarray:
  """Decodes a picture; returns where it has ink, bool [105, 105].

  Args:
    content: of a PNG file, black on white.

  Raises:
    ImportError: pillow is not installed.
    ValueError: the content is not such a picture.
  """
  from PIL import Image

  try:
    picture = Image.open(io.BytesIO(content), formats=('PNG',))
    fits = picture.size == (_WIDTH, _WIDTH)
    ink = np.asarray(picture.convert('L')) < 128 if fits else None
  # The decoder can raise anything for a damaged picture.
  except Exception as error:
    raise ValueError(f'it cannot be read as a PNG picture ({error})') from error
  if ink is None:
    raise ValueError(
      f'it is {picture.width} x {picture.height}, not {_WIDTH} x {_WIDTH}'
    )
  if not 0 < np.count_nonzero(ink) < ink.size / 2:
    raise ValueError('it is not black ink on white')
  return ink


def reduce(inks: Iterable[np.ndarray]) -> np.ndarray:
  """Reduces pictures to grey ones, whose pixels are the ink on their area.

  Args:
    inks: bool [105, 105] each.

  Returns:
    Pixels uint8 [N, 28, 28, 1].
  """
  # 105 / 28 is 15 / 4: in quarters of a row, each of 105 rows has 4 and each of
  # 28 rows has 15. Sums of integers are the same on every machine.
  quarter = np.arange(4 * _WIDTH)
  shares = np.zeros((SIDE, _WIDTH), np.int16)
  np.add.at(shares, (quarter // 15, quarter // 4), 1)

  def shrink(ink: np.ndarray) -> np.ndarray:
    """Sums the first of two axes: [N, 105, A] to [N, A, 28]."""
    sums = np.zeros((len(ink), SIDE, ink.shape[2]), np.int16)
    for row, source in zip(*np.nonzero(shares), strict=True):
      sums[:, row] += shares[row, source] * ink[:, source]
    return np.ascontiguousarray(sums.swapaxes(1, 2))

  def reduce_batch(batch: list[np.ndarray]) -> np.ndarray:
    # Sums are up to 225. As 255 / 225 is 17 / 15, no grey value ends in a half.
    sums = shrink(shrink(np.stack(batch).astype(np.int16)))
    return np.rint(sums * (17 / 15)).astype(np.uint8)

  batch, parts = [], [np.zeros((0, SIDE, SIDE), np.uint8)]
  for ink in inks:
    batch.append(ink)
    if len(batch) == _BATCH:
      parts.append(reduce_batch(batch))
      batch = []
  if batch:
    parts.append(reduce_batch(batch))
  return np.concatenate(parts)[..., None]


def _find(folder: pathlib.Path) -> list[pathlib.Path]:
  """Lists the published files in the folder."""
  if not folder.is_dir():
    state = 'is not a folder' if folder.exists() else 'does not exist'
    raise DataError(
      f'--data=files:FOLDER: {folder} {state}; name the folder that has one or '
      f'more of {_NAMES}.'
    )
  files = [folder / name for name in _PUBLISHED_SHA256]
  present = [file for file in files if file.is_file()]
  if present:
    return present
  unpacked = [file.stem for file in files if (folder / file.stem).is_dir()]
  hint = f'; {unpacked[0]} is unpacked there' if unpacked else ''
  raise DataError(
    f"{folder} has none of Omniglot's files{hint}; put one or more of {_NAMES} "
    f'there as they were published, without unpacking them.'
  )


def _read_bytes(file: pathlib.Path) -> bytes:
  try:
    return file.read_bytes()
  except OSError as error:
    raise DataError(
      f'{file} cannot be read ({error}); fetch it again or make it readable.'
    ) from error


def _add(
  entries: dict[tuple[str, int, int], _Entry],
  file: pathlib.Path,
  content: bytes,
) -> None:
  """Adds the pictures of one file by alphabet, character and drawer."""
  try:
    archive = zipfile.ZipFile(io.BytesIO(content))
  except zipfile.BadZipFile as error:
    raise DataError(
      f'{file} is not a zip file, or is cut short ({error}); fetch it again.'
    ) from error
  archive.filename = str(file)
  has_pictures = False
  for info in archive.infolist():
    if info.is_dir() or _LITTER.search(info.filename):
      continue
    match = _PATH.fullmatch(info.filename)
    if match is None:
      raise DataError(
        f'{file} holds {info.filename!r}, but all names should be like '
        f'{file.stem}/ALPHABET/character01/0001_01.png; fetch it again.'
      )
    has_pictures = True
    key = match[1], int(match[2]), int(match[3])
    other = entries.setdefault(key, _Entry(archive, info))
    if other.info.CRC != info.CRC:
      raise DataError(
        f'{file} and {other.archive.filename} hold different pictures for '
        f'{info.filename!r}; fetch both again, or remove one of them.'
      )
  if not has_pictures:
    raise DataError(f'{file} holds no pictures; fetch it again.')


def _ink(entry: _Entry) -> np.ndarray:
  """Reads one picture."""
  where = f'{entry.info.filename!r} in {entry.archive.filename}'
  try:
    return decode(entry.archive.read(entry.info))
  except ImportError as error:
    raise DataError(
      f"reading Omniglot's pictures needs a package that is not installed "
      f'({error}); `pip install pillow`, or use --data=bundled.'
    ) from error
  except ValueError as error:
    raise DataError(
      f'{where} is not a drawing of Omniglot: {error}; fetch the file again.'
    ) from error
  # Damaged, encrypted, or packed by an unknown method.
  except (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
  ) as error:
    raise DataError(
      f'{where} cannot be unpacked ({error}); fetch the file again.'
    ) from error
