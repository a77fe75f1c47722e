"""Reads the rows of study.py's table from the records of runs."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gtmm_jax import records
from gtmm_jax.process.provenance import without_folders

# Values that runs which differ in their seed share.
_IN_COMMON = ('settings', 'data')


def read(workdirs: Sequence[pathlib.Path]) -> dict[str, Any]:
  """Reads the results of runs that differ in their seed alone.

  Args:
    workdirs: of one or more runs; their replicas are pooled.

  Returns:
    The `settings`, `versions`, `device` and `data` of the first run, and
    `commit`, `clean` and `command` of its latest start;
    `training_seconds` of all; `step`, `episodes` and `failed_replicas`; `n`,
    how many replicas count; `summary`: for each metric mean and standard error,
    or None; and `replicas`: for each metric the value of each replica. Of
    several runs `seed` is a list, and `runs` has what each has of its own.

  Raises:
    ValueError: a file of a run is damaged, or missing.
  """
  pooled = evaluation(workdirs)
  has_settled = records.settled_at(metrics(workdirs)) is not None
  origins = [_origin(workdir) for workdir in workdirs]
  seconds = [each['training_seconds'] for each in origins]
  together = {}
  if len(origins) > 1:
    seeds = [each['settings']['seed'] for each in origins]
    together = {
      'settings': {**origins[0]['settings'], 'seed': seeds},
      'training_seconds': None if None in seconds else sum(seconds),
      'runs': [
        {
          'seed': seed,
          **{name: each[name] for name in each if name not in _IN_COMMON},
        }
        for seed, each in zip(seeds, origins, strict=True)
      ],
    }
  values = records.by_replica(pooled, has_settled)
  return {
    **origins[0],
    **together,
    'step': pooled['step'],
    'episodes': pooled['episodes'],
    'failed_replicas': records.failed_replicas(pooled),
    'n': int(np.isfinite(values['negative_bound']).sum()),
    'summary': records.summarise(pooled, has_settled),
    'replicas': values,
  }


def _origin(workdir: pathlib.Path) -> dict[str, Any]:
  """Returns the settings and the origin of a run, without private parts."""
  config, lines = records.read_config(workdir), records.read_metrics(workdir)
  if config is None:
    raise ValueError(f'{workdir} has an evaluation of no run in it.')
  return {
    **{name: config[name] for name in ('settings', 'versions', 'device')},
    'data': _data(config['data']),
    **_provenance(config),
    'training_seconds': lines[-1]['seconds'] if lines else None,
  }


def evaluation(workdirs: Sequence[pathlib.Path]) -> dict[str, Any]:
  """Returns the evaluation of the replicas of all runs.

  Raises:
    ValueError: one is damaged, or missing.
  """
  evaluations = []
  for workdir in workdirs:
    one = records.read_evaluation(workdir)
    if one is None or 'step' not in one:
      raise ValueError(f'{workdir} has no evaluation of a run.')
    evaluations.append(one)
  return records.pool(evaluations)


def metrics(workdirs: Sequence[pathlib.Path]) -> list[dict[str, Any]]:
  """Returns lines of all replicas, at the steps that all runs report."""
  first, *others = (
    {line['step']: line for line in records.read_metrics(workdir)}
    for workdir in workdirs
  )
  return [
    records.pool([line, *(other[step] for other in others)])
    for step, line in first.items()
    if all(step in other for other in others)
  ]


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
  """Returns commit and command of the latest start, None where not recorded."""
  start = config.get('starts', [{}])[-1]
  command = start.get('command')
  return {
    'commit': start.get('commit'),
    'clean': start.get('clean'),
    'command': command and without_folders(command),
  }
