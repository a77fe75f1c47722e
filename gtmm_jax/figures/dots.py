"""Dots with intervals: the results of many runs, one row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gtmm_jax.figures import appearance, legend, words, writing

_DOT = {'marker': 'o', 'markersize': 4, 'color': '#0072B2'}
_RING = {
  'marker': 'o',
  'markersize': 3.5,
  'markerfacecolor': 'none',
  'markeredgecolor': '0.6',
}
_FIRST = {'color': '0.75', 'linewidth': 0.8}
# In pixels: width of a panel, space beside it, height of a row, space above and
# below all rows.
_PANEL, _SPACE, _ROW, _ENDS = 330, 40, 34, 190
_FONT_SIZE = 8  # In points.


class Dot(NamedTuple):
  """The result of one run.

  Attributes:
    mean: over replicas.
    interval: the ends of its 95% interval, None for a single replica.
    replicas: the value of each replica; values that are not finite are left
      out.
  """

  mean: float
  interval: tuple[float, float] | None
  replicas: Sequence[float | None] = ()


@appearance.fixed()
def dots_figure(
  panels: Mapping[str, Mapping[str, Dot | None]],
  title: str,
) -> Figure:
  """Draws means as dots, their intervals as bars, replicas as small rings.

  There is one panel per task, side by side, and one row for each label in any
  panel, in their order from the top. A vertical line through the dot of the
  first row is the reference for the other rows.

  Args:
    panels: by the name of each task, dots by their labels, which `in_print`
      puts into words; the place of None or of an absent label is left empty.
    title: names the values, a line above everything.

  Raises:
    ValueError: there are no panels, or none has a dot.
  """
  labels = list(
    dict.fromkeys(label for each in panels.values() for label in each)
  )
  if not any(dot for each in panels.values() for dot in each.values()):
    raise ValueError('There are no dots to draw: give a panel with some.')
  wording = [writing.literal(words.in_print(label)) for label in labels]
  left = max(writing.width_of(text, _FONT_SIZE) for text in wording) + 30
  size = (
    left + len(panels) * (_PANEL + _SPACE),
    len(labels) * _ROW + _ENDS,
  )
  figure = Figure(
    figsize=[pixels / writing.DPI for pixels in size],
    dpi=writing.DPI,
    layout='constrained',
  )
  figure.suptitle(writing.literal(title), fontsize=10)
  all_axes = np.ravel(figure.subplots(1, len(panels), sharex=True, sharey=True))
  for axes, (name, dots) in zip(all_axes, panels.items(), strict=True):
    _draw(axes, [dots.get(label) for label in labels])
    axes.set_title(writing.literal(name), size=9)
  all_axes[0].set_yticks(range(len(labels)), wording)
  all_axes[0].set_ylim(len(labels) - 0.5, -0.5)
  all_axes[0].set_xlim(left=min(0.0, all_axes[0].get_xlim()[0]))
  handles = {wording[0]: Line2D([], [], **_FIRST)}
  every = [dot for each in panels.values() for dot in each.values() if dot]
  if any(dot.interval is not None for dot in every):
    handles['mean over replicas, 95% t interval'] = Line2D([], [], **_DOT)
    handles['each replica'] = Line2D([], [], linestyle='', **_RING)
  legend.add(figure, handles)
  return figure


def _draw(axes: Axes, dots: Sequence[Dot | None]) -> None:
  """Draws the rows of one panel."""
  if dots and dots[0] is not None:
    axes.axvline(dots[0].mean, zorder=0, **_FIRST)
  for row, dot in enumerate(dots):
    if dot is None:
      continue
    values = np.array(dot.replicas, np.float64)
    values = values[np.isfinite(values)]
    axes.plot(values, np.full(len(values), row), linestyle='', **_RING)
    bar = dot.interval and np.abs(np.subtract(dot.interval, dot.mean))[:, None]
    axes.errorbar(dot.mean, row, xerr=bar, elinewidth=1.6, capsize=2.5, **_DOT)
  axes.spines[['top', 'right']].set_visible(False)
  axes.tick_params(labelsize=_FONT_SIZE)
  axes.tick_params(axis='y', length=0)
  axes.grid(axis='y', color='0.93', linewidth=0.8)
  axes.set_axisbelow(True)
