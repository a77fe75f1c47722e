"""Invented alphabets: what the strokes of their characters are.

  alphabet    a style: which kinds of strokes, which directions, how curved, how
              many, how they meet, whether they are repeated or mirrored
  character   a program in that style: one to four strokes, of which each starts
              at, crosses, or lies beside an earlier one

Everything follows from the numbers of alphabet and character, by
`random.Random(text).random()`, whose sequences Python keeps from version to
version. A heading is an angle in radians: 0 to the right, pi/2 downwards.
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
# S, strokes that a character has at most.
STROKES = 4
# P, segments of a stroke.
SEGMENTS = 9
# Raise it with every change of what is drawn: checksums are made of it.
VERSION = 1

_MIDDLES = (np.arange(SEGMENTS) + 0.5) / SEGMENTS


class Kind(NamedTuple):
  """A kind of stroke.

  Attributes:
    profile: [P], how the heading of each segment departs from the stroke's, as
      a part of its turn.
    turn: the least and the most that it turns, in degrees.
    length: where a line has 1.
    weight: how usual it is.
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
    heading: float32 [S], of a stroke's favoured direction.
    turns: float32 [S, P], what its segments add to it.
    length: float32 [S], where the first stroke has about 1.
    parent: int32 [S], the earlier stroke that it meets; 0 for the first.
    place: float32 [S], where on the parent: 0 at its start, 1 at its end.
    own: float32 [S], which part of itself is put there, from 0 to 1.
    gap: float32 [S], how far aside from there it is put.
    count: int32, how many of the strokes the character has; the others hold
      numbers without meaning.
    size: float32, 0.68 to 1.2, where 1 is usual.
  """

  heading: np.ndarray
  turns: np.ndarray
  length: np.ndarray
  parent: np.ndarray
  place: np.ndarray
  own: np.ndarray
  gap: np.ndarray
  count: np.ndarray
  size: np.ndarray


class _Style(NamedTuple):
  """What the characters of an alphabet have in common.

  Attributes:
    weights: of the kinds of strokes.
    slant: heading of the first of four favoured directions.
    step: angle from one favoured direction to the next.
    spread: how far headings are from favoured ones at most.
    bend: 0 for strokes that turn little, 1 for much.
    clockwise: probability that a stroke turns clockwise.
    count: number of strokes that is most frequent, not a whole number.
    later: length of strokes after the first.
    joins: weights of four ways to meet an earlier stroke: at its end, in its
      middle, across it, beside it.
    echo: probability that a stroke repeats or mirrors the one before.
    habit: kind and direction of a stroke with which most characters start.
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
  """One stroke of a `Program`, and which favoured direction it has."""

  heading: float
  turns: np.ndarray
  length: float
  parent: int
  place: float
  own: float
  gap: float
  direction: int


def programs() -> Program:
  """The programs of all characters, with a leading axis of 50 * 30.

  Character c of alphabet a is at a * 30 + c.
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
  """A number in (0, 1) for each character of an alphabet, in random order.

  They are spread evenly, so that what is rare is as rare as it should be, and
  no two characters share a number.
  """
  numbers = [(rank + 0.5) / CHARACTERS for rank in range(CHARACTERS)]
  return sorted(numbers, key=lambda _: draw())


def _choose(u: float, weights: Sequence[float]) -> int:
  """The index that a number in [0, 1) picks by weights."""
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
  """The fields of a `Program` for one character."""
  strokes: list[_Stroke] = []
  for u in choices:
    strokes.append(_stroke(style, u, strokes))
  number = [1, 2, 3, 4]
  weights = [math.exp(-0.5 * ((n - style.count) / 0.75) ** 2) for n in number]
  count = number[_choose(choices[0][5], weights)]
  if not strokes[0].turns.any():
    # A straight line alone is no character.
    count = max(count, 2)
  size = (0.8 + 0.4 * choices[0][6]) * (0.85 if count == 1 else 1.0)
  fields = [np.array(field) for field in zip(*strokes, strict=True)]
  return (*fields[:-1], count, size)


def _stroke(style: _Style, u: list[float], earlier: list[_Stroke]) -> _Stroke:
  """The next stroke of a character, as eleven numbers in (0, 1) have it."""
  if len(earlier) > 1 and u[10] < style.echo:
    return _echo(earlier[-1], u[9] < 0.5)
  kind, direction, parent = _choose(u[0], style.weights), int(4 * u[1]), 0
  length = 1.0
  if earlier:
    # More than half of them meet the first stroke. Most turn off to one side,
    # a line always, so that it does not hide in another one.
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
  place, own, gap = (
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
    own=own,
    gap=gap,
    direction=direction,
  )


def _echo(stroke: _Stroke, mirror: bool) -> _Stroke:
  """A stroke again: mirrored left to right, or elsewhere on its parent."""
  if mirror:
    return stroke._replace(
      heading=math.pi - stroke.heading, turns=-stroke.turns
    )
  return stroke._replace(place=(stroke.place + 0.5) % 1.0)
