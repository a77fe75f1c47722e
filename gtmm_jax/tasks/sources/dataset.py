"""The result of every data source: images to train on, and images held out."""

import hashlib
from typing import Generic, NamedTuple, TypeVar

import numpy as np

T = TypeVar('T')


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
  """Data to train on, and data that is never trained on.

  T is `Images`, or what a task draws from in their place: `Glyphs`, `Rooms`,
  `Frames` or `Windows`.

  Attributes:
    training: what training episodes are drawn from.
    held_out: what held-out episodes are drawn from.
    source: one line for the user: what the data are, where they are from, how
      many are for training and how many held out, how they were split.
    checksum: SHA-256, hexadecimal, of the data as used: `checksum_of` of
      images, that of the file for episodes, that of a version number for data
      that are drawn and not stored.
    doubts: sentences on what is likely to be wrong with the data.
  """

  training: T
  held_out: T
  source: str
  checksum: str
  doubts: tuple[str, ...] = ()


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
