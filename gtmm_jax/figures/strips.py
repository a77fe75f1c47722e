"""Strips: episodes, reconstructions and dreams as rows of frames."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gtmm_jax.figures import appearance, pixels, writing

_MARK = (0.835, 0.369, 0.0)
# In pixels: space between frames, below them for the mark and for the caption,
# above them for the number, above the numbers for the names of spans, above a
# row that is apart, and at the bottom for each note.
_GAP, _LINE, _CAPTION, _NUMBER, _SPAN, _APART, _NOTE = 4, 5, 19, 22, 24, 18, 22
# Font sizes in points: of a caption, a number or note, a name, the title.
_TINY, _SMALL, _NAME, _TITLE = 6, 7, 8, 10


class Row(NamedTuple):
  """Frames side by side; rows of one strip may differ in T.

  Attributes:
    name: drawn left of the frames.
    frames: `[T, H, W, C]`, C 1 or 3, values in [0, 1], to which others are
      clipped. NaN is left white; a frame of NaN is an empty place without mark
      and caption.
    marks: `[T]`: true if a frame is predictable. Such frames are underlined.
    captions: T short texts in small letters below the frames, each may be
      empty; None leaves no space for them.
    is_apart: whether there is more space above the row, as for a new episode.
  """

  name: str
  frames: np.ndarray
  marks: np.ndarray | None = None
  captions: Sequence[str] | None = None
  is_apart: bool = False


class Span(NamedTuple):
  """Frames that have a name, such as those that a model has observed.

  Attributes:
    name: written above the numbers of the frames, over a line.
    frames: from the first to the last.
    colour: of the name and the line.
  """

  name: str
  frames: range
  colour: str


@appearance.fixed()
def strip_figure(
  rows: Sequence[Row],
  title: str | None = None,
  note: str | None = None,
  columns: int = 25,
  turn: int | None = None,
  spans: Sequence[Span] = (),
) -> Figure:
  """Draws rows of frames, one below the other, pixel by pixel.

  Frames are numbered from 1 above the first row. Rows longer than `columns`
  continue in further blocks below, as `blocks` divides them. Large frames are
  subsampled to every second (or third, ...) pixel.

  Args:
    rows: one or more, with frames of the same height and width.
    title: a line above the frames.
    note: a line below them.
    columns: greatest number of frames side by side, at least 1.
    turn: index of a frame at which a block begins if there are several, such as
      the first frame that a dream generates.
    spans: names of frames; they do not overlap.

  Raises:
    ValueError: there are no frames, `columns` is not as above, or a row is not
      as `Row` describes.
  """
  drawn = [_checked(row) for row in rows]
  if not any(len(row.frames) for row in drawn):
    raise ValueError('There are no frames to draw: give a row with some.')
  if len({np.shape(row.frames)[1:3] for row in rows}) > 1:
    shapes = [f'{row.name} {np.shape(row.frames)}' for row in rows]
    raise ValueError(
      f'The rows of a strip are {shapes}; their frames must have the same '
      'height and width.'
    )
  if columns < 1:
    raise ValueError(f'columns is {columns}; it must be at least 1.')
  length = max(len(row.frames) for row in drawn)
  wrapped = blocks(length, columns, turn)
  return _lay_out(drawn, title or '', note or '', wrapped, spans)


def blocks(length: int, columns: int, turn: int | None = None) -> list[range]:
  """Divides the frames of a long strip into blocks of about equal length.

  Args:
    length: number of frames.
    columns: greatest number of frames in a block, at least 1.
    turn: index of a frame at which a block begins, unless all frames fit into
      one. With a turn at 15, 30 frames are divided into 15 and 15 even if a
      block has room for 25.

  Returns:
    The frames of each block.
  """
  turn = 0 if turn is None or length <= columns else max(0, min(turn, length))
  ranges = []
  for start, end in ((0, turn), (turn, length)):
    count = -(-(end - start) // columns)
    ends = [
      start + (end - start) * n // max(1, count) for n in range(count + 1)
    ]
    ranges += [range(*each) for each in itertools.pairwise(ends)]
  return ranges


def _checked(row: Row) -> Row:
  """Checks a row; returns it with frames to draw, marks and captions."""
  frames = pixels.as_rgb(row.name, row.frames)
  length = len(frames)
  marks, captions = row.marks, row.captions
  marks = np.zeros(length, bool) if marks is None else np.asarray(marks, bool)
  captions = [''] * length if captions is None else list(captions)
  if marks.shape != (length,):
    raise ValueError(
      f'The marks of the row {row.name!r} have shape {marks.shape}, but it '
      f'must be ({length},): one mark for each frame of the row.'
    )
  if len(captions) != length:
    raise ValueError(
      f'The row {row.name!r} has {len(captions)} captions, but must have '
      f'{length}: one for each of its frames, empty ones included.'
    )
  return Row(row.name, frames, marks, captions, row.is_apart)


class _Place(NamedTuple):
  row: int
  frames: range
  y: int  # Upper edge, in pixels from the top.
  numbers: range  # Frames of the block in its first row; empty in the others.


def _places(
  rows: Sequence[Row], wrapped: Sequence[range], top: int, above: int
) -> tuple[list[_Place], int]:
  """Places each row of each block; also returns where the last one ends.

  A row without frames in a block takes no place there. Above the first row of
  a block there are `above` pixels.
  """
  places, y = [], top
  for block in wrapped:
    shown = [
      (index, range(block.start, min(block.stop, len(row.frames))))
      for index, row in enumerate(rows)
      if not np.isnan(row.frames[block.start : block.stop]).all()
    ]
    numbers = max((frames for _, frames in shown), key=len, default=range(0))
    y += above if shown else 0
    for index, frames in shown:
      y += _APART if rows[index].is_apart and index != shown[0][0] else 0
      places.append(_Place(index, frames, y, numbers))
      numbers = range(0)
      y += rows[index].frames.shape[1] + _LINE + _GAP
      y += _CAPTION if any(rows[index].captions) else 0
    y += 12
  return places, y


def _lay_out(
  rows: Sequence[Row],
  title: str,
  note: str,
  wrapped: Sequence[range],
  spans: Sequence[Span],
) -> Figure:
  """Draws checked rows on axes whose unit is the pixel."""
  columns = max(map(len, wrapped))
  left = 20 + max(writing.width_of(row.name, _NAME) for row in rows)
  texts = {(text, _TINY) for row in rows for text in row.captions}
  texts |= {(f'{wrapped[-1].stop}', _SMALL)}
  # Wide enough that neighbouring frames, numbers and captions do not touch.
  step = _GAP + max(
    rows[0].frames.shape[2], *(writing.width_of(*text) for text in texts)
  )
  above = _NUMBER + (_SPAN if spans else 0)
  places, bottom = _places(rows, wrapped, 44 if title else 12, above)
  is_marked = any(row.marks.any() for row in rows)
  legend = 'underlined: predictable from the past' if is_marked else ''
  notes = [each for each in ((legend, _MARK), (note, 'black')) if each[0]]
  size = (
    bottom + _NOTE * len(notes),
    max(
      left + columns * step + 12,
      writing.width_of(title, _TITLE) + 24,
      *(left + writing.width_of(text, _SMALL) + 12 for text, _ in notes),
    ),
  )
  figure, axes = writing.page(size[1], size[0])
  canvas = np.ones((*size, 3))
  for place in places:
    _draw_row(axes, canvas, rows[place.row], place, left, step)
    _draw_spans(axes, spans, place, left, step)
  if title:
    axes.text(12, 28, writing.literal(title), size=_TITLE)
  for line, (text, colour) in enumerate(notes):
    y = bottom + 8 + _NOTE * line
    axes.text(left, y, writing.literal(text), size=_SMALL, color=colour)
  # Rounds here, because matplotlib rounds bytes down.
  canvas = np.round(canvas * 255).astype(np.uint8)
  # A little less than the figure, to which matplotlib 3.10 would add a pixel.
  hair = 1e-6
  extent = (hair, size[1] - hair, size[0] - hair, hair)
  axes.imshow(canvas, extent=extent, interpolation='nearest')
  axes.set(xlim=(0, size[1]), ylim=(size[0], 0), aspect='auto')
  return figure


def _draw_row(
  axes: Axes, canvas: np.ndarray, row: Row, place: _Place, left: int, step: int
) -> None:
  """Draws a row of a block: texts on axes, pixels on a canvas.

  Args:
    axes: with pixels as units.
    canvas: all pixels, changed in place.
    row: from `_checked`.
    place: of the row.
    left: left edge of the first frame's place.
    step: distance from one frame's place to the next.
  """
  height, width = row.frames.shape[1:3]
  y = place.y
  name = writing.literal(row.name)
  axes.text(left - 8, y + height / 2, name, size=_NAME, ha='right', va='center')
  left += (step - _GAP - width) // 2
  for column, number in enumerate(place.numbers):
    x = left + column * step
    axes.text(x + width / 2, y - 5, f'{number + 1}', size=_SMALL, ha='center')
  for column, frame in enumerate(place.frames):
    x = left + column * step
    picture = row.frames[frame]
    if np.isnan(picture).all():
      continue
    canvas[y : y + height, x : x + width] = np.nan_to_num(picture, nan=1.0)
    line = y + height + 1
    if row.marks[frame]:
      canvas[line : line + _LINE - 1, x : x + width] = _MARK
    if row.captions[frame]:
      caption = writing.literal(row.captions[frame])
      bottom = line + _LINE + 10
      axes.text(x + width / 2, bottom, caption, size=_TINY, ha='center')


def _draw_spans(
  axes: Axes, spans: Sequence[Span], place: _Place, left: int, step: int
) -> None:
  """Draws the names of spans above the numbers of a block, if it has any."""
  for span in spans:
    columns = [
      column
      for column, number in enumerate(place.numbers)
      if number in span.frames
    ]
    if columns:
      ends = left + columns[0] * step, left + (columns[-1] + 1) * step - _GAP
      y = place.y - _NUMBER
      axes.plot(ends, (y, y), color=span.colour, linewidth=1.5)
      name = writing.literal(span.name)
      axes.text(ends[0], y - 5, name, size=_SMALL, color=span.colour)
