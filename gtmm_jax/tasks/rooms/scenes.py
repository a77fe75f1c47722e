"""What a room is: a maze of walls under the sky, with things in it.

A scene is a small pytree of arrays. `mazes.make_scene` draws one at random, and
`raycast.render` shows what a camera sees of it. Cells of the maze are 1 x 1, x
runs to the east and y to the north, heights are above the floor:

  walls       solid cells of a grid, all of one height; each of their four sides
              has a texture, and may have a painting
  things      posts, balls and cones that stand on the floor
  sky         a gradient, before it two rows of buildings, infinitely far away

Textures depend on where a point is in the world, so that they run on from one
cell to the next.
"""

from typing import NamedTuple

import jax

Array = jax.Array

# N, cells along a side of the grid, the outermost solid.
CELLS = 9
WALL_HEIGHT = 0.75
# Of the side of a cell that a ray meets when it goes east, west, north, south.
SIDES = ('west', 'east', 'south', 'north')
POST, BALL, CONE = range(3)


class Style(NamedTuple):
  """How walls look, or many ways with leading axes.

  A wall has two colours. It is laid in courses; a line of the second colour
  runs along the foot of each, and joints of it stand in them at equal spaces.

  Attributes:
    colors: [2, 3], of the whole, and of lines and joints.
    course: height of a course.
    line: part of it that is line, from 0 to 1.
    space: distance of joints.
    joint: part of it that is joint, from 0 to 1.
    shift: of the joints in every other course, as a part of their distance.
  """

  colors: Array
  course: Array
  line: Array
  space: Array
  joint: Array
  shift: Array


class Canvas(NamedTuple):
  """A painting, or many with leading axes; its middle is that of its wall.

  Attributes:
    colors: [4, 3], of its frame, its upper and lower part, and of a disc.
    half_width: with its frame.
    bottom: height above the floor, with its frame.
    top: likewise.
    frame: width of the frame.
    split: height above the floor of the border between its parts.
    disc: radius of the disc, which rests on that border.
  """

  colors: Array
  half_width: Array
  bottom: Array
  top: Array
  frame: Array
  split: Array
  disc: Array


class Things(NamedTuple):
  """What stands on the floor, K of them, none in the way of another.

  Attributes:
    kind: int32 [K], `POST`, `BALL` or `CONE`.
    position: [K, 2], x and y of the middle.
    radius: [K], of the foot, or of the ball.
    height: [K], of posts and cones; a ball is as high as it is wide.
    color: [K, 3].
  """

  kind: Array
  position: Array
  radius: Array
  height: Array
  color: Array


class Sky(NamedTuple):
  """What is seen above the walls.

  Attributes:
    colors: [2, 3], at the horizon, and high up.
    buildings: [2, M], slopes at which their roofs are seen, 0 for none, in the
      far and in the near row. The first begins in the east, others follow
      counter-clockwise; all are equally wide.
    far_colors: [M, 3].
    near_colors: [2, M, 3], of windows and of walls.
  """

  colors: Array
  buildings: Array
  far_colors: Array
  near_colors: Array


class Scene(NamedTuple):
  """A maze and all that is in it; colours are in [0, 1].

  Attributes:
    solid: bool [N, N], by y and x; all on the border.
    texture: int32 [4, N, N], which style each side of a cell has, in the order
      of `SIDES`.
    painting: int32 [4, N, N], which canvas hangs there, -1 for none.
    styles: of textures, with a leading axis.
    canvases: with a leading axis.
    things: on the floor.
    floor: [3], its colour.
    sky: above the walls.
  """

  solid: Array
  texture: Array
  painting: Array
  styles: Style
  canvases: Canvas
  things: Things
  floor: Array
  sky: Sky
