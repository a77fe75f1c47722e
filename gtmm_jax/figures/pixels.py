"""Conversion of frames to the pixels of a picture."""

from __future__ import annotations

import numpy as np


def as_rgb(name: str, frames: np.ndarray, least: int = 56) -> np.ndarray:
  """Converts frames to [T, H, W, 3] in [0, 1], scaled to a visible size.

  Args:
    name: of the row, for error messages.
    frames: [T, H, W, C].
    least: about the least side of a picture, in pixels.

  Raises:
    ValueError: the shape is another, C is not 1 or 3, or values are bytes.
  """
  array = np.asarray(frames)
  if array.ndim != 4 or array.shape[-1] not in (1, 3) or 0 in array.shape[1:]:
    raise ValueError(
      f'The row {name!r} has shape {array.shape}, but must be [T, H, W, C] '
      'with C 1 (grey) or 3 (colour).'
    )
  if array.dtype.kind in 'iu' and array.size and array.max() > 1:
    raise ValueError(
      f'The row {name!r} has integers up to {array.max()}, but must be in '
      '[0, 1]: divide bytes by 255.'
    )
  side = max(array.shape[1:3])
  thinned = array[:, :: max(1, side // 64), :: max(1, side // 64)]
  scale = max(1, round(least / side))
  large = thinned.repeat(scale, axis=1).repeat(scale, axis=2)
  clipped = np.clip(large.astype(np.float64), 0, 1)
  return np.broadcast_to(clipped, (*clipped.shape[:3], 3))
