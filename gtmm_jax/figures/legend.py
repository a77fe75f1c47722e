"""The legend of a figure of results: its runs and its other marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gtmm_jax.figures import words, writing
from gtmm_jax.figures.curves import Run, alive

_FONT_SIZE = 9  # In points.


def entries(
  runs: Sequence[Run], styles: Sequence[dict[str, Any]]
) -> dict[str, Line2D]:
  """Makes a line for each run, by label; some labels count replicas left."""
  lines = {}
  for run, style in zip(runs, styles, strict=True):
    is_alive = alive(run)
    count = f' ({is_alive.sum()} of {is_alive.size} replicas)'
    label = writing.literal(words.in_print(run.label))
    lines[label + ('' if is_alive.all() else count)] = Line2D([], [], **style)
  return lines


def add(figure: Figure, handles: dict[str, Line2D | Patch]) -> None:
  """Adds a legend at the bottom of a figure.

  Args:
    figure: with a constrained layout.
    handles: by their labels, in reading order.
  """
  # One row if all fit; otherwise as many columns as the widest label allows.
  widths = [writing.width_of(label, _FONT_SIZE) + 90 for label in handles]
  page = int(0.96 * figure.get_figwidth() * writing.DPI)
  columns = len(widths) if sum(widths) < page else page // max(widths)
  legend = figure.legend(
    list(handles.values()),
    # matplotlib leaves out labels that begin with an underscore.
    [f'entry {index}' for index in range(len(handles))],
    loc='outside lower center',
    ncols=max(1, columns),
    frameon=False,
    fontsize=_FONT_SIZE,
  )
  for text, label in zip(legend.get_texts(), handles, strict=True):
    text.set_text(label)
