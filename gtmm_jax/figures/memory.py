"""Heat maps of a memory over one episode, below the episode's frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from gtmm_jax.figures import appearance, pixels, writing
from gtmm_jax.figures import panels as heat_maps
from gtmm_jax.figures.panels import Panel

_MARK = (0.835, 0.369, 0.0)
# Font sizes in points.
_TITLE, _PANEL, _NOTE, _NUMBER = 10, 8, 7, 7
# All of the following is in pixels. Widths: greatest of panels side by side, of
# a panel over many frames and over few; of a frame's place, least and greatest.
_PAGE, _WIDE, _NARROW, _PLACE, _LARGE = 2400, 2000, 480, 32, 128
# Heights: of the frames' numbers, of a mark, above a panel, least of a colour
# bar, below a panel, of a note.
_ABOVE_FRAMES, _LINE, _ABOVE, _SHORT, _BELOW, _LOW = 24, 4, 42, 54, 58, 24
# Widths beside a panel: gap before the scale, the scale, its numbers.
_BAR_GAP, _BAR, _BESIDE = 12, 12, 90
_MARGIN = 14


@appearance.fixed()
def memory_figure(
  frames: np.ndarray,
  panels: Sequence[Panel],
  marks: np.ndarray | None = None,
  title: str | None = None,
  note: str | None = None,
) -> Figure:
  """Draws heat maps in rows and columns, each with its scale.

  Time runs to the right. Above every column of panels are the episode's frames,
  each aligned with its column of the heat maps. A cell of a heat map is a whole
  number of pixels wide and high, so that none is lost.

  Args:
    frames: of one episode, `[T, H, W, C]`, C 1 or 3, values in [0, 1].
    panels: one or more, in reading order.
    marks: `[T]`: true if a frame is predictable. Such frames have a line below
      them, and their columns one above every panel.
    title: a line above everything.
    note: a line below everything.

  Raises:
    ValueError: there are no frames or no panels; or shapes or values are not as
      above or as `Panel` describes.
  """
  pictures = pixels.as_rgb('frames', frames)
  length = len(pictures)
  if not length:
    raise ValueError('There are no frames to draw: give an episode with some.')
  if not panels:
    raise ValueError('There are no panels to draw: give at least one.')
  marks = np.zeros(length, bool) if marks is None else np.asarray(marks, bool)
  if marks.shape != (length,):
    raise ValueError(
      f'marks has shape {marks.shape}, but must be ({length},): one mark for '
      'each frame.'
    )
  panels = [heat_maps.checked(panel, length) for panel in panels]
  legend = 'lines: predictable from the past' if marks.any() else ''
  return _lay_out(pictures, panels, marks, title or '', (legend, note or ''))


class _Grid(NamedTuple):
  """The places of frames and panels, in pixels from the upper left corner."""

  cell: int  # Width of a frame's place.
  width: int  # Width of a panel.
  columns: int
  lefts: list[int]  # Left edge of each column of panels.
  top: int  # Upper edge of the frames and their numbers.
  tops: list[int]  # Upper edge of each row of panels.
  size: tuple[int, int]  # Width and height of everything.


def _grid(panels: Sequence[Panel], length: int, height: int, top: int) -> _Grid:
  """Places as many panels side by side as the page has room for, up to three.

  Args:
    panels: from `checked`.
    length: number of frames.
    height: of a frame.
    top: upper edge of the frames.
  """
  cell = max(_PLACE, min(_LARGE, _NARROW // length))
  cell = max(1, min(cell, _WIDE // length))
  width = max(length * cell, *(len(panel.values) for panel in panels))
  names = ['slot']
  for panel in panels:
    names += [] if isinstance(panel.rows, str) else panel.rows
  left = 30 + max(70, *(writing.width_of(name, _NUMBER) for name in names))
  titles = (writing.width_of(p.title + p.meaning, _PANEL) for p in panels)
  whole = left + max(width + _BESIDE, max(titles) + 60)
  columns = max(1, min(3, len(panels), _PAGE // whole))
  y = top + _ABOVE_FRAMES + min(height, cell) + _LINE
  tops = []
  for start in range(0, len(panels), columns):
    tops.append(y + _ABOVE)
    beside = panels[start : start + columns]
    tallest = max(heat_maps.row_height(p) * p.values.shape[1] for p in beside)
    y = tops[-1] + max(_SHORT, tallest) + _BELOW
  lefts = [column * whole + left for column in range(columns)]
  return _Grid(cell, width, columns, lefts, top, tops, (columns * whole, y))


def _lay_out(
  pictures: np.ndarray,
  panels: Sequence[Panel],
  marks: np.ndarray,
  title: str,
  notes: tuple[str, str],
) -> Figure:
  """Draws everything on axes whose unit is the pixel.

  Args:
    pictures: [T, H, W, 3] in [0, 1].
    panels: from `checked`.
    marks: [T].
    title: above everything, may be empty.
    notes: below everything, either may be empty.
  """
  top = 50 if title else _MARGIN
  grid = _grid(panels, len(marks), pictures.shape[1], top)
  words = ((title, _TITLE), *((note, _NOTE) for note in notes))
  widest = max(writing.width_of(*line) for line in words) + _MARGIN
  width = max(grid.size[0], widest) + _MARGIN
  height = grid.size[1] + _LOW * sum(map(bool, notes))
  figure, page = writing.page(width, height)
  page.set(xlim=(0, width), ylim=(height, 0))
  for left in grid.lefts:
    _draw_frames(page, pictures, marks, (left, top), grid.cell)
  for index, panel in enumerate(panels):
    row, column = divmod(index, grid.columns)
    place = (grid.lefts[column], grid.tops[row])
    _place_panel(page, panel, marks, place, grid)
  page.text(_MARGIN, 30, writing.literal(title), size=_TITLE)
  y = grid.size[1]
  for note, colour in zip(notes, (_MARK, 'black'), strict=True):
    page.text(_MARGIN, y, writing.literal(note), size=_NOTE, color=colour)
    y += _LOW if note else 0
  return figure


def _draw_frames(
  page: Axes,
  pictures: np.ndarray,
  marks: np.ndarray,
  place: tuple[int, int],
  cell: int,
) -> None:
  """Draws frames at the centres of their places, with numbers and marks."""
  room = cell - (4 if cell >= 24 else 2 if cell >= 8 else 0)
  scale = min(1.0, room / max(pictures.shape[1:3]))
  h, w = (max(1, round(scale * side)) for side in pictures.shape[1:3])
  x, y = place[0], place[1] + _ABOVE_FRAMES
  for number in heat_maps.ticks(len(marks), cell, first=1):
    middle = x + (number - 0.5) * cell
    page.text(middle, y - 6, f'{number}', size=_NUMBER, ha='center')
  strip = np.full((h, cell * len(pictures), 3), 255, np.uint8)
  # NaN becomes white. Rounds here, because matplotlib rounds bytes down.
  shown = np.round(255 * np.nan_to_num(pictures, nan=1.0)).astype(np.uint8)
  for frame, picture in enumerate(shown):
    small = Image.fromarray(picture).resize((w, h), Image.Resampling.BOX)
    left = frame * cell + (cell - w) // 2
    strip[:, left : left + w] = np.asarray(small)
    if marks[frame]:
      _draw_mark(page, (x + left, y + h + 2, w))
  axes = _axes(page, (x, y, strip.shape[1], h))
  axes.imshow(strip, aspect='auto', interpolation='nearest')
  axes.set_axis_off()


def _place_panel(
  page: Axes,
  panel: Panel,
  marks: np.ndarray,
  place: tuple[int, int],
  grid: _Grid,
) -> None:
  """Draws a heat map with its title, its scale and marks above its columns."""
  x, y = place
  count, rows = panel.values.shape
  is_timed = panel.columns == 'frame'
  cell = grid.cell if is_timed else grid.width // count
  width, height = cell * count, heat_maps.row_height(panel) * rows
  bar = (x + width + _BAR_GAP, y, _BAR, max(_SHORT, height))
  axes = _axes(page, (x, y, width, height))
  heat_maps.draw(axes, _axes(page, bar), panel, cell)
  page.text(x, y - 14, writing.literal(panel.title), size=_PANEL)
  words = writing.width_of(panel.title + panel.meaning, _PANEL)
  end = x + max(width + _BESIDE - 12, words + 24)
  meaning = writing.literal(panel.meaning)
  page.text(end, y - 14, meaning, size=_NOTE, ha='right')
  for frame in np.flatnonzero(marks) if is_timed else ():
    _draw_mark(page, (x + frame * cell, y - 2 - _LINE, cell))


def _draw_mark(page: Axes, box: tuple[int, int, int]) -> None:
  """Draws a line of whole pixels in a box: left, top, width."""
  left, top, width = box
  page.add_patch(
    Rectangle(
      (left, top), width, _LINE, color=_MARK, linewidth=0, antialiased=False
    )
  )


def _axes(page: Axes, box: tuple[int, int, int, int]) -> Axes:
  """Adds axes in a box of pixels: left, top, width, height."""
  figure: Any = page.figure
  (_, width), (height, _) = page.get_xlim(), page.get_ylim()
  left, top, across, down = box
  return figure.add_axes(
    (left / width, 1 - (top + down) / height, across / width, down / height)
  )
