"""What the machine can do, and the roofline that it gives; no times."""

import io
import itertools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from benchmarking import reporting, roofline

_TINY = {'sides': (8, 32, 16), 'least_seconds': 1e-4}


def _rate(best: float) -> roofline.Rate:
  return roofline.Rate(best, best / 2, best / 4)


_MACHINE = roofline.Machine('cpu', 'some', 512, _rate(1e9), None)


def test_measures_this_machine():
  found = roofline.measure(**_TINY)
  device = jax.devices()[0]
  assert (found.platform, found.kind) == (device.platform, device.device_kind)
  assert found.side in _TINY['sides']
  rate = found.operations
  assert math.inf > rate.best >= rate.median >= rate.worst > 0
  assert found.core_operations is None or found.core_operations > 0


def test_rates_are_amounts_over_seconds(monkeypatch):
  """Every portion lasts two seconds of a clock that others do not see."""
  wall, cores = itertools.count(0, 2), itertools.count(0, 3)
  clock = types.SimpleNamespace(
    perf_counter=lambda: next(wall), process_time=lambda: next(cores)
  )
  monkeypatch.setattr(roofline, 'time', clock)
  found = roofline.measure(**_TINY)
  assert found.side == 32
  assert found.operations == (2 * 32**3 / 2,) * 3
  if found.platform == 'cpu':
    assert found.core_operations == 2 * 32**3 / 3


def test_calls_are_doubled_until_a_portion_is_long(monkeypatch):
  """A call takes one second here, and four are asked for."""
  calls = []
  clock = types.SimpleNamespace(
    perf_counter=lambda: float(len(calls)),
    process_time=lambda: 0.5 * len(calls),
  )
  monkeypatch.setattr(roofline, 'time', clock)

  def call(out):
    calls.append(out)
    return out + 1

  portions, last = roofline._time_portions(call, jnp.zeros(()), 3.5)
  assert len(calls) == 1 + (1 + 2 + 4) + 4 * len(portions.wall)
  # Each call was given what the one before wrote.
  assert [float(out) for out in calls] == list(range(len(calls)))
  assert last == len(calls)
  np.testing.assert_array_equal(portions.wall, 1.0)
  np.testing.assert_array_equal(portions.cores, 0.5)


def test_what_is_timed_is_done_in_memory_that_is_there():
  a, b = jax.random.normal(jax.random.key(0), (2, 16, 16))
  out = jnp.zeros((16, 16))
  product = roofline._multiply(a, b, out)
  assert out.is_deleted()
  np.testing.assert_allclose(
    product, np.asarray(a) @ np.asarray(b), rtol=1e-2, atol=1e-2
  )


def test_no_sides_are_refused():
  with pytest.raises(ValueError, match='name at least one'):
    roofline.measure(sides=())


def test_roofline_is_the_time_at_the_best_rate():
  row = roofline.as_row('ntm', 3e9, _MACHINE, 50e3, 2)
  assert row == {
    'model': 'ntm',
    'replicas': 2,
    'operations': 6e9,
    'roofline_milliseconds': pytest.approx(6e3),
    'milliseconds': 50e3,
    'fraction': pytest.approx(0.12),
  }


@pytest.mark.parametrize(
  ('milliseconds', 'replicas'), [(0.0, 1), (math.nan, 1), (1.0, 0)]
)
def test_steps_that_took_no_time_are_refused(milliseconds, replicas):
  with pytest.raises(ValueError, match='must be above 0'):
    roofline.as_row('ntm', 1.0, _MACHINE, milliseconds, replicas)


def test_table_shows_each_step_beside_its_roofline():
  rows = [
    roofline.as_row('vrnn', 2e9, _MACHINE, 8e3),
    roofline.as_row('dnc', 1e9, _MACHINE, 4e4, replicas=2),
  ]
  console = Console(width=80, record=True, file=io.StringIO())
  console.print(reporting.roofline(rows))
  lines = console.export_text().splitlines()
  cells = [[cell.strip() for cell in line.split('│')[1:-1]] for line in lines]
  found = {row[0]: row[1:] for row in cells if row}
  wanted = {
    'vrnn': '1 2.00 2,000.0 8,000.0 0.250',
    'dnc': '2 2.00 2,000.0 40,000.0 0.050',
  }
  for model, row in wanted.items():
    assert found[model] == row.split()
