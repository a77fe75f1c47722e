"""The result of every data source: its parts for training and evaluation."""

import hashlib
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

T = TypeVar('T')
# The parts on which a model is evaluated.
Split = Literal['validation', 'test']


class DataError(ValueError):
  """Data that is missing or wrong; the message says what to do about it."""


class Images(NamedTuple):
  """Images and their classes.

  Attributes:
    pixels: uint8 [N, H, W, C], in C order; 0 is background, 255 ink.
    labels: int32 [N].
  """

  pixels: np.ndarray
  labels: np.ndarray

  @property
  def shape(self) -> tuple[int, int, int]:
    """(H, W, C) of an image."""
    return self.pixels.shape[1:]


class Dataset(NamedTuple, Generic[T]):
  """Data to train on, and two parts that are never trained on.

  T is `Images`, or what a task draws from in their place: `Glyphs`, `Rooms`,
  `Frames` or `Windows`.

  Attributes:
    training: what training episodes are drawn from.
    validation: what episodes are drawn from on which settings are chosen.
    test: what episodes are drawn from on which final results are measured.
    source: one line for the user: what the data are, where they are from, how
      many each part has, how they were split.
    checksum: SHA-256, hexadecimal, of the data as used: `checksum_of` of
      images, that of the file and of its split for episodes, that of a version
      for data that are drawn and not stored.
    doubts: sentences on what is likely to be wrong with the data.
  """

  training: T
  validation: T
  test: T
  source: str
  checksum: str
  doubts: tuple[str, ...] = ()

  @property
  def parts(self) -> dict[str, T]:
    """Training, validation and test data by these names."""
    return {
      'training': self.training,
      'validation': self.validation,
      'test': self.test,
    }

  def held_out(self, split: Split) -> T:
    """Returns the data of a split that is never trained on."""
    return {'validation': self.validation, 'test': self.test}[split]


def by_tenths(count: int) -> np.ndarray:
  """Assigns the ninth of every ten to validation, and the tenth to the test.

  Args:
    count: N, number of images or episodes.

  Returns:
    int [N], the part of each: 0 for training, 1 for validation, 2 for the test.
  """
  return np.maximum(np.arange(count) % 10 - 7, 0)


def checksum_of(*parts: Images) -> str:
  """Returns the SHA-256, hexadecimal, of the bytes of images.

  Args:
    *parts: of each, pixels and labels (as little-endian int32), in this order.
  """
  digest = hashlib.sha256()
  for images in parts:
    digest.update(images.pixels.data)
    digest.update(images.labels.astype('<i4').data)
  return digest.hexdigest()


def checksum_of_version(version: str) -> str:
  """Returns the SHA-256, hexadecimal, of the name of a version.

  Args:
    version: such as 'rooms, version 1', of data that are drawn and not stored.
  """
  return hashlib.sha256(version.encode()).hexdigest()
