"""Panels: heat maps of what a memory holds, reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from gtmm_jax.figures import writing
from gtmm_jax.figures.curves import numbers

# Perceptually uniform; both are darkest where there is nothing.
_SEQUENTIAL, _DIVERGING = 'viridis', 'berlin'
_LETTERS = 7  # Their size in points.
# In pixels: a panel with many rows, about, and a row at most.
_TALL, _ROW = 240, 18


class Panel(NamedTuple):
  """One heat map.

  Attributes:
    title: what it shows.
    values: `[T, Y]`, a column a frame and a row a slot, head or gate; what is
      not finite is left white.
    rows: what a row is, such as 'slot', numbered from 0 at the top; or a name
      for each row.
    meaning: of the colours, with the unit if there is one.
    limits: values of the outermost colours, to which others are clipped; None
      takes 0 and the greatest value, or, where there are negative ones, minus
      and plus the greatest magnitude.
    columns: what a column is. 'frame' numbers them from 1 and aligns them with
      the frames; any other word numbers them from 0: values are `[X, Y]`.
  """

  title: str
  values: np.ndarray
  rows: str | Sequence[str]
  meaning: str
  limits: tuple[float, float] | None = None
  columns: str = 'frame'


def checked(panel: Panel, length: int) -> Panel:
  """The panel with floats, NaN where they are not finite, and with limits.

  Args:
    panel: as given.
    length: T, the number of frames.

  Raises:
    ValueError: its values, names or limits are not as `Panel` has them.
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
      'each row one, or one word for all.'
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
  """Pixels of a row: a whole number, so that no row is lost or doubled."""
  if not isinstance(panel.rows, str):
    return _ROW  # As its name needs.
  return min(_ROW, max(1, round(_TALL / panel.values.shape[1])))


def draw(axes: Axes, bar: Axes, panel: Panel, cell: int) -> None:
  """Draws a checked panel on `axes`, and its scale on `bar`.

  Args:
    axes: of `cell` pixels for each column, `row_height` for each row.
    bar: as high or, beside a low panel, higher.
    panel: checked.
    cell: pixels of a column.
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
  axes.set_xlabel(writing.literal(panel.columns), size=_LETTERS, labelpad=2)
  height = row_height(panel)
  if isinstance(panel.rows, str):
    # A line of letters is higher than a digit is wide.
    axes.set_yticks(ticks(rows, 1.6 * height, first=0))
    axes.set_ylabel(writing.literal(panel.rows), size=_LETTERS)
  else:
    axes.set_yticks(range(rows), [writing.literal(name) for name in panel.rows])
  low, high = panel.limits
  shown = [low, high] if rows * height < 90 else [low, (low + high) / 2, high]
  axes.figure.colorbar(image, cax=bar, ticks=shown)
  bar.set_yticks(shown, [_number(value, panel) for value in shown])
  for drawn in (axes, bar):
    drawn.tick_params(labelsize=_LETTERS, length=2, pad=2)


def _number(value: float, panel: Panel) -> str:
  """A number beside the scale; its ends say where colours hold more."""
  low, high = panel.limits
  rounding = 1e-5 * (high - low)
  sign = ''
  if value == high and np.nanmax(panel.values, initial=high) > high + rounding:
    sign = '≥ '
  if value == low and np.nanmin(panel.values, initial=low) < low - rounding:
    sign = '≤ '
  return f'{sign}{value:.3g}'.replace('-', '\N{MINUS SIGN}')


def ticks(count: int, cell: float, first: int) -> list[int]:
  """Which of `count` cells from `first` on are numbered.

  Args:
    count: of cells, at least 1.
    cell: pixels of one.
    first: number of the first, 0 or 1.

  Returns:
    Numbers at distances of 1, 2, 5, 10, ..., so that they do not touch.
  """
  room = writing.width_of(str(first + count - 1), _LETTERS) + 6
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
