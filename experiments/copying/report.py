"""The results of copy_task.py: a table, and a figure."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gtmm_jax.figures import appearance, words, writing

# isort: split
# After ours, which imports it whatever the user's settings are.
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Lower errors are drawn here.
_LEAST = 1e-4
# Okabe and Ito's, as in the figures of runs.
_COLOURS = {
  'ntm': '#0072B2',
  'lru': '#CC79A7',
  'dnc': '#D55E00',
  'introspective': '#009E73',
  'lstm': '#000000',
}


@appearance.fixed()
def draw(
  runs: Sequence[Mapping[str, Any]],
  lines: Sequence[Mapping[str, Any]],
  settings: Mapping[str, Any],
  stem: str | os.PathLike[str],
) -> list[Path]:
  """Draws learning curves, and errors by length of the sequence.

  A line a run, all runs of a core in one colour.

  Args:
    runs: of evaluation.json: `core`, `seed`, `seconds`, `bits_by_length`.
    lines: of metrics.jsonl: `core`, `seed`, `step`, `bits`.
    settings: of config.json: `length`, `bits`, `steps`.
    stem: the files, without their endings.

  Returns:
    The paths of PNG and PDF.
  """
  figure = Figure(figsize=(9, 3.4), dpi=writing.DPI, layout='constrained')
  learning, lengths = figure.subplots(1, 2, sharey=True)
  cores = dict.fromkeys(run['core'] for run in runs)
  for core in cores:
    runs_of_core = [run for run in runs if run['core'] == core]
    seconds = np.mean([run['seconds'] for run in runs_of_core])
    label = f'{words.in_print(core)} ({seconds:,.0f} s)'
    for run in runs_of_core:
      curve = [line for line in lines if _key(line) == _key(run)]
      style = {'color': _COLOURS[core], 'linewidth': 1.2}
      _plot(
        learning,
        [line['step'] for line in curve],
        [line['bits'] for line in curve],
        label=label if run is runs_of_core[0] else None,
        **style,
      )
      errors = run['bits_by_length']
      _plot(lengths, range(1, len(errors) + 1), errors, marker='.', **style)
  lengths.axvspan(0.5, settings['length'] + 0.5, color='0.93', zorder=0)
  learning.set(
    title=f'training on 1 to {settings["length"]} vectors of '
    f'{settings["bits"]} bits',
    xlabel='training step',
    ylabel='bits a bit (1: guessing)',
    yscale='log',
    ylim=(_LEAST / 1.3, 6),
  )
  lengths.set(title='fresh sequences (shaded: lengths in training)')
  lengths.set_xlabel('vectors in the sequence')
  lengths.xaxis.set_major_locator(MaxNLocator(8, integer=True))
  for axes in (learning, lengths):
    axes.axhline(1, color='0.6', linewidth=0.8, zorder=1)
    axes.spines[['top', 'right']].set_visible(False)
    axes.tick_params(labelsize=8)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
      text.set_size(9)
  figure.legend(
    loc='outside lower center', ncols=len(cores), frameon=False, fontsize=9
  )
  return writing.save(figure, stem)


def finished(
  evaluation: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> list[Mapping[str, Any]] | None:
  """Returns the results of all runs of `settings`, None where one is missing.

  Args:
    evaluation: the content of evaluation.json, None where there is none.
    settings: of config.json: `core` and `seed`, lists.
  """
  runs = (evaluation or {}).get('runs', [])
  keys = list(itertools.product(settings['core'], settings['seed']))
  return runs if [_key(run) for run in runs] == keys else None


def _key(record: Mapping[str, Any]) -> tuple[str, int]:
  """Returns core and seed of a record."""
  return record['core'], record['seed']


def _plot(
  axes: Axes, x: Sequence[int], errors: Sequence[float | None], **style: Any
) -> None:
  """Draws a line through the errors, with gaps where they are not finite."""
  values = np.array(errors, dtype=float)
  axes.plot(x, np.maximum(values, _LEAST), **style)


def table(
  runs: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> Table:
  """Returns a table with a row for each run; arguments are those of `draw`."""
  table = Table(title='Bits for each recalled bit, of fresh sequences')
  table.add_column('core')
  for name in (
    'seed',
    'learned at',
    f'1-{settings["length"]} vectors',
    f'{settings["length"]}',
    f'{settings["longest"]}',
    'seconds',
  ):
    table.add_column(name, justify='right')
  for run in runs:
    errors = run['bits_by_length']
    at = run['learned_at']
    table.add_row(
      run['core'],
      str(run['seed']),
      '-' if at is None else f'{at:,}',
      *(
        f'{error:.4f}'
        for error in (run['bits'], errors[settings['length'] - 1], errors[-1])
      ),
      f'{run["seconds"]:,.0f}',
    )
  return table
