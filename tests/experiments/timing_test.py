"""Times of programs that take turns, and of steps in portions."""

import itertools
import statistics
import time
import types

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarking import timing


def test_spread_equals_its_definition():
  values = [5.0, 1.0, 9.0, 2.0, 7.0, 7.5, 3.0]
  spread = timing.spread(np.array(values))
  quartiles = statistics.quantiles(values, n=4, method='inclusive')
  assert quartiles == pytest.approx(
    [spread.lower_quartile, spread.median, spread.upper_quartile]
  )
  assert spread.min == 1.0
  assert timing.spread(np.array([4.0])) == (4.0, 4.0, 4.0, 4.0)


def test_programs_take_turns_and_the_first_round_does_not_count():
  called = []

  def program(name, seconds):
    def run():
      called.append(name)
      # The first call is slow, as if it compiled.
      time.sleep(seconds if called.count(name) > 1 else 0.2)

    return run

  programs = [program('a', 0.004), program('b', 0.001)]
  times = timing.rounds(programs, 1e-6)
  assert times.shape == (5, 2)
  assert called == ['a', 'b'] * 6
  # A sleep is never shorter, and longer on a busy machine.
  assert (times >= [0.004, 0.001]).all()
  assert np.median(times[:, 0]) < 0.2
  called.clear()
  assert timing.rounds(programs, 0.1).sum() >= 0.1


def test_steps_fill_portions_of_a_twentieth(monkeypatch: pytest.MonkeyPatch):
  # A step takes one second of a clock that others do not see, the first 9.
  counts = []

  def advance(state, count):
    counts.append(count)
    return state + count

  clock = types.SimpleNamespace(
    perf_counter=lambda: float(sum(counts) + 8 * (len(counts) > 0))
  )
  monkeypatch.setattr(timing, 'time', clock)
  steps = timing.steps(advance, jnp.int32(0), 80.0)
  # Four steps are a twentieth of 80 seconds.
  assert counts == [1, 1, *itertools.repeat(4, len(counts) - 2)]
  assert steps.first_seconds == 9
  assert steps.portion == 4
  np.testing.assert_array_equal(steps.seconds, np.ones(20))


def test_long_steps_are_portions_of_their_own(monkeypatch: pytest.MonkeyPatch):
  counts = []
  clock = types.SimpleNamespace(perf_counter=lambda: 60.0 * len(counts))
  monkeypatch.setattr(timing, 'time', clock)
  steps = timing.steps(lambda state, count: counts.append(count), None, 1.0)
  assert set(counts) == {1}
  np.testing.assert_array_equal(steps.seconds, [60.0] * 5)
