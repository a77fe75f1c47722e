"""Walks over a map: how much of the map is shown, and the moves."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

# Frames from one column to the next, and moves that are shown above each.
EVERY = 5
# Pixels between cells.
GAP = 2
# Cells of the largest grid that is shown whole.
_WHOLE = 64
_YELLOW = (1.0, 0.85, 0.1)


class Walk(NamedTuple):
  """A walk over a map.

  Attributes:
    shape: rows and columns of the map.
    cells: [T, 2], row and column of each frame's.
    visits: [T], how often each was seen before.
  """

  shape: tuple[int, int]
  cells: np.ndarray
  visits: np.ndarray


def extent(
  walk: np.ndarray, grid: tuple[int, int] | None
) -> tuple[tuple[int, int], np.ndarray, str]:
  """Returns the map's rows and columns, its corner, and how it is cut."""
  corner = walk.min(axis=0)
  rows, columns = (walk.max(axis=0) - corner + 1).tolist()
  if grid is None:
    return (rows, columns), corner, 'cut: what the walk went over of the grid'
  if corner.min() < 0 or (walk >= grid).any():
    raise ValueError(
      f'positions go beyond the grid of {grid[0]} x {grid[1]} cells; they must '
      'count from its upper left one.'
    )
  if np.prod(grid) <= _WHOLE:
    return grid, np.zeros(2, np.int64), ''
  cut = (
    f'cut: rows {corner[0] + 1} to {corner[0] + rows} of {grid[0]} and columns '
    f'{corner[1] + 1} to {corner[1] + columns} of {grid[1]}, which the walk '
    'went over'
  )
  return (rows, columns), corner, cut


def draw_moves(
  axes: Axes,
  walk: np.ndarray,
  place: tuple[int, int],
  cell: tuple[int, int],
) -> None:
  """Draws the moves that led to the last frames, and a dot where they end.

  An arrow stands to the right of the straight way from cell to cell, seen in
  its direction, and further so where that move was made before: no arrow
  hides another.

  Args:
    axes: whose unit is the pixel.
    walk: [t, 2], as far as it went.
    place: row and column of the map's upper left pixel.
    cell: height and width.
  """
  points = place + (walk + 0.5) * (np.array(cell) + GAP) + GAP / 2
  side = min(cell)
  arrow = {
    'arrowstyle': '-|>',
    'color': _YELLOW,
    'linewidth': side / 40,
    'mutation_scale': side / 7,
    'shrinkA': 0,
    'shrinkB': 0,
  }
  made: Counter[tuple[int, ...]] = Counter()
  for t in range(max(1, len(walk) - EVERY), len(walk)):
    move = points[t] - points[t - 1]
    if move.any():
      way = (*walk[t - 1], *walk[t])
      right = np.array([move[1], -move[0]]) / np.hypot(*move)
      aside = right * side * 0.12 * (1 + made[way])
      made[way] += 1
      start = points[t - 1] + 0.15 * move + aside
      end = points[t] - 0.15 * move + aside
      axes.annotate('', end[::-1], start[::-1], arrowprops=arrow)
  axes.plot(*points[-1][::-1], 'o', color=_YELLOW, markersize=side / 14)
