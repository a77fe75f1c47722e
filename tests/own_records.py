"""Records of runs that no run made, and their rows."""

import numpy as np

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
