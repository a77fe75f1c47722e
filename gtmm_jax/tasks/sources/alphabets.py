"""Invented alphabets, described by the strokes of their characters.

  alphabet    a style: the kinds of strokes, their directions, their curvature,
              their number, how they meet, whether they are repeated or mirrored
  character   a program in that style: one to four strokes, each of which starts
              at, crosses or is beside an earlier one

Everything is a function of the numbers of alphabet and character, by
`random.Random(text).random()`, whose sequences are the same in all versions of
Python. A heading is an angle in radians: 0 is to the right, pi/2 downwards.
"""

import bisect
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ALPHABETS = 50
CHARACTERS = 30
# S, the greatest number of strokes of a character.
STROKES = 4
# P, the number of segments of a stroke.
SEGMENTS = 9
# Increase it whenever characters change: checksums are computed from it.
VERSION = 1

_MIDDLES = (np.arange(SEGMENTS) + 0.5) / SEGMENTS


class Kind(NamedTuple):
  """A kind of stroke.

  Attributes:
    profile: [P], the heading of each segment relative to the stroke's, as a
      fraction of its turn.
    turn: least and greatest angle that the stroke turns, in degrees.
    length: relative to a line.
    weight: proportional to the kind's frequency.
  """

  profile: np.ndarray
  turn: tuple[float, float]
  length: float
  weight: float


KINDS = (
  # A line; an arc; a line with a hook; a wave; a corner; a zigzag; two arcs
  # that meet in a cusp; a closed loop.
  Kind(0 * _MIDDLES, (0, 0), 1.0, 2.2),
  Kind(_MIDDLES - 0.5, (70, 210), 1.25, 1.3),
  Kind(np.maximum(_MIDDLES - 0.6, 0) / 0.4, (110, 210), 1.3, 0.7),
  Kind(np.sin(np.pi * _MIDDLES) - 2 / np.pi, (70, 120), 1.3, 0.6),
  Kind(1.0 * (_MIDDLES > 0.5), (70, 120), 1.25, 0.9),
  Kind(1.0 * (abs(_MIDDLES - 0.5) < 0.2), (110, 140), 1.6, 0.4),
  Kind(2 * _MIDDLES % 1 - 0.5, (170, 230), 1.9, 0.5),
  Kind(_MIDDLES - 0.5, (360, 360), 2.0, 0.9),
)


class Program(NamedTuple):
  """The strokes of a character, or of many with leading axes.

  Attributes:
    heading: float32 [S], direction of the stroke.
    turns: float32 [S, P], headings of its segments relative to it.
    length: float32 [S], about 1 for the first stroke.
    parent: int32 [S], the earlier stroke that it meets; 0 for the first.
    place: float32 [S], point on the parent where they meet, from 0 at its start
      to 1 at its end.
    anchor: float32 [S], point of the stroke that is put there, from 0 to 1.
    gap: float32 [S], distance to the side from there.
    count: int32, number of strokes that the character has; the values of the
      others have no meaning.
    size: float32, 0.68 to 1.2, usually about 1.
  """

  heading: np.ndarray
  turns: np.ndarray
  length: np.ndarray
  parent: np.ndarray
  place: np.ndarray
  anchor: np.ndarray
  gap: np.ndarray
  count: np.ndarray
  size: np.ndarray


class _Style(NamedTuple):
  """The style that the characters of an alphabet share.

  Attributes:
    weights: of the kinds of strokes.
    slant: heading of the first of four preferred directions.
    step: angle from one preferred direction to the next.
    spread: greatest difference between a heading and a preferred direction.
    bend: 0 for strokes that turn little, 1 for strokes that turn much.
    clockwise: probability that a stroke turns clockwise.
    count: most frequent number of strokes, not an integer.
    later: length of strokes after the first.
    joins: weights of four ways to meet an earlier stroke: at its end, in its
      middle, across it, beside it.
    echo: probability that a stroke repeats or mirrors the one before it.
    habit: kind and direction of the first stroke of most characters.
  """

  weights: list[float]
  slant: float
  step: float
  spread: float
  bend: float
  clockwise: float
  count: float
  later: float
  joins: tuple[float, ...]
  echo: float
  habit: tuple[int, int] | None


class _Stroke(NamedTuple):
  """One stroke of a `Program`, with the index of its preferred direction."""

  heading: float
  turns: np.ndarray
  length: float
  parent: int
  place: float
  anchor: float
  gap: float
  direction: int


def programs() -> Program:
  """Draws the programs of all characters, with a leading axis of 50 * 30.

  Character c of alphabet a has index a * 30 + c.
  """
  every = []
  for alphabet in range(ALPHABETS):
    draw = random.Random(f'alphabet {alphabet}').random
    style = _style(draw)
    choices = [[_evenly(draw) for _ in range(11)] for _ in range(STROKES)]
    for character in range(CHARACTERS):
      every.append(
        _program(style, [[u[character] for u in row] for row in choices])
      )
  columns = [np.array(column) for column in zip(*every, strict=True)]
  return Program(
    *(
      column.astype(np.int32 if column.dtype.kind == 'i' else np.float32)
      for column in columns
    )
  )


