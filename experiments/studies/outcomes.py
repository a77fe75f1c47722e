"""The metrics of a study, and the rows of its tables, from records of runs."""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Metrics of the tables, and their headings.
METRICS = {
  'negative_bound': 'negative bound',
  'kl_new': 'KL new',
  'kl_predictable': 'KL predictable',
  'kl_floor': 'KL of a perfect read',
  'ratio': 'predictable / new',
  'kl_last': 'KL last frame',
  'retrieval_ahead': 'retrieved ahead',
  'retrieval_free': 'retrieved free',
  'dream_similarity': 'similarity of dreams',
  'copy_similarity': 'of the nearest frame seen',
}
HIGHER_IS_BETTER = (
  'retrieval_ahead',
  'retrieval_free',
  'dream_similarity',
  'copy_similarity',
)
# Metrics that some tasks or stores do not have.
OF_SOME = ('kl_floor', *HIGHER_IS_BETTER)
# A memory is read where the KL of predictable frames is below this share of
# that of new frames.
READ_BELOW = 0.9


class Row(NamedTuple):
  """The results of runs that differ in their seed alone, replicas pooled.

  Attributes:
    name: of the row.
    label: the name without the task.
    task: its name.
    model: its name.
    steps: of training.
    settings: of the first run.
    episodes: of the evaluation.
    split: on which it was evaluated, '' if not recorded.
    seeds: of each run its seed and its number of replicas.
    values: for each metric [R], NaN for replicas that failed.
    validation: the same on validation episodes, at the end of training; empty
      if not recorded.
    read_from: for each replica the first reported step at which its memory is
      read, NaN if there is none; None if not recorded.
    failed: the replicas that are left out, and the step at which each failed,
      None for those whose bound is not finite on the evaluation alone.
    retried: the replicas that were trained again from another key, and the step
      at which their first try failed.
    sources: of each run the commit and whether the sources were as committed,
      None where not recorded.
    resumed: names of the runs that several commits trained.
    has_parts: whether the task is a mixture, each part of which has a row, too,
      of the task MIXTURE/PART.
  """

  name: str
  label: str
  task: str
  model: str
  steps: int
  settings: Mapping[str, Any]
  episodes: int
  split: str
  seeds: tuple[tuple[int, int], ...]
  values: dict[str, np.ndarray]
  validation: dict[str, np.ndarray]
  read_from: np.ndarray | None
  failed: list[tuple[int, int | None]]
  retried: list[tuple[int, int]]
  sources: list[tuple[str | None, bool | None]]
  resumed: list[str]
  has_parts: bool = False

  @property
  def is_part(self) -> bool:
    """Returns whether the row is of a part of a mixture."""
    return '/' in self.task

  @property
  def replicas(self) -> int:
    """The number of replicas, those that failed among them."""
    return len(self.values['negative_bound'])

  @property
  def n(self) -> int:
    """The number of replicas that count."""
    return int(np.isfinite(self.values['negative_bound']).sum())


def require_metric(file: pathlib.Path, name: str, metric: Any) -> None:
  """Raises `ValueError` unless a grid's question is about one of `METRICS`."""
  if metric not in METRICS:
    raise ValueError(
      f'{file}: the metric of "{name}" is {metric!r}; it must be one of '
      f'{", ".join(METRICS)}.'
    )


def label_of(name: str, task: str, model: str) -> str:
  """Returns the part of a cell's name that others of its task do not have."""
  return name.replace(task, '').replace('--', '-').strip('-') or model


def paired_values(row: Row, metric: str) -> np.ndarray:
  """Returns a metric for comparisons of pairs: NaN for retried replicas.

  Such a replica has no partner of the same key.
  """
  values = row.values[metric].copy()
  values[[replica for replica, _ in row.retried]] = np.nan
  return values


def has_values(row: Row, metric: str) -> bool:
  """Tells whether a replica of the row has a value of the metric."""
  return bool(np.isfinite(row.values.get(metric, np.nan)).any())


def by_task(rows: Iterable[Row]) -> dict[str, list[Row]]:
  """Returns the rows of each task, in their order."""
  tasks: dict[str, list[Row]] = {}
  for row in rows:
    tasks.setdefault(row.task, []).append(row)
  return tasks


def rows(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
  """Returns the rows of records, in their order.

  The row of a mixture is followed by those of its parts, ROW/PART.

  Args:
    runs: records by the names of their cells.
  """
  found = {}
  for name, names in group(runs).items():
    own = {each: runs[each] for each in names}
    parts = list(own[names[0]].get('by_task', ()))
    whole = _row(name, own)._replace(has_parts=bool(parts))
    found[name] = whole
    for part in parts:
      of_part = {
        each: {**run, **run['by_task'][part]} for each, run in own.items()
      }
      found[f'{name}/{part}'] = _row(f'{name}/{part}', of_part)._replace(
        task=f'{whole.task}/{part}', label=whole.label
      )
  return found


def group(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
  """Groups runs that differ in their seed alone, by the name of their row.

  Args:
    runs: by name, with `settings`, `data` and perhaps `row`, the name without
      the seed.
  """
  alike: dict[str, list[str]] = {}
  for name, run in runs.items():
    key = [
      run.get('row', name),
      {**run['settings'], 'seed': None},
      run['data']['checksum'],
    ]
    alike.setdefault(json.dumps(key, sort_keys=True), []).append(name)
  grouped: dict[str, list[str]] = {}
  for names in alike.values():
    row = runs[names[0]].get('row', names[0])
    settings = runs[names[0]]['settings']
    if not row and len(names) > 1:
      row = f'{settings["task"]}-{settings["model"]}'
    is_free = row and row not in grouped
    grouped[row if is_free else names[0]] = names
  return grouped


def _row(name: str, runs: Mapping[str, Mapping[str, Any]]) -> Row:
  """Pools the records of one row."""
  every = list(runs.values())
  first, settings = every[0], every[0]['settings']
  values = _pooled([run['replicas'] for run in every])
  validations = [run.get('validation') for run in every]
  has_validation = None not in validations
  begins = [run.get('read_from') for run in every]
  counts = [len(run['replicas']['negative_bound']) for run in every]
  failed, retried, before = {}, [], 0
  for run, count in zip(every, counts, strict=True):
    failed |= {before + index: step for index, step in run['failed_replicas']}
    retried += [
      (before + index, step) for index, step in run.get('retried_replicas', ())
    ]
    before += count
  left_out = np.flatnonzero(~np.isfinite(values['negative_bound']))
  return Row(
    name,
    label_of(name, settings['task'], settings['model']),
    settings['task'],
    settings['model'],
    first['step'],
    settings,
    first['episodes'],
    first.get('split', ''),
    tuple(
      (run['settings'].get('seed', 0), count)
      for run, count in zip(every, counts, strict=True)
    ),
    values,
    _pooled([v['replicas'] for v in validations]) if has_validation else {},
    None if None in begins else np.array(sum(begins, []), np.float64),
    [(int(index), failed.get(int(index))) for index in left_out],
    retried,
    [(run.get('commit'), run.get('clean')) for run in every],
    [each for each, run in runs.items() if run.get('earlier_commits')],
  )


def _pooled(
  parts: Sequence[Mapping[str, Sequence[float | None]]],
) -> dict[str, np.ndarray]:
  """Joins the values of all runs for the metrics that each has."""
  return {
    name: np.array([value for part in parts for value in part[name]], float)
    for name in parts[0]
    if all(name in part for part in parts)
  }
