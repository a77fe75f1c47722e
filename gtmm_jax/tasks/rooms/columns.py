"""From what stands along a ray to a column of pixels.

A slice is an upright strip of a frame, as wide as a part of a pixel. What is in
it is known exactly: at which row sky, roofs, wall and floor begin, where a
painting, a line between bricks or a ball is. A pixel has the mean of that over
its height, so that nothing needs to be sampled. Where the edges of two things,
one before the other, run through one pixel, the nearer counts as spread evenly
over it.

Rows are counted from the top of the frame, in pixels and parts of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# How bright the floor is at the horizon, where it is 1 nearby.
_DARK = 0.6


class Backdrop(NamedTuple):
  """Sky, roofs, wall and floor, one below the other, of W slices.

  Attributes:
    far: [W], row where the farther row of buildings begins.
    near: [W], where the nearer one begins, not above `far`.
    top: [W], where the wall begins, not above `near`.
    bottom: [W], where the floor begins, below `top`.
    high: [W], what a row adds to the share of the upper sky's colour.
    close: [W], what a row adds to the brightness of the floor.
    building: [3, W], colour of the far building.
    facade: [2, 3, W], colours of the near building: of windows, and between.
    wall: [2, 3, W], the wall's two colours in its light.
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
    pitch: what a row takes from it.
    line: part of two courses that is one line.
    even: part of the slice that is joint, in the lowest course and every other.
    odd: likewise, in the others.
  """

  phase: Array
  pitch: Array
  line: Array
  even: Array
  odd: Array


class Painting(NamedTuple):
  """A painting on the wall.

  Attributes:
    rows: [4, 2, W], where its whole, what is inside its frame, its lower part
      and its disc begin and end.
    shares: [2, W], parts of the slice that the whole and the inside have.
    colors: [4, 3, W], in their light, of frame, upper part, lower part
      and disc.
  """

  rows: Array
  shares: Array
  colors: Array


class Outlines(NamedTuple):
  """Things, the farthest first; all [K, W].

  Attributes:
    share: part of the slice that the thing has.
    top: row where it begins.
    bottom: row where it ends.
    phase: its shading at row 0; at 0 and below it is dark, from 1 on light.
    pitch: what a row takes from it.
    dark: brightness where it is dark.
    light: what is added to that where it is light.
  """

  share: Array
  top: Array
  bottom: Array
  phase: Array
  pitch: Array
  dark: Array
  light: Array


class Slices(NamedTuple):
  """All that is in W slices.

  Attributes:
    backdrop: what hides nothing.
    windows: courses of near buildings.
    bricks: courses of the wall.
    painting: on the wall.
    outlines: of things before the wall.
  """

  backdrop: Backdrop
  windows: Courses
  bricks: Courses
  painting: Painting
  outlines: Outlines


def paint(
  slices: Slices, sky: Array, floor: Array, things: Array, height: int
) -> Array:
  """Fills columns of pixels, each of which is the mean of its slices.

  Args:
    slices: with a leading axis, the slices of a column.
    sky: [2, 3], colours at the horizon and high up.
    floor: [3], colour.
    things: [K, 3], colours in the order of the outlines.
    height: H, rows of the frame.

  Returns:
    [H, W, 3] in [0, 1].
  """
  rows = np.arange(height, dtype=np.float32)[:, None]
  count = len(slices.backdrop.top)
  channels = [0.0] * 3
  for number in range(count):
    # [..., 1, W] beside rows [H, 1].
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
  # Rounding alone leads out of the range.
  return jnp.clip(jnp.stack(channels, -1) / count, 0, 1)


# `where` in place of `minimum` and `maximum`, which look for NaN as well.
def _less(x: Array, y: Array | float) -> Array:
  return jnp.where(x < y, x, y)


def _more(x: Array, y: Array | float) -> Array:
  return jnp.where(x > y, x, y)


def _covered(rows: Array, begin: Array, end: Array) -> Array:
  """Part of each pixel that is between two rows, [H, W]."""
  return _more(_less(rows + 1, end) - _more(rows, begin), 0.0)


def _second(courses: Courses, top: Array, bottom: Array, rows: Array) -> Array:
  """Part of each pixel that is line or joint, between two rows, [H, W]."""
  line, even, odd = courses.line, courses.even, courses.odd
  body = 0.5 - line
  pair = 2 * line + body * (even + odd)

  def below(row):
    """Lines and joints up to the height of a row, in pairs of courses."""
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

  # A quotient last: a CPU's compiler makes those once for all three channels.
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
  """One channel of sky, buildings, wall and floor, [H, W]."""
  # Colours that change steadily have the mean that they have half-way.
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
  """One channel with a painting on it, [H, W]."""
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
  """One channel with things before it, [H, W]."""
  for thing, color in zip(zip(*outlines, strict=True), colors, strict=True):
    share, top, bottom, phase, pitch, dark, light = thing
    shade = _less(_more(phase - rows * pitch, 0.0), 1.0)
    cover = share * _covered(rows, top, bottom)
    value += cover * (color * (dark + light * shade) - value)
  return value
