"""Panels: heat maps of a memory's contents, reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from gtmm_jax.figures import writing
from gtmm_jax.figures.curves import numbers

# Perceptually uniform; both are darkest at 0.
_SEQUENTIAL, _DIVERGING = 'viridis', 'berlin'
_FONT_SIZE = 7  # In points.
# In pixels: approximate height of a panel with many rows, greatest height of a
# row.
_TALL, _ROW = 240, 18


class Panel(NamedTuple):
  """One heat map.

  Attributes:
    title: of the panel.
    values: `[T, Y]`, one column per frame and one row per slot, head or gate;
      values that are not finite are left white.
    rows: the kind of row, such as 'slot', to number rows from 0 at the top; or
      a name for each row.
    meaning: of the colours, with the unit if there is one.
    limits: values of the outermost colours, to which others are clipped; None
      means 0 and the greatest value or, with negative values, minus and plus
      the greatest magnitude.
    columns: the kind of column. 'frame' numbers columns from 1 and aligns them
      with the frames; any other word numbers them from 0, for values `[X, Y]`.
  """

  title: str
  values: np.ndarray
  rows: str | Sequence[str]
  meaning: str
  limits: tuple[float, float] | None = None
  columns: str = 'frame'


def checked(panel: Panel, length: int) -> Panel:
  """Checks a panel and returns it with finite or NaN floats and with limits.

  Args:
    panel: to check.
    length: T, the number of frames.

  Raises:
    ValueError: its values, names or limits are not as `Panel` describes.
  """
  where = f'The panel {panel.title!r}'
  values = numbers(panel.values)
  if values.ndim != 2 or 0 in values.shape:
    raise ValueError(
      f'{where} has values of shape {values.shape}, but they must be '
      '[columns, rows] with at least one of each.'
    )
  if panel.columns == 'frame' and len(values) != length:
    raise ValueError(
      f'{where} has {len(values)} columns for {length} frames; there must be '
      'one for each.'
    )
  if not isinstance(panel.rows, str) and len(panel.rows) != values.shape[1]:
    raise ValueError(
      f'{where} has {len(panel.rows)} names for {values.shape[1]} rows; give '
      'a name for each row, or one word for all.'
    )
  limits = panel.limits
  if limits is None:
    shown = np.nan_to_num(values)
    greatest = float(np.abs(shown).max()) or 1.0
    limits = (-greatest if shown.min() < 0 else 0.0, greatest)
  is_pair = len(limits) == 2 and np.isfinite(limits).all()
  if not (is_pair and limits[0] < limits[1]):
    raise ValueError(
      f'{where} has limits {limits}, but they must be two finite numbers, the '
      'smaller first.'
    )
  return panel._replace(values=values, limits=limits)


def row_height(panel: Panel) -> int:
  """Returns the height of a row in whole pixels, so that rows look alike."""
  if not isinstance(panel.rows, str):
    return _ROW  # High enough for its name.
  return min(_ROW, max(1, round(_TALL / panel.values.shape[1])))


def draw(axes: Axes, bar: Axes, panel: Panel, cell: int) -> None:
  """Draws a checked panel on `axes`, and its scale on `bar`.

  Args:
    axes: `cell` pixels wide per column and `row_height` pixels high per row.
    bar: of the same height or, beside a low panel, higher.
    panel: from `checked`.
    cell: width of a column in pixels.
  """
  count, rows = panel.values.shape
  first = 1 if panel.columns == 'frame' else 0
  image = axes.imshow(
    panel.values.T,
    cmap=_DIVERGING if panel.limits[0] < 0 else _SEQUENTIAL,
    vmin=panel.limits[0],
    vmax=panel.limits[1],
    extent=(first - 0.5, first + count - 0.5, rows - 0.5, -0.5),
    aspect='auto',
    interpolation='nearest',
  )
  axes.set_xticks(ticks(count, cell, first))
  axes.set_xlabel(writing.literal(panel.columns), size=_FONT_SIZE, labelpad=2)
  height = row_height(panel)
  if isinstance(panel.rows, str):
    # A line of text is higher than a digit is wide.
    axes.set_yticks(ticks(rows, 1.6 * height, first=0))
    axes.set_ylabel(writing.literal(panel.rows), size=_FONT_SIZE)
  else:
    axes.set_yticks(range(rows), [writing.literal(name) for name in panel.rows])
  low, high = panel.limits
  shown = [low, high] if rows * height < 90 else [low, (low + high) / 2, high]
  axes.figure.colorbar(image, cax=bar, ticks=shown)
  bar.set_yticks(shown, [_number(value, panel) for value in shown])
  for each in (axes, bar):
    each.tick_params(labelsize=_FONT_SIZE, length=2, pad=2)


def _number(value: float, panel: Panel) -> str:
  """Writes a number of the scale, with ≥ or ≤ if values are clipped to it."""
  low, high = panel.limits
  rounding = 1e-5 * (high - low)
  sign = ''
  if value == high and np.nanmax(panel.values, initial=high) > high + rounding:
    sign = '≥ '
  if value == low and np.nanmin(panel.values, initial=low) < low - rounding:
    sign = '≤ '
  return f'{sign}{value:.3g}'.replace('-', '\N{MINUS SIGN}')


def ticks(count: int, cell: float, first: int) -> list[int]:
  """Chooses the cells that are numbered.

  Args:
    count: number of cells, at least 1.
    cell: width of a cell in pixels.
    first: number of the first cell, 0 or 1.

  Returns:
    Numbers at distances of 1, 2, 5, 10, ..., far enough not to touch.
  """
  room = writing.width_of(str(first + count - 1), _FONT_SIZE) + 6
  step = next(
    step
    for power in range(9)
    for step in (10**power, 2 * 10**power, 5 * 10**power)
    if step * cell >= room or step >= count
  )
  end = first + count
  if first and step > 2:
    return [first, *range(step, end, step)]
  return list(range(first, end, step))
