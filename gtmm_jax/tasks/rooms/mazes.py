"""Random mazes, and places in them for a camera.

A maze has 4 x 4 chambers, one cell each, at odd x and y. Between two of them is
a cell that is a wall or a way; where four of them meet is a pillar or nothing.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import furnishing
from gtmm_jax.tasks.rooms.scenes import CELLS, Scene

Array = jax.Array

# Raise it with every change of what is drawn: checksums are made of it.
VERSION = 1

_CHAMBERS = (CELLS - 1) // 2

# Probabilities: that a wall between two chambers is open without need, that a
# pillar beside a way is gone, that a painting hangs on a side of a cell.
_OPEN = 0.5
_NO_PILLAR = 0.6
_PAINTING = 0.4

# Random numbers of each part of a scene.
_DRAWS = {
  'maze': (5, _CHAMBERS, _CHAMBERS),
  'lines': (4, CELLS),
  'paintings': (4, CELLS, CELLS),
  'patterns': (len(furnishing.PATTERNS),),
  'styles': (5, furnishing.STYLES),
  'canvas_sizes': (5, furnishing.CANVASES),
  'canvas_colors': (3, 4, furnishing.CANVASES),
  'cells': (CELLS * CELLS,),
  'things': (8, furnishing.THINGS),
  'floor': (3,),
  'sky': (4,),
  'buildings': (6, 2, furnishing.BUILDINGS),
}


def make_scene(key: Array) -> Scene:
  """Draws a maze and all that is in it; pure, runs inside `jax.jit`."""
  # All at once, which is quicker to compile.
  sizes = [math.prod(shape) for shape in _DRAWS.values()]
  numbers = jax.random.uniform(key, (sum(sizes),), jnp.float32)
  parts = jnp.split(numbers, np.cumsum(sizes)[:-1])
  draws = {
    name: part.reshape(shape)
    for (name, shape), part in zip(_DRAWS.items(), parts, strict=True)
  }
  solid = _maze(draws['maze'])
  # One style for all sides that lie in one line: walls are of one piece.
  lines = jnp.floor(draws['lines'] * furnishing.STYLES).astype(jnp.int32)
  shape = (2, CELLS, CELLS)
  texture = jnp.concatenate(
    [
      jnp.broadcast_to(lines[:2, None, :], shape),
      jnp.broadcast_to(lines[2:, :, None], shape),
    ]
  )
  hung = draws['paintings'] / _PAINTING
  painting = jnp.where(hung < 1, jnp.floor(hung * furnishing.CANVASES), -1.0)
  hue, saturation, value = draws['floor']
  return Scene(
    solid=solid,
    texture=texture,
    painting=painting.astype(jnp.int32),
    styles=furnishing.draw_styles(draws['patterns'], draws['styles']),
    canvases=furnishing.draw_canvases(
      draws['canvas_sizes'], draws['canvas_colors']
    ),
    things=furnishing.draw_things(draws['cells'], draws['things'], solid),
    floor=furnishing.color(
      hue,
      furnishing.within(saturation, 0.15, 0.45),
      furnishing.within(value, 0.5, 0.8),
    ),
    sky=furnishing.draw_sky(draws['sky'], draws['buildings']),
  )


def draw_place(key: Array, scene: Scene) -> Array:
  """Draws a place for a camera: a free cell without a thing, each as likely.

  Returns:
    x and y, [2], at least 0.3 from every wall.
  """
  cell_key, key = jax.random.split(key)
  index = jnp.arange(CELLS, dtype=jnp.int32)
  # By thing, row and column.
  x, y = jnp.floor(scene.things.position).astype(jnp.int32).T[..., None, None]
  in_row, in_column = index[None, :, None] == y, index[None, None, :] == x
  taken = jnp.any(in_row & in_column, 0)
  scores = jax.random.uniform(cell_key, taken.shape, jnp.float32)
  scores = jnp.where(taken | scene.solid, -1.0, scores)
  row, column = jnp.divmod(jnp.argmax(scores.reshape(-1)), CELLS)
  shift = jax.random.uniform(key, (2,), jnp.float32, minval=-0.2, maxval=0.2)
  return jnp.stack([column, row]).astype(jnp.float32) + 0.5 + shift


def _maze(draws: Array) -> Array:
  """Solid cells, bool [N, N], of a maze whose free cells hang together.

  Ways between chambers are a spanning tree, the least of random weights: what
  is not joined by lighter ways is joined by this one. Then more walls are
  opened, and pillars beside a way taken out.
  """
  count = _CHAMBERS**2
  inner = np.arange(_CHAMBERS) < _CHAMBERS - 1
  can_east, can_north = inner[None, :], inner[:, None]
  to_east, to_north = (
    np.eye(count, k=k, dtype=np.float32) for k in (1, _CHAMBERS)
  )
  east = jnp.where(can_east, draws[0], 2.0)
  north = jnp.where(can_north, draws[1], 2.0)
  # The heaviest wall of the easiest path between any two chambers.
  barrier = jnp.where(to_east > 0, east.reshape(-1, 1), 2.0)
  barrier = jnp.where(to_north > 0, north.reshape(-1, 1), barrier)
  barrier = jnp.minimum(barrier, barrier.T)

  def pass_through(chamber, barrier):
    around = jnp.maximum(barrier[:, chamber, None], barrier[None, chamber])
    return jnp.minimum(barrier, around)

  barrier = jax.lax.fori_loop(0, count, pass_through, barrier)
  square = _CHAMBERS, _CHAMBERS
  needs_east = jnp.sum(to_east * barrier, 1).reshape(square) >= east
  needs_north = jnp.sum(to_north * barrier, 1).reshape(square) >= north
  east = can_east & (needs_east | (draws[2] < _OPEN))
  north = can_north & (needs_north | (draws[3] < _OPEN))
  # A pillar is north-east of its chamber. Four ways lead past it, two of that
  # chamber, one of its northern and one of its eastern neighbour.
  beside = east | north | jnp.roll(east, -1, 0) | jnp.roll(north, -1, 1)
  gone = can_east & can_north & beside & (draws[4] < _NO_PILLAR)
  lower = jnp.stack([jnp.ones_like(east), east], -1)
  upper = jnp.stack([north, gone], -1)
  free = jnp.stack([lower, upper], 1).reshape(CELLS - 1, CELLS - 1)
  return jnp.pad(~free, ((1, 0), (1, 0)), constant_values=True)
