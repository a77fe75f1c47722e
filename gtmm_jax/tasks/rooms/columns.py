"""Columns of pixels, computed from what is seen along rays.

A slice is a vertical strip of a frame, a fraction of a pixel wide. Its contents
are known exactly: the rows where sky, roofs, wall and floor begin, and where a
painting, a line between bricks or a ball is. A pixel is the mean of these over
its height, so that nothing needs to be sampled. Where the edges of two things,
one before the other, are in the same pixel, the nearer one is treated as spread
evenly over it.

Rows are measured from the top of the frame in pixels and need not be integers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# Brightness of the floor at the horizon; nearby it is 1.
_DARK = 0.6


class Backdrop(NamedTuple):
  """Sky, roofs, wall and floor of W slices, one below the other.

  Attributes:
    far: [W], row where the far building begins.
    near: [W], row where the near building begins, not above `far`.
    top: [W], row where the wall begins, not above `near`.
    bottom: [W], row where the floor begins, below `top`.
    high: [W], change per row in the share of the upper sky's colour.
    close: [W], change per row in the brightness of the floor.
    building: [3, W], colour of the far building.
    facade: [2, 3, W], colours of the near building: of windows and of the wall
      between them.
    wall: [2, 3, W], the two colours of the wall as lit.
  """

  far: Array
  near: Array
  top: Array
  bottom: Array
  high: Array
  close: Array
  building: Array
  facade: Array
  wall: Array


class Courses(NamedTuple):
  """Lines and joints on a wall, which have its second colour; all [W].

  Attributes:
    phase: height at row 0, in pairs of courses.
    pitch: decrease of height per row, in pairs of courses.
    line: height of one line as a fraction of two courses.
    even: fraction of the slice that is joint in courses 0, 2, ... from below.
    odd: fraction of the slice that is joint in courses 1, 3, ...
  """

  phase: Array
  pitch: Array
  line: Array
  even: Array
  odd: Array


class Painting(NamedTuple):
  """The paintings on the walls.

  Attributes:
    rows: [4, 2, W], first and last row of the whole painting, of the inside of
      its frame, of its lower part and of its disc.
    shares: [2, W], fractions of the slice that the whole painting and the
      inside of its frame cover.
    colors: [4, 3, W], as lit, of frame, upper part, lower part and disc.
  """

  rows: Array
  shares: Array
  colors: Array


class Outlines(NamedTuple):
  """The outlines of things, the farthest first; all [K, W].

  Attributes:
    share: fraction of the slice that the thing covers.
    top: row where it begins.
    bottom: row where it ends.
    phase: shading at row 0: dark up to 0, light from 1 on.
    pitch: decrease of shading per row.
    dark: brightness where the thing is dark.
    light: brightness to add where it is light.
  """

  share: Array
  top: Array
  bottom: Array
  phase: Array
  pitch: Array
  dark: Array
  light: Array


class Slices(NamedTuple):
  """The contents of W slices.

  Attributes:
    backdrop: sky, roofs, wall and floor.
    windows: courses of near buildings.
    bricks: courses of the wall.
    painting: on the wall.
    outlines: of the things before the wall.
  """

  backdrop: Backdrop
  windows: Courses
  bricks: Courses
  painting: Painting
  outlines: Outlines


def paint(
  slices: Slices, sky: Array, floor: Array, things: Array, height: int
) -> Array:
  """Fills columns of pixels, each the mean of its slices.

  Args:
    slices: with a leading axis over the slices of a column.
    sky: [2, 3], colours at the horizon and at the top.
    floor: [3], colour.
    things: [K, 3], colours in the order of the outlines.
    height: H, rows of the frame.

  Returns:
    The frame, [H, W, 3] in [0, 1].
  """
  rows = np.arange(height, dtype=np.float32)[:, None]
  count = len(slices.backdrop.top)
  channels = [0.0] * 3
  for number in range(count):
    # [..., 1, W], to be broadcast against rows [H, 1].
    part = jax.tree.map(lambda x, i=number: x[i][..., None, :], slices)
    backdrop = part.backdrop
    second = (
      _second(part.windows, backdrop.near, backdrop.top, rows),
      _second(part.bricks, backdrop.top, backdrop.bottom, rows),
    )
    for i in range(3):
      value = _behind(backdrop, second, rows, height / 2, i, sky, floor[i])
      value = _hang(value, part.painting, rows, i)
      channels[i] += _stand(value, part.outlines, rows, things[:, i])
  # Only rounding can leave the range.
  return jnp.clip(jnp.stack(channels, -1) / count, 0, 1)


# `where` instead of `minimum` and `maximum`, which also check for NaN.
def _less(x: Array, y: Array | float) -> Array:
  return jnp.where(x < y, x, y)


def _more(x: Array, y: Array | float) -> Array:
  return jnp.where(x > y, x, y)


def _covered(rows: Array, begin: Array, end: Array) -> Array:
  """Computes the fraction of each pixel between two rows, [H, W]."""
  return _more(_less(rows + 1, end) - _more(rows, begin), 0.0)


def _second(courses: Courses, top: Array, bottom: Array, rows: Array) -> Array:
  """Computes the fraction [H, W] of each pixel that is line or joint.

  Counts only what is between the rows `top` and `bottom`.
  """
  line, even, odd = courses.line, courses.even, courses.odd
  body = 0.5 - line
  pair = 2 * line + body * (even + odd)

  def below(row):
    """Integrates lines and joints up to a row's height, in pairs of courses."""
    height = courses.phase - _less(_more(row, top), bottom) * courses.pitch
    whole = jnp.floor(height)
    part = height - whole
    upper = part - 0.5
    return (
      whole * pair
      + _less(part, line)
      + even * _less(_more(part - line, 0.0), body)
      + _less(_more(upper, 0.0), line)
      + odd * _more(upper - line, 0.0)
    )

  # Divides last, because XLA on a CPU then shares it between three channels.
  return (below(rows) - below(rows + 1)) / courses.pitch


