"""Digits as tensorflow-datasets prepares them, read without TensorFlow."""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from gtmm_jax.tasks.dataset import DataError, Images

# Any version: all that were published hold the same digits.
_NAME = 'mnist:*.*.*'
_BATCH = 1_000


def read(data_dir: str | None) -> tuple[Images, Images, str]:
  """Reads MNIST as tensorflow-datasets prepared it, preparing it if need be.

  Args:
    data_dir: the folder of prepared data sets; None for the default one.

  Returns:
    The digits of the splits train and test, pixels uint8 [N, 28, 28, 1] and
    labels int32 [N], and what they are and where from, for people.

  Raises:
    DataError: if a package is missing, or nothing readable is prepared and it
      cannot be prepared now.
  """
  folder = os.path.expanduser(data_dir) if data_dir else None
  try:
    import tensorflow_datasets as tfds

    with _quiet():
      sources = _open(tfds, folder)
      training, held_out = (_read_split(source) for source in sources)
  except ImportError as error:
    raise DataError(
      f'--data=tfds needs a package that is not installed ({error}); `pip '
      f'install tensorflow-datasets array_record pillow importlib_resources`, '
      f'or use --data=files:FOLDER or --data=bundled.'
    ) from error
  place = sources[0].dataset_info.data_dir
  return training, held_out, f'MNIST of tensorflow-datasets, from {place}'


def _open(tfds: Any, folder: str | None) -> list[Any]:
  """Opens the splits train and test; finds out why where that fails."""

  def open_splits() -> list[Any]:
    return [
      tfds.data_source(_NAME, split=split, data_dir=folder, download=False)
      for split in ('train', 'test')
    ]

  try:
    return open_splits()
  except ImportError:
    raise
  # What is raised for a data set that is absent, or in another format, differs
  # with the folder and the format, so the builder is asked instead.
  except Exception as error:
    builder = tfds.builder(_NAME, data_dir=folder)
    if builder.is_prepared():
      raise _unreadable(builder.info, error) from error
  _prepare(tfds, builder.data_dir, folder)
  return open_splits()


def _prepare(tfds: Any, place: Any, folder: str | None) -> None:
  """Downloads and prepares MNIST, which takes TensorFlow."""
  other_ways = (
    f'{_prepare_command(folder)} once on a machine with TensorFlow and point '
    f'--data_dir at that folder, or use --data=files:FOLDER with the four idx '
    f'files, or --data=bundled.'
  )
  if importlib.util.find_spec('tensorflow') is None:
    raise DataError(
      f'tensorflow-datasets has no MNIST prepared in {place}, and preparing it '
      f'takes TensorFlow, which is not installed: run {other_ways}'
    )
  try:
    tfds.builder(
      'mnist', data_dir=folder, file_format='array_record'
    ).download_and_prepare()
  except Exception as error:
    raise DataError(
      f'tensorflow-datasets could not prepare MNIST in {place} ({error}): run '
      f'{other_ways}'
    ) from error


def _prepare_command(folder: str | None) -> str:
  """The command line that prepares MNIST so that it can be read here."""
  target = folder or 'PREPARED_FOLDER'
  return f'`tfds build mnist --file_format=array_record --data_dir={target}`'


def _unreadable(info: Any, error: Exception) -> DataError:
  """Says why a prepared data set cannot be read."""
  file_format = info.file_format.value
  if file_format != 'array_record':
    return DataError(
      f'{info.data_dir} is prepared in the format {file_format}, which cannot '
      f'be read without TensorFlow; prepare it in another folder with '
      f'{_prepare_command(None)} on a machine with TensorFlow and point '
      f'--data_dir there, or use --data=files:FOLDER or --data=bundled.'
    )
  return DataError(
    f'{info.data_dir} cannot be read as MNIST ({error}); delete it and prepare '
    f'it again with {_prepare_command(None)}, or use --data=files:FOLDER or '
    f'--data=bundled.'
  )


def _read_split(source: Any) -> Images:
  """Reads a whole split, in the order in which it lies on disk."""
  pixels, labels = [], []
  try:
    for start in range(0, len(source), _BATCH):
      stop = min(start + _BATCH, len(source))
      examples = source.__getitems__(range(start, stop))
      pixels.append(np.stack([example['image'] for example in examples]))
      labels += [int(example['label']) for example in examples]
    images = Images(np.concatenate(pixels), np.array(labels, np.int32))
    kind, shape = images.pixels.dtype, images.pixels.shape[1:]
    if kind != np.uint8 or shape != (28, 28, 1):
      raise ValueError(f'its images are {kind} {shape}, not uint8 (28, 28, 1)')
  except ImportError:
    raise
  # Damaged records raise whatever their decoder raises.
  except Exception as error:
    raise _unreadable(source.dataset_info, error) from error
  return images


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Silences what absl, not we, would warn of: decoders, absent folders."""
  logger = logging.getLogger('absl')
  level = logger.level
  logger.setLevel(logging.ERROR)
  try:
    yield
  finally:
    logger.setLevel(level)
