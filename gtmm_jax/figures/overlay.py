"""Overlays: maps that a walk leaves behind, its visits in three colours.

Gemici et al. 2017, the figure of generation in the MNIST maze, section 5.6.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gtmm_jax.figures import appearance, strips, walks, writing

# Visits to a cell that have a colour channel.
_CHANNELS = 3
# Cells that no visit has lit, those under the arrows, what is between cells.
_UNVISITED, _GROUND, _BETWEEN = 0.3, 0.1, 0.6
_MOVES = 'last five moves'
_LEGEND = (
  "a cell's first visit is red, the second adds green, the third blue: where "
  'they agree it turns yellow, then white; grey: not visited yet'
)
# Sizes of letters in points.
_TITLE, _NAME, _SMALL = 10, 8, 7
# In pixels: between maps, above a block of maps for its frames,
# below everything for the legend; and of columns side by side at most.
_SPACE, _ABOVE, _BELOW, _PAGE = 14, 24, 26, 2400
_MARGIN = 12


def draw_overlay(
  rows: Sequence[tuple[str, np.ndarray]],
  positions: np.ndarray,
  visits: np.ndarray,
  stem: str | os.PathLike[str],
  title: str | None = None,
  grid: tuple[int, int] | None = None,
) -> list[Path]:
  """Writes `overlay_figure` to `<stem>.png` and `<stem>.pdf`.

  Returns:
    The two paths. Their folder is made where there is none.

  Raises:
    ValueError: as `overlay_figure`.
  """
  figure = overlay_figure(rows, positions, visits, title, grid)
  return writing.save(figure, stem, palette=False)


@appearance.fixed()
def overlay_figure(
  rows: Sequence[tuple[str, np.ndarray]],
  positions: np.ndarray,
  visits: np.ndarray,
  title: str | None = None,
  grid: tuple[int, int] | None = None,
) -> Figure:
  """Draws what each row has seen of a map after 5, 10, 15, ... T frames.

  A column has the moves that led to its last five frames, as arrows, and below
  them a map for each row. In each cell the frame of the first visit is the red
  channel, that of the second the green one, that of the third the blue one:
  frames that agree turn yellow, then white. The map is the whole grid, or,
  where that is not given or has more than 64 cells, what the walk went over,
  and the line below everything says so.

  Args:
    rows: a name and frames `[T, H, W, 1]` for each, one or more of one shape;
      values in [0, 1], clipped to it. NaN is dark, and a frame of NaN no visit.
    positions: int `[T, 2]`, row (downwards) and column of each frame's cell,
      of the grid, or from any origin where that is not given.
    visits: int `[T]`, how often the cell was seen before, 0 for the first time;
      frames from the fourth visit on are left out.
    title: a line above everything.
    grid: its rows and columns.

  Raises:
    ValueError: there are no frames, or shapes or values are not as above.
  """
  if not rows:
    raise ValueError('There are no maps to draw: give a row of frames.')
  shapes = {np.shape(frames) for _, frames in rows}
  if len(shapes) > 1:
    found = [f'{name} {np.shape(frames)}' for name, frames in rows]
    raise ValueError(f'Rows of one overlay share their shape, but are {found}.')
  pictures = [_channel(name, frames) for name, frames in rows]
  length = len(pictures[0])
  if not length:
    raise ValueError('There are no frames to draw: give rows with some.')
  walk = _whole('positions', positions, (length, 2))
  visits = _whole('visits', visits, (length,))
  if visits.min() < 0:
    raise ValueError(
      f'visits has {visits.min()} in it, but counts from 0, the first time.'
    )
  shape, corner, cut = walks.extent(walk, grid)
  # Of wide maps, the cells are thinned until one of them fits.
  room = max(1, _PAGE // shape[1] - walks.GAP)
  stride = -(-pictures[0].shape[2] // room)
  thinned = [each[:, ::stride, ::stride] for each in pictures]
  names = [name for name, _ in rows]
  made = walks.Walk(shape, walk - corner, visits)
  return _lay_out(names, thinned, made, (title or '', _LEGEND, cut))


def _channel(name: str, frames: np.ndarray) -> np.ndarray:
  """Frames as [T, H, W] in [0, 1], of a size to be looked at."""
  shape = np.shape(frames)
  if len(shape) != 4 or shape[-1] != 1:
    raise ValueError(
      f'The row {name!r} has shape {shape}, but must be [T, H, W, 1]: the '
      'colours of an overlay are the visits.'
    )
  return strips.as_rgb(name, frames)[..., 0]


def _whole(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """An array of whole numbers of a shape."""
  array = np.asarray(values)
  if array.shape != shape or array.dtype.kind not in 'iu':
    raise ValueError(
      f'{name} has shape {array.shape} and type {array.dtype}, but must be '
      f'whole numbers of shape {shape}, as many as there are frames.'
    )
  return array.astype(np.int64)


def _tiled(cells: np.ndarray) -> np.ndarray:
  """Cells [rows, columns, H, W, 3] as one picture, with gaps around each."""
  gap, none = (walks.GAP, 0), (0, 0)
  cells = np.pad(
    cells, (none, none, gap, gap, none), constant_values=_BETWEEN
  ).swapaxes(1, 2)
  rows, height, columns, width, _ = cells.shape
  picture = cells.reshape(rows * height, columns * width, 3)
  return np.pad(
    picture, ((0, walks.GAP), (0, walks.GAP), none), constant_values=_BETWEEN
  )


def _map(frames: np.ndarray, walk: walks.Walk) -> np.ndarray:
  """Draws what the first frames of a walk, [t, H, W], leave on the map."""
  cells = np.full((*walk.shape, *frames.shape[1:], 3), _UNVISITED)
  lit = set()
  for frame, cell, visit in zip(
    frames, map(tuple, walk.cells), walk.visits, strict=False
  ):
    if visit < _CHANNELS and not np.isnan(frame).all():
      if cell not in lit:
        cells[cell] = 0.0
        lit.add(cell)
      cells[cell][..., visit] = np.nan_to_num(frame, nan=0.0)
  return _tiled(cells)


def _lay_out(
  names: Sequence[str],
  pictures: Sequence[np.ndarray],
  walk: walks.Walk,
  texts: tuple[str, str, str],
) -> Figure:
  """Draws moves and maps, in blocks below one another where a page is full.

  Args:
    names: of the rows.
    pictures: [T, H, W] of each row.
    walk: over the map.
    texts: above everything, and two below; each may be empty.
  """
  title, *notes = texts
  length = len(walk.cells)
  ends = [*range(walks.EVERY, length, walks.EVERY), length]
  ground = np.full((*walk.shape, *pictures[0].shape[1:], 3), _GROUND)
  ground = _tiled(ground)
  tall, wide = ground.shape[:2]
  names = [_MOVES, *names]
  left = 20 + max(writing.width_of(name, _NAME) for name in names)
  top = 44 if title else _MARGIN
  # Room for the words above a map, however narrow it is.
  step = _SPACE + max(wide, writing.width_of(f't = {length}', _SMALL))
  columns = max(1, min(len(ends), _PAGE // step))
  block = _ABOVE + len(names) * (tall + _SPACE)
  bottom = top + block * -(-len(ends) // columns)
  words = ((title, _TITLE), *((note, _SMALL) for note in notes))
  widest = _MARGIN + max(writing.width_of(*line) for line in words)
  canvas = np.ones(
    (
      bottom + _BELOW * sum(map(bool, notes)),
      max(left + columns * step, widest) + _MARGIN,
      3,
    )
  )
  figure, axes = _page(canvas)
  for index, end in enumerate(ends):
    row, column = divmod(index, columns)
    x, y = left + column * step, top + row * block + _ABOVE
    axes.text(x + wide / 2, y - 7, f't = {end}', size=_SMALL, ha='center')
    walks.draw_moves(axes, walk.cells[:end], (y, x), pictures[0].shape[1:])
    maps = [_map(frames[:end], walk) for frames in pictures]
    for name, picture in zip(names, [ground, *maps], strict=True):
      canvas[y : y + tall, x : x + wide] = picture
      if column == 0:
        place = (left - 8, y + tall / 2)
        text = writing.literal(name)
        axes.text(*place, text, size=_NAME, ha='right', va='center')
      y += tall + _SPACE
  axes.text(_MARGIN, 28, writing.literal(title), size=_TITLE)
  for line, note in enumerate(notes):
    axes.text(_MARGIN, bottom + 10 + _BELOW * line, note, size=_SMALL)
  # Matplotlib would round bytes down.
  axes.imshow(
    np.round(canvas * 255).astype(np.uint8),
    extent=(0, canvas.shape[1], canvas.shape[0], 0),
    interpolation='nearest',
  )
  return figure


def _page(canvas: np.ndarray) -> tuple[Figure, Axes]:
  """A figure, and axes on it whose unit is the pixel of a canvas."""
  # A little more, for a quotient that rounds down would lose a whole pixel.
  height, width = ((side + 1e-6) / writing.DPI for side in canvas.shape[:2])
  figure = Figure(figsize=(width, height), dpi=writing.DPI)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_axis_off()
  return figure, axes
