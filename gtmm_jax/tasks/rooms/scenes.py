"""The arrays that describe a room: a maze under the sky, with things in it.

A scene is a small pytree of arrays. `mazes.make_scene` draws one at random, and
`raycast.render` renders what a camera sees of it. Cells of the maze are 1 x 1,
x points east and y points north, and heights are measured from the floor:

  walls       solid cells of a grid, all of one height; each of their four sides
              has a texture and may have a painting
  things      posts, balls and cones that stand on the floor
  sky         a gradient behind two rows of buildings, infinitely far away

Textures are a function of world coordinates, so that they continue from one
cell to the next.
"""

from typing import NamedTuple

import jax

Array = jax.Array

# N, the number of cells along a side of the grid. Outermost cells are solid.
CELLS = 9
WALL_HEIGHT = 0.75
# The sides of a cell: the first is the one that a ray meets when it goes east,
# the others when it goes west, north and south.
SIDES = ('west', 'east', 'south', 'north')
POST, BALL, CONE = range(3)


class Style(NamedTuple):
  """The texture of walls, or many textures with leading axes.

  A wall has two colours and consists of horizontal courses. At the bottom of
  each course is a line of the second colour, and vertical joints of the same
  colour divide the course at equal distances.

  Attributes:
    colors: [2, 3], the colour of the wall, and that of lines and joints.
    course: height of a course.
    line: height of the line as a fraction of the course, from 0 to 1.
    space: distance between joints.
    joint: width of a joint as a fraction of that distance, from 0 to 1.
    shift: offset of the joints in every other course, as a fraction of that
      distance.
  """

  colors: Array
  course: Array
  line: Array
  space: Array
  joint: Array
  shift: Array


class Canvas(NamedTuple):
  """A painting in the middle of a side, or many with leading axes.

  Attributes:
    colors: [4, 3], of the frame, the upper part, the lower part and the disc.
    half_width: half of the width, including the frame.
    bottom: height of the lower edge, including the frame.
    top: height of the upper edge, including the frame.
    frame: width of the frame.
    split: height of the border between upper and lower part.
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
  """K things that stand on the floor and do not overlap.

  Attributes:
    kind: int32 [K], `POST`, `BALL` or `CONE`.
    position: [K, 2], x and y of the centre.
    radius: [K], of the base of posts and cones, or of the ball.
    height: [K], of posts and cones; not used for balls.
    color: [K, 3].
  """

  kind: Array
  position: Array
  radius: Array
  height: Array
  color: Array


class Sky(NamedTuple):
  """The sky and the buildings, which are visible above the walls.

  Attributes:
    colors: [2, 3], at the horizon and at the top.
    buildings: [2, M], the slopes at which the roofs of the far and the near row
      are seen, 0 for no building. The first building begins in the east, the
      others follow counter-clockwise; all are equally wide.
    far_colors: [M, 3], of buildings in the far row.
    near_colors: [2, M, 3], of windows and walls of buildings in the near row.
  """

  colors: Array
  buildings: Array
  far_colors: Array
  near_colors: Array


class Scene(NamedTuple):
  """A maze with everything in it; colours are in [0, 1].

  Attributes:
    solid: bool [N, N], by y and x; true on the border.
    texture: int32 [4, N, N], index of the style of each side of a cell, in the
      order of `SIDES`.
    painting: int32 [4, N, N], index of the canvas on each side, -1 for none.
    styles: with a leading axis.
    canvases: with a leading axis.
    things: on the floor.
    floor: [3], colour of the floor.
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
