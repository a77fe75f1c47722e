"""Measures the machine's peak rate, and compares a training step with it.

The roof is the machine's own rate of matrix products (Williams et al. 2009,
https://doi.org/10.1145/1498765.1498785): no program's arithmetic takes less.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarking import timing

# An accelerator needs larger matrices to be full, and has the time for them.
_CPU_SIDES = (512, 1024, 2048)
_SIDES = (1024, 2048, 4096, 8192)
_SECONDS = 1.0


class Machine(NamedTuple):
  """The rate of matrix products on the default device.

  Rates are floating-point operations per second in products of float32
  matrices, with the precision of the models' products; on a CPU, with all of
  its cores.

  Attributes:
    platform: 'cpu', 'gpu' or 'tpu'.
    kind: the device's name.
    side: of the square matrices whose product had the highest rate.
    best: highest rate. Other programs on the machine can only lower it.
    median: rate over portions of products of that side.
    worst: lowest rate of a portion.
  """

  platform: str
  kind: str
  side: int
  best: float
  median: float
  worst: float


class Least(NamedTuple):
  """The least time of a step, and the measured step's distance from it.

  Attributes:
    milliseconds: of the step's arithmetic at the machine's best rate.
    fraction: these divided by the measured ones; 1 cannot be improved.
  """

  milliseconds: float
  fraction: float


def measure(
  sides: Sequence[int] | None = None, seconds: float = _SECONDS
) -> Machine:
  """Measures the default device, which should have nothing else to do.

  Args:
    sides: of the square matrices that are tried; None takes 512 to 2048 on a
      CPU and 1024 to 8192 elsewhere.
    seconds: to spend on each.

  Raises:
    ValueError: there is no side.
  """
  device = jax.devices()[0]
  if sides is None:
    sides = _CPU_SIDES if device.platform == 'cpu' else _SIDES
  if not sides:
    raise ValueError('No sides of matrices are given; name at least one.')
  rates = {side: 2 * side**3 / _time_product(side, seconds) for side in sides}
  side = max(rates, key=lambda side: rates[side].max())
  return Machine(
    platform=device.platform,
    kind=device.device_kind,
    side=side,
    best=float(rates[side].max()),
    median=float(np.median(rates[side])),
    worst=float(rates[side].min()),
  )


def least(operations: float, machine: Machine, milliseconds: float) -> Least:
  """Returns the least time of a step beside the measured one.

  Args:
    operations: of a step of all replicas on the device, or in all on a CPU.
    machine: what the step was measured on.
    milliseconds: that a step of all replicas took.

  Raises:
    ValueError: `milliseconds` is not above 0.
  """
  if not milliseconds > 0:
    raise ValueError(f'A step took {milliseconds} ms; it must be above 0.')
  shortest = 1e3 * operations / machine.best
  return Least(shortest, shortest / milliseconds)


@functools.partial(jax.jit, donate_argnums=2, keep_unused=True)
def _multiply(a: jax.Array, b: jax.Array, out: jax.Array) -> jax.Array:
  """Returns a @ b in the memory of `out`; new memory is slower to write to."""
  del out
  return a @ b


def _time_product(side: int, seconds: float) -> np.ndarray:
  """Returns the seconds of a product of matrices, of each portion, [N]."""
  a, b = jax.random.normal(jax.random.key(0), (2, side, side))

  def advance(out: jax.Array, count: int) -> jax.Array:
    for _ in range(count):
      out = _multiply(a, b, out)
    return out

  return timing.steps(advance, jnp.zeros_like(a), seconds).seconds
