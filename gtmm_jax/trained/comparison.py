"""A table and a figure of evaluations of one run on several episodes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from gtmm_jax import figures, records
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks.sources.dataset import Split
from gtmm_jax.trained.trained import Trained
from gtmm_jax.trained.variants import Variant

# Metrics, their headings and decimals; bounds are nats a sequence, KL a frame.
_COLUMNS = {
  'negative_bound': ('negative\nbound', 1),
  'negative_bound_iwae': ('IWAE', 1),
  'negative_bound_particle': ('particle\nfilter', 1),
  'kl_new': ('KL\nnew', 2),
  'kl_predictable': ('KL pre-\ndictable', 2),
  'kl_floor': ('floor', 2),
  'ratio': ('ratio', 3),
  'retrieval_ahead': ('retrieved\nahead', 3),
  'retrieval_free': ('free', 3),
  'dream_error_all': ('squared\nerror', 4),
  'copy_error_all': ('nearest\nseen', 4),
}
# Shown even where no row has a value.
_ALWAYS = ('negative_bound', 'kl_new', 'kl_predictable', 'ratio')


class Row(NamedTuple):
  """Episodes of certain sizes, of one split.

  Attributes:
    name: their sizes in words, such as 'l 20, k 5'.
    split: of the data.
    variant: of the trained run.
  """

  name: str
  split: Split
  variant: Variant


Shown = list[tuple[Row, Mapping[str, Any]]]


def show(run: Trained, shown: Shown, console: Console) -> None:
  """Prints a table with a row for each evaluation.

  Args:
    run: the trained run.
    shown: rows, each with its evaluation as read.
    console: to print on.
  """
  settings = run.settings
  lines = records.read_metrics(run.workdir)
  has_settled = records.settled_at(lines) is not None
  evaluation = shown[0][1]
  rows = []
  for row, values in shown:
    whole = row.name, row.split, _slots(row.variant)
    rows.append((whole, records.summarise(values, has_settled)))
    for task, part in values.get('by_task', {}).items():
      name = f'  {task.replace("_", " ")}'
      rows.append(((name, '', ''), records.summarise(part, has_settled)))
  console.print(
    f'{settings.model} on {settings.task} after {run.step:,} steps; '
    f'{evaluation["episodes"]:,} episodes a row, '
    f'{len(evaluation["failed_at"])} replicas'
  )
  names = [
    name
    for name in _COLUMNS
    if name in _ALWAYS or any(summary.get(name) for _, summary in rows)
  ]
  table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
  for heading in ('episodes', 'split', 'slots'):
    table.add_column(heading)
  for name in names:
    table.add_column(_COLUMNS[name][0], justify='right')
  for heads, summary in rows:
    cells = [_cell(summary.get(name), _COLUMNS[name][1]) for name in names]
    table.add_row(*heads, *cells)
  _print_whole(table, console)
  for line in _remarks(run, shown, has_settled):
    console.print(line)


def figure(run: Trained, shown: Shown) -> figures.Figure:
  """Draws the KL of each frame, a panel for each length."""
  panels: dict[str, list[figures.Run]] = {}
  for row, evaluation in shown:
    title = row.name
    if row.variant.slots is not None:
      title += f', {row.variant.slots} slots'
    one = figures.Run(row.split, (), evaluation)
    panels.setdefault(title, []).append(one)
  settings = run.settings
  return figures.lengths_figure(
    panels,
    f'{figures.in_print(settings.model)} on '
    f'{settings.task.replace("_", " ")}, trained with {describe(settings)}',
  )


def _slots(variant: Variant) -> str:
  """Returns the number of slots, and whether they grew or are too few."""
  if variant.slots is None:
    return '-'
  words = {'grown': 'grown', 'overwritten': 'over-\nwritten', '': ''}
  return f'{variant.slots} {words[variant.change]}'.rstrip()


def _cell(value: records.MeanAndError | None, decimals: int) -> str:
  """Writes a mean, and its standard error in a line below."""
  if value is None:
    return '-'
  mean, error = value
  text = f'{mean:,.{decimals}f}'
  return text if error is None else f'{text}\n±{error:,.{decimals}f}'


def _print_whole(table: Table, console: Console) -> None:
  """Prints a table without cutting its cells, wider than the console if so."""
  before = console.width
  widest = console.options.update(max_width=1000)
  console.width = max(before, console.measure(table, options=widest).maximum)
  try:
    console.print(table)
  finally:
    console.width = before


def _remarks(run: Trained, shown: Shown, has_settled: bool) -> list[str]:
  """Returns sentences below the table, each once."""
  evaluation = shown[0][1]
  lines = [
    f'{row.name}: {row.variant.remark}.'
    for row, _ in shown
    if row.variant.remark
  ]
  for name in ('negative_bound_iwae', 'negative_bound_particle'):
    if name in evaluation:
      lines.append(
        f'Tighter bounds are of {evaluation["bound_samples"]:,} samples.'
      )
  failed = dict(records.failed_replicas(evaluation))
  lines += [
    f'Replica {replica} stopped being finite at step {step:,} and is left out.'
    for replica, step in failed.items()
  ]
  for row, values in shown:
    bounds = records.by_replica(values)['negative_bound']
    lines += [
      f'{row.name}, {row.split}: replica {replica} is left out: its bound is '
      f'not finite.'
      for replica in np.flatnonzero(np.isnan(bounds))
      if replica not in failed
    ]
  if not has_settled:
    lines.append('No KL ratio is shown: the run has not settled.')
  return list(dict.fromkeys(lines))
