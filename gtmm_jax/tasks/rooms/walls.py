"""The points where rays meet walls, and the textures and paintings there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import columns
from gtmm_jax.tasks.rooms.scenes import CELLS, Scene
from gtmm_jax.tasks.rooms.view import EYE, View, dim

Array = jax.Array

# Brightness of the sides, in the order of `SIDES`.
_LIGHT = np.array([0.72, 0.92, 1.0, 0.82], np.float32)


class Hit(NamedTuple):
  """The points where rays meet walls; all [W].

  Attributes:
    distance: to the wall, as a multiple of the ray's direction.
    side: int32, side of the cell, in the order of `SIDES`.
    row: int32, y of the cell.
    column: int32, x of the cell.
    place: coordinate along the wall, x or y.
    spread: width of wall that the slice covers.
  """

  distance: Array
  side: Array
  row: Array
  column: Array
  place: Array
  spread: Array


def cast(
  solid: Array, place: Array, direction: tuple[Array, Array], width: float
) -> Hit:
  """Finds the first solid cell along each ray.

  Args:
    solid: bool [N, N], N at most 32, true on the border.
    place: x and y, in a free cell.
    direction: x and y of each ray.
    width: of a slice, at distance 1.
  """
  # Avoids rays parallel to a line of the grid.
  step_x, step_y = (jnp.where(abs(x) < 1e-6, 1e-6, x) for x in direction)
  x, column = _cross(solid.T, place[0], place[1], step_x, step_y)
  y, row = _cross(solid, place[1], place[0], step_y, step_x)
  is_x = x < y
  distance = jnp.where(is_x, x, y)
  along = jnp.where(
    is_x, place[1] + distance * step_y, place[0] + distance * step_x
  )
  other = jnp.clip(along.astype(jnp.int32), 0, len(solid) - 1)
  east_west = jnp.where(step_x > 0, 0, 1)
  north_south = jnp.where(step_y > 0, 2, 3)
  return Hit(
    distance=distance,
    side=jnp.where(is_x, east_west, north_south),
    row=jnp.where(is_x, other, row),
    column=jnp.where(is_x, column, other),
    place=along,
    spread=distance * width / jnp.abs(jnp.where(is_x, step_x, step_y)),
  )


def _cross(
  solid: Array, start: Array, other: Array, step: Array, other_step: Array
) -> tuple[Array, Array]:
  """Finds the first grid line of one axis behind which a cell is solid.

  The solid cells behind a line are the bits of one integer, which avoids a
  look-up per ray and line.

  Args:
    solid: bool [N, N], by the coordinate along the axis, then by the other.
    start: coordinate of the camera along the axis.
    other: its other coordinate.
    step: component of the rays' direction along the axis, [W].
    other_step: the other component, [W].

  Returns:
    Distance as a multiple of the direction, and the cell's coordinate along
    the axis; both [W].
  """
  count = len(solid)
  bits = np.uint32(1) << np.arange(count, dtype=np.uint32)
  bits = jnp.where(solid, bits[None, :], np.uint32(0))
  bits = jnp.sum(bits, 1, dtype=jnp.uint32)
  ahead, inverse = step > 0, 1 / step

  def meet(line, nearest_hit):
    nearest, cell = nearest_hit
    line = line.astype(jnp.int32)
    distance = (line.astype(jnp.float32) - start) * inverse
    met = other + distance * other_step
    index = jnp.clip(met, 0, count - 1).astype(jnp.uint32)
    behind = jnp.where(ahead, bits[line], bits[line - 1]) >> index & 1
    inside = (met >= 0) & (met < count) & (distance > 0)
    closer = inside & (behind > 0) & (distance < nearest)
    nearest = jnp.where(closer, distance, nearest)
    return nearest, jnp.where(closer, jnp.where(ahead, line, line - 1), cell)

  nowhere = jnp.full_like(step, jnp.inf), jnp.zeros_like(step, jnp.int32)
  return jax.lax.fori_loop(1, count, meet, nowhere)


def _pick(table: Array, index: Array) -> Array:
  """Looks up rows of a small table [A, ...] by index [W], as [..., W].

  On a CPU, comparing with each index is quicker than gathering.
  """
  rows = table[..., None]
  picked = jnp.broadcast_to(rows[0], rows.shape[1:-1] + index.shape)
  for number in range(1, len(table)):
    is_this = jnp.expand_dims(index == number, tuple(range(picked.ndim - 1)))
    picked = jnp.where(is_this, rows[number], picked)
  return picked


def surface(
  scene: Scene, hit: Hit, view: View, reach: Array
) -> tuple[columns.Courses, Array, columns.Painting]:
  """Returns the texture and the painting of the walls that rays meet.

  Args:
    scene: the maze.
    hit: where rays meet walls.
    view: the rays.
    reach: horizontal distance to the wall, [W].

  Returns:
    The courses of the wall; its two colours as lit, [2, 3, W]; the painting.
  """
  light = jnp.asarray(_LIGHT)[hit.side] * dim(reach)
  face = (hit.side * CELLS + hit.row) * CELLS + hit.column
  texture = scene.texture.reshape(-1)[face]
  style = jax.tree.map(lambda x: _pick(x, texture), scene.styles)
  low, high = hit.place - hit.spread / 2, hit.place + hit.spread / 2
  shift = style.shift * style.space
  # Change of height from one row to the next, in pairs of courses.
  pitch = reach / view.scale / (2 * style.course)
  bricks = columns.Courses(
    phase=EYE / (2 * style.course) + view.middle * pitch,
    pitch=pitch,
    line=style.line / 2,
    even=joints(low, high, style.space, style.joint),
    odd=joints(low + shift, high + shift, style.space, style.joint),
  )
  number = scene.painting.reshape(-1)[face]
  canvas = jax.tree.map(lambda x: _pick(x, number), scene.canvases)
  aside = hit.place - jnp.floor(hit.place) - 0.5

  def share(half):
    part = 0.5 + (half - jnp.abs(aside)) / hit.spread
    return jnp.where(number >= 0, jnp.clip(part, 0, 1), 0.0)

  head, foot = canvas.top - canvas.frame, canvas.bottom + canvas.frame
  chord = jnp.sqrt(jnp.maximum(canvas.disc**2 - aside**2, 0))
  centre = canvas.split + canvas.disc
  ends = [
    *(canvas.top, canvas.bottom),
    *(head, foot),
    *(canvas.split, foot),
    *(centre + chord, centre - chord),
  ]
  rows = jnp.stack([view.row((level - EYE) / reach) for level in ends])
  inner = canvas.half_width - canvas.frame
  return (
    bricks,
    style.colors * light[None, None, :],
    columns.Painting(
      rows=rows.reshape(4, 2, *reach.shape),
      shares=jnp.stack([share(canvas.half_width), share(inner)]),
      colors=canvas.colors * light[None, None, :],
    ),
  )


def joints(low: Array, high: Array, space: Array, joint: Array) -> Array:
  """Computes the fraction of (low, high) that is joint.

  There is a joint in the first fraction `joint` of each interval of length
  `space`.
  """

  def until(x):
    whole = jnp.floor(x)
    return whole * joint + jnp.minimum(x - whole, joint)

  return (until(high / space) - until(low / space)) * space / (high - low)
