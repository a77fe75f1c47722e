"""Records of runs that no run made, and their rows."""

import numpy as np

from gtmm_jax import records
from studies import outcomes


def record(task, model, bounds, **changes):
  """Makes the record of a run whose replicas have these bounds.

  The KL of predictable frames is a hundredth of the bound, that of new ones 10;
  values of `replicas` in `changes` replace these.
  """
  bounds = np.array(bounds, float)
  replicas = {
    'negative_bound': bounds,
    'kl_new': np.full(len(bounds), 10.0),
    'kl_predictable': bounds / 100,
    'kl_last': bounds / 100,
    'ratio': bounds / 1000,
    **changes.pop('replicas', {}),
  }
  return {
    'row': f'{task}-{model}',
    'settings': {'task': task, 'model': model, 'seed': 0},
    'data': {'checksum': '0'},
    'commit': 'c0ffee',
    'clean': True,
    'step': 3,
    'episodes': 9,
    'split': 'test',
    'failed_replicas': [],
    'replicas': replicas,
    'validation': {'replicas': replicas},
    'read_from': [None] * len(bounds),
    **changes,
  }


def rows(*runs):
  """Returns the rows of records, by the names that their rows have."""
  return outcomes.rows(
    {f'{run["row"]}-seed={run["settings"]["seed"]}': run for run in runs}
  )


def write_run(
  workdir, model, bounds, *, failed_at=None, is_finished=True, **settings
):
  """Leaves the records of a run of three frames on navigation.

  Args:
    workdir: its folder.
    model: its name.
    bounds: of the replicas.
    failed_at: of each replica; None for none of them.
    is_finished: whether it has its evaluation.
    settings: beside its task, model, seed and steps.
  """
  settings = {
    **{'task': 'navigation', 'model': model, 'seed': 0, 'steps': 300},
    **settings,
  }
  records.write_config(
    workdir,
    {
      'settings': settings,
      'versions': {'jax': '1'},
      'device': {'kind': 'cpu'},
      'data': {'flag': 'bundled', 'source': 'digits', 'checksum': '0'},
      'starts': [{'ended': None, 'command': 'python run.py'}],
    },
  )
  line = {
    'negative_bound': bounds,
    'kl': np.full((len(bounds), 3), 2.0),
    'kl_last': bounds,
    'kl_new': np.full(len(bounds), 10.0),
    'kl_predictable': np.array(bounds, float) / 100,
    'failed_at': failed_at or [None] * len(bounds),
  }
  for step in (100, 200, 300) if is_finished else (100, 200):
    records.append_metrics(workdir, {'step': step, 'seconds': 5.0, **line})
  if is_finished:
    records.write_evaluation(
      workdir,
      {
        **{'step': 300, 'episodes': 9, 'split': 'validation'},
        **{'predictable': [0.0, 1.0, 1.0], **line},
      },
    )
