"""Records of finished runs, as results files hold them, and rows of tables."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gtmm_jax import records
from gtmm_jax.process.provenance import without_folders

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
}
HIGHER_IS_BETTER = ('retrieval_ahead', 'retrieval_free')
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
    sources: of each run the commit and whether the sources were as committed,
      None where not recorded.
    resumed: names of the runs that several commits trained.
  """

  name: str
  label: str
  task: str
  model: str
  steps: int
  episodes: int
  split: str
  seeds: tuple[tuple[int, int], ...]
  values: dict[str, np.ndarray]
  validation: dict[str, np.ndarray]
  read_from: np.ndarray | None
  failed: list[tuple[int, int | None]]
  sources: list[tuple[str | None, bool | None]]
  resumed: list[str]

  @property
  def replicas(self) -> int:
    """The number of replicas, those that failed among them."""
    return len(self.values['negative_bound'])

  @property
  def n(self) -> int:
    """The number of replicas that count."""
    return int(np.isfinite(self.values['negative_bound']).sum())


def label_of(name: str, task: str, model: str) -> str:
  """Returns the part of a cell's name that others of its task do not have."""
  return name.replace(task, '').replace('--', '-').strip('-') or model


def record(workdir: pathlib.Path, row: str) -> dict[str, Any]:
  """Returns the record of a finished run, without folders of this machine.

  Args:
    workdir: of the run.
    row: the cell's name without its seed.

  Returns:
    `row`; `settings`, `versions`, `device` and `data` of the run; `commit`,
    `clean` and `command` of its latest start (`clean` of all starts), and
    `earlier_commits` where earlier starts had others; `training_seconds`,
    `step`, `episodes`, `split`, `failed_replicas`; `replicas`: for each metric
    the value of each replica;
    `validation`: the same for the last validation during training, or None;
    `read_from`: for each replica the first step at which its memory is read.

  Raises:
    ValueError: a file of the run is damaged, or missing.
  """
  config = records.read_config(workdir)
  evaluation = records.read_evaluation(workdir)
  lines = records.read_metrics(workdir)
  if evaluation is None or 'step' not in evaluation:
    raise ValueError(f'{workdir} has no evaluation of a run.')
  if config is None:
    raise ValueError(f'{workdir} has an evaluation of no run in it.')
  settled_at = records.settled_at(lines)
  whole = {
    'row': row,
    **{name: config[name] for name in ('settings', 'versions', 'device')},
    'data': _data(config['data']),
    **_provenance(config),
    'training_seconds': lines[-1]['seconds'] if lines else None,
    'step': evaluation['step'],
    'episodes': evaluation['episodes'],
    'split': evaluation.get('split', ''),
    'failed_replicas': records.failed_replicas(evaluation),
    'replicas': records.by_replica(evaluation, settled_at is not None),
    # Earlier versions had no validation: these lines were on test images.
    'validation': _validation(lines) if 'split' in evaluation else None,
    'read_from': _read_from(lines, settled_at, len(evaluation['failed_at'])),
  }
  return records.documents.as_json(whole)


def rows(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
  """Returns the rows of records, in their order.

  Args:
    runs: records by the names of their cells.
  """
  return {
    name: _row(name, {each: runs[each] for each in names})
    for name, names in group(runs).items()
  }


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
  failed, before = {}, 0
  for run, count in zip(every, counts, strict=True):
    failed |= {before + index: step for index, step in run['failed_replicas']}
    before += count
  left_out = np.flatnonzero(~np.isfinite(values['negative_bound']))
  return Row(
    name,
    label_of(name, settings['task'], settings['model']),
    settings['task'],
    settings['model'],
    first['step'],
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


def _validation(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
  """Returns step, episodes and values of the last validation, None without."""
  for line in reversed(lines):
    values = line.get('held_out')
    if values:
      return {
        'step': line['step'],
        'episodes': values['episodes'],
        'replicas': records.by_replica(values),
      }
  return None


def _read_from(
  lines: Sequence[Mapping[str, Any]], settled_at: int | None, replicas: int
) -> list[int | None]:
  """Returns the first validated step at which each replica reads its memory.

  Before the KL of new frames has settled, no step counts.
  """
  first: list[int | None] = [None] * replicas
  for line in lines:
    values = line.get('held_out')
    if not values or settled_at is None or line['step'] < settled_at:
      continue
    kinds = ('kl_predictable', 'kl_new')
    predictable, new = (np.array(values[kind], np.float64) for kind in kinds)
    for replica in np.flatnonzero(predictable < READ_BELOW * new):
      if first[replica] is None:
        first[replica] = line['step']
  return first


def _data(recorded: dict[str, Any]) -> dict[str, Any]:
  """Returns source and checksum of data, without their private folder."""
  folder = recorded['flag'].partition(':')[2]
  source = recorded['source']
  if folder:
    # With the colon: the name alone may be a word of the rest, too.
    path = pathlib.Path(folder).expanduser()
    source = source.replace(f'{path}: ', 'FOLDER: ', 1)
  return {'source': source, 'checksum': recorded['checksum']}


def _provenance(config: dict[str, Any]) -> dict[str, Any]:
  """Returns commit and command of the latest start, None where not recorded.

  Sources are clean if they were so at each start.
  """
  starts = config.get('starts', [{}])
  start, command = starts[-1], starts[-1].get('command')
  commits = dict.fromkeys(each.get('commit') for each in starts)
  others = [each for each in commits if each != start.get('commit')]
  was_changed = any(each.get('clean') is False for each in starts)
  return {
    'commit': start.get('commit'),
    'clean': False if was_changed else start.get('clean'),
    'command': command and without_folders(command),
    **({'earlier_commits': others} if others else {}),
  }
