"""Records of finished runs, as results files hold them."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gtmm_jax import records
from gtmm_jax.process.provenance import without_folders
from studies.outcomes import READ_BELOW


def record(workdir: pathlib.Path, row: str) -> dict[str, Any]:
  """Returns the record of a finished run, without folders of this machine.

  Args:
    workdir: of the run.
    row: the cell's name without its seed.

  Returns:
    `row`; `settings`, `versions`, `device` and `data` of the run; `commit`,
    `clean` and `command` of its latest start (`clean` of all starts), and
    `earlier_commits` where earlier starts had others; `training_seconds`,
    `step`, `episodes`, `split`, `failed_replicas`, and `retried_replicas`, with
    the step at which the first try failed, where there are any; `replicas`: for
    each metric the value of each replica; `validation`: the same for the last
    validation during training, or None; `read_from`: for each replica the first
    step at which its memory is read; `last_iterate`: metrics of the parameters
    that are not averaged; `quantiles` over episodes, `entropy_floor` and
    `classifier_accuracy`, as `evaluation.json` has them, or None; and of a
    mixture `by_task`, for each part `episodes`, a mean over replicas, and its
    `replicas`, `validation`, `read_from` and `quantiles`.

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
    **_retried(evaluation),
    **_values(evaluation, lines, settled_at),
    'last_iterate': evaluation.get('last_iterate'),
    'entropy_floor': evaluation.get('entropy_floor'),
    'classifier_accuracy': evaluation.get('classifier_accuracy'),
  }
  if 'split' not in evaluation:
    # Earlier versions had no validation: these lines were on test images.
    whole['validation'] = None
  if 'by_task' in evaluation:
    whole['by_task'] = {
      task: {
        'episodes': round(np.mean(part['episodes'])),
        **_values(part, [_of_part(line, task) for line in lines], settled_at),
      }
      for task, part in evaluation['by_task'].items()
    }
  return records.documents.as_json(whole)


def _retried(evaluation: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the replicas that were trained again, if any were."""
  steps = enumerate(evaluation.get('first_failed_at') or ())
  retried = [(replica, step) for replica, step in steps if step is not None]
  return {'retried_replicas': retried} if retried else {}


def _values(
  evaluation: Mapping[str, Any],
  lines: Sequence[Mapping[str, Any]],
  settled_at: int | None,
) -> dict[str, Any]:
  """Returns what the record of a task or of a part of a mixture has."""
  replicas = len(evaluation['failed_at'])
  return {
    'replicas': records.by_replica(evaluation, settled_at is not None),
    'validation': _validation(lines),
    'read_from': _read_from(lines, settled_at, replicas),
    'quantiles': evaluation.get('quantiles'),
  }


def _of_part(line: Mapping[str, Any], task: str) -> dict[str, Any]:
  """Returns a line whose validation is that of one part of a mixture."""
  validation = line.get('held_out')
  return {**line, 'held_out': validation and validation['by_task'][task]}


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
