"""Walks over a map: the part of the map to show, and arrows for the moves."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

# Number of frames between columns, and of moves that are shown above each.
EVERY = 5
# Pixels between cells.
GAP = 2
# Number of cells of the largest grid that is shown completely.
_WHOLE = 64
_YELLOW = (1.0, 0.85, 0.1)


class Walk(NamedTuple):
  """A walk over a map.

  Attributes:
    shape: numbers of rows and columns of the map.
    cells: [T, 2], row and column of each frame's cell.
    visits: [T], number of earlier frames of the same cell.
  """

  shape: tuple[int, int]
  cells: np.ndarray
  visits: np.ndarray


def extent(
  walk: np.ndarray, grid: tuple[int, int] | None
) -> tuple[tuple[int, int], np.ndarray, str]:
  """Chooses the part of the grid to show: all of it, or what the walk covers.

  Args:
    walk: [T, 2], row and column of each frame's cell.
    grid: numbers of rows and columns, None if unknown.

  Returns:
    Numbers of rows and columns to show; the first row and column; a note for
    the reader if the grid is cut, or ''.

  Raises:
    ValueError: the walk leaves the grid.
  """
  corner = walk.min(axis=0)
  rows, columns = (walk.max(axis=0) - corner + 1).tolist()
  if grid is None:
    return (rows, columns), corner, 'cut: the cells that the walk covers'
  if corner.min() < 0 or (walk >= grid).any():
    raise ValueError(
      f'positions leave the grid of {grid[0]} x {grid[1]} cells; count them '
      'from its upper left cell.'
    )
  if np.prod(grid) <= _WHOLE:
    return grid, np.zeros(2, np.int64), ''
  cut = (
    f'cut: rows {corner[0] + 1} to {corner[0] + rows} of {grid[0]} and columns '
    f'{corner[1] + 1} to {corner[1] + columns} of {grid[1]}, which the walk '
    'covers'
  )
  return (rows, columns), corner, cut


def draw_moves(
  axes: Axes,
  walk: np.ndarray,
  place: tuple[int, int],
  cell: tuple[int, int],
) -> None:
  """Draws the moves to the last frames as arrows, and a dot where they end.

  An arrow is drawn to the right of the line between two cells, and further
  right if the same move was made before, so that no arrow hides another.

  Args:
    axes: with pixels as units.
    walk: [t, 2], row and column of the cells so far.
    place: row and column of the map's upper left pixel.
    cell: height and width of a cell in pixels.
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
  repeats: Counter[tuple[int, ...]] = Counter()
  for t in range(max(1, len(walk) - EVERY), len(walk)):
    move = points[t] - points[t - 1]
    if move.any():
      way = (*walk[t - 1], *walk[t])
      right = np.array([move[1], -move[0]]) / np.hypot(*move)
      aside = right * side * 0.12 * (1 + repeats[way])
      repeats[way] += 1
      start = points[t - 1] + 0.15 * move + aside
      end = points[t] - 0.15 * move + aside
      axes.annotate('', end[::-1], start[::-1], arrowprops=arrow)
  axes.plot(*points[-1][::-1], 'o', color=_YELLOW, markersize=side / 14)
