"""Reading data sets prepared by tensorflow-datasets, without TensorFlow."""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gtmm_jax.tasks.sources import omniglot
from gtmm_jax.tasks.sources.dataset import DataError, Images

_BATCH = 1_000


class _DataSet(NamedTuple):
  """A data set of tensorflow-datasets.

  Attributes:
    name: in tensorflow-datasets.
    title: in messages.
    files: that --data=files:FOLDER reads instead, in words.
  """

  name: str
  title: str
  files: str

  @property
  def pattern(self) -> str:
    """Pattern of any version: all published ones have the same images."""
    return f'{self.name}:*.*.*'

  @property
  def command(self) -> str:
    """Command that prepares the data set in a readable format."""
    return f'tfds build {self.name} --file_format=array_record --data_dir='


_MNIST = _DataSet('mnist', 'MNIST', 'the four idx files')
_OMNIGLOT = _DataSet(
  'omniglot', 'Omniglot', 'its zip files as they were published'
)


def read(data_dir: str | None) -> tuple[Images, Images, str]:
  """Reads tensorflow-datasets' MNIST, and prepares it first if necessary.

  Args:
    data_dir: the folder of prepared data sets; None for the default folder.

  Returns:
    The digits of the splits train and test, pixels uint8 [N, 28, 28, 1] and
    labels int32 [N], and their origin in words.

  Raises:
    DataError: a package is missing, or there are no readable prepared data and
      they cannot be prepared now.
  """
  with _sources(_MNIST, data_dir) as (training, test):
    return (
      _read_digits(training),
      _read_digits(test),
      _origin(_MNIST, training),
    )


def read_omniglot(data_dir: str | None) -> tuple[omniglot.Drawings, str]:
  """Reads tensorflow-datasets' Omniglot, and prepares it first if necessary.

  Args:
    data_dir: the folder of prepared data sets; None for the default folder.

  Returns:
    The drawings of the splits train and test, and their origin in words.

  Raises:
    DataError: as `read` does.
  """
  with _sources(_OMNIGLOT, data_dir) as sources:
    parts = [_read_drawings(source) for source in sources]
    drawings = omniglot.Drawings(
      np.concatenate([part.pixels for part in parts]),
      [name for part in parts for name in part.names],
    )
    return drawings, _origin(_OMNIGLOT, sources[0])


@contextlib.contextmanager
def _sources(
  data_set: _DataSet, data_dir: str | None
) -> Iterator[tuple[Any, Any]]:
  """Opens the splits train and test; raises `DataError` without a package."""
  folder = os.path.expanduser(data_dir) if data_dir else None
  try:
    import tensorflow_datasets as tfds

    with _quiet():
      yield _open(tfds, data_set, folder)
  except ImportError as error:
    raise DataError(
      f'--data=tfds needs a package that is not installed ({error}); `pip '
      f'install tensorflow-datasets array_record pillow importlib_resources`, '
      f'or use --data=files:FOLDER or --data=bundled.'
    ) from error


def _origin(data_set: _DataSet, source: Any) -> str:
  place = source.dataset_info.data_dir
  return f'{data_set.title} of tensorflow-datasets, from {place}'


def _open(tfds: Any, data_set: _DataSet, folder: str | None) -> tuple[Any, Any]:
  """Opens the splits train and test, after preparing them if necessary."""
  # Omniglot's 1-bit pictures are decoded by this project: the values that
  # tensorflow-datasets decodes depend on the installed packages.
  skip = {'image': tfds.decode.SkipDecoding()}

  def open_splits() -> tuple[Any, Any]:
    training, test = (
      tfds.data_source(
        data_set.pattern,
        split=split,
        data_dir=folder,
        download=False,
        decoders=skip if data_set is _OMNIGLOT else None,
      )
      for split in ('train', 'test')
    )
    return training, test

  try:
    return open_splits()
  except ImportError:
    raise
  # The error for a data set that is absent or in another format depends on the
  # folder and the format. The builder tells which of them it is.
  except Exception as error:
    builder = tfds.builder(data_set.pattern, data_dir=folder)
    if builder.is_prepared():
      raise _unreadable(data_set, builder.info, error) from error
  _prepare(tfds, data_set, builder.data_dir, folder)
  return open_splits()


