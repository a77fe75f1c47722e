"""Curves: means and standard errors over the replicas that did not fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_LONGEST = 400  # Points of a curve; more are not seen at this size.


class Run(NamedTuple):
  """What the figures show of one run, as the readers of records return it.

  Attributes:
    label: the run's name in the legend, such as the name of its model.
    metrics: lines of metrics in the order of their steps; may be empty.
    evaluation: the held-out evaluation, None where there is none.
    model: where several models are drawn, runs of one share its colour.
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
  """Floats, NaN for what is null or not finite."""
  array = np.array(value, dtype=np.float64)
  return np.where(np.isfinite(array), array, np.nan)


def alive(run: Run) -> np.ndarray:
  """Which replicas have not failed: [R], [0] where there is no record."""
  found = [
    record['failed_at']
    for record in (*run.metrics, run.evaluation)
    if record is not None
  ]
  if not found:
    return np.ones(0, bool)
  return np.isnan(np.stack([numbers(steps) for steps in found])).all(axis=0)


def per_frame(run: Run) -> Curve | None:
  """KL of frames 1 .. T of held-out episodes, None where there is no value."""
  if run.evaluation is None:
    return None
  values = np.atleast_2d(numbers(run.evaluation['kl']))[alive(run)]
  return _curve(np.arange(1, values.shape[1] + 1), values)


def over_training(run: Run, name: str) -> Curve | None:
  """One of the metrics `[R]` by training step, None where there is no value.

  Of more than 400 reports, neighbours are averaged, each replica for itself.
  """
  kept = alive(run)
  if not run.metrics or not kept.any():
    return None
  steps = np.array([line['step'] for line in run.metrics])
  lines = [numbers(line[name]) for line in run.metrics]
  values = np.stack([np.broadcast_to(line, kept.shape) for line in lines])
  values = values.T[kept]
  if len(steps) > _LONGEST:
    starts = np.arange(_LONGEST) * len(steps) // _LONGEST
    total = np.add.reduceat(np.nan_to_num(values), starts, axis=1)
    count = np.add.reduceat(np.isfinite(values), starts, axis=1, dtype=int)
    values = np.where(count, total / np.maximum(count, 1), np.nan)
    # A line reports on what precedes its step: so do several together.
    steps = steps[np.append(starts[1:], len(steps)) - 1]
  return _curve(steps, values)


def held_out(run: Run, name: str) -> Curve | None:
  """Returns a metric `[R]` of held-out episodes, by training step.

  From the lines of metrics that have an entry `held_out`, and from the
  evaluation, which has more episodes, in place of a line of its step.

  Returns:
    None where there is no value.
  """
  found = {
    line['step']: line['held_out']
    for line in run.metrics
    if line.get('held_out') is not None
  }
  if run.evaluation is not None and 'step' in run.evaluation:
    found[run.evaluation['step']] = run.evaluation
  found = {step: each[name] for step, each in found.items() if name in each}
  kept = alive(run)
  if not found or not kept.any():
    return None
  steps = sorted(found)
  values = [np.broadcast_to(numbers(found[step]), kept.shape) for step in steps]
  return _curve(np.array(steps), np.stack(values).T[kept])


def limits(
  curves: Sequence[Curve], settled: float, from_zero: bool
) -> tuple[float, float]:
  """Limits that show what follows the given fraction of each curve.

  They hold all points where what follows fills a third of the axis even so,
  and otherwise all but the outermost hundredth of it, and headroom. With
  `from_zero` they begin at zero, unless there are negative values.

  Args:
    curves: one or more.
    settled: at least 0 and below 1; 0 holds every point.
    from_zero: for what cannot be negative.

  Returns:
    The lower and the upper limit, in the unit of the means.
  """
  inner, outer = [], []
  for curve in curves:
    error = np.nan_to_num(curve.error)
    edges = np.stack([curve.mean - error, curve.mean + error])
    outer.append(edges)
    late = curve.x > settled * curve.x[-1]
    # Of a few reports, the first may tell of the start alone.
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
  """Means and standard errors over the first axis of values [R, N]."""
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
