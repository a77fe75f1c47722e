"""Draws the figures of a study: dots from rows, curves from workdirs."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gtmm_jax import figures, records
from gtmm_jax.process import command
from studies import statistics
from studies.outcomes import Row, by_task, has_values

# Titles of the figures of metrics.
_TITLES = {
  'ratio': 'KL of predictable frames / KL of new frames',
  'kl_last': 'KL of the last frame, nats',
  'kl_predictable': 'KL of predictable frames, nats a frame',
  'negative_bound': 'negative bound, nats a sequence',
  'retrieval_ahead': 'share retrieved one step ahead',
  'retrieval_free': 'share retrieved free-running',
}


def draw(
  rows: Mapping[str, Row],
  workdirs: Mapping[str, Sequence[pathlib.Path]],
  stem: pathlib.Path,
) -> list[pathlib.Path]:
  """Draws ratios as dots, and the results of each task with several rows.

  Args:
    rows: by name, as `outcomes.rows` returns them.
    workdirs: of the runs of each row; rows whose workdirs are not here have no
      curves.
    stem: of the table; the files of a task have its name added.

  Returns:
    The paths of the figures; one that fails costs a line.
  """
  tasks, paths = by_task(rows.values()), []
  several = any(len(of_task) > 1 for of_task in tasks.values())
  if several and any(has_values(row, 'ratio') for row in rows.values()):
    paths += command.attempt_drawing(
      lambda: figures.save(dots_figure(rows, 'ratio'), stem), stem
    )
  for task, of_task in tasks.items():
    here = [row for row in of_task if row.name in workdirs]
    if len(here) > 1:
      own_stem = stem.with_name(f'{stem.name}-{task}')
      save = functools.partial(_save_results, here, workdirs, task, own_stem)
      paths += command.attempt_drawing(save, own_stem)
  return paths


def dots_figure(rows: Mapping[str, Row], metric: str) -> figures.Figure:
  """Draws a metric as dots with intervals: a panel a task, a row a label.

  Args:
    rows: as `draw` has them.
    metric: its name.
  """
  panels: dict[str, dict[str, figures.Dot | None]] = {}
  for row in rows.values():
    panel = panels.setdefault(_in_print(row.task), {})
    panel[row.label] = _dot(row, metric)
  return figures.dots_figure(
    panels, _TITLES.get(metric, metric.replace('_', ' '))
  )


def _dot(row: Row, metric: str) -> figures.Dot | None:
  values = row.values.get(metric, np.array([]))
  found = statistics.mean(values)
  if found is None:
    return None
  return figures.Dot(found.mean, found.interval, values.tolist())


def _save_results(
  rows: Sequence[Row],
  workdirs: Mapping[str, Sequence[pathlib.Path]],
  task: str,
  stem: pathlib.Path,
) -> list[pathlib.Path]:
  """Draws and writes the curves of a task."""
  return figures.save(results_figure(rows, workdirs, task), stem)


def results_figure(
  rows: Sequence[Row],
  workdirs: Mapping[str, Sequence[pathlib.Path]],
  task: str,
) -> figures.Figure:
  """Draws the paper's three panels of a task, with a curve for each row.

  Args:
    rows: of the task.
    workdirs: of the runs of each row, by its name.
    task: its name.
  """
  runs = [
    figures.Run(
      row.label,
      metrics(workdirs[row.name]),
      records.pool(
        [records.read_evaluation(folder) for folder in workdirs[row.name]]
      ),
      row.model,
    )
    for row in rows
  ]
  return figures.results_figure(runs, _in_print(task))


def metrics(workdirs: Sequence[pathlib.Path]) -> list[dict[str, Any]]:
  """Returns lines of all replicas, at the steps that all runs report.

  Args:
    workdirs: of one or more runs that differ in their seed alone.
  """
  first, *others = (
    {line['step']: line for line in records.read_metrics(workdir)}
    for workdir in workdirs
  )
  return [
    records.pool([line, *(other[step] for other in others)])
    for step, line in first.items()
    if all(step in other for other in others)
  ]


def _in_print(task: str) -> str:
  """Returns the name of a task in print."""
  return figures.in_print(task).replace('_', ' ')
