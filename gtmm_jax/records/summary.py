"""Summaries of an evaluation over the replicas that did not fail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gtmm_jax.records import documents

_SUMMARISED = ('negative_bound', 'kl_new', 'kl_predictable', 'kl_last')
# Evaluations have these; lines of metrics do not.
_EVALUATED_ONLY = (
  'negative_bound_iwae',
  'negative_bound_particle',
  'kl_floor',
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
# Lists over frames, whose length may happen to be the number of replicas.
PER_FRAME = ('predictable',)

# The KL ratio is meaningless while the KL of new frames still changes by this
# share of itself or more between reports at least this many steps apart.
_MOVING, _STEPS_APART = 0.1, 100


class MeanAndError(NamedTuple):
  """A mean over replicas and its standard error, in the same unit.

  The error is None for a single replica.
  """

  mean: float
  standard_error: float | None


def by_replica(
  evaluation: Mapping[str, Any], has_settled: bool = True
) -> dict[str, np.ndarray]:
  """Returns each metric's values of all replicas, NaN for those that failed.

  Args:
    evaluation: as read from `evaluation.json`, or the arrays that it is written
      from, each `[R]`: `failed_at`, and in nats `negative_bound`, `kl_new`,
      `kl_predictable` and `kl_last`. An evaluation may also have `kl_floor`,
      `retrieval_ahead`, `retrieval_free` and the chance of both (`_chance`);
      `error` and `similarity` of `dream` and `copy` (`dream_error`, ...); and,
      over all dreamed frames, `error`, `psnr` (dB) and `similarity` of `dream`,
      `last` (the last frame seen) and `copy` (`dream_error_all`, ...).
    has_settled: whether `settled_at` found a step in the run; if not, the ratio
      is meaningless and left out.

  Returns:
    The metrics under their names, and `ratio`, `kl_predictable / kl_new` (at
    least 0, no unit), each [R]. NaN where a replica failed, its bound is not
    finite, its value is null or the ratio is left out.

  Raises:
    ValueError: the arrays differ in length.
  """
  steps = documents.as_json(evaluation['failed_at'])
  alive = np.array([step is None for step in steps], bool)
  values = {}
  for name in (*_SUMMARISED, *_EVALUATED_ONLY):
    if name not in evaluation and name in _EVALUATED_ONLY:
      continue
    column = np.array(documents.as_json(evaluation[name]), np.float64)
    if column.shape not in ((), (len(alive),)):
      raise ValueError(
        f'{name} has shape {column.shape}, but must be ({len(alive)},): one '
        'value for each replica in failed_at.'
      )
    values[name] = column
  alive &= np.isfinite(values['negative_bound'])
  values = {
    name: np.where(alive, column, np.nan) for name, column in values.items()
  }
  new = values['kl_new'] if has_settled else np.nan
  values['ratio'] = values['kl_predictable'] / np.where(new, new, np.nan)
  return values


def pool(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Joins the replicas of several runs, as if they were those of one run.

  Args:
    runs: one or more evaluations, or lines of metrics, as they are read, of
      runs that differ in their seed.

  Returns:
    One evaluation or line. Lists over replicas are concatenated, with nulls for
    a run that has no such list; all else is taken from the first run that has
    it.
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
    elif name not in PER_FRAME and all(
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
  """Returns means and standard errors of the metrics of `by_replica`.

  NaN is left out. A metric without any value is None, for example where no
  frame is predictable or the run has not settled.
  """
  values = by_replica(evaluation, has_settled)
  return {name: _mean_and_error(column) for name, column in values.items()}


def settled_at(lines: Sequence[Mapping[str, Any]]) -> int | None:
  """Returns the first step at which a run's KL ratio is meaningful, or None.

  Before a model has learned anything, its KL is near 0 for new and predictable
  frames, and the ratio of two such numbers can be anything. The ratio counts
  from the first line whose KL of new frames differs by less than 10% from that
  of the latest line at least 100 steps before it.

  Args:
    lines: of `metrics.jsonl`, as read or as written: `step` and `kl_new [R]`,
      nats. Means over the replicas with a value in both lines are compared.
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
  """Tells whether two lines' KL of new frames differs by less than 10%."""
  both = np.array(
    [np.ravel(documents.as_json(line['kl_new'])) for line in lines], float
  )
  before, now = both[:, np.isfinite(both).all(axis=0)].sum(axis=1)
  return bool(abs(now - before) < _MOVING * before)


def failed_replicas(evaluation: Mapping[str, Any]) -> list[tuple[int, int]]:
  """Returns (replica, step) for each replica that failed, by replica."""
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
