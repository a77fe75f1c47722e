"""Statistics over replicas: intervals, paired tests, regret; no jax.

A replica that failed has NaN for its value. All functions leave NaN out.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

# Of every interval.
LEVEL = 0.95
# Replicas from which on paired differences also have a bootstrap interval: with
# fewer, resamples hold too few values to tell of their spread.
FEWEST_FOR_BOOTSTRAP = 8
_RESAMPLES = 10_000


class Interval(NamedTuple):
  """The ends of an interval, in the unit of the values."""

  low: float
  high: float


class Mean(NamedTuple):
  """A mean over replicas.

  Attributes:
    mean: of the finite values.
    interval: Student's t interval, None for one value.
    n: the number of finite values.
  """

  mean: float
  interval: Interval | None
  n: int


class Difference(NamedTuple):
  """The mean of paired differences.

  Attributes:
    mean: of the differences, ours minus the other's.
    interval: Student's t interval, None for one pair.
    bootstrap: BCa interval, None for fewer than `FEWEST_FOR_BOOTSTRAP` pairs
      and for differences that are all equal.
    p: two-sided p-value of the paired t-test, None for one pair and for
      differences that are all equal.
    n: the number of pairs.
  """

  mean: float
  interval: Interval | None
  bootstrap: Interval | None
  p: float | None
  n: int


class Regret(NamedTuple):
  """The worst-task regret of a model.

  Attributes:
    regret: largest over tasks of own mean less the least mean, >= 0.
    interval: percentiles of bootstrap resamples, None where a task has one
      replica.
  """

  regret: float
  interval: Interval | None


def mean(values: Sequence[float]) -> Mean | None:
  """Returns the mean of finite values with its t interval; None without any.

  Args:
    values: [R], one for each replica.
  """
  kept = np.asarray(values, np.float64)
  kept = kept[np.isfinite(kept)]
  if not kept.size:
    return None
  return Mean(float(kept.mean()), _t_interval(kept), kept.size)


def paired_difference(
  ours: Sequence[float], others: Sequence[float]
) -> Difference | None:
  """Compares values pair by pair; returns None without a finite pair.

  The test is `scipy.stats.ttest_rel`, the bootstrap `scipy.stats.bootstrap`
  with BCa intervals (Efron 1987), of 10,000 resamples of pairs from a fixed
  seed.

  Args:
    ours: [R].
    others: [R], whose replicas share seed and episodes with those of `ours`.

  Raises:
    ValueError: the numbers of replicas differ.
  """
  pairs = np.array([ours, others], np.float64)
  pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
  n = pairs.shape[1]
  if not n:
    return None
  differences = pairs[0] - pairs[1]
  has_spread = n > 1 and not _are_equal(differences)
  bootstrap = None
  if has_spread and n >= FEWEST_FOR_BOOTSTRAP:
    bootstrap = Interval(
      *map(
        float,
        stats.bootstrap(
          (differences,),
          np.mean,
          n_resamples=_RESAMPLES,
          confidence_level=LEVEL,
          method='BCa',
          rng=np.random.default_rng(0),
        ).confidence_interval,
      )
    )
  return Difference(
    float(differences.mean()),
    _t_interval(differences),
    bootstrap,
    float(stats.ttest_rel(*pairs).pvalue) if has_spread else None,
    n,
  )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
  """Returns Holm's adjusted p-values (Holm 1979), at most 1.

  Args:
    p_values: of a family of tests. None, for a test that cannot be made, counts
      as a member of the family and stays None.
  """
  known = [index for index, p in enumerate(p_values) if p is not None]
  order = sorted(known, key=lambda index: p_values[index])
  steps = [
    min(1.0, (len(p_values) - rank) * p_values[index])
    for rank, index in enumerate(order)
  ]
  adjusted: list[float | None] = [None] * len(p_values)
  for index, p in zip(order, itertools.accumulate(steps, max), strict=True):
    adjusted[index] = p
  return adjusted


def worst_task_regrets(losses: Sequence[np.ndarray]) -> list[Regret]:
  """Returns each model's largest regret over tasks, with its interval.

  The regret on a task is a model's mean loss less the least mean of all models.
  A replica without a value of one model is left out of its task. The bootstrap
  draws replicas of each task with replacement, the same ones for all models,
  10,000 times from a fixed seed.

  Args:
    losses: for each task [M, R_task], of M models in the same order; less is
      better.

  Raises:
    ValueError: a task has no replica with values of all models.
  """
  complete = [each[:, np.isfinite(each).all(axis=0)] for each in losses]
  if not complete or not all(each.shape[1] for each in complete):
    raise ValueError('Each task must have a replica with values of all models.')
  regrets = _worst([each.mean(axis=1) for each in complete])
  if min(each.shape[1] for each in complete) < 2:
    return [Regret(float(regret), None) for regret in regrets]
  rng = np.random.default_rng(0)
  resampled = []
  for each in complete:
    count = each.shape[1]
    drawn = rng.integers(count, size=(_RESAMPLES, count))
    resampled.append(each[:, drawn].mean(axis=-1))
  ends = np.quantile(
    _worst(resampled), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1
  )
  return [
    Regret(float(regret), Interval(float(low), float(high)))
    for regret, low, high in zip(regrets, *ends, strict=True)
  ]


def _worst(means: Sequence[np.ndarray]) -> np.ndarray:
  """Returns the largest regret over tasks of means [M, ...]."""
  return np.max([each - each.min(axis=0) for each in means], axis=0)


def _t_interval(values: np.ndarray) -> Interval | None:
  """Returns Student's t interval of the mean; None for one value."""
  n = values.size
  if n < 2:
    return None
  error = values.std(ddof=1) / math.sqrt(n) if not _are_equal(values) else 0.0
  half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * error)
  middle = float(values.mean())
  return Interval(middle - half, middle + half)


def _are_equal(values: np.ndarray) -> bool:
  """Tells whether values are equal, but for rounding."""
  return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())
