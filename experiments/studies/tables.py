"""Writes and draws the table of the results of a study."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gtmm_jax import figures
from gtmm_jax.process import command
from gtmm_jax.records import documents
from studies import outcomes

# Columns: the name in the summary, and the heading.
_COLUMNS = {
  'kl_new': 'KL new',
  'kl_predictable': 'KL predictable',
  'ratio': 'predictable / new',
  'kl_last': 'KL last frame',
  'negative_bound': 'negative bound',
  'retrieval_ahead': 'retrieved ahead',
  'retrieval_ahead_chance': 'by chance',
  'retrieval_free': 'retrieved free',
  'retrieval_free_chance': 'by chance',
}
# Metrics that also have a table of tasks by what is varied.
_MATRICES = {
  'ratio': 'KL of predictable frames / KL of new frames:',
  'kl_last': 'KL of the last frame:',
}
# Titles of the figures of metrics.
_TITLES = {
  'ratio': 'KL of predictable frames / KL of new frames',
  'kl_last': 'KL of the last frame, nats',
  'negative_bound': 'negative bound, nats a sequence',
  'retrieval_ahead': 'share retrieved one step ahead',
  'retrieval_free': 'share retrieved free-running',
}
# Columns on a terminal; files have all.
_SHOWN = 6
_NOTE = (
  'KL in nats a frame, negative bound in nats a sequence, retrieval as a share '
  'of predictable frames, over held-out episodes: mean ± standard error over '
  'n replicas, of all seeds, where there are several. New frames of '
  'similarity-cued recall include the cue. Of the two answers of parity recall '
  'half are right by knowing their places alone. There is no ratio (-) where '
  'nothing is predictable, or before the KL of new frames has changed by less '
  'than 10% between two reports at least 100 steps apart.'
)


def write(
  rows: Mapping[str, dict[str, Any]], stem: pathlib.Path, console: Console
) -> list[pathlib.Path]:
  """Prints the table, and writes it as JSON and as Markdown.

  Args:
    rows: by name, as `outcomes.read` returns them.
    stem: the files, without their endings.
    console: to print on.

  Returns:
    The paths of the two files.
  """
  headings = ['cell', 'steps', 'n', *_COLUMNS.values()]
  body = [
    [name, f'{row["step"]:,}', _counted(row), *map(_text, _values(row))]
    for name, row in rows.items()
  ]
  table = Table()
  for index, heading in enumerate(headings[:_SHOWN]):
    # Names are long, and shown whole.
    justify, overflow = ('right', 'ellipsis') if index else ('left', 'fold')
    table.add_column(heading, justify=justify, overflow=overflow)
  for line in body:
    table.add_row(*line[:_SHOWN])
  console.print(table)
  parts = [_NOTE]
  for metric, heading in _MATRICES.items():
    parts += [heading, matrix(rows, metric)]
  parts.append(_markdown(headings, body))
  paths = [stem.with_name(f'{stem.name}.{kind}') for kind in ('json', 'md')]
  documents.replace_document(paths[0], documents.as_json(rows))
  documents.replace(paths[1], ('\n\n'.join(parts) + '\n').encode())
  return paths


def matrix(rows: Mapping[str, dict[str, Any]], metric: str) -> str:
  """Returns a metric by task and by label, as a table in Markdown.

  Args:
    rows: as `write` has them.
    metric: its name in the summary.

  Returns:
    A line for each task, or for each label where there are more labels.
  """
  texts = {
    (row['settings']['task'], _label(name, row)): _text(row['summary'][metric])
    for name, row in rows.items()
  }
  tasks = list(dict.fromkeys(task for task, _ in texts))
  labels = list(dict.fromkeys(label for _, label in texts))
  lines = [
    ['task', *(f'`{label}`' for label in labels)],
    *(
      [f'`{task}`', *(texts.get((task, label), '') for label in labels)]
      for task in tasks
    ),
  ]
  if len(labels) > len(tasks):
    lines = [list(line) for line in zip(*lines, strict=True)]
    lines[0][0] = ''
  return _markdown(lines[0], lines[1:])


def draw(
  rows: Mapping[str, dict[str, Any]],
  workdirs: Mapping[str, Sequence[pathlib.Path]],
  stem: pathlib.Path,
) -> list[pathlib.Path]:
  """Draws ratios as dots, and the results of each task with several rows.

  Args:
    rows: as `write` has them.
    workdirs: of the runs of each row.
    stem: of the table; the files of a task have its name added.

  Returns:
    The paths of the figures; one that fails costs a line.
  """
  by_task: dict[str, list[figures.Run]] = {}
  for name, row in rows.items():
    run = figures.Run(
      _label(name, row),
      outcomes.metrics(workdirs[name]),
      outcomes.evaluation(workdirs[name]),
      row['settings']['model'],
    )
    by_task.setdefault(row['settings']['task'], []).append(run)
  paths = []
  several = any(len(runs) > 1 for runs in by_task.values())
  if several and any(row['summary']['ratio'] for row in rows.values()):
    paths += command.attempt_drawing(
      lambda: figures.save(dots_figure(rows, 'ratio'), stem), stem
    )
  for task, runs in by_task.items():
    if len(runs) > 1:
      of_task = stem.with_name(f'{stem.name}-{task}')
      save = functools.partial(_save_results, runs, task, of_task)
      paths += command.attempt_drawing(save, of_task)
  return paths


def _save_results(
  runs: Sequence[figures.Run], task: str, stem: pathlib.Path
) -> list[pathlib.Path]:
  return figures.save(figures.results_figure(runs, _task(task)), stem)


def dots_figure(
  rows: Mapping[str, dict[str, Any]], metric: str
) -> figures.Figure:
  """Draws a metric as dots with intervals: a panel a task, a row a label.

  Args:
    rows: as `write` has them.
    metric: its name in the summary.
  """
  panels: dict[str, dict[str, figures.Dot | None]] = {}
  for name, row in rows.items():
    value = row['summary'][metric]
    replicas = row.get('replicas', {}).get(metric, ())
    panel = panels.setdefault(_task(row['settings']['task']), {})
    panel[_label(name, row)] = value and figures.Dot(*value, replicas)
  title = _TITLES.get(metric, metric.replace('_', ' '))
  return figures.dots_figure(panels, title)


def _task(task: str) -> str:
  """Returns the name of a task in print."""
  return figures.in_print(task).replace('_', ' ')


def _label(name: str, row: dict[str, Any]) -> str:
  """Returns the part of a cell's name that others of its task do not have."""
  task, model = row['settings']['task'], row['settings']['model']
  return name.replace(task, '').replace('--', '-').strip('-') or model


def _counted(row: dict[str, Any]) -> str:
  """Returns how many replicas count, and of how many, in words."""
  all_of_them = len(row['replicas']['negative_bound'])
  counted = row['n']
  return str(counted) + ('' if counted == all_of_them else f' of {all_of_them}')


def _values(row: dict[str, Any]) -> list[Any]:
  return [row['summary'].get(name) for name in _COLUMNS]


def _text(value: Any) -> str:
  if value is None:
    return '-'
  mean, error = value
  places = 1 if abs(mean) >= 100 else 3
  return f'{mean:,.{places}f}' + (
    '' if error is None else f' ± {error:,.{places}f}'
  )


def _markdown(headings: list[str], body: list[list[str]]) -> str:
  lines = [headings, ['---'] * len(headings), *body]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
