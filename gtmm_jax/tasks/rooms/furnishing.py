"""Random textures of walls, paintings, things, sky and buildings.

All functions take uniform random numbers from 0 to 1, not keys.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms.scenes import CELLS, Canvas, Sky, Style, Things

Array = jax.Array
ArrayLike = jax.typing.ArrayLike

STYLES = 5
CANVASES = 6
THINGS = 6
# Places for buildings around the horizon, in each of two rows.
BUILDINGS = 36
# Probability of a building at a place in the far row, and in the near row.
_BUILDING = np.array([[0.85], [0.55]], np.float32)
# Width of a painting's frame.
_FRAME = 0.035

# Bricks, planks, stripes, checks, tiles, a painted base, plaster above a
# skirting board, blocks: course, line, space, joint, shift.
PATTERNS = np.array(
  [
    [0.125, 0.18, 1 / 3, 0.10, 0.5],
    [0.75, 0.00, 1 / 5, 0.15, 0.0],
    [0.75, 0.00, 1 / 3, 0.50, 0.0],
    [0.25, 0.00, 1 / 2, 0.50, 0.5],
    [0.25, 0.12, 1 / 4, 0.12, 0.0],
    [0.75, 0.40, 1 / 2, 0.00, 0.0],
    [0.75, 0.08, 1 / 2, 0.00, 0.0],
    [0.375, 0.08, 2 / 3, 0.05, 0.5],
  ],
  np.float32,
)
# Patterns with two colours; the others have two shades of one colour.
_TWO_COLORS = np.array([0, 0, 1, 1, 0, 1, 0, 0], bool)


def within(draws: Array, low: ArrayLike, high: ArrayLike) -> Array:
  """Scales numbers from the range 0 to 1 to the range `low` to `high`."""
  low, high = (
    np.array(limit, np.float32, ndmin=draws.ndim) for limit in (low, high)
  )
  return low + (high - low) * draws


def color(hue: Array, saturation: Array, value: Array) -> Array:
  """Converts colours from HSV, each [...] in [0, 1], to RGB [..., 3]."""
  thirds = np.array([0.0, 4.0, 2.0], np.float32, ndmin=hue.ndim + 1)
  place = (hue[..., None] * 6 + thirds) % 6
  pure = jnp.clip(jnp.abs(place - 3) - 1, 0, 1)
  return value[..., None] * (1 - saturation[..., None] * (1 - pure))


def draw_styles(patterns: Array, draws: Array) -> Style:
  """Draws styles with different patterns, from numbers [8] and [5, STYLES]."""
  kind = jnp.argsort(patterns)[:STYLES]
  course, line, space, joint, shift = jnp.asarray(PATTERNS)[kind].T
  hue, saturation, value, shade, other = draws
  first = color(hue, within(saturation, 0.25, 0.7), within(value, 0.55, 0.95))
  second = jnp.where(
    jnp.asarray(_TWO_COLORS)[kind][:, None],
    color(
      (hue + within(other, 0.3, 0.7)) % 1,
      within(shade, 0.2, 0.7),
      within(other, 0.45, 0.95),
    ),
    first * within(shade, 0.5, 0.75)[:, None],
  )
  return Style(jnp.stack([first, second], 1), course, line, space, joint, shift)


def draw_canvases(sizes: Array, colors: Array) -> Canvas:
  """Draws paintings, from numbers [5, CANVASES] and [3, 4, CANVASES]."""
  hue, saturation, value = jnp.moveaxis(colors, 1, 2)
  # Frames are dark, upper parts and discs bright.
  saturation = within(saturation, [0.3, 0.4, 0.5, 0.7], [0.7, 0.8, 0.9, 1.0])
  value = within(value, [0.15, 0.7, 0.25, 0.6], [0.4, 1.0, 0.6, 1.0])
  bottom, top = within(sizes[0], 0.16, 0.22), within(sizes[1], 0.56, 0.64)
  split = bottom + within(sizes[2], 0.3, 0.45) * (top - bottom)
  return Canvas(
    colors=color(hue, saturation, value),
    half_width=within(sizes[3], 0.18, 0.34),
    bottom=bottom,
    top=top,
    frame=jnp.full((CANVASES,), _FRAME, jnp.float32),
    split=split,
    disc=within(sizes[4], 0.25, 0.4) * (top - _FRAME - split),
  )


def draw_things(cells: Array, draws: Array, solid: Array) -> Things:
  """Draws things in distinct free cells, from [N * N] and [8, THINGS]."""
  # There are at least 16 free cells.
  scores = jnp.where(solid.reshape(-1), -1.0, cells)
  cell = jnp.argsort(-scores)[:THINGS]
  kind = jnp.floor(3 * draws[0]).astype(jnp.int32)
  radius = jnp.array([0.10, 0.13, 0.15], jnp.float32)[kind] + 0.1 * draws[1]
  shift = (0.45 - radius)[:, None] * (2 * draws[3:5].T - 1)
  corner = jnp.stack([cell % CELLS, cell // CELLS], -1)
  return Things(
    kind=kind,
    position=corner.astype(jnp.float32) + 0.5 + shift,
    radius=radius,
    height=jnp.array([0.25, 0.0, 0.3], jnp.float32)[kind] + 0.3 * draws[2],
    color=color(
      draws[5], within(draws[6], 0.6, 1.0), within(draws[7], 0.7, 1.0)
    ),
  )


def draw_sky(draws: Array, buildings: Array) -> Sky:
  """Draws sky and buildings, from numbers [4] and [6, 2, BUILDINGS]."""
  height = within(buildings[0] ** 2, [[0.12], [0.18]], [[0.34], [0.52]])
  hue, saturation, value, shade = buildings[2:]
  # Haze: the far row is pale and blue.
  far = color(
    within(hue[0], 0.58, 0.66),
    within(saturation[0], 0.15, 0.3),
    within(value[0], 0.6, 0.75),
  )
  walls = color(
    hue[1], within(saturation[1], 0.1, 0.4), within(value[1], 0.35, 0.7)
  )
  # Windows are darker or lighter than their wall.
  shade = jnp.where(shade[1] < 0.6, 0.5, 0.7) + 0.6 * shade[1]
  windows = jnp.minimum(walls * shade[:, None], 1.0)
  # From the colours of a blue sky to those of a sunset.
  pale = color(
    within(draws[0] ** 3, 0.55, 1.1) % 1,
    within(draws[1], 0.12, 0.32),
    within(draws[2], 0.9, 1.0),
  )
  deep = color(
    within(draws[3], 0.55, 0.65),
    within(draws[1], 0.4, 0.7),
    within(draws[2], 0.7, 1.0),
  )
  return Sky(
    colors=jnp.stack([pale, deep]),
    buildings=jnp.where(buildings[1] < _BUILDING, height, 0.0),
    far_colors=far,
    near_colors=jnp.stack([windows, walls]),
  )
