"""Random mazes, and places in them for a camera.

A maze has 4 x 4 chambers, one cell each, at odd x and y. The cell between two
chambers is a wall or open; the cell between four chambers is a pillar or open.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import furnishing
from gtmm_jax.tasks.rooms.scenes import CELLS, Scene

Array = jax.Array

# Increase it whenever the drawn rooms change: checksums are computed from it.
VERSION = 1

_CHAMBERS = (CELLS - 1) // 2

# Probabilities: that a wall between chambers that are connected otherwise is
# removed, that a pillar beside an open cell is removed, that there is a
# painting on a side of a cell.
_OPEN = 0.5
_NO_PILLAR = 0.6
_PAINTING = 0.4

# Shapes of the random numbers for each part of a scene.
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
  """Draws a maze with everything in it; runs inside `jax.jit`."""
  # Drawing all numbers in one call is quicker to compile.
  sizes = [math.prod(shape) for shape in _DRAWS.values()]
  numbers = jax.random.uniform(key, (sum(sizes),), jnp.float32)
  parts = jnp.split(numbers, np.cumsum(sizes)[:-1])
  draws = {
    name: part.reshape(shape)
    for (name, shape), part in zip(_DRAWS.items(), parts, strict=True)
  }
  solid = _maze(draws['maze'])
  # All sides in one line have the same style, so that walls look continuous.
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
  """Draws a place for a camera, in a random free cell without a thing.

  Returns:
    x and y, [2], at least 0.3 from every wall.
  """
  cell_key, key = jax.random.split(key)
  index = jnp.arange(CELLS, dtype=jnp.int32)
  # Axes: thing, row and column.
  x, y = jnp.floor(scene.things.position).astype(jnp.int32).T[..., None, None]
  in_row, in_column = index[None, :, None] == y, index[None, None, :] == x
  taken = jnp.any(in_row & in_column, 0)
  scores = jax.random.uniform(cell_key, taken.shape, jnp.float32)
  scores = jnp.where(taken | scene.solid, -1.0, scores)
  row, column = jnp.divmod(jnp.argmax(scores.reshape(-1)), CELLS)
  shift = jax.random.uniform(key, (2,), jnp.float32, minval=-0.2, maxval=0.2)
  return jnp.stack([column, row]).astype(jnp.float32) + 0.5 + shift


def _maze(draws: Array) -> Array:
  """Draws the solid cells, bool [N, N], of a maze with connected free cells.

  The walls between chambers have random weights, and those of the minimum
  spanning tree are removed. Then further walls and pillars are removed.
  """
  count = _CHAMBERS**2
  inner = np.arange(_CHAMBERS) < _CHAMBERS - 1
  can_east, can_north = inner[None, :], inner[:, None]
  to_east, to_north = (
    np.eye(count, k=k, dtype=np.float32) for k in (1, _CHAMBERS)
  )
  east = jnp.where(can_east, draws[0], 2.0)
  north = jnp.where(can_north, draws[1], 2.0)
  # The heaviest wall on a path between two chambers, minimised over paths.
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
  # A pillar is north-east of its chamber. Four cells are beside it: two belong
  # to that chamber, one to its northern and one to its eastern neighbour.
  beside = east | north | jnp.roll(east, -1, 0) | jnp.roll(north, -1, 1)
  gone = can_east & can_north & beside & (draws[4] < _NO_PILLAR)
  lower = jnp.stack([jnp.ones_like(east), east], -1)
  upper = jnp.stack([north, gone], -1)
  free = jnp.stack([lower, upper], 1).reshape(CELLS - 1, CELLS - 1)
  return jnp.pad(~free, ((1, 0), (1, 0)), constant_values=True)
