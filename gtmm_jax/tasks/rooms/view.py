"""How a camera looks into a room.

The camera's eye is `EYE` above the floor, and it looks level. The frame is a
plane before it, so straight walls stay straight. The component of a ray's
direction along the view is 1. A point at height z and at distance d over the
floor is seen at the slope (z - EYE) / d, wherever the camera looks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

EYE = 0.4
# Horizontal, in radians.
FIELD_OF_VIEW = np.pi * 5 / 12
# Slices of a column of pixels, each with a ray along its middle.
RAYS = 2


class View(NamedTuple):
  """Rays of a frame, one to a slice.

  Attributes:
    direction: x and y, [W] each; the component along the view is 1.
    length: of the direction, [W].
    focal: distance of the frame from the eye, in pixels.
    middle: the row of the horizon.
    part: width of a slice, in pixels.
  """

  direction: tuple[Array, Array]
  length: Array
  focal: float
  middle: float
  part: float

  @property
  def scale(self) -> Array:
    """Rows to a slope of 1, [W]."""
    return self.focal * self.length

  def row(self, slope: Array) -> Array:
    """The row at which what has a slope is seen, [..., RAYS, W]."""
    scale = jnp.expand_dims(self.scale, tuple(range(slope.ndim - 1)))
    return self.middle - scale * slope


def dim(distance: Array) -> Array:
  """How bright things are at a distance, 1 at none."""
  return 0.55 + 0.45 / (1 + 0.12 * distance**2)
