"""The paper's figure of results, from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from gtmm_jax.figures import appearance, legend, writing
from gtmm_jax.figures.curves import (
  Curve,
  Run,
  held_out,
  limits,
  numbers,
  over_training,
  per_frame,
)

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
_PREDICTABLE = np.array((1.0, 0.94, 0.75))  # Red, green, blue: pale yellow.
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
  shaded = _shade_predictable(frames, runs)
  styles = _styles(runs)
  drawn = _draw_frames(frames, [per_frame(run) for run in runs], styles)
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
    handles[label] = Patch(facecolor=_PREDICTABLE, linewidth=0)
  if last.containers:
    handles['held-out episodes'] = Line2D([], [], color='black', **_HELD_OUT)
  if floor is not None:
    handles['floor of the bound: entropy of grey pixels'] = Line2D(
      [], [], **_FLOOR
    )
  legend.add(figure, handles)
  return figure


def _styles(runs: Sequence[Run]) -> list[dict[str, Any]]:
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


def _draw_frames(
  axes: Axes, curves: Sequence[Curve | None], styles: Sequence[dict[str, Any]]
) -> list[Curve]:
  """Draws KL by frame; returns the curves that are not None."""
  drawn = _draw(axes, curves, styles, markers=True)
  if drawn:
    ticks = MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(ticks)
    axes.set_xlim(0.5, max(len(curve.x) for curve in drawn) + 0.5)
    axes.set_ylim(*limits(drawn, settled=0.0, from_zero=True))
  return drawn


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
  drawn = _draw(axes, curves, styles, markers=False)
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


def _draw(
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


def _shade_predictable(axes: Axes, runs: Iterable[Run]) -> bool:
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
      shade = 1 - fractions[start] * (1 - _PREDICTABLE)
      axes.axvspan(
        start + 0.5, end + 1.5, facecolor=shade, linewidth=0, zorder=0
      )
  return bool((fractions > 0).any())
