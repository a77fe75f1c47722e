"""The KL of each frame, of episodes of several lengths side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gtmm_jax.figures import appearance, curve_axes, legend, writing
from gtmm_jax.figures.curves import Run, limits, per_frame

_COLUMNS = 4  # Panels side by side, at most.
_WIDTH, _HEIGHT = 3.2, 2.6  # Of a panel, in inches.


@appearance.fixed()
def lengths_figure(
  panels: Mapping[str, Sequence[Run]], title: str | None = None
) -> Figure:
  """Draws the KL of each frame, nats, with one panel for each length.

  All panels have one scale. A curve is a mean over replicas, with a band of one
  standard error to each side if there are at least two. Frames are shaded by
  the fraction of episodes in which they are predictable. Failed replicas are
  left out.

  Args:
    panels: by their titles, such as 'l 20, k 5', evaluations of episodes of one
      length, with labels such as 'test'. Curves of one label look the same.
    title: a line above the panels.

  Raises:
    ValueError: there is no panel, or one without an evaluation.
  """
  if not panels or not all(panels.values()):
    raise ValueError('There is nothing to draw: give at least one evaluation.')
  columns = min(len(panels), _COLUMNS)
  rows = math.ceil(len(panels) / columns)
  figure = Figure(
    figsize=(max(6.4, _WIDTH * columns), _HEIGHT * rows + 0.8),
    dpi=writing.DPI,
    layout='constrained',
  )
  if title:
    figure.suptitle(writing.literal(title), fontsize=11)
  labelled = {run.label: run for runs in panels.values() for run in runs}
  styles = dict(
    zip(labelled, curve_axes.styles_of(list(labelled.values())), strict=True)
  )
  handles: dict[str, Any] = legend.entries(
    list(labelled.values()), list(styles.values())
  )
  drawn, is_shaded = [], False
  grid = figure.subplots(rows, columns, squeeze=False)
  for axes in grid.flat[len(panels) :]:
    axes.remove()
  shown = grid.flat[: len(panels)]
  for axes, (name, runs) in zip(shown, panels.items(), strict=True):
    is_shaded |= curve_axes.shade_predictable(axes, runs)
    drawn += curve_axes.draw_frames(
      axes, [per_frame(run) for run in runs], [styles[r.label] for r in runs]
    )
    axes.set_title(writing.literal(name), size=9)
    axes.set_xlabel('frame', size=9)
    axes.spines[['top', 'right']].set_visible(False)
    axes.tick_params(labelsize=8)
  for axes in shown:
    if drawn and axes.lines:
      axes.set_ylim(*limits(drawn, settled=0.0, from_zero=True))
  for axes in grid[:, 0]:
    axes.set_ylabel('KL, nats', size=9)
  if any(np.isfinite(curve.error).any() for curve in drawn):
    handles['± standard error over replicas'] = Patch(
      facecolor='0.8', linewidth=0
    )
  if is_shaded:
    handles['predictable frames'] = Patch(
      facecolor=curve_axes.PREDICTABLE, linewidth=0
    )
  legend.add(figure, handles)
  return figure
