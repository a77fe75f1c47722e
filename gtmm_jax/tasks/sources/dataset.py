"""Images with their classes, whatever their source."""

from typing import NamedTuple

import numpy as np


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


class DataError(ValueError):
  """Images that cannot be had or cannot be trusted; says what to do."""
