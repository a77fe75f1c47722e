"""Overlays: maps of the frames that a walk has shown, one colour per visit.

See Gemici et al. 2017, the figure of generation in the MNIST maze, section 5.6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gtmm_jax.figures import appearance, pixels, walks, writing

# Number of visits to a cell that have a colour channel.
_CHANNELS = 3
# Brightness of unvisited cells, of cells under the arrows, of gaps.
_UNVISITED, _GROUND, _BETWEEN = 0.3, 0.1, 0.6
_MOVES = 'last five moves'
_LEGEND = (
  "a cell's first visit is red, the second adds green, the third blue: where "
  'they agree it turns yellow, then white; grey: not visited yet'
)
# Font sizes in points.
_TITLE, _NAME, _SMALL = 10, 8, 7
# In pixels: space between maps, above a block of maps for the numbers of its
# frames, and at the bottom for the legend; greatest width of all columns.
_SPACE, _ABOVE, _BELOW, _PAGE = 14, 24, 26, 2400
_MARGIN = 12


@appearance.fixed()
def overlay_figure(
  rows: Sequence[tuple[str, np.ndarray]],
  positions: np.ndarray,
  visits: np.ndarray,
  title: str | None = None,
  grid: tuple[int, int] | None = None,
) -> Figure:
  """Draws the part of a map that each row has seen after 5, 10, ... T frames.

  A column has arrows for the moves to its last five frames and, below them, a
  map for each row. In each cell, the frame of the first visit is the red
  channel, the second the green and the third the blue channel: frames that
  agree become yellow, then white. The map is the whole grid or, without a grid
  or with more than 64 cells, the part that the walk covers; a line at the
  bottom then says so.

  Args:
    rows: a name and frames `[T, H, W, 1]` for each, one or more of one shape;
      values in [0, 1], to which others are clipped. NaN is dark; a frame of NaN
      is not a visit.
    positions: int `[T, 2]`, row (downwards) and column of each frame's cell in
      the grid, or from any origin without a grid.
    visits: int `[T]`, number of earlier frames of the same cell; frames from
      the fourth visit on are left out.
    title: a line above everything.
    grid: its numbers of rows and columns.

  Raises:
    ValueError: there are no frames, or shapes or values are not as above.
  """
  if not rows:
    raise ValueError('There are no maps to draw: give a row of frames.')
  shapes = {np.shape(frames) for _, frames in rows}
  if len(shapes) > 1:
    sizes = ', '.join(f'{name} {np.shape(frames)}' for name, frames in rows)
    raise ValueError(
      f'The rows of an overlay have shapes {sizes}; they must have the same.'
    )
  pictures = [_channel(name, frames) for name, frames in rows]
  length = len(pictures[0])
  if not length:
    raise ValueError('There are no frames to draw: give rows with some.')
  cells = _integers('positions', positions, (length, 2))
  visits = _integers('visits', visits, (length,))
  if visits.min() < 0:
    raise ValueError(
      f'visits has {visits.min()} in it; it must count from 0, the first visit.'
    )
  shape, corner, cut = walks.extent(cells, grid)
  # Frames of wide maps are subsampled until one map fits on the page.
  room = max(1, _PAGE // shape[1] - walks.GAP)
  stride = -(-pictures[0].shape[2] // room)
  thinned = [each[:, ::stride, ::stride] for each in pictures]
  names = [name for name, _ in rows]
  walk = walks.Walk(shape, cells - corner, visits)
  return _lay_out(names, thinned, walk, (title or '', _LEGEND, cut))


def _channel(name: str, frames: np.ndarray) -> np.ndarray:
  """Converts frames to [T, H, W] in [0, 1], scaled to a visible size."""
  shape = np.shape(frames)
  if len(shape) != 4 or shape[-1] != 1:
    raise ValueError(
      f'The row {name!r} has shape {shape}, but must be [T, H, W, 1]: colours '
      'of an overlay mean visits.'
    )
  return pixels.as_rgb(name, frames)[..., 0]


def _integers(
  name: str, values: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
  """Checks that an array has integers and a shape, and returns it as int64."""
  array = np.asarray(values)
  if array.shape != shape or array.dtype.kind not in 'iu':
    raise ValueError(
      f'{name} has shape {array.shape} and type {array.dtype}, but must be '
      f'integers of shape {shape}, as many as there are frames.'
    )
  return array.astype(np.int64)


def _tiled(cells: np.ndarray) -> np.ndarray:
  """Joins cells [rows, columns, H, W, 3] to a picture, with gaps between."""
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
  """Draws the first frames [t, H, W] of a walk on the map."""
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
  """Draws moves and maps, in as many blocks as the page's width requires.

  Args:
    names: of the rows.
    pictures: [T, H, W] of each row.
    walk: over the map.
    texts: one above everything and two below; each may be empty.
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
  # Even a narrow map has room for the words above it.
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
  figure, axes = writing.page(canvas.shape[1], canvas.shape[0])
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
  # Rounds here, because matplotlib rounds bytes down.
  axes.imshow(
    np.round(canvas * 255).astype(np.uint8),
    extent=(0, canvas.shape[1], canvas.shape[0], 0),
    interpolation='nearest',
  )
  return figure
