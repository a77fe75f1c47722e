"""Curves on axes: their colours, bands of errors, and shaded frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gtmm_jax.figures.curves import Curve, Run, limits, numbers

# Okabe and Ito's colours, which can be told apart with every kind of colour
# vision. Their yellow is left out: it is too pale for a line on white.
_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
)
_DASHES = ('-', '--', ':', '-.')  # The next one when the colours are used up.
PREDICTABLE = np.array((1.0, 0.94, 0.75))  # Red, green, blue: pale yellow.


def styles_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """Chooses a colour for each model, and dashes for each of its runs.

  With one model, or too many models or runs, goes by the order of runs.
  """
  names = [run.model or run.label for run in runs]
  kinds = list(dict.fromkeys(names))
  most = max(map(names.count, kinds))
  if len(kinds) == 1 or len(kinds) > len(_COLOURS) or most > len(_DASHES):
    turns = [divmod(index, len(_COLOURS)) for index in range(len(runs))]
  else:
    turns = [
      (names[:index].count(name), kinds.index(name))
      for index, name in enumerate(names)
    ]
  return [
    {
      'color': _COLOURS[colour],
      'linestyle': _DASHES[turn % len(_DASHES)],
      'linewidth': 1.4,
    }
    for turn, colour in turns
  ]


def draw_frames(
  axes: Axes, curves: Sequence[Curve | None], styles: Sequence[dict[str, Any]]
) -> list[Curve]:
  """Draws KL by frame; returns the curves that are not None."""
  drawn = draw(axes, curves, styles, markers=True)
  if drawn:
    ticks = MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(ticks)
    axes.set_xlim(0.5, max(len(curve.x) for curve in drawn) + 0.5)
    axes.set_ylim(*limits(drawn, settled=0.0, from_zero=True))
  return drawn


def draw(
  axes: Axes,
  curves: Sequence[Curve | None],
  styles: Sequence[dict[str, Any]],
  markers: bool,
) -> list[Curve]:
  """Draws and returns the curves that are not None, or writes 'no data'."""
  for curve, style in zip(curves, styles, strict=True):
    if curve is None:
      continue
    # The line of a single point would be invisible.
    dots = markers or np.isfinite(curve.mean).sum() == 1
    size = 3.5 if len(curve.x) <= 30 else 2.5
    axes.plot(
      curve.x,
      curve.mean,
      marker='o' if dots else '',
      markersize=size,
      zorder=3,
      **style,
    )
    if np.isfinite(curve.error).any():
      axes.fill_between(
        curve.x,
        curve.mean - curve.error,
        curve.mean + curve.error,
        color=style['color'],
        alpha=0.2,
        linewidth=0,
        zorder=2,
      )
  drawn = [curve for curve in curves if curve is not None]
  if not drawn:
    axes.text(0.5, 0.5, 'no data', transform=axes.transAxes, ha='center')
    axes.set(xticks=[], yticks=[])
  return drawn


def shade_predictable(axes: Axes, runs: Iterable[Run]) -> bool:
  """Shades predictable frames; returns whether there are any."""
  evaluations = (run.evaluation for run in runs if run.evaluation is not None)
  first = next(evaluations, None)
  if first is None:
    return False
  fractions = np.nan_to_num(numbers(first['predictable']))
  # One patch for each interval of equal shade avoids seams between frames.
  ends = np.flatnonzero(np.diff(fractions, append=-1.0))
  for start, end in zip([0, *(ends[:-1] + 1)], ends, strict=True):
    if fractions[start] > 0:
      shade = 1 - fractions[start] * (1 - PREDICTABLE)
      axes.axvspan(
        start + 0.5, end + 1.5, facecolor=shade, linewidth=0, zorder=0
      )
  return bool((fractions > 0).any())
