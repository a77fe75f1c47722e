"""Characters of invented alphabets, drawn on the device from a key.

50 alphabets of 30 characters, each written by 20 drawers, replace Omniglot if
its files are not available. Only the programs of characters are stored, a few
hundred numbers each, see `alphabets.py`. An image is a function of (alphabet,
character, drawer), computed inside `jax.jit` when it is used.

Drawers differ by noise. It changes the length, curvature and place of each
stroke, then the rotation, slant, proportions, size and place of the whole, and
the width of the pen. Positions are in pixels, x to the right and y downwards.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.sources import alphabets
from gtmm_jax.tasks.sources.alphabets import (
  ALPHABETS,
  CHARACTERS,
  SEGMENTS,
  STROKES,
)

Array = jax.Array

DRAWERS = 20
# Characters of each alphabet, Omniglot's or drawn, for validation, and as many
# for the test.
HELD_OUT = 3
SIDE = 28

# Odd factors of a hash function, with large values in every byte.
_FACTORS = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
# Distance of paths from the border, in pixels. The ink of the widest pen ends
# 1.21 from its path: nothing is cut off, and the outermost pixels stay blank.
_MARGIN = 1.75
_CENTRES = np.arange(SIDE, dtype=np.float32) + 0.5
# Number of noise values for each stroke, and for the whole.
_UNSTEADY = 8

_MIDDLES = (np.arange(SEGMENTS) + 0.5) / SEGMENTS
# Slow deviations of a hand along a stroke, [2, 1, P].
_SWERVES = np.stack(
  [np.sin(2 * np.pi * _MIDDLES), np.cos(3 * np.pi * _MIDDLES)]
).astype(np.float32)[:, None]


class Glyphs(NamedTuple):
  """Characters that can be drawn; a pytree, so that compiled programs take it.

  Attributes:
    labels: int32 [N], numbers of characters, alphabet * 30 + character.
    programs: of the characters, every field with a leading axis of N.
  """

  labels: Array
  programs: alphabets.Program

  @property
  def shape(self) -> tuple[int, int, int]:
    """Shape of a frame, [H, W, C]."""
    return SIDE, SIDE, 1

  def draw(self, key: Array, count: int) -> tuple[Array, Array]:
    """Draws characters and their drawers independently and uniformly.

    Args:
      key: random key.
      count: number of characters.

    Returns:
      Frames float32 [count, 28, 28, 1], 0 for paper and 1 for ink, and labels
      int32 [count].
    """
    # Taking the remainder changes probabilities by at most 1 in 100,000.
    bits = jax.random.bits(key, (count,), 'uint32')
    pick = (bits % (self.labels.shape[0] * DRAWERS)).astype(jnp.int32)
    index, drawer = pick // DRAWERS, pick % DRAWERS
    label = jnp.asarray(self.labels)[index]
    program = jax.tree.map(lambda x: jnp.asarray(x)[index], self.programs)
    paths, width = jax.vmap(write)(program, label, drawer)
    return jax.vmap(render)(paths, width)[..., None], label


def split() -> tuple[Glyphs, Glyphs, Glyphs]:
  """Returns the characters for training, for validation and for the test.

  The last three of each alphabet are for the test, the three before them for
  validation.
  """
  labels = np.arange(ALPHABETS * CHARACTERS, dtype=np.int32)
  from_last = CHARACTERS - 1 - labels % CHARACTERS
  programs = alphabets.programs()
  training, validation, test = (
    Glyphs(labels[rows], alphabets.Program(*(x[rows] for x in programs)))
    for rows in (
      from_last >= 2 * HELD_OUT,
      (from_last >= HELD_OUT) & (from_last < 2 * HELD_OUT),
      from_last < HELD_OUT,
    )
  )
  return training, validation, test


def write(
  program: alphabets.Program, label: Array, drawer: Array
) -> tuple[Array, Array]:
  """Computes the paths of the strokes of one character.

  Args:
    program: of the character.
    label: number of the character, int32.
    drawer: int32, 0 to 19; each character has its own drawers.

  Returns:
    Paths [S, P + 1, 2], x and y in pixels, at least 1.75 from the border, and
    the width of the pen in pixels. Strokes that the character does not have are
    single points on the first stroke.
  """
  noise = _noise(label * DRAWERS + drawer)
  hand, noise = noise[0], noise[1:]
  steps = _steps(program, noise)
  # Points of each stroke relative to its start, [S, P + 1, 2].
  reach = np.tri(SEGMENTS + 1, SEGMENTS, -1, dtype=np.float32)
  paths = jnp.sum(reach[None, :, :, None] * steps[:, None], 2)
  starts = jnp.stack(_starts(program, steps, noise))
  exists = jnp.arange(STROKES, dtype=jnp.int32) < program.count
  paths = jnp.where(exists[:, None, None], paths + starts[:, None], 0.0)
  return _lay_out(paths, hand, program.size), 1.25 * jnp.exp(0.06 * hand[6])


def render(paths: Array, width: Array) -> Array:
  """Renders the ink of a round pen, with edges softened over one pixel.

  A pixel whose centre is at distance d from the nearest segment has the ink
  (width + 1) / 2 - d, clipped to [0, 1].

  Args:
    paths: [S, P + 1, 2], x and y in pixels.
    width: of the pen, in pixels, at least 1.

  Returns:
    [28, 28], rows downwards; 0 is paper, 1 ink.
  """
  begins = paths[:, :-1].reshape(-1, 2)
  spans = (paths[:, 1:] - paths[:, :-1]).reshape(-1, 2)
  # A segment without length is a point.
  scales = 1 / (jnp.sum(spans * spans, -1) + 1e-6)
  # With one axis of pixels and a chain of minima, instead of one minimum over
  # an axis of segments, a CPU needs a single pass: 25 times faster. `where` is
  # a quarter faster than `minimum`, which also checks for NaN.
  columns, rows = np.tile(_CENTRES, SIDE), np.repeat(_CENTRES, SIDE)
  nearest = jnp.full((SIDE * SIDE,), jnp.inf, jnp.float32)
  for begin, span, scale in zip(begins, spans, scales, strict=True):
    x, y = columns - begin[0], rows - begin[1]
    part = (x * span[0] + y * span[1]) * scale
    part = jnp.where(part > 0, part, 0.0)
    part = jnp.where(part < 1, part, 1.0)
    squared = (x - part * span[0]) ** 2 + (y - part * span[1]) ** 2
    nearest = jnp.where(squared < nearest, squared, nearest)
  ink = jnp.clip((width + 1) / 2 - jnp.sqrt(nearest), 0.0, 1.0)
  return ink.reshape(SIDE, SIDE)


def _noise(number: Array) -> Array:
  """Computes triangular noise in [-2, 2], [1 + S, 8], from an image's number.

  Uses a hash function, one-to-one on 32 bits, instead of a random key: each
  program that draws compiles half a second faster, and images do not depend on
  jax's random generator.
  """
  shape = (1 + STROKES, _UNSTEADY)
  size = shape[0] * shape[1]
  bits = number.astype(jnp.uint32) * size + jnp.arange(size, dtype=jnp.uint32)
  for factor in _FACTORS:
    bits = (bits ^ (bits >> 15)) * jnp.uint32(factor)
  bits ^= bits >> 16
  halves = (bits >> 16) + (bits & 0xFFFF)
  return halves.astype(jnp.float32).reshape(shape) / 2**15 - 2.0


def _steps(program: alphabets.Program, noise: Array) -> Array:
  """Computes the displacement along each segment, [S, P, 2]."""
  # Axes: stroke, kind of noise, segment.
  noise = noise[:, :, None]
  swerve = 0.12 * (noise[:, 0] * _SWERVES[0] + noise[:, 1] * _SWERVES[1])
  turns = program.turns * (1 + 0.12 * noise[:, 2])
  heading = program.heading[:, None] + 0.09 * noise[:, 3] + turns + swerve
  length = program.length[:, None] * (1 + 0.12 * noise[:, 4]) / SEGMENTS
  return length[..., None] * jnp.stack([jnp.cos(heading), jnp.sin(heading)], -1)


def _starts(
  program: alphabets.Program, steps: Array, noise: Array
) -> list[Array]:
  """Computes the start of each stroke, S times [2]; the first is the origin."""
  strokes = jnp.arange(STROKES, dtype=jnp.int32)
  parents = program.parent[:, None] == strokes[None, :]
  parents = parents.astype(jnp.float32)
  on_parent = _along(steps, (program.place + 0.05 * noise[:, 5])[:, None])
  on_parent = jnp.sum(parents[..., None] * on_parent, 1)
  aside = jnp.stack([jnp.sin(program.heading), -jnp.cos(program.heading)], -1)
  aside = program.gap[:, None] * aside + 0.03 * noise[:, 6:8]
  offset = on_parent + aside - _along(steps, program.anchor)
  starts = [jnp.zeros(2, jnp.float32)]
  for index in range(1, STROKES):
    parent = sum(parents[index, i] * start for i, start in enumerate(starts))
    starts.append(parent + offset[index])
  return starts


def _along(steps: Array, part: Array) -> Array:
  """Computes the displacement from strokes' starts to points on them.

  Args:
    steps: displacements along segments, [S, P, 2].
    part: fraction of each stroke's length, [..., S], clipped to [0, 1].

  Returns:
    [..., S, 2].
  """
  way = jnp.clip(part, 0.0, 1.0)[..., None] * SEGMENTS
  more = (1,) * (part.ndim - 1)
  passed = jnp.arange(SEGMENTS, dtype=jnp.float32).reshape(*more, 1, SEGMENTS)
  walked = jnp.clip(way - passed, 0.0, 1.0)
  return jnp.sum(walked[..., None] * steps.reshape(*more, *steps.shape), -2)


def _lay_out(paths: Array, hand: Array, size: Array) -> Array:
  """Places the strokes of a character on the image, [S, P + 1, 2] in pixels."""
  turn, slant = 0.08 * hand[0], 0.14 * hand[1]
  stretch = jnp.exp(0.12 * hand[2])
  sine, cosine = jnp.sin(turn), jnp.cos(turn)
  x, y = paths[..., 0], paths[..., 1]
  paths = jnp.stack(
    [
      stretch * cosine * x + (slant - sine) * y,
      sine * x + cosine / stretch * y,
    ],
    -1,
  )
  low, high = jnp.min(paths, (0, 1)), jnp.max(paths, (0, 1))
  box = jnp.maximum(high - low, 0.05)
  # Long, thin characters become a little more square, as in most scripts.
  squarer = jnp.clip((jnp.max(box) / box) ** 0.4, 1.0, 1.6)
  extent = jnp.clip(18.5 * size * jnp.exp(0.12 * hand[3]), 9.0, 23.0)
  scale = squarer * extent / jnp.max(box * squarer)
  room = SIDE / 2 - _MARGIN - box * scale / 2
  shift = jnp.clip(1.9 * hand[4:6], -room, room)
  middle, scale, shift = (
    x[None, None, :] for x in ((low + high) / 2, scale, shift)
  )
  return (paths - middle) * scale + SIDE / 2 + shift