def _behind(
  backdrop: Backdrop,
  second: tuple[Array, Array],
  rows: Array,
  middle: float,
  channel: int,
  sky: Array,
  floor: Array,
) -> Array:
  """Computes one channel of sky, buildings, wall and floor, [H, W]."""
  # The mean of a linear gradient is its value at the midpoint.
  on_sky = _more(_less(backdrop.far - rows, 1.0), 0.0)
  high = _less((middle - rows - 0.5 * on_sky) * backdrop.high, 1.0)
  on_floor = _more(_less(rows + 1 - backdrop.bottom, 1.0), 0.0)
  close = _less((rows + 1 - 0.5 * on_floor - middle) * backdrop.close, 1.0)
  pale, deep = sky[:, channel]
  window, between = backdrop.facade[:, channel]
  brick, joint = backdrop.wall[:, channel]
  return (
    on_sky * (pale + (deep - pale) * high)
    + backdrop.building[channel] * _covered(rows, backdrop.far, backdrop.near)
    + window * _covered(rows, backdrop.near, backdrop.top)
    + (between - window) * second[0]
    + brick * _covered(rows, backdrop.top, backdrop.bottom)
    + (joint - brick) * second[1]
    + floor * on_floor * (_DARK + (1 - _DARK) * close)
  )


def _hang(value: Array, painting: Painting, rows: Array, channel: int) -> Array:
  """Draws the painting over one channel, [H, W]."""
  whole, inside, lower, disc = (_covered(rows, *x) for x in painting.rows)
  frame_color, upper_color, lower_color, disc_color = painting.colors[
    :, channel
  ]
  value += painting.shares[0] * whole * (frame_color - value)
  return value + painting.shares[1] * (
    (upper_color - frame_color) * inside
    + (lower_color - upper_color) * lower
    + (disc_color - upper_color) * disc
  )


def _stand(
  value: Array, outlines: Outlines, rows: Array, colors: Array
) -> Array:
  """Draws the things over one channel, [H, W]."""
  for thing, color in zip(zip(*outlines, strict=True), colors, strict=True):
    share, top, bottom, phase, pitch, dark, light = thing
    shade = _less(_more(phase - rows * pitch, 0.0), 1.0)
    cover = share * _covered(rows, top, bottom)
    value += cover * (color * (dark + light * shade) - value)
  return value
