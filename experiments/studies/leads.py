"""Leads of a row of a study over another, paired by replica, and verdicts."""

from typing import Literal

import numpy as np

from studies import markdown, statistics
from studies.claims import READ_FROM
from studies.outcomes import HIGHER_IS_BETTER, METRICS, Row, paired_values
from studies.statistics import Difference

Verdict = Literal['holds', 'does not hold', 'cannot be told', 'not run']


def lead(row: Row, other: Row, metric: str) -> Difference | None:
  """Returns by how much a row is better than another; None without a pair."""
  values = leads(row, other, metric)
  return paired(values, np.zeros_like(values))


def leads(row: Row, other: Row, metric: str) -> np.ndarray:
  """Returns the leads of a row's replicas over those of the same number.

  Returns:
    [R], NaN where one of both has no value; R is the lesser number of replicas,
    or 0 where seeds differ.
  """
  ours, theirs = _values(row, metric), _values(other, metric)
  n = min(len(ours), len(theirs)) if _share_seeds(row, other) else 0
  sign = 1 if metric in HIGHER_IS_BETTER else -1
  return sign * (ours[:n] - theirs[:n])


def _share_seeds(row: Row, other: Row) -> bool:
  """Returns whether replicas of the same number share seed and episodes."""
  if len(row.seeds) == len(other.seeds) == 1:
    return row.seeds[0][0] == other.seeds[0][0]
  return row.seeds == other.seeds


def paired(values: np.ndarray, others: np.ndarray) -> Difference | None:
  """Returns the mean of paired differences of leads; None without a pair."""
  n = min(len(values), len(others))
  return statistics.paired_difference(values[:n], others[:n])


def _values(row: Row, metric: str) -> np.ndarray:
  """Returns the values of a row's replicas, [R], NaN where there is none."""
  none = np.full(row.replicas, np.nan)
  if metric != READ_FROM:
    return paired_values(row, metric) if metric in row.values else none
  if row.read_from is None:
    return none
  is_there = np.isfinite(paired_values(row, 'negative_bound'))
  steps = np.where(np.isfinite(row.read_from), row.read_from, row.steps)
  return np.where(is_there, steps, np.nan)


def judge(difference: Difference | None, margin: float) -> Verdict:
  """Returns whether a lead is above a margin."""
  if difference is None or difference.interval is None:
    return 'cannot be told'
  low, high = difference.interval
  if low > margin:
    return 'holds'
  return 'does not hold' if high <= margin else 'cannot be told'


def judge_alike(difference: Difference | None, margin: float) -> Verdict:
  """Returns whether a difference is within a margin."""
  if difference is None or difference.interval is None:
    return 'cannot be told'
  low, high = difference.interval
  if -margin <= low and high <= margin:
    return 'holds'
  is_outside = low > margin or high < -margin
  return 'does not hold' if is_outside else 'cannot be told'


def in_words(what: str, difference: Difference | None, metric: str) -> str:
  """Returns what was compared by a metric, and the difference."""
  heading = METRICS.get(metric, 'first step at which memory is read')
  if difference is None:
    return f'{heading}, {what}: no pair of replicas'
  mean, interval = difference.mean, difference.interval
  return (
    f'{heading}, {what}: '
    f'{markdown.with_interval(mean, interval, metric)}, n {difference.n}'
  )
