"""The paper's figure of results, from the records of one or several runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from gtmm_jax.figures import appearance, writing
from gtmm_jax.figures.curves import (
  Curve,
  Run,
  alive,
  limits,
  numbers,
  over_training,
  per_frame,
)

# Okabe and Ito's colours, told apart with every kind of colour vision; their
# yellow is left out, too pale for a line on white.
_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
)
_DASHES = ('-', '--', ':', '-.')  # A new one each time the colours are used up.
_PREDICTABLE = np.array((1.0, 0.94, 0.75))  # Red, green, blue: pale yellow.


def draw_results(
  runs: Sequence[Run], stem: str | os.PathLike[str], title: str | None = None
) -> list[Path]:
  """Writes `results_figure` to `<stem>.png` and `<stem>.pdf`.

  Returns:
    The two paths. Their folder is made where there is none.

  Raises:
    ValueError: there are no runs, or two runs have one label.
  """
  return writing.save(results_figure(runs, title), stem, palette=True)


@appearance.fixed()
def results_figure(runs: Sequence[Run], title: str | None = None) -> Figure:
  """Draws three panels in the manner of the paper's figures of results.

  Left, the KL of each frame of held-out episodes, predictable frames shaded
  by the fraction of episodes in which they are (those of the first run that
  has an evaluation). Middle, the KL of the last frame during training; right,
  the negative variational bound; neighbouring reports are averaged where a
  curve has more than 400. All in nats: means over replicas, with a band of
  one standard error to each side where there are at least two. A replica that
  failed is left out of every panel, and the legend says how many are left.
  The panels over training are scaled to what follows the first tenth of it.

  Args:
    runs: one or more, each with a label of its own; it keeps its colour and
      its dashes in all panels. Of two to seven models each has a colour.
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
  last_kl, bounds = (
    [over_training(run, name) for run in runs]
    for name in ('kl_last', 'negative_bound')
  )
  drawn = [
    _draw_frames(frames, [per_frame(run) for run in runs], styles),
    _draw_training(last, last_kl, styles, True),
    _draw_training(bound, bounds, styles, False),
  ]
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
  banded = any(
    np.isfinite(curve.error).any() for panel in drawn for curve in panel
  )
  _add_legend(figure, runs, styles, banded, shaded)
  return figure


def _styles(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """A colour for each model, and dashes for its second run, third, ...

  By the order of runs where there is one model, or too many of either.
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
  """Draws KL by frame; returns the curves there are."""
  drawn = _draw(axes, curves, styles, markers=True)
  if drawn:
    ticks = MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(ticks)
    axes.set_xlim(0.5, max(len(curve.x) for curve in drawn) + 0.5)
    axes.set_ylim(*limits(drawn, settled=0.0, from_zero=True))
  return drawn


def _draw_training(
  axes: Axes,
  curves: Sequence[Curve | None],
  styles: Sequence[dict[str, Any]],
  from_zero: bool,
) -> list[Curve]:
  """Draws a metric by training step; returns the curves there are."""
  drawn = _draw(axes, curves, styles, markers=False)
  if drawn:
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    axes.set_xlim(0, 1.02 * max(1, *(curve.x[-1] for curve in drawn)))
    axes.set_ylim(*limits(drawn, settled=0.1, from_zero=from_zero))
  return drawn


def _draw(
  axes: Axes,
  curves: Sequence[Curve | None],
  styles: Sequence[dict[str, Any]],
  markers: bool,
) -> list[Curve]:
  """Draws the curves there are, and returns them, or says there are none."""
  for curve, style in zip(curves, styles, strict=True):
    if curve is None:
      continue
    # A single point has no line that could be seen.
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
  """Shades predictable frames; whether there are any."""
  evaluations = (run.evaluation for run in runs if run.evaluation is not None)
  first = next(evaluations, None)
  if first is None:
    return False
  fractions = np.nan_to_num(numbers(first['predictable']))
  # One patch for each stretch of equal shade: no seams between frames.
  ends = np.flatnonzero(np.diff(fractions, append=-1.0))
  for start, end in zip([0, *(ends[:-1] + 1)], ends, strict=True):
    if fractions[start] > 0:
      shade = 1 - fractions[start] * (1 - _PREDICTABLE)
      axes.axvspan(
        start + 0.5, end + 1.5, facecolor=shade, linewidth=0, zorder=0
      )
  return bool((fractions > 0).any())


def _add_legend(
  figure: Figure,
  runs: Sequence[Run],
  styles: Sequence[dict[str, Any]],
  banded: bool,
  shaded: bool,
) -> None:
  handles: list[Line2D | Patch] = []
  labels = []
  for run, style in zip(runs, styles, strict=True):
    kept = alive(run)
    left = '' if kept.all() else f' ({kept.sum()} of {kept.size} replicas)'
    handles.append(Line2D([], [], **style))
    labels.append(writing.literal(run.label) + left)
  if banded:
    handles.append(Patch(facecolor='0.8', linewidth=0))
    labels.append('± standard error over replicas')
  if shaded:
    handles.append(Patch(facecolor=_PREDICTABLE, linewidth=0))
    labels.append('predictable frames')
  # One row if it fits on a page of 12 inches, or as the widest label lets.
  widths = [writing.width_of(label, 9) + 90 for label in labels]
  page = int(11.5 * writing.DPI)
  columns = len(labels) if sum(widths) < page else page // max(widths)
  legend = figure.legend(
    handles,
    # The legend leaves out labels that begin with an underscore.
    [f'entry {index}' for index in range(len(labels))],
    loc='outside lower center',
    ncols=max(1, columns),
    frameon=False,
    fontsize=9,
  )
  for text, label in zip(legend.get_texts(), labels, strict=True):
    text.set_text(label)
