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

# The KL ratio says nothing while the KL of new frames still moves by as much
# as this share of it, between reports at least so many steps apart.
_MOVING, _STEPS_APART = 0.1, 100


class MeanAndError(NamedTuple):
  """A mean over replicas and its standard error, both in the mean's unit.

  The error is None for a single replica, which has no spread.
  """

  mean: float
  standard_error: float | None


def by_replica(
  evaluation: Mapping[str, Any], has_settled: bool = True
) -> dict[str, np.ndarray]:
  """Returns the value of each replica for each metric that has one.

  Args:
    evaluation: as read from `evaluation.json`, or the arrays it is written
      from: `failed_at [R]` and `negative_bound`, `kl_new`, `kl_predictable`,
      `kl_last`, each `[R]`, nats. Of an evaluation also `retrieval_ahead`,
      `retrieval_free` and the chance of both, `dream_error`,
      `dream_similarity` and those of a copy, and the same, and `dream_psnr`
      (dB), over all dreamed frames, with `_all` at their ends, beside those of
      the last frame seen, `last_error_all` and so on; each `[R]`.
    has_settled: whether `settled_at` found a step in the run; without one, the
      ratio says nothing and is left out.

  Returns:
    Those names, and `ratio`, `kl_predictable / kl_new` (at least 0, no unit),
    each [R]: not a number where a replica failed, its bound is not finite, its
    value is null or the ratio is left out.

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
  whole = values['kl_new'] if has_settled else np.nan
  values['ratio'] = values['kl_predictable'] / np.where(whole, whole, np.nan)
  return values


def pool(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Puts the replicas of several runs side by side, as if one run had them all.

  Args:
    runs: one or more evaluations, or lines of metrics, as they are read, of
      runs that differ in their seed.

  Returns:
    One of the same kind: what runs have a list of R values of, by replica, is
    one list of all replicas, run by run, with nulls for a run that has none;
    the rest is of the first run that has it.
  """
  counts = [len(run['failed_at']) for run in runs]
  return _pool(runs, counts)


def _pool(
  parts: Sequence[Mapping[str, Any]], counts: Sequence[int]
) -> dict[str, Any]:
  pooled = {}
  for name in dict.fromkeys(name for part in parts for name in part):
    values = [part.get(name) for part in parts]
    known = next((value for value in values if value is not None), None)
    if isinstance(known, Mapping):
      pooled[name] = _pool([value or {} for value in values], counts)
    elif name not in _OF_TIME and all(
      value is None or (isinstance(value, list) and len(value) == count)
      for value, count in zip(values, counts, strict=True)
    ):
      pooled[name] = known and [
        each
        for value, count in zip(values, counts, strict=True)
        for each in value or [_nulls(known[0])] * count
      ]
    else:
      pooled[name] = known
  return pooled


def _nulls(like: Any) -> Any:
  return [_nulls(each) for each in like] if isinstance(like, list) else None


def summarise(
  evaluation: Mapping[str, Any], has_settled: bool = True
) -> dict[str, MeanAndError | None]:
  """Returns means and standard errors of `by_replica`.

  A replica whose value is not a number counts for nothing; None where no value
  is left, as where nothing is predictable, or the run has not settled.
  """
  values = by_replica(evaluation, has_settled)
  return {name: _mean_and_error(column) for name, column in values.items()}


def settled_at(lines: Sequence[Mapping[str, Any]]) -> int | None:
  """Returns the step from which on the KL ratio of a run tells something.

  A model that has learned nothing pays about as little for new frames as for
  predictable ones, and the ratio of two such numbers can be anything. It counts
  from the first line on whose KL of new frames differs by less than 10% from
  that of the latest line at least 100 steps before.

  Args:
    lines: of `metrics.jsonl`, as read or as written: `step` and `kl_new [R]`,
      nats. A mean over the replicas that are alive in both lines is compared.

  Returns:
    The step of that line, None where there is none.
  """
  before = -1
  for line in lines:
    latest = line['step'] - _STEPS_APART
    while lines[before + 1]['step'] <= latest:
      before += 1
    if before >= 0 and _is_near(lines[before], line):
      return line['step']
  return None


def _is_near(*lines: Mapping[str, Any]) -> bool:
  """Whether KL of new frames differs by less than 10% in the second line."""
  both = np.array(
    [np.ravel(documents.as_json(line['kl_new'])) for line in lines], float
  )
  before, now = both[:, np.isfinite(both).all(axis=0)].sum(axis=1)
  return bool(abs(now - before) < _MOVING * before)


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
