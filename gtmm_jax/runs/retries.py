"""Trains replicas that failed again, from other keys.

With --retry_failed_replicas each replica that stopped being finite gets a
second try, once the others have ended: a run of one replica in the folder
`retries/REPLICA` of the workdir, with as many steps and a key of its own. The
records and checkpoints of the run stay as they are, with the failure in them.
The evaluation takes the second try in the replica's place, on the same
episodes, and tells when the first one failed, so that comparisons of pairs can
leave the replica out. Both runs resume and train further as any run does.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console

from gtmm_jax import replicas
from gtmm_jax.runs import workdirs
from gtmm_jax.runs.run import Run
from gtmm_jax.train import TrainState


class Retried(NamedTuple):
  """The state of a run after the second tries.

  Attributes:
    state: of all replicas, on the devices.
    first_failed_at: for each replica the step at which its first try failed,
      None for replicas without a second one; None where no replica has one.
  """

  state: TrainState
  first_failed_at: list[int | None] | None = None


def train(
  run: Run,
  state: TrainState,
  train_one: Callable[[Run], TrainState],
  console: Console,
) -> Retried:
  """Trains replicas that failed again where the run asks for it, or has begun.

  Args:
    run: whose training has ended.
    state: of all replicas, on the devices.
    train_one: trains the remaining steps of a run; returns its state, on the
      devices.
    console: to print on.

  Raises:
    CannotGoOn: records of a second try have no checkpoint.
  """
  settings = run.settings
  has_begun = workdirs.second_try(run.workdir).exists()
  failed_at = replicas.gather(state.failed_at)
  numbers = np.flatnonzero(failed_at >= 0).tolist()
  if not numbers or not (settings.retry_failed_replicas or has_begun):
    return Retried(state)
  whole = replicas.gather(state)
  for number in numbers:
    console.print(
      f'Replica {number} stopped being finite at step {failed_at[number]:,}; '
      f'its second try, from another key:'
    )
    second = second_run(run, number)
    workdirs.require_checkpoint(second.workdir, settings.steps)
    put(whole, number, replicas.gather(train_one(second)))
  first_failed_at = [
    int(step) if number in numbers else None
    for number, step in enumerate(failed_at)
  ]
  return Retried(replicas.scatter(run.layout, whole), first_failed_at)


def second_run(run: Run, replica: int) -> Run:
  """Returns the run of one replica that is its second try."""
  second = {'second_try': replica, 'replicas': 1}
  config = {**run.config, 'settings': {**run.config['settings'], **second}}
  return dataclasses.replace(
    run,
    settings=dataclasses.replace(run.settings, **second, tensorboard=False),
    workdir=workdirs.second_try(run.workdir, replica),
    layout=dataclasses.replace(
      run.layout, devices=run.layout.devices[:1], per_device=1
    ),
    config=config,
  )


def put(whole: TrainState, replica: int, second: TrainState) -> None:
  """Puts the state of a second try into that of all replicas, on the host.

  Args:
    whole: leaves [R, ...], which are changed.
    replica: its number.
    second: leaves [1, ...]. Its step may be an earlier one if it failed, too;
      that of the run counts.
  """
  step = whole.step.copy()
  for leaf, new in zip(
    jax.tree.leaves(whole), jax.tree.leaves(second), strict=True
  ):
    leaf[replica] = new[0]
  whole.step[:] = step
