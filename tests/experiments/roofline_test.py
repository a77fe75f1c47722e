"""The rate of the machine, and the least time of a step."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarking import roofline, timing

_MACHINE = roofline.Machine('cpu', 'some', 512, 1e9, 5e8, 2e8)


def test_measures_this_machine():
  sides = (8, 32, 16)
  machine = roofline.measure(sides, seconds=1e-3)
  device = jax.devices()[0]
  assert (machine.platform, machine.kind) == (
    device.platform,
    device.device_kind,
  )
  assert machine.side in sides
  assert math.inf > machine.best >= machine.median >= machine.worst > 0


def test_rates_are_those_of_the_side_with_the_highest(monkeypatch):
  seconds = {8: [1.0, 2.0, 4.0], 16: [16.0, 4.0, 5.0], 32: [64.0, 64.0, 64.0]}

  def steps(advance, out, spent):
    assert spent == 7.0
    return timing.Steps(np.array(seconds[len(out)]), 1, 9.0)

  monkeypatch.setattr(timing, 'steps', steps)
  machine = roofline.measure((8, 16, 32), seconds=7.0)
  assert machine.side == 16
  operations = 2 * 16**3
  rates = machine.best, machine.median, machine.worst
  assert rates == (operations / 4, operations / 5, operations / 16)


def test_products_are_written_to_memory_that_is_there():
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


def test_least_time_is_that_at_the_best_rate():
  least = roofline.least(6e9, _MACHINE, 50e3)
  assert least == (pytest.approx(6e3), pytest.approx(0.12))


@pytest.mark.parametrize('milliseconds', [0.0, math.nan])
def test_steps_that_took_no_time_are_refused(milliseconds):
  with pytest.raises(ValueError, match='must be above 0'):
    roofline.least(1.0, _MACHINE, milliseconds)
