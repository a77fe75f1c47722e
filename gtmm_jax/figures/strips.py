"""Strips: episodes, reconstructions and dreams, frame beside frame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from gtmm_jax.figures import writing

_MARK = (0.835, 0.369, 0.0)
# Pixels between frames, below them for the mark, above them for the number.
_GAP, _LINE, _NUMBER = 4, 5, 22


def draw_strip(
  rows: Sequence[tuple[str, np.ndarray]],
  stem: str | os.PathLike[str],
  marks: np.ndarray | None = None,
  title: str | None = None,
  columns: int = 25,
) -> list[Path]:
  """Writes `strip_figure` to `<stem>.png` and `<stem>.pdf`.

  Returns:
    The two paths. Their folder is made where there is none.

  Raises:
    ValueError: as `strip_figure`.
  """
  return writing.save(
    strip_figure(rows, marks, title, columns), stem, palette=False
  )


def strip_figure(
  rows: Sequence[tuple[str, np.ndarray]],
  marks: np.ndarray | None = None,
  title: str | None = None,
  columns: int = 25,
) -> Figure:
  """Draws rows of frames one above the other, pixel for pixel.

  Frames are numbered from 1 above the first row. Rows longer than `columns`
  go on in further blocks below. Large frames are thinned to every second (or
  third, ...) pixel.

  Args:
    rows: a name and frames `[T, H, W, C]` for each row, C 1 or 3, values in
      [0, 1], clipped to it. Rows may differ in T; NaN is left white, so that
      a frame of NaN is an empty place.
    marks: `[T]`, T of the longest row: true where a frame is predictable.
      Such frames are underlined.
    title: a line above the frames.
    columns: the greatest number of frames side by side, at least 1.

  Raises:
    ValueError: there are no frames, their shapes or values are not as above,
      or `marks` or `columns` is not.
  """
  strips = [as_rgb(name, frames) for name, frames in rows]
  length = max((len(strip) for strip in strips), default=0)
  if not length:
    raise ValueError('There are no frames to draw: give a row with some.')
  if len({np.shape(frames)[1:3] for _, frames in rows}) > 1:
    shapes = [f'{name} {np.shape(frames)}' for name, frames in rows]
    raise ValueError(
      f'Rows of one strip share a height and a width, but are {shapes}.'
    )
  if columns < 1:
    raise ValueError(f'columns is {columns}, but must be at least 1.')
  marks = np.zeros(length, bool) if marks is None else np.asarray(marks, bool)
  if marks.shape != (length,):
    raise ValueError(
      f'marks has shape {marks.shape}, but must be ({length},): one mark for '
      'each frame of the longest row.'
    )
  return _lay_out([name for name, _ in rows], strips, marks, title, columns)


class _Place(NamedTuple):
  row: int
  frames: range
  y: int  # Of the upper edge, in pixels from the top.
  numbers: range  # Of the block, at its first row; none at the others.


def _places(
  strips: Sequence[np.ndarray], columns: int, top: int
) -> tuple[list[_Place], int]:
  """Where each row of each block goes, and where the last one ends.

  A row that has nothing to show in a block takes no place there.
  """
  places, y = [], top
  for start in range(0, max(map(len, strips)), columns):
    shown = [
      (row, range(start, min(start + columns, len(strip))))
      for row, strip in enumerate(strips)
      if not np.isnan(strip[start : start + columns]).all()
    ]
    numbers = max((frames for _, frames in shown), key=len, default=range(0))
    y += _NUMBER if shown else 0
    for row, frames in shown:
      places.append(_Place(row, frames, y, numbers))
      numbers = range(0)
      y += strips[row].shape[1] + _LINE + _GAP
    y += 12
  return places, y


def _lay_out(
  names: list[str],
  strips: list[np.ndarray],
  marks: np.ndarray,
  title: str | None,
  columns: int,
) -> Figure:
  """Draws frames, names and numbers on axes whose unit is the pixel."""
  columns = min(columns, len(marks))
  height, width = strips[0].shape[1:3]
  left = 20 + max(writing.width_of(name, 8) for name in names)
  places, bottom = _places(strips, columns, top=44 if title else 12)
  note = 'underlined: predictable from the past' if marks.any() else ''
  size = (
    bottom + (22 if note else 0),
    max(
      left + columns * (width + _GAP) + 12,
      writing.width_of(title or '', 10) + 24,
      left + writing.width_of(note, 7) + 12,
    ),
  )
  # A little more, for a quotient that rounds down would lose a whole pixel.
  inches = [(pixels + 1e-6) / writing.DPI for pixels in (size[1], size[0])]
  figure = Figure(figsize=inches, dpi=writing.DPI)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_axis_off()
  canvas = np.ones((*size, 3))
  for row, frames, y, numbers in places:
    name = writing.literal(names[row])
    axes.text(left - 8, y + height / 2, name, size=8, ha='right', va='center')
    for column, number in enumerate(numbers):
      x = left + column * (width + _GAP) + width / 2
      axes.text(x, y - 5, f'{number + 1}', size=7, ha='center')
    for column, frame in enumerate(frames):
      x = left + column * (width + _GAP)
      picture = strips[row][frame]
      if not np.isnan(picture).all():
        canvas[y : y + height, x : x + width] = np.nan_to_num(picture, nan=1.0)
        if marks[frame]:
          line = y + height + 1
          canvas[line : line + _LINE - 1, x : x + width] = _MARK
  if title:
    axes.text(12, 28, writing.literal(title), size=10)
  if note:
    axes.text(left, size[0] - 14, note, size=7, color=_MARK)
  # Matplotlib would round bytes down.
  canvas = np.round(canvas * 255).astype(np.uint8)
  axes.imshow(canvas, extent=(0, size[1], size[0], 0), interpolation='nearest')
  return figure


def as_rgb(name: str, frames: np.ndarray) -> np.ndarray:
  """Frames as [T, H, W, 3] in [0, 1], of a size to be looked at."""
  array = np.asarray(frames)
  if array.ndim != 4 or array.shape[-1] not in (1, 3) or 0 in array.shape[1:]:
    raise ValueError(
      f'The row {name!r} has shape {array.shape}, but must be [T, H, W, C] '
      'with C 1 (grey) or 3 (colour).'
    )
  if array.dtype.kind in 'iu' and array.size and array.max() > 1:
    raise ValueError(
      f'The row {name!r} has whole numbers up to {array.max()}, but must lie '
      'in [0, 1]: divide bytes by 255.'
    )
  side = max(array.shape[1:3])
  thinned = array[:, :: max(1, side // 64), :: max(1, side // 64)]
  scale = max(1, round(56 / side))
  large = thinned.repeat(scale, axis=1).repeat(scale, axis=2)
  clipped = np.clip(large.astype(np.float64), 0, 1)
  return np.broadcast_to(clipped, (*clipped.shape[:3], 3))
