"""Replicas as dots: a small drawing below each mean of the table."""

from collections.abc import Mapping, Sequence

import numpy as np

from reporting.elements import Html, tag
from studies import statistics
from studies.outcomes import METRICS, Row

# In units of the drawing: its width, the room for dots, and all of its height.
_WIDTH, _LINE, _HEIGHT = 120, 12, 22
_EDGE = 5

Ends = Mapping[tuple[str, str], tuple[float, float]]


def ends(rows: Sequence[Row]) -> Ends:
  """Returns the least and the greatest replica, by task and metric."""
  values: dict[tuple[str, str], list[float]] = {}
  for row in rows:
    for metric in METRICS:
      column = np.ravel(row.values.get(metric, ()))
      finite = column[np.isfinite(column)].tolist()
      values.setdefault((row.task, metric), []).extend(finite)
  return {key: (min(each), max(each)) for key, each in values.items() if each}


def strip(row: Row, metric: str, scale: tuple[float, float]) -> Html:
  """Draws the replicas of a row as dots, their mean and its interval.

  Args:
    row: with a finite value of the metric.
    metric: its name.
    scale: values at the left and the right end; an interval that goes on
      beyond them is cut.
  """
  values = np.asarray(row.values[metric])
  mean = statistics.mean(values)
  parts = [
    _line(_EDGE, _WIDTH - _EDGE, _LINE / 2, class_='axis'),
    *(
      tag('circle', cx=_place(each, scale), cy=f'{_LINE / 2:g}', r='3')
      for each in values[np.isfinite(values)]
    ),
  ]
  if mean.interval is not None:
    low, high = (_place(end, scale) for end in mean.interval)
    parts.append(_line(low, high, _LINE / 2, class_='interval'))
  middle = _place(mean.mean, scale)
  parts.append(
    tag('line', x1=middle, x2=middle, y1='1', y2=f'{_LINE - 1}', class_='mean')
  )
  for x, anchor, value in (
    (0, 'start', scale[0]),
    (_WIDTH, 'end', scale[1]),
  ):
    parts.append(
      tag('text', _short(value), x=x, y=_HEIGHT - 1, text_anchor=anchor)
    )
  told = ', '.join(f'{each:.6g}' for each in values)
  return tag(
    'svg',
    tag('title', f'Replicas: {told}'),
    *parts,
    viewBox=f'0 0 {_WIDTH} {_HEIGHT}',
    class_='strip',
    role='img',
  )


def _line(x1: float, x2: float, y: float, **more: str) -> Html:
  return tag('line', x1=x1, x2=x2, y1=f'{y:g}', y2=f'{y:g}', **more)


def _place(value: float, scale: tuple[float, float]) -> float:
  """Returns where a value is on the line, between its ends."""
  low, high = scale
  share = 0.5 if high == low else (value - low) / (high - low)
  room = _WIDTH - 2 * _EDGE
  return round(_EDGE + room * min(max(share, 0.0), 1.0), 1)


def _short(value: float) -> str:
  """Returns a number with three digits or its whole part."""
  return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'
