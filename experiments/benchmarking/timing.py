"""Times programs in turn, and steps in portions that are long enough."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

# Into how many portions the seconds of some steps are cut.
_PORTIONS = 20
# Fewer rounds say nothing of quartiles.
_LEAST_ROUNDS = 5


class Spread(NamedTuple):
  """A median and the quartiles around it, in the unit of the values.

  Attributes:
    median: of the values.
    min: the smallest of them.
    lower_quartile: a quarter of them lies below.
    upper_quartile: a quarter of them lies above.
  """

  median: float
  min: float
  lower_quartile: float
  upper_quartile: float


class Steps(NamedTuple):
  """The time that steps of a program took.

  Attributes:
    seconds: of a step, the mean over each portion, [N].
    portion: steps in a portion.
    first_seconds: of the first step, which compiles.
  """

  seconds: np.ndarray
  portion: int
  first_seconds: float


def spread(values: np.ndarray) -> Spread:
  """Returns median, minimum and quartiles of values [N], N >= 1."""
  lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
  return Spread(
    float(median), float(np.min(values)), float(lower), float(upper)
  )


def rounds(programs: Sequence[Callable[[], Any]], seconds: float) -> np.ndarray:
  """Runs programs in turn and returns the seconds of each run.

  Whatever else the machine does so falls on all of them.

  Args:
    programs: each returns when its work is done.
    seconds: to spend on the rounds that count; at least five are made.

  Returns:
    Seconds [rounds, programs], without a first round, which does not count.
  """
  counted: list[list[float]] = []
  for number in itertools.count():
    times = []
    for program in programs:
      began = time.perf_counter()
      program()
      times.append(time.perf_counter() - began)
    if number:
      counted.append(times)
    if number >= _LEAST_ROUNDS and np.sum(counted) >= seconds:
      return np.array(counted)


def steps(
  advance: Callable[[Any, int], Any], state: Any, seconds: float
) -> Steps:
  """Times steps, many at a time: the dispatch of one would count as its time.

  Args:
    advance: (state, count) -> state after so many steps, which may use the
      memory of the one before.
    state: before the first step.
    seconds: to spend on the steps that count, > 0.
  """

  def run(count: int) -> float:
    nonlocal state
    began = time.perf_counter()
    state = jax.block_until_ready(advance(state, count))
    return time.perf_counter() - began

  first = run(1)
  count = 1
  # The second portion is longer, and tells better how many steps fit in one.
  for _ in range(2):
    count = max(1, round(seconds / _PORTIONS * count / run(count)))
  times = rounds([lambda: run(count)], seconds)
  return Steps(times[:, 0] / count, count, first)
