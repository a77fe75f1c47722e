"""What an evaluation comes to, over the replicas that did not fail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gtmm_jax.records import documents

_SUMMARISED = ('negative_bound', 'kl_new', 'kl_predictable', 'kl_last')
# Evaluations have these, lines of metrics do not.
_OF_EVALUATIONS = (
  'retrieval_ahead',
  'retrieval_ahead_chance',
  'retrieval_free',
  'retrieval_free_chance',
  'dream_error',
  'dream_similarity',
  'copy_error',
  'copy_similarity',
  # Over all dreamed frames.
  *(
    f'{source}_{name}_all'
    for name in ('error', 'psnr', 'similarity')
    for source in ('dream', 'last', 'copy')
  ),
)
# A list over frames, which may be as many as replicas.
_OF_TIME = ('predictable',)


class MeanAndError(NamedTuple):
  """A mean over replicas and its standard error, both in the mean's unit.

  The error is None for a single replica, which has no spread.
  """

  mean: float
  standard_error: float | None


def by_replica(evaluation: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns the value of each replica for each metric that has one.

  Args:
    evaluation: as read from `evaluation.json`, or the arrays it is written
      from: `failed_at [R]` and `negative_bound`, `kl_new`, `kl_predictable`,
      `kl_last`, each `[R]`, nats. Of an evaluation also `retrieval_ahead`,
      `retrieval_free` and the chance of both, `dream_error`,
      `dream_similarity` and those of a copy, and the same, and `dream_psnr`
      (dB), over all dreamed frames, with `_all` at their ends, beside those of
      the last frame seen, `last_error_all` and so on; each `[R]`.

  Returns:
    Those names, and `ratio`, `kl_predictable / kl_new` (at least 0, no unit),
    each [R]: not a number where a replica failed, its bound is not finite or
    its value is null.

  Raises:
    ValueError: the arrays are not of one length.
  """
  steps = documents.as_json(evaluation['failed_at'])
  alive = np.array([step is None for step in steps], bool)
  values = {}
  for name in (*_SUMMARISED, *_OF_EVALUATIONS):
    if name not in evaluation and name in _OF_EVALUATIONS:
      continue
    column = np.array(documents.as_json(evaluation[name]), np.float64)
    if column.shape not in ((), (len(alive),)):
      raise ValueError(
        f'{name} has shape {column.shape}, but must be ({len(alive)},): one '
        'value for each replica that failed_at tells of.'
      )
    values[name] = column
  alive &= np.isfinite(values['negative_bound'])
  values = {
    name: np.where(alive, column, np.nan) for name, column in values.items()
  }
  whole = values['kl_new']
  values['ratio'] = values['kl_predictable'] / np.where(whole, whole, np.nan)
  return values


def pool(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Puts the replicas of several runs side by side, as if one run had them all.

  Args:
    runs: one or more evaluations, or lines of metrics, as they are read, of
      runs that differ in their seed.

  Returns:
    One of the same kind: what each has a list of R values of, by replica, is
    one list of all replicas, run by run; the rest is the first's.
  """
  counts = [len(run['failed_at']) for run in runs]
  return _pool(runs, counts)


def _pool(
  parts: Sequence[Mapping[str, Any]], counts: Sequence[int]
) -> dict[str, Any]:
  pooled = {}
  for name, first in parts[0].items():
    values = [part.get(name) for part in parts]
    if all(isinstance(value, Mapping) for value in values):
      pooled[name] = _pool(values, counts)
    elif name not in _OF_TIME and all(
      isinstance(value, list) and len(value) == count
      for value, count in zip(values, counts, strict=True)
    ):
      pooled[name] = [each for value in values for each in value]
    else:
      pooled[name] = first
  return pooled


def summarise(evaluation: Mapping[str, Any]) -> dict[str, MeanAndError | None]:
  """Returns means and standard errors of `by_replica`.

  A replica whose value is not a number counts for nothing; None where no value
  is left, as where nothing is predictable.
  """
  values = by_replica(evaluation)
  return {name: _mean_and_error(column) for name, column in values.items()}


def failed_replicas(evaluation: Mapping[str, Any]) -> list[tuple[int, int]]:
  """Returns (replica, step) for each replica that failed, in their order."""
  steps = enumerate(documents.as_json(evaluation['failed_at']))
  return [(replica, int(step)) for replica, step in steps if step is not None]


def _mean_and_error(values: np.ndarray) -> MeanAndError | None:
  left = values[np.isfinite(values)]
  if not left.size:
    return None
  if left.size == 1:
    return MeanAndError(float(left[0]), None)
  error = left.std(ddof=1) / math.sqrt(left.size)
  return MeanAndError(float(left.mean()), float(error))