def _prepare(
  tfds: Any, data_set: _DataSet, place: Any, folder: str | None
) -> None:
  """Downloads and prepares a data set, which requires TensorFlow."""
  other_ways = (
    f'`{data_set.command}{folder or "PREPARED_FOLDER"}` once on a machine with '
    f'TensorFlow and point --data_dir at that folder, or use '
    f'--data=files:FOLDER with {data_set.files}, or --data=bundled.'
  )
  if importlib.util.find_spec('tensorflow') is None:
    raise DataError(
      f'tensorflow-datasets has no {data_set.title} prepared in {place}, and '
      f'preparing it needs TensorFlow, which is not installed: run {other_ways}'
    )
  try:
    tfds.builder(
      data_set.name, data_dir=folder, file_format='array_record'
    ).download_and_prepare()
  except Exception as error:
    raise DataError(
      f'tensorflow-datasets could not prepare {data_set.title} in {place} '
      f'({error}): run {other_ways}'
    ) from error


def _unreadable(data_set: _DataSet, info: Any, error: Exception) -> DataError:
  """Tells why a prepared data set cannot be read."""
  file_format = info.file_format.value
  command = f'`{data_set.command}PREPARED_FOLDER`'
  if file_format != 'array_record':
    return DataError(
      f'{info.data_dir} is prepared in the format {file_format}, which cannot '
      f'be read without TensorFlow; prepare it in another folder with '
      f'{command} on a machine with TensorFlow and point --data_dir there, or '
      f'use --data=files:FOLDER or --data=bundled.'
    )
  return DataError(
    f'{info.data_dir} cannot be read as {data_set.title} ({error}); delete it '
    f'and prepare it again with {command}, or use --data=files:FOLDER or '
    f'--data=bundled.'
  )


def _examples(source: Any) -> Iterator[dict[str, Any]]:
  """Yields every example of a split, in their order on disk."""
  for start in range(0, len(source), _BATCH):
    stop = min(start + _BATCH, len(source))
    yield from source.__getitems__(range(start, stop))


def _read_digits(source: Any) -> Images:
  """Reads a whole split of MNIST."""
  pixels, labels = [], []
  try:
    for example in _examples(source):
      pixels.append(example['image'])
      labels.append(int(example['label']))
    images = Images(np.stack(pixels), np.array(labels, np.int32))
    kind, shape = images.pixels.dtype, images.pixels.shape[1:]
    if kind != np.uint8 or shape != (28, 28, 1):
      raise ValueError(f'its images are {kind} {shape}, not uint8 (28, 28, 1)')
  except ImportError:
    raise
  # The decoder can raise anything for a damaged record.
  except Exception as error:
    raise _unreadable(_MNIST, source.dataset_info, error) from error
  return images


def _read_drawings(source: Any) -> omniglot.Drawings:
  """Reads a whole split of Omniglot."""
  names = []

  def inks() -> Iterator[np.ndarray]:
    for example in _examples(source):
      number = int(example['alphabet_char_id']) + 1
      names.append((alphabets[int(example['alphabet'])], number))
      yield omniglot.decode(example['image'])

  try:
    alphabets = source.dataset_info.features['alphabet'].names
    # Characters are split by their names.
    if any(name.isdigit() for name in alphabets):
      raise ValueError('its alphabets have no names')
    return omniglot.Drawings(omniglot.reduce(inks()), names)
  except ImportError:
    raise
  except Exception as error:
    raise _unreadable(_OMNIGLOT, source.dataset_info, error) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Silences absl's warnings about decoders and absent folders."""
  logger = logging.getLogger('absl')
  level = logger.level
  logger.setLevel(logging.ERROR)
  try:
    yield
  finally:
    logger.setLevel(level)
