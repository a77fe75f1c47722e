"""Curves: means and standard errors over the replicas that did not fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_LONGEST = 400  # Points of a curve; more cannot be told apart.


class Run(NamedTuple):
  """The records of one run, as they are read.

  Attributes:
    label: the run's name in the legend, such as the name of its model.
    metrics: lines of metrics in the order of their steps; may be empty.
    evaluation: the held-out evaluation, None if there is none.
    model: its name; runs of one model share its colour if several are drawn.
  """

  label: str
  metrics: Sequence[Mapping[str, Any]]
  evaluation: Mapping[str, Any] | None
  model: str | None = None


class Curve(NamedTuple):
  """A mean over replicas, with its standard error.

  Attributes:
    x: [N], frames or training steps.
    mean: [N], nats; NaN where no replica has a value.
    error: [N], nats; NaN where fewer than two replicas have a value.
  """

  x: np.ndarray
  mean: np.ndarray
  error: np.ndarray


def numbers(value: Any) -> np.ndarray:
  """Converts values to floats, NaN for those that are null or not finite."""
  array = np.array(value, dtype=np.float64)
  return np.where(np.isfinite(array), array, np.nan)


def alive(run: Run) -> np.ndarray:
  """Tells which replicas have not failed, bool [R]; [0] without records."""
  failures = [
    record['failed_at']
    for record in (*run.metrics, run.evaluation)
    if record is not None
  ]
  if not failures:
    return np.ones(0, bool)
  return np.isnan(np.stack([numbers(each) for each in failures])).all(axis=0)


def per_frame(run: Run) -> Curve | None:
  """Returns the KL of frames 1 to T of held-out episodes; None without any."""
  if run.evaluation is None:
    return None
  values = np.atleast_2d(numbers(run.evaluation['kl']))[alive(run)]
  return _curve(np.arange(1, values.shape[1] + 1), values)


def over_training(run: Run, name: str) -> Curve | None:
  """Returns a metric `[R]` by training step; None without any value.

  With more than 400 reports, neighbouring ones are averaged within each
  replica.
  """
  is_alive = alive(run)
  if not run.metrics or not is_alive.any():
    return None
  steps = np.array([line['step'] for line in run.metrics])
  lines = [numbers(line[name]) for line in run.metrics]
  values = np.stack([np.broadcast_to(line, is_alive.shape) for line in lines])
  values = values.T[is_alive]
  if len(steps) > _LONGEST:
    starts = np.arange(_LONGEST) * len(steps) // _LONGEST
    total = np.add.reduceat(np.nan_to_num(values), starts, axis=1)
    count = np.add.reduceat(np.isfinite(values), starts, axis=1, dtype=int)
    values = np.where(count, total / np.maximum(count, 1), np.nan)
    # A line reports on the steps before it; so does an average of lines.
    steps = steps[np.append(starts[1:], len(steps)) - 1]
  return _curve(steps, values)


def held_out(run: Run, name: str) -> Curve | None:
  """Returns a metric `[R]` of held-out episodes by training step.

  The values come from the lines of metrics with an entry `held_out` and from
  the evaluation, which has more episodes and replaces a line of the same step.
  An evaluation on the test is left out beside lines on validation episodes.

  Returns:
    The curve, None without any value.
  """
  entries = {
    line['step']: line['held_out']
    for line in run.metrics
    if line.get('held_out') is not None
  }
  if run.evaluation is not None and 'step' in run.evaluation:
    split = run.evaluation.get('split')
    if all(entry.get('split') == split for entry in entries.values()):
      entries[run.evaluation['step']] = run.evaluation
  entries = {step: each[name] for step, each in entries.items() if name in each}
  is_alive = alive(run)
  if not entries or not is_alive.any():
    return None
  steps = sorted(entries)
  values = [
    np.broadcast_to(numbers(entries[step]), is_alive.shape) for step in steps
  ]
  return _curve(np.array(steps), np.stack(values).T[is_alive])


def limits(
  curves: Sequence[Curve], settled: float, from_zero: bool
) -> tuple[float, float]:
  """Chooses limits of an axis that show the part of curves after the start.

  The limits contain all points if that part then still fills a third of the
  axis. Otherwise they contain the part's 1st to 99th percentile, with some
  headroom.

  Args:
    curves: one or more.
    settled: fraction of each curve that is its start, at least 0 and below 1; 0
      contains every point.
    from_zero: makes 0 the lower limit, unless there are negative values.

  Returns:
    The lower and the upper limit, in the unit of the means.
  """
  inner, outer = [], []
  for curve in curves:
    error = np.nan_to_num(curve.error)
    edges = np.stack([curve.mean - error, curve.mean + error])
    outer.append(edges)
    late = curve.x > settled * curve.x[-1]
    # The first of three or more reports may describe only the start.
    late[0] &= not settled or len(late) < 3
    if settled and np.isfinite(curve.mean[late]).any():
      edges = np.nanpercentile(edges[:, late], [1, 99])
    inner.append(edges)
  low, high = _ends(inner)
  lowest, highest = _ends(outer)
  if from_zero and np.nanmin([np.nanmin(curve.mean) for curve in curves]) >= 0:
    low = lowest = 0.0
  span = high - low or abs(high) or 1.0
  if highest - low > 3 * span:
    highest = high + span / 4
  if high - lowest > 3 * span:
    lowest = low - span / 4
  room = (highest - lowest or span) / 20
  return lowest - (room if lowest else 0.0), highest + room


def _ends(parts: Iterable[np.ndarray]) -> tuple[float, float]:
  values = np.concatenate([part.ravel() for part in parts])
  return float(np.nanmin(values)), float(np.nanmax(values))


def _curve(x: np.ndarray, values: np.ndarray) -> Curve | None:
  """Computes means and standard errors over the first axis of [R, N]."""
  count = np.isfinite(values).sum(axis=0)
  if not count.any():
    return None
  mean = np.nansum(values, axis=0) / np.maximum(count, 1)
  squares = np.nansum((values - mean) ** 2, axis=0)
  error = np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))
  return Curve(
    x,
    np.where(count > 0, mean, np.nan),
    np.where(count > 1, error, np.nan),
  )
