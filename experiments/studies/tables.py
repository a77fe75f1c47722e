"""Tables of a study in Markdown, made from its rows and its purpose alone."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gtmm_jax.process import command
from studies import choice, comparison, markdown, regrets, statistics, verdicts
from studies.outcomes import (
  METRICS,
  OF_SOME,
  READ_BELOW,
  Row,
  by_task,
  has_values,
)
from studies.purpose import Purpose
from studies.sources import in_words

# Columns on a terminal.
_SHOWN = ('kl_new', 'kl_predictable', 'ratio')
NOTE = f"""\
KL in nats a frame, negative bound in nats a sequence, retrieval as a share of
predictable frames: mean [95% t interval] over n replicas, those of all seeds.
The KL of a perfect read is what a reader of the right slot would pay. *Learned*
counts the replicas whose KL of predictable frames is below {READ_BELOW:g} of
that of new frames, as it may be without a memory where a frame repeats the one
just seen; *from step* is the first validated step at which it was so: the
median over these replicas [least, greatest]. New frames of similarity-cued
recall include the cue. Of the two answers of parity recall half are right by
knowing their places alone. There is no ratio (-) where nothing is predictable,
or before the KL of new frames has changed by less than 10% between two reports
at least 100 steps apart."""


def show(rows: Mapping[str, Row], console: Console) -> None:
  """Prints a short table of all rows, with means alone."""
  table = Table()
  headings = ('cell', 'steps', 'n', *(METRICS[name] for name in _SHOWN))
  for index, heading in enumerate(headings):
    # Names are long, and shown whole.
    justify, overflow = ('right', 'ellipsis') if index else ('left', 'fold')
    table.add_column(heading, justify=justify, overflow=overflow)
  for row in rows.values():
    means = [statistics.mean(row.values[name]) for name in _SHOWN]
    values = ['-' if each is None else f'{each.mean:.3f}' for each in means]
    table.add_row(row.name, f'{row.steps:,}', _count(row), *values)
  console.print(table)


def document(
  rows: Mapping[str, Row],
  purpose: Purpose,
  fixed: Mapping[str, Any] = types.MappingProxyType({}),
) -> str:
  """Returns the document of a study: its sources and all of its tables.

  Args:
    rows: by name, as `outcomes.rows` returns them.
    purpose: that its grid names.
    fixed: flags of all cells that replaced those of the grid.
  """
  every = list(rows.values())
  parts = [NOTE, in_words([row for row in every if not row.is_part])]
  if fixed:
    words = ', '.join(f'`{word}`' for word in command.words(fixed))
    parts.append(f'Set by flags for all cells, instead of the grid: {words}.')
  for task, rows_of_task in by_task(every).items():
    parts += _of_task(task, rows_of_task)
  return '\n\n'.join(parts + answers(every, purpose)) + '\n'


def answers(rows: Sequence[Row], purpose: Purpose) -> list[str]:
  """Returns the parts of the document that compare rows over all tasks.

  Args:
    rows: of all tasks.
    purpose: that the grid names.

  Returns:
    Headings, paragraphs and tables; none where there is nothing to compare.
  """
  parts = []
  # Where the parts of a mixture are compared, the whole counts no second time.
  compared = [row for row in rows if not row.has_parts]
  tasks = {row.task for row in compared}
  regret = regrets.table(
    {task: each for task, each in by_task(rows).items() if task in tasks}
  )
  if regret:
    parts += ['## Worst-task regret', regrets.NOTE, regret]
  if purpose.comparison:
    parts += comparison.section(compared, purpose.comparison)
  if purpose.choice:
    parts += choice.section(rows, purpose.choice)
  if purpose.claims:
    parts += verdicts.section({row.name: row for row in rows}, purpose.claims)
  return parts


def columns(rows: Sequence[Row]) -> dict[str, Callable[[Row], str]]:
  """Returns the columns of a table of rows, without that of their names.

  Args:
    rows: of the table; columns that none of them has are left out.

  Returns:
    By heading, the function of a row that returns the text in its cell.
  """
  shown: dict[str, Callable[[Row], str]] = {
    'steps': lambda row: f'{row.steps:,}',
    'n': _count,
    **{
      heading: lambda row, metric=metric: _metric(row, metric)
      for metric, heading in METRICS.items()
      if metric not in OF_SOME or any(has_values(row, metric) for row in rows)
    },
    'learned': _learned,
    'from step': _from_step,
  }
  if len({row.steps for row in rows}) == 1:
    del shown['steps']
  if all(row.read_from is None for row in rows):
    del shown['from step']
  return shown


def _of_task(task: str, rows: Sequence[Row]) -> list[str]:
  """Returns the heading, the table and the notes of a task."""
  steps = list(dict.fromkeys(f'{row.steps:,}' for row in rows))
  shown = {'': lambda row: f'`{row.label}`', **columns(rows)}
  splits = [f'{row.episodes:,} {row.split or "held-out"}' for row in rows]
  on = f'On {" or ".join(dict.fromkeys(splits))} episodes'
  if any(row.is_part for row in rows):
    on += ' (a mean over replicas)'
  after = f' after {steps[0]} steps' if len(steps) == 1 else ''
  parts = [
    f'## {task}',
    f'{on}{after}.{_chance(rows)}',
    markdown.table(
      [*shown], [[tell(row) for tell in shown.values()] for row in rows]
    ),
  ]
  failed = [
    f'replica {replica} of `{row.label}`'
    + ('' if step is None else f', from step {step:,}')
    for row in rows
    for replica, step in row.failed
  ]
  if failed:
    parts.append(f'Left out, not finite: {"; ".join(failed)}.')
  retried = [
    f'replica {replica} of `{row.label}` (failed at step {step:,})'
    for row in rows
    for replica, step in row.retried
  ]
  if retried:
    parts.append(
      f'Trained again from another key, and left out of paired differences: '
      f'{"; ".join(retried)}.'
    )
  return parts


def _chance(rows: Sequence[Row]) -> str:
  """Returns what is retrieved by chance, in words."""
  told = {}
  for name, when in (('ahead', 'one step ahead'), ('free', 'free-running')):
    values = [row.values.get(f'retrieval_{name}_chance', []) for row in rows]
    chance = np.concatenate([np.ravel(each) for each in values])
    chance = chance[np.isfinite(chance)]
    if chance.size:
      told[when] = f'{chance.mean():.3f} {when}'
  return f' By chance, {" and ".join(told.values())}.' if told else ''


def _count(row: Row) -> str:
  """Returns how many replicas count, and of how many, in words."""
  return str(row.n) + ('' if row.n == row.replicas else f' of {row.replicas}')


def _learned(row: Row) -> str:
  """Returns how many of the replicas that count have learned, in words."""
  new, predictable = row.values['kl_new'], row.values['kl_predictable']
  if not np.isfinite(predictable).any():
    return '-'
  return f'{int((predictable < READ_BELOW * new).sum())} of {row.n}'


def _from_step(row: Row) -> str:
  """Returns median, least and greatest of the steps from which they learned."""
  if row.read_from is None:
    return '-'
  steps = row.read_from[np.isfinite(row.read_from)]
  if not steps.size:
    return '-'
  least, greatest = (f'{int(end):,}' for end in (steps.min(), steps.max()))
  middle = f'{int(np.median(steps)):,}'
  return middle if least == greatest else f'{middle} [{least}, {greatest}]'


def _metric(row: Row, metric: str) -> str:
  """Returns the mean of a metric with its interval, or '-'."""
  value = statistics.mean(row.values.get(metric, ()))
  return (
    '-'
    if value is None
    else markdown.with_interval(value.mean, value.interval, metric)
  )
