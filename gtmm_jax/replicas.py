"""Replicas on devices: only this file knows about either.

R replicas of a one-replica function run on D devices, R / D on each, by
`jax.pmap` over the devices and `jax.vmap` over the replicas on each device.
Replicas never communicate; there are no collectives.

Arrays that differ between replicas are called `own`. They have a leading axis R
on the host and axes [D, R / D] on the devices. Arrays that all replicas read
are called `shared`; there is one copy on every device.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any

# Assumed bytes of memory of a machine that does not tell.
_UNKNOWN_MEMORY = 4 * 2**30


@dataclasses.dataclass(frozen=True)
class Layout:
  """The devices of replicas, and whether loops over steps run on them.

  Attributes:
    devices: D devices.
    per_device: R / D, replicas on each device.
    loops_on_device: whether many steps are one program. False for convolutions
      on the CPU, which XLA runs 40 to 90 times slower inside a loop.
  """

  devices: tuple[jax.Device, ...]
  per_device: int
  loops_on_device: bool = True

  @property
  def replicas(self) -> int:
    """R, the number of replicas."""
    return len(self.devices) * self.per_device


def prepare_cpu_devices(replicas: int) -> None:
  """Splits the CPU into as many devices as there are replicas.

  Each replica is then a separate program, and all run in parallel. This is
  faster than one program for all if arrays are small, and far faster with
  convolutions, which XLA runs 40 to 90 times slower on the CPU when they are
  batched over kernels. A replica also gives the same bits whatever R is.

  Must be called before jax is first used. Accelerators are not changed. Does
  nothing if the user has chosen (`jax_num_cpu_devices`, XLA_FLAGS).

  Args:
    replicas: R.
  """
  chosen = jax.config.jax_num_cpu_devices > 0
  if chosen or 'host_platform_device_count' in os.environ.get('XLA_FLAGS', ''):
    return
  jax.config.update('jax_num_cpu_devices', replicas)


def plan(
  replicas: int,
  convolutional: bool,
  devices: Sequence[jax.Device] | None = None,
) -> Layout:
  """Spreads R replicas evenly over as many of the devices as divide R.

  Args:
    replicas: R >= 1.
    convolutional: whether the networks are convolutional.
    devices: to choose from; None means all local ones.

  Returns:
    The layout: 20 replicas on 8 devices are 4 on each of 5.

  Raises:
    ValueError: R < 1.
  """
  if replicas < 1:
    raise ValueError(f'replicas is {replicas}; it must be at least 1.')
  devices = tuple(jax.local_devices() if devices is None else devices)
  at_most = min(len(devices), replicas)
  used = max(d for d in range(1, at_most + 1) if replicas % d == 0)
  on_cpu = devices[0].platform == 'cpu'
  return Layout(
    devices[:used], replicas // used, not (convolutional and on_cpu)
  )


def room_for_data(layout: Layout) -> int:
  """Computes the bytes that a copy of the data may take on each device.

  It is half of the memory that an accelerator gives the program. On the CPU the
  devices share half of the machine's memory with each other and with the copy
  on the host.
  """
  limit = _limit(layout)
  if limit is not None:
    return limit // 2
  return machine_memory() // 2 // (len(layout.devices) + 1)


def memory(layout: Layout) -> int:
  """Returns the bytes of each device; devices of the CPU share its memory."""
  limit = _limit(layout)
  return machine_memory() // len(layout.devices) if limit is None else limit


def _limit(layout: Layout) -> int | None:
  """Returns the bytes that an accelerator gives the program, None on a CPU."""
  return (layout.devices[0].memory_stats() or {}).get('bytes_limit')


def machine_memory() -> int:
  """Returns the bytes of the machine's memory, 4 GiB if it does not tell."""
  try:
    return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (AttributeError, ValueError, OSError):  # Some systems do not tell.
    return _UNKNOWN_MEMORY


def lift(
  layout: Layout,
  function: Callable[..., Tree],
  in_axes: Sequence[int | None],
  donate: bool = False,
) -> Callable[..., Tree]:
  """Lifts a function of one replica to all, as `jax.vmap` lifts to a batch.

  Args:
    layout: of replicas on devices.
    function: of one replica.
    in_axes: 0 for each argument that is `own`, None if it is `shared`.
    donate: whether the first argument's memory is reused for the result.

  Returns:
    The function of all replicas, compiled at its first call. Its arguments and
    result are on the devices as `scatter` and `broadcast` put them.
  """
  if layout.per_device > 1:
    on_device = jax.vmap(function, in_axes=tuple(in_axes))
  else:

    def on_device(*arguments):
      alone = (
        argument
        if axis is None
        else jax.tree.map(lambda leaf: leaf[0], argument)
        for argument, axis in zip(arguments, in_axes, strict=True)
      )
      return jax.tree.map(
        lambda leaf: jnp.asarray(leaf)[None], function(*alone)
      )

  return jax.pmap(
    on_device, devices=layout.devices, donate_argnums=(0,) if donate else ()
  )


def repeat(
  layout: Layout, step: Callable[[Tree, Tree, Tree], Tree]
) -> Callable[[Tree, Tree, Tree, int], Tree]:
  """Turns a step of one replica into many steps of all.

  The state's memory is reused: the caller must not use it afterwards. Nothing
  is copied to the host. The number of steps is not part of the compiled
  program, so steps have the same bits in portions of any size.

  Args:
    layout: of replicas on devices.
    step: (state, own, shared) -> state, of one replica.

  Returns:
    (state, own, shared, count) -> state after `count` steps, of all replicas.
  """
  if not layout.loops_on_device:
    single = lift(layout, step, (0, 0, None), donate=True)

    def repeated(state, own, shared, count):
      for _ in range(count):
        state = single(state, own, shared)
      return state

    return repeated

  def steps(state, own, shared, count):
    return jax.lax.fori_loop(
      0, count, lambda _, state: step(state, own, shared), state
    )

  looped = lift(layout, steps, (0, 0, None, None), donate=True)
  return lambda state, own, shared, count: looped(
    state, own, shared, broadcast(layout, count)
  )


def scatter(layout: Layout, tree: Tree) -> Tree:
  """Puts leaves [R, ...] on the devices, [D, R / D, ...]."""
  count, each = len(layout.devices), layout.per_device

  def put(leaf):
    if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = np.asarray(leaf)
    parts = leaf.reshape(count, each, *leaf.shape[1:])
    return _put_sharded(layout, parts)

  return jax.tree.map(put, tree)


def broadcast(layout: Layout, tree: Tree) -> Tree:
  """Puts a copy of every leaf on each device, [D, ...]."""

  def put(leaf):
    leaf = np.asarray(leaf)
    parts = np.broadcast_to(leaf, (len(layout.devices), *leaf.shape))
    return _put_sharded(layout, parts)

  return jax.tree.map(put, tree)


def gather(tree: Tree) -> Tree:
  """Brings leaves [D, R / D, ...] to the host, [R, ...]; waits for them."""

  def get(leaf):
    leaf = np.array(leaf)
    devices, each, *rest = leaf.shape
    return leaf.reshape(devices * each, *rest)

  return jax.tree.map(get, tree)


def _put_sharded(layout: Layout, parts: Any) -> jax.Array:
  mesh = jax.sharding.Mesh(np.array(layout.devices), ('device',))
  sharding = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec('device')
  )
  return jax.device_put(parts, sharding)
