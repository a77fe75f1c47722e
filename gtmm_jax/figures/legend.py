"""The legend of a figure of results: runs, and what other marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gtmm_jax.figures import words, writing
from gtmm_jax.figures.curves import Run, alive

_LETTERS = 9  # Their size in points.


def entries(
  runs: Sequence[Run], styles: Sequence[dict[str, Any]]
) -> dict[str, Line2D]:
  """Makes a line for each run, by its label and the replicas that are left."""
  found = {}
  for run, style in zip(runs, styles, strict=True):
    kept = alive(run)
    left = '' if kept.all() else f' ({kept.sum()} of {kept.size} replicas)'
    label = writing.literal(words.in_print(run.label)) + left
    found[label] = Line2D([], [], **style)
  return found


def add(figure: Figure, handles: dict[str, Line2D | Patch]) -> None:
  """Adds a legend below everything.

  Args:
    figure: with a constrained layout.
    handles: by their labels, in the order of reading.
  """
  # One row if it fits, or as the widest label lets.
  widths = [writing.width_of(label, _LETTERS) + 90 for label in handles]
  page = int(0.96 * figure.get_figwidth() * writing.DPI)
  columns = len(widths) if sum(widths) < page else page // max(widths)
  legend = figure.legend(
    list(handles.values()),
    # The legend leaves out labels that begin with an underscore.
    [f'entry {index}' for index in range(len(handles))],
    loc='outside lower center',
    ncols=max(1, columns),
    frameon=False,
    fontsize=_LETTERS,
  )
  for text, label in zip(legend.get_texts(), handles, strict=True):
    text.set_text(label)
