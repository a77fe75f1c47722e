"""Measures what the machine can do, and how near to that a training step comes.

The roof is the machine's own rate of matrix products (Williams et al. 2009,
https://doi.org/10.1145/1498765.1498785): no program's arithmetic takes less.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# An accelerator needs larger matrices to be full, and has the time for them.
_CPU_SIDES = (512, 1024, 2048)
_SIDES = (1024, 2048, 4096, 8192)
_PORTIONS = 7
# Of a portion: a call that is timed alone pays for its dispatch.
_LEAST_SECONDS = 0.05


class Rate(NamedTuple):
  """So many a second, over portions of calls.

  Attributes:
    best: of all portions. What else the machine does only slows it down.
    median: of all portions.
    worst: of all portions.
  """

  best: float
  median: float
  worst: float


class Machine(NamedTuple):
  """What the default device can do, alone.

  Attributes:
    platform: 'cpu', 'gpu' or 'tpu'.
    kind: the device's name.
    side: of the matrices whose product ran at the highest rate.
    operations: floating-point operations a second in products of float32
      matrices, at the precision that the models' own products have there; on a
      CPU with all of its cores.
    core_operations: the same for each second of a core's time: what one core
      would do; None where the device is no CPU.
  """

  platform: str
  kind: str
  side: int
  operations: Rate
  core_operations: float | None


class _Portions(NamedTuple):
  """Seconds that a call took in each portion, [N]."""

  wall: np.ndarray
  cores: np.ndarray


def measure(
  sides: Sequence[int] | None = None,
  least_seconds: float = _LEAST_SECONDS,
) -> Machine:
  """Measures the default device, which should have nothing else to do.

  Args:
    sides: of the square matrices that are tried; None takes 512 to 2048 on a
      CPU and 1024 to 8192 elsewhere.
    least_seconds: that a portion lasts.

  Returns:
    The machine.

  Raises:
    ValueError: if there is no side.
  """
  device = jax.devices()[0]
  if sides is None:
    sides = _CPU_SIDES if device.platform == 'cpu' else _SIDES
  if not sides:
    raise ValueError('No sides of matrices are given; name at least one.')
  tried = {side: _time_product(side, least_seconds) for side in sides}
  side = max(tried, key=lambda side: side**3 / tried[side].wall.min())
  product = tried[side]
  core = None
  if device.platform == 'cpu' and product.cores.min() > 0:
    core = 2 * side**3 / float(product.cores.min())
  return Machine(
    platform=device.platform,
    kind=device.device_kind,
    side=side,
    operations=_rate(2 * side**3, product.wall),
    core_operations=core,
  )


def as_row(
  model: str,
  operations: float,
  machine: Machine,
  milliseconds: float,
  replicas: int = 1,
) -> dict[str, Any]:
  """Returns a measured step beside its roofline, as JSON has it.

  Args:
    model: its name.
    operations: of one step of one replica.
    machine: what the step was measured on.
    milliseconds: that a step of all replicas took.
    replicas: how many do that work on the device, or on a CPU in all.

  Returns:
    `model`, `replicas`, `operations` of all replicas, `roofline_milliseconds`,
    the least that they can take, `milliseconds`, and `fraction`: the roofline's
    time over the measured one, 1 where nothing is left to gain.

  Raises:
    ValueError: if `milliseconds` or `replicas` is not above 0.
  """
  if not (milliseconds > 0 and replicas > 0):
    raise ValueError(
      f'{replicas} replicas took {milliseconds} ms; both must be above 0.'
    )
  least = 1e3 * replicas * operations / machine.operations.best
  return {
    'model': model,
    'replicas': replicas,
    'operations': replicas * operations,
    'roofline_milliseconds': least,
    'milliseconds': milliseconds,
    'fraction': least / milliseconds,
  }


def _rate(amount: float, seconds: np.ndarray) -> Rate:
  rates = amount / seconds
  return Rate(float(rates.max()), float(np.median(rates)), float(rates.min()))


@functools.partial(jax.jit, donate_argnums=2, keep_unused=True)
def _multiply(a: jax.Array, b: jax.Array, out: jax.Array) -> jax.Array:
  """a @ b, written over `out`."""
  del out
  return a @ b


def _time_product(side: int, least_seconds: float) -> _Portions:
  a, b = jax.random.normal(jax.random.key(0), (2, side, side))
  portions, _ = _time_portions(
    functools.partial(_multiply, a, b), jnp.zeros_like(a), least_seconds
  )
  return portions


def _time_portions(
  call: Callable[[jax.Array], jax.Array], out: jax.Array, least_seconds: float
) -> tuple[_Portions, jax.Array]:
  """Times calls that each write over what the one before wrote.

  The device is waited for at the end of a portion alone. Calls are doubled
  until a portion lasts long enough. Returns what was written last, too.
  """

  def timed(out: jax.Array, count: int) -> tuple[jax.Array, float, float]:
    began, cores = time.perf_counter(), time.process_time()
    for _ in range(count):
      out = call(out)
    jax.block_until_ready(out)
    took = time.perf_counter() - began
    return out, took, time.process_time() - cores

  # Compiles.
  out, took, _ = timed(out, 1)
  count = 1
  out, took, _ = timed(out, count)
  while took < least_seconds:
    count *= 2
    out, took, _ = timed(out, count)
  portions = []
  for _ in range(_PORTIONS):
    out, *spent = timed(out, count)
    portions.append(spent)
  wall, cores = np.array(portions).T / count
  return _Portions(wall, cores), out
