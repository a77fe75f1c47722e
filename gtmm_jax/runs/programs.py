"""What trains the replicas of a run: functions of all of them, compiled."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from gtmm_jax import replicas, train
from gtmm_jax.runs.run import Run, replica_keys


class Programs(NamedTuple):
  """What a run is trained with.

  Attributes:
    own: the replicas' keys, on the devices.
    initialise: (key, images) -> fresh state, of one replica.
    start: images on the devices -> fresh state of all replicas.
    advance: (state, images on the devices, count) -> the state after so many
      steps; the memory of the one before is used again.
    reset: state -> the state with all sums of metrics at zero; likewise.
  """

  own: jax.Array
  initialise: Callable[[jax.Array, Any], train.TrainState]
  start: Callable[[Any], train.TrainState]
  advance: Callable[[train.TrainState, Any, int], train.TrainState]
  reset: Callable[[train.TrainState], train.TrainState]


def make(run: Run) -> Programs:
  """The programs of a run; each is compiled at its first call."""
  settings, layout = run.settings, run.layout
  problem = run.problem
  optimizer = train.adam(settings.learning_rate, run.preset.gradient_norm)
  own = replicas.scatter(layout, replica_keys(settings))
  initialise = functools.partial(train.init_state, problem, optimizer)
  fresh = replicas.lift(layout, initialise, (0, None))
  repeated = replicas.repeat(
    layout, functools.partial(train.train_step, problem, optimizer)
  )
  reset = replicas.lift(layout, train.reset_totals, (0,), donate=True)
  return Programs(
    own,
    initialise,
    start=lambda images: fresh(own, images),
    advance=lambda state, images, count: repeated(state, own, images, count),
    reset=reset,
  )
