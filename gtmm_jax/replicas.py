"""Replicas on devices: only this file knows about either.

R replicas of a one-replica function run on D devices, R / D on each, by
`jax.pmap` over the devices and `jax.vmap` over the replicas on each device.
Replicas never communicate; there are no collectives. Several processes have
their share of the devices each, and of the replicas on them.

Arrays that differ between replicas are called `own`. They have a leading axis R
on the host, in each process, and axes [D, R / D] on the D devices of a process.
Arrays that all replicas read are called `shared`; there is one copy on every
device.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.process import distributed, exchange, machine

Tree = Any

_DEVICES_FLAG = r'host_platform_device_count=(\d+)'


@dataclasses.dataclass(frozen=True)
class Layout:
  """The devices of replicas, and whether loops over steps run on them.

  Attributes:
    devices: of all processes, one process after another.
    per_device: replicas on each device.
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

  @property
  def local(self) -> tuple[jax.Device, ...]:
    """The D devices of this process."""
    if distributed.count() == 1:
      return self.devices
    here = distributed.number()
    return tuple(each for each in self.devices if each.process_index == here)

  @property
  def share(self) -> slice:
    """The replicas of this process."""
    first = self.devices.index(self.local[0]) * self.per_device
    return slice(first, first + len(self.local) * self.per_device)


def prepare_cpu_devices(replicas: int) -> None:
  """Splits the CPU into as many devices as a process has replicas.

  Each replica is then a separate program, and all run in parallel. This is
  faster if arrays are small, and far faster with convolutions, which XLA runs
  40 to 90 times slower on the CPU when they are batched over kernels. A replica
  also gives the same bits whatever R is.

  Must be called before jax is first used. Accelerators are not changed. Does
  nothing if the user has chosen (`jax_num_cpu_devices`, XLA_FLAGS).

  Args:
    replicas: R.
  """
  flag = re.search(_DEVICES_FLAG, os.environ.get('XLA_FLAGS', ''))
  count = jax.config.jax_num_cpu_devices
  if count <= 0 and flag is None:
    count = -(-replicas // distributed.count())
    jax.config.update('jax_num_cpu_devices', count)
  distributed.set_threads(count if count > 0 else int(flag[1]))


def plan(
  replicas: int,
  convolutional: bool,
  devices: Sequence[jax.Device] | None = None,
) -> Layout:
  """Spreads R replicas evenly over as many of the devices as divide R.

  Args:
    replicas: R >= 1.
    convolutional: whether the networks are convolutional.
    devices: to choose from; None means those of all processes.

  Returns:
    The layout: 20 replicas on 8 devices are 4 on each of 5. Of two processes
    with 4 devices each, the first has 3 of these 5, and the second 2.

  Raises:
    ValueError: R < 1, or a process would have no replica.
  """
  if replicas < 1:
    raise ValueError(f'replicas is {replicas}; it must be at least 1.')
  devices = tuple(jax.devices() if devices is None else devices)
  at_most = min(len(devices), replicas)
  used = max(d for d in range(1, at_most + 1) if replicas % d == 0)
  chosen = sorted(_in_turn(devices)[:used], key=lambda each: each.process_index)
  processes = len({each.process_index for each in devices})
  if used < processes:
    raise ValueError(
      f'{replicas} replicas run on {used} devices, {replicas // used} on each, '
      f'and {processes} processes are too many for them: start {used}, or ask '
      f'for a multiple of {processes} --replicas.'
    )
  on_cpu = devices[0].platform == 'cpu'
  return Layout(tuple(chosen), replicas // used, not (convolutional and on_cpu))


def _in_turn(devices: Sequence[jax.Device]) -> list[jax.Device]:
  """Orders devices so that processes take turns."""
  before: collections.Counter = collections.Counter()
  turns = []
  for device in devices:
    turns.append((before[device.process_index], device))
    before[device.process_index] += 1
  return [device for _, device in sorted(turns, key=lambda turn: turn[0])]


def room_for_data(layout: Layout) -> int:
  """Computes the bytes that a copy of the data may take on each device.

  It is half of an accelerator's memory. On the CPU the devices share half of
  the machine's memory with each other and with the copy on the host.
  """
  limit = _limit(layout)
  if limit is not None:
    return limit // 2
  return machine.memory() // 2 // (len(layout.devices) + 1)


def memory(layout: Layout) -> int:
  """Returns the bytes of each device; devices of the CPU share its memory."""
  limit = _limit(layout)
  return machine.memory() // len(layout.devices) if limit is None else limit


def _limit(layout: Layout) -> int | None:
  """Returns the bytes that an accelerator gives the program, None on a CPU."""
  return (layout.local[0].memory_stats() or {}).get('bytes_limit')


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
    The function of all replicas, compiled at its first call, of arguments as
    `scatter` and `broadcast` put them.
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
    on_device, devices=layout.local, donate_argnums=(0,) if donate else ()
  )


def repeat(
  layout: Layout, step: Callable[[Tree, Tree, Tree], Tree]
) -> Callable[[Tree, Tree, Tree, int], Tree]:
  """Turns a step of one replica into many steps of all.

  The state's memory is reused: the caller must not use it afterwards. The
  number of steps is not part of the compiled program, so steps have the same
  bits in portions of any size.

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
  count, each = len(layout.local), layout.per_device

  def put(leaf):
    if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = np.asarray(leaf)
    parts = leaf[layout.share].reshape(count, each, *leaf.shape[1:])
    return jax.device_put(parts, _sharding(layout.local))

  return jax.tree.map(put, tree)


def broadcast(layout: Layout, tree: Tree) -> Tree:
  """Puts a copy of every leaf on each device, [D, ...]."""

  def put(leaf):
    leaf = np.asarray(leaf)
    parts = np.broadcast_to(leaf, (len(layout.local), *leaf.shape))
    return jax.device_put(parts, _sharding(layout.local))

  return jax.tree.map(put, tree)


def gather(tree: Tree) -> Tree:
  """Brings leaves [D, R / D, ...] to each process's host, [R, ...]; waits."""
  leaves, structure = jax.tree.flatten(_to_host(tree))
  return jax.tree.unflatten(structure, exchange.join(leaves))


def rows(layout: Layout, tree: Tree) -> Tree:
  """Returns leaves [R, ...] to be saved, on the host or as global arrays.

  Of several processes each has its own rows of the arrays, which orbax saves
  from there. A single one has them on the host, as `gather` does.
  """
  if distributed.count() == 1:
    return gather(tree)
  sharding = _sharding(layout.devices)
  return jax.tree.map(
    lambda leaf: jax.make_array_from_process_local_data(
      sharding, leaf, (layout.replicas, *leaf.shape[1:])
    ),
    _to_host(tree),
  )


def _to_host(tree: Tree) -> Tree:
  """Brings this process's leaves to its host, without the axis of devices."""

  def get(leaf):
    leaf = np.array(leaf)
    devices, each, *rest = leaf.shape
    return leaf.reshape(devices * each, *rest)

  return jax.tree.map(get, tree)


def _sharding(devices: Sequence[jax.Device]) -> jax.sharding.NamedSharding:
  """Splits the first axis of an array over devices."""
  mesh = jax.sharding.Mesh(np.array(devices), ('device',))
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('device'))
