"""The paper's figure of results, from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from gtmm_jax.figures import appearance, curve_axes, legend, writing
from gtmm_jax.figures.curves import (
  Curve,
  Run,
  held_out,
  limits,
  over_training,
  per_frame,
)

# Rings in the colour of their run, joined by a thin dotted line.
_HELD_OUT = {
  'marker': 'o',
  'markerfacecolor': 'white',
  'markersize': 5,
  'linestyle': (0, (1, 2)),
  'linewidth': 1.0,
}
_FLOOR = {'color': '0.45', 'linestyle': (0, (6, 2)), 'linewidth': 1.0}


@appearance.fixed()
def results_figure(runs: Sequence[Run], title: str | None = None) -> Figure:
  """Draws the three panels of the paper's figures of results.

  Left: the KL of each frame of held-out episodes; frames are shaded by the
  fraction of episodes in which they are predictable (from the first run with an
  evaluation). Middle: the KL of the last frame during training. Right: the
  negative variational bound, with a line at the entropy of grey pixels, its
  floor, if an evaluation has one. Rings are means over held-out episodes.

  All values are in nats: means over replicas, with a band or bar of one
  standard error to each side if there are at least two. Failed replicas are
  left out of every panel, and the legend tells how many remain. Neighbouring
  reports are averaged if a curve has more than 400. The panels over training
  are scaled to the part after the first tenth.

  Args:
    runs: one or more, each with its own label. A run has the same colour and
      dashes in all panels. Two to seven models have one colour each.
    title: a line above the panels.

  Raises:
    ValueError: there are no runs, or two runs have one label.
  """
  labels = [run.label for run in runs]
  if not labels:
    raise ValueError('There are no runs to draw: give at least one.')
  if len(set(labels)) < len(labels):
    raise ValueError(
      f'The labels {labels} are not all different: give each run its own.'
    )
  figure = Figure(figsize=(12, 3.2), dpi=writing.DPI, layout='constrained')
  if title:
    figure.suptitle(writing.literal(title), fontsize=11)
  frames, last, bound = figure.subplots(1, 3)
  shaded = curve_axes.shade_predictable(frames, runs)
  styles = curve_axes.styles_of(runs)
  drawn = curve_axes.draw_frames(
    frames, [per_frame(run) for run in runs], styles
  )
  drawn += _draw_training(last, runs, 'kl_last', styles)
  floor = _floor(runs)
  drawn += _draw_training(bound, runs, 'negative_bound', styles, floor)
  frames.set(title='KL of each held-out frame', xlabel='frame', ylabel='nats')
  last.set(title='KL of the last frame', xlabel='training step', ylabel='nats')
  bound.set(
    title='negative variational bound',
    xlabel='training step',
    ylabel='nats a sequence',
  )
  for axes in (frames, last, bound):
    axes.spines[['top', 'right']].set_visible(False)
    axes.tick_params(labelsize=8)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
      text.set_size(9)
  handles: dict[str, Any] = legend.entries(runs, styles)
  if any(np.isfinite(curve.error).any() for curve in drawn):
    label = '± standard error over replicas'
    handles[label] = Patch(facecolor='0.8', linewidth=0)
  if shaded:
    label = 'predictable frames'
    handles[label] = Patch(facecolor=curve_axes.PREDICTABLE, linewidth=0)
  if last.containers:
    handles['held-out episodes'] = Line2D([], [], color='black', **_HELD_OUT)
  if floor is not None:
    handles['floor of the bound: entropy of grey pixels'] = Line2D(
      [], [], **_FLOOR
    )
  legend.add(figure, handles)
  return figure


def _floor(runs: Sequence[Run]) -> float | None:
  """Returns the first run's floor of the bound, in nats per sequence.

  Skips runs without a floor; None if no run has one.
  """
  floors = (
    run.evaluation.get('entropy_floor') for run in runs if run.evaluation
  )
  return next((floor for floor in floors if floor is not None), None)


def _draw_training(
  axes: Axes,
  runs: Sequence[Run],
  name: str,
  styles: Sequence[dict[str, Any]],
  floor: float | None = None,
) -> list[Curve]:
  """Draws a metric by training step; returns the curves that are not None.

  Args:
    axes: to draw on.
    runs: with the metric.
    name: of the metric.
    styles: of the runs.
    floor: lower bound of the metric, drawn as a line.
  """
  curves = [over_training(run, name) for run in runs]
  drawn = curve_axes.draw(axes, curves, styles, markers=False)
  for run, style in zip(runs, styles, strict=True):
    points = held_out(run, name)
    if points is not None:
      look = {**_HELD_OUT, 'color': style['color'], 'zorder': 4}
      axes.errorbar(points.x, points.mean, points.error, elinewidth=1.4, **look)
      drawn.append(points)
  if drawn:
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    axes.set_xlim(0, 1.02 * max(1, *(curve.x[-1] for curve in drawn)))
    low, high = limits(drawn, settled=0.1, from_zero=name.startswith('kl'))
    if floor is not None:
      axes.axhline(floor, zorder=1, **_FLOOR)
      room = (high - floor) / 20
      low, high = min(low, floor - room), high + room
    axes.set_ylim(low, high)
  return drawn
