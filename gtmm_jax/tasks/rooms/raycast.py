"""A ray caster, which renders a scene as a camera sees it.

A column of pixels is the mean of `RAYS` vertical slices. One ray per slice goes
horizontally along its middle until it meets a wall.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import columns, outlines
from gtmm_jax.tasks.rooms.scenes import WALL_HEIGHT, Scene, Sky, Things
from gtmm_jax.tasks.rooms.view import EYE, FIELD_OF_VIEW, RAYS, View
from gtmm_jax.tasks.rooms.walls import cast, joints, surface

Array = jax.Array

# Slopes at which the sky has its upper colour, and the floor is brightest.
_ZENITH, _CLOSE = 0.8, 0.9
# Windows per row of a near building, slope between rows of windows, and the
# fraction of wall between windows in both directions.
_WINDOWS, _STOREY, _BETWEEN = 4, 0.05, 0.45
_TURN = 2 * np.pi


def render(scene: Scene, pose: Array, height: int, width: int) -> Array:
  """Renders what a camera sees of a scene.

  Args:
    scene: the maze with everything in it.
    pose: x, y and heading, [3]; the heading in radians, counter-clockwise from
      the east. The place must be in a free cell and outside of things.
    height: H, of the frame in pixels.
    width: W, of the frame in pixels, which covers `FIELD_OF_VIEW`; pixels are
      square.

  Returns:
    The frame, [H, W, 3] in [0, 1], a deterministic function of the arguments.
  """
  scene, pose = jax.tree.map(jnp.asarray, (scene, pose))
  focal = width / 2 / math.tan(FIELD_OF_VIEW / 2)
  middles = (np.arange(width * RAYS) + 0.5) / RAYS - width / 2
  right = (middles / focal).reshape(width, RAYS).T.astype(np.float32)
  things = outlines.farthest_first(scene.things, pose[:2])
  # A short loop, because XLA on a CPU stores the results of a loop. Without it,
  # XLA would compute a whole slice again for each of its pixels.
  slices = jax.lax.map(
    lambda right: _look(scene, things, pose, right, focal, height / 2), right
  )
  return columns.paint(
    slices, scene.sky.colors, scene.floor, things.color, height
  )


def _look(
  scene: Scene,
  things: Things,
  pose: Array,
  right: Array,
  focal: float,
  middle: float,
) -> columns.Slices:
  """Computes what is seen in W slices.

  `right` [W] tells how far the middles of the slices are to the right, at
  distance 1.
  """
  sine, cosine = jnp.sin(pose[2]), jnp.cos(pose[2])
  direction = cosine + right * sine, sine - right * cosine
  view = View(direction, jnp.sqrt(1 + right**2), focal, middle, 1 / RAYS)
  hit = cast(scene.solid, pose[:2], direction, 1 / (RAYS * focal))
  reach = hit.distance * view.length
  bricks, wall, painting = surface(scene, hit, view, reach)
  windows, backdrop = _backdrop(scene.sky, wall, view, reach)
  shapes = outlines.outline(things, pose[:2], view, reach)
  return columns.Slices(backdrop, windows, bricks, painting, shapes)


def _backdrop(
  sky: Sky, wall: Array, view: View, reach: Array
) -> tuple[columns.Courses, columns.Backdrop]:
  """Computes the near building's windows, and sky, roofs, wall and floor."""
  count = sky.buildings.shape[1]
  # Places of buildings around the horizon, counter-clockwise.
  place = jnp.arctan2(view.direction[1], view.direction[0]) / _TURN * count
  index = jnp.floor(place).astype(jnp.int32) % count
  spread = view.part * count / (_TURN * view.scale * view.length)
  between = joints(
    place - spread / 2, place + spread / 2, 1 / _WINDOWS, _BETWEEN
  )
  pitch = 1 / (2 * _STOREY * view.scale)
  windows = columns.Courses(
    phase=view.middle * pitch,
    pitch=pitch,
    line=jnp.full_like(reach, _BETWEEN / 2),
    even=between,
    odd=between,
  )
  top = view.row((WALL_HEIGHT - EYE) / reach)
  far, near = view.row(sky.buildings[:, index])
  near = jnp.minimum(near, top)
  return windows, columns.Backdrop(
    far=jnp.minimum(far, near),
    near=near,
    top=top,
    bottom=view.row(-EYE / reach),
    high=1 / (view.scale * _ZENITH),
    close=1 / (view.scale * _CLOSE),
    building=sky.far_colors[index].T,
    facade=jnp.moveaxis(sky.near_colors[:, index], -1, 1),
    wall=wall,
  )