def _evenly(draw: Callable[[], float]) -> list[float]:
  """Draws a number in (0, 1) for each character of an alphabet.

  These are equally spaced numbers in random order: each character has its own,
  and choices are as frequent as their probabilities.
  """
  numbers = [(rank + 0.5) / CHARACTERS for rank in range(CHARACTERS)]
  return sorted(numbers, key=lambda _: draw())


def _choose(u: float, weights: Sequence[float]) -> int:
  """Returns the index that a number `u` in [0, 1) selects by weights."""
  borders = list(itertools.accumulate(weights))
  return bisect.bisect(borders[:-1], u * borders[-1])


def _style(draw: Callable[[], float]) -> _Style:
  leanings = [2 * (draw() + draw() + draw() - 1.5) for _ in KINDS]
  usual = [kind.weight for kind in KINDS]
  return _Style(
    weights=[w * math.exp(x) for w, x in zip(usual, leanings, strict=True)],
    slant=math.radians(77.5 + 25 * draw()),
    step=math.radians((90, 90, 90, 60, 45)[int(5 * draw())]),
    spread=math.radians(3 + 12 * draw()),
    bend=draw(),
    clockwise=0.1 + 0.8 * draw(),
    count=2.4 + 1.5 * draw(),
    later=0.6 + 0.35 * draw(),
    joins=(0.2 + draw(), 0.2 + draw(), 0.8 * draw() ** 2, 0.6 * draw() ** 2),
    echo=0.45 * draw(),
    habit=(_choose(draw(), usual), int(2 * draw())) if draw() < 0.4 else None,
  )


def _program(style: _Style, choices: list[list[float]]) -> tuple:
  """Draws the fields of a `Program` for one character."""
  strokes: list[_Stroke] = []
  for u in choices:
    strokes.append(_stroke(style, u, strokes))
  number = [1, 2, 3, 4]
  weights = [math.exp(-0.5 * ((n - style.count) / 0.75) ** 2) for n in number]
  count = number[_choose(choices[0][5], weights)]
  if not strokes[0].turns.any():
    # A single straight line is not a character.
    count = max(count, 2)
  size = (0.8 + 0.4 * choices[0][6]) * (0.85 if count == 1 else 1.0)
  fields = [np.array(field) for field in zip(*strokes, strict=True)]
  return (*fields[:-1], count, size)


def _stroke(style: _Style, u: list[float], earlier: list[_Stroke]) -> _Stroke:
  """Draws the next stroke of a character from eleven numbers in (0, 1)."""
  if len(earlier) > 1 and u[10] < style.echo:
    return _echo(earlier[-1], u[9] < 0.5)
  kind, direction, parent = _choose(u[0], style.weights), int(4 * u[1]), 0
  length = 1.0
  if earlier:
    # More than half of them meet the first stroke. Most have another direction
    # than their parent; a line always, so that it does not cover another line.
    parent = int(max(2 * u[7] - 1, 0) * len(earlier))
    off = (1, 3, 1, 3, 1, 3, 0, 2)[int(8 * u[1])]
    if not KINDS[kind].profile.any():
      off |= 1
    direction = (earlier[parent].direction + off) % 4
    length = style.later * (0.7 + 0.6 * u[5])
  elif style.habit and u[10] < 0.75:
    kind, direction = style.habit
  least, most = np.radians(KINDS[kind].turn)
  bend = min(max(0.6 * style.bend + 0.5 * u[2] - 0.05, 0), 1)
  turn = (least + bend * (most - least)) * (1 if u[3] < style.clockwise else -1)
  length *= KINDS[kind].length
  start = 0.0 if u[9] < 0.8 else 1.0
  inside = (0.25, 0.5, 0.75)[int(3 * u[8])]
  place, anchor, gap = (
    (float(u[8] > 0.5), start, 0.0),
    (inside, start, 0.0),
    (inside, 0.5, 0.0),
    (u[8], start, 0.3),
  )[_choose(u[6], style.joins)]
  if gap and u[10] > 0.6:
    # A dot.
    length = 0.06
  heading = style.slant - direction * style.step
  return _Stroke(
    heading=heading + style.spread * (2 * u[4] - 1),
    turns=turn * KINDS[kind].profile,
    length=length,
    parent=parent,
    place=place,
    anchor=anchor,
    gap=gap,
    direction=direction,
  )


def _echo(stroke: _Stroke, mirror: bool) -> _Stroke:
  """Repeats a stroke, mirrored left to right or elsewhere on its parent."""
  if mirror:
    return stroke._replace(
      heading=math.pi - stroke.heading, turns=-stroke.turns
    )
  return stroke._replace(place=(stroke.place + 0.5) % 1.0)
