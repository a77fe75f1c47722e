"""The camera's projection.

The camera is `EYE` above the floor and looks horizontally. The frame is a plane
before it, so straight walls stay straight. A ray's direction has component 1
along the viewing direction. A point at height z and at horizontal distance d is
seen at the slope (z - EYE) / d, in whichever direction the camera looks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

EYE = 0.4
# Horizontal, in radians.
FIELD_OF_VIEW = np.pi * 5 / 12
# Slices per column of pixels, each with a ray along its middle.
RAYS = 2


class View(NamedTuple):
  """The rays of a frame, one per slice.

  Attributes:
    direction: x and y, [W] each; the component along the viewing direction is
      1.
    length: of the direction, [W].
    focal: distance of the frame from the camera, in pixels.
    middle: row of the horizon.
    part: width of a slice, in pixels.
  """

  direction: tuple[Array, Array]
  length: Array
  focal: float
  middle: float
  part: float

  @property
  def scale(self) -> Array:
    """Number of rows per unit of slope, [W]."""
    return self.focal * self.length

  def row(self, slope: Array) -> Array:
    """Returns the row at which a slope [..., W] is seen, [..., W]."""
    scale = jnp.expand_dims(self.scale, tuple(range(slope.ndim - 1)))
    return self.middle - scale * slope


def dim(distance: Array) -> Array:
  """Computes the brightness at a distance, from 1 at 0 down to 0.55."""
  return 0.55 + 0.45 / (1 + 0.12 * distance**2)
