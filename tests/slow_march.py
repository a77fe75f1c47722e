"""A slow renderer of rooms: small steps along many lines of sight, in float64.

It does not use `gtmm_jax.tasks.rooms.raycast` to find where a line of sight
ends: a step ends it inside a wall or a thing, below the floor or above the
walls.
"""

import numpy as np

from gtmm_jax.tasks.rooms import columns, raycast, view, walls
from gtmm_jax.tasks.rooms.scenes import BALL, CELLS, POST, WALL_HEIGHT

_STEP = 0.02
# Lines of sight per pixel, across and down.
_ACROSS, _DOWN = 6, 8
# Labels of pixels. The number of the thing, building or side of a cell is
# added.
SKY, FLOOR, THING, NEAR, FAR, WALL = 0, 1, 10, 100, 200, 1000


def march(scene, pose, height, width):
  """Renders a frame.

  Args:
    scene: NumPy arrays.
    pose: x, y, heading.
    height: of the frame in pixels.
    width: of the frame in pixels.

  Returns:
    Frame [height, width, 3], NaN where there are things, whose shading is not
    computed here, and the label of each pixel [height, width]: `SKY`, `FLOOR`,
    `THING` and so on, -1 where a pixel shows more than one of them.
  """
  ends, before, directions = _march_all(scene, pose, height, width)
  things, solid = inside_thing(scene, ends), _solid(scene, ends)
  labels, colors = [], []
  for each in zip(ends, before, directions, things, solid, strict=True):
    label, color = _look(scene, pose, *each)
    labels.append(label)
    colors.append(color)
  shape = height, width, _ACROSS * _DOWN
  labels = np.array(labels).reshape(shape)
  frame = np.array(colors).reshape(*shape, 3).mean(2)
  pure = (labels == labels[..., :1]).all(-1)
  return frame, np.where(pure, labels[..., 0], -1)


def inside_thing(scene, points):
  """Returns the number of the thing around each point [P, 3], -1 for none."""
  numbers = np.full(len(points), -1)
  things = scene.things
  for k, kind in enumerate(things.kind):
    radius, height = things.radius[k], things.height[k]
    apart = np.linalg.norm(points[:, :2] - things.position[k], axis=1)
    z = points[:, 2]
    if kind == BALL:
      inside = apart**2 + (z - radius) ** 2 < radius**2
    elif kind == POST:
      inside = (apart < radius) & (z < height)
    else:
      inside = (z < height) & (apart < radius * (1 - z / height))
    numbers[inside & (z > 0)] = k
  return numbers


def _solid(scene, points):
  x, y = np.floor(points[:, :2]).astype(int).T
  return scene.solid[y, x]


def _ended(scene, points):
  z = points[:, 2]
  return (
    (z <= 0)
    | (z >= WALL_HEIGHT)
    | _solid(scene, points)
    | (inside_thing(scene, points) >= 0)
  )


def _march_all(scene, pose, height, width):
  """Returns ends of all lines of sight, points before them, and directions.

  Each is an array [N, 3].
  """
  x, y, heading = map(float, pose)
  focal = width / 2 / np.tan(view.FIELD_OF_VIEW / 2)
  across = (np.arange(width * _ACROSS) + 0.5) / _ACROSS - width / 2
  down = (np.arange(height * _DOWN) + 0.5) / _DOWN - height / 2
  down = down.reshape(height, 1, _DOWN, 1)
  across = across.reshape(1, width, 1, _ACROSS)
  down, across = (z.ravel() for z in np.broadcast_arrays(down, across))
  ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
  right = np.array([np.sin(heading), -np.cos(heading), 0.0])
  lines = ahead + np.outer(across / focal, right)
  lines[:, 2] = -down / focal
  length = np.linalg.norm(lines[:, :2], axis=1)
  eye = np.array([x, y, view.EYE])
  far = np.zeros(len(lines))
  going = np.arange(len(lines))
  while len(going):
    far[going] += _STEP / length[going]
    points = eye + far[going, None] * lines[going]
    going = going[~_ended(scene, points)]
  low, high = far - _STEP / length, far
  for _ in range(25):
    middle = (low + high) / 2
    ended = _ended(scene, eye + middle[:, None] * lines)
    low, high = np.where(ended, low, middle), np.where(ended, middle, high)
  ends, before = (eye + x[:, None] * lines for x in (high, low))
  return ends, before, lines / length[:, None]


def _look(scene, pose, point, before, direction, thing, is_solid):
  """Returns the label and the colour at the end of a line of sight.

  Args:
    scene: as `march` has it.
    pose: as `march` has it.
    point: where the line of sight ends.
    before: a point of it just before that.
    direction: of the line.
    thing: number of the thing at its end, -1 for none.
    is_solid: whether the cell at its end is solid.
  """
  if thing >= 0:
    return THING + thing, np.full(3, np.nan)
  distance = np.hypot(*(point[:2] - pose[:2]))
  if point[2] <= 0:
    bright = min(1, -direction[2] / raycast._CLOSE)
    return FLOOR, scene.floor * (columns._DARK + (1 - columns._DARK) * bright)
  if not is_solid:
    return _sky(scene.sky, direction)
  column, row = np.floor(point[:2]).astype(int)
  if np.floor(before[0]) != column:
    side, along = (0 if direction[0] > 0 else 1), point[1]
  else:
    side, along = (2 if direction[1] > 0 else 3), point[0]
  color = _wall(scene, side, row, column, along, point[2])
  light = walls._LIGHT[side] * view.dim(distance)
  return WALL + (side * CELLS + row) * CELLS + column, color * light


def _wall(scene, side, row, column, along, z):
  painting = scene.painting[side, row, column]
  if painting >= 0:
    canvas = type(scene.canvases)(*(x[painting] for x in scene.canvases))
    aside = abs(along - np.floor(along) - 0.5)
    if aside < canvas.half_width and canvas.bottom < z < canvas.top:
      edge = min(canvas.half_width - aside, z - canvas.bottom, canvas.top - z)
      if edge < canvas.frame:
        return canvas.colors[0]
      centre = canvas.split + canvas.disc
      if np.hypot(aside, z - centre) < canvas.disc:
        return canvas.colors[3]
      return canvas.colors[1 if z > canvas.split else 2]
  number = scene.texture[side, row, column]
  style = type(scene.styles)(*(x[number] for x in scene.styles))
  return style.colors[int(_is_line(style, along, z))]


def _is_line(style, along, z):
  course, part = divmod(z / style.course, 1)
  shift = style.shift * style.space if course % 2 else 0
  return part < style.line or (along + shift) / style.space % 1 < style.joint


def _sky(sky, direction):
  count = sky.buildings.shape[1]
  place = np.arctan2(direction[1], direction[0]) / (2 * np.pi) * count
  index, slope = int(np.floor(place)) % count, direction[2]
  if slope < sky.buildings[1, index]:
    between = raycast._BETWEEN
    wall = slope / raycast._STOREY % 1 < between
    wall = wall or place * raycast._WINDOWS % 1 < between
    return NEAR + index, sky.near_colors[int(wall), index]
  if slope < sky.buildings[0, index]:
    return FAR + index, sky.far_colors[index]
  high = min(1, slope / raycast._ZENITH)
  return SKY, sky.colors[0] + high * (sky.colors[1] - sky.colors[0])
