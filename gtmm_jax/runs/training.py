"""Training of a run's replicas: portions of steps, reports, signals."""

import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
from rich.console import Console

from gtmm_jax import replicas, train
from gtmm_jax.problem import Problem
from gtmm_jax.process import distributed, exchange, signals
from gtmm_jax.runs import curriculum, own_frames, progress
from gtmm_jax.runs.reports import Reports, step_of
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks.sources import dataset

# Printed if a signal ends the program before its first step.
NOTHING_NEW = 'nothing new was trained yet; the same command continues'
# Seconds of training steps between two synchronisations with the device.
_PORTION = 0.5


class NoReplicaLeft(Exception):
  """All replicas have failed: their values are not finite."""


class Programs(NamedTuple):
  """Functions of all replicas of a run, each compiled at its first call.

  Attributes:
    keys: of the replicas, on the devices.
    initialise: (key, images) -> first state of one replica, not compiled.
    start: images on the devices -> first state of all replicas.
    advance: by the stages of the curriculum, the run's own length last, (state,
      images on the devices, count) -> the state after `count` steps; it reuses
      the memory of the state before.
    reset: state -> the state with all sums of metrics at zero; it reuses the
      memory, too.
  """

  keys: jax.Array
  initialise: Callable[[jax.Array, Any], train.TrainState]
  start: Callable[[Any], train.TrainState]
  advance: tuple[Callable[[train.TrainState, Any, int], train.TrainState], ...]
  reset: Callable[[train.TrainState], train.TrainState]


def make_programs(run: Run) -> Programs:
  """Makes the programs of a run; compiles nothing."""
  layout, problem, recipe = run.layout, run.problem, run.recipe
  keys = replicas.scatter(layout, replica_keys(run.settings))
  initialise = functools.partial(train.init_state, problem, recipe)
  start = replicas.lift(layout, initialise, (0, None))

  def steps(problem: Problem) -> Callable[..., train.TrainState]:
    step = functools.partial(train.train_step, problem, recipe)
    advance = replicas.repeat(layout, step)
    return lambda state, images, count: advance(state, keys, images, count)

  return Programs(
    keys,
    initialise,
    start=lambda images: start(keys, images),
    advance=tuple(map(steps, curriculum.problems(run.stages, problem))),
    reset=replicas.lift(layout, train.reset_totals, (0,), donate=True),
  )


def train_on(
  run: Run,
  programs: Programs,
  reports: Reports,
  state: train.TrainState,
  images: own_frames.Training,
  console: Console,
) -> train.TrainState:
  """Trains to the last step, reporting on the way; returns the state.

  It ends earlier where all replicas have failed.

  Args:
    run: the run.
    programs: of the run.
    reports: of the run.
    state: of all replicas, on the devices; its memory is reused.
    images: to train on.
    console: to print on.

  Raises:
    signals.Stopped: a signal was received; the state is saved.
  """
  settings = run.settings
  step = step_of(state)
  if step >= settings.steps or not _is_one_left(state):
    return state

  def advance(
    state: train.TrainState, step: int, count: int
  ) -> tuple[train.TrainState, float]:
    # Windows change at reports. They are read and moved before the time is
    # measured.
    try:
      window = images.at(step // settings.report_every)
    except (dataset.DataError, OSError):
      # Several processes save together, and others may have their data.
      if distributed.count() == 1:
        reports.save(state)
      raise
    program = programs.advance[curriculum.number_at(run.stages, step)]
    began = time.perf_counter()
    state = jax.block_until_ready(program(state, window, count))
    return state, time.perf_counter() - began

  # The first step runs alone, because it waits for the compiler.
  with signals.at_once(NOTHING_NEW), progress.saying('compiling', console):
    state, seconds = advance(state, step, 1)
  step += 1
  console.print(f'compiled in {seconds:.1f} s')
  portion = 1
  with progress.Training(console, step, settings.steps) as shown:
    while True:
      is_last = step == settings.steps or not _is_one_left(state)
      if is_last or step == _next_report(run, step - 1):
        if reports.is_slow(step):
          shown.say('compiling the evaluation')
        headlines = reports.add(step, state, images)
        state = programs.reset(state)
        reports.save(state) if is_last else reports.save_if_due(state)
        shown.report(step, *headlines)
      if is_last:
        break
      number, portion = _agree(portion)
      if number is not None:
        _stop(number, state, reports, run.workdir)
      words = _new_length(run, step)
      if words:
        # Its first step waits for the compiler, too.
        shown.say(f'compiling for {words}')
        portion = 1
      count = min(portion, _next_report(run, step) - step)
      state, seconds = advance(state, step, count)
      step += count
      if not words:
        reports.timed(count, seconds)
        portion = max(1, int(_PORTION * count / seconds))
      shown.advance(step)
  return state


def _next_report(run: Run, step: int) -> int:
  """Returns the first step after `step` with a report.

  A report comes after every `report_every` steps, at the end of a stage of the
  curriculum, and at the end.
  """
  every, last = run.settings.report_every, run.settings.steps
  regular = step - step % every + every
  return min(regular, curriculum.next_end(run.stages, step, last))


def _new_length(run: Run, step: int) -> str:
  """Describes the length that begins after `step`; '' if none does."""
  if step not in [stage.until for stage in run.stages]:
    return ''
  later = [stage.words for stage in run.stages if stage.until > step]
  return [*later, describe(run.settings)][0]


def _agree(portion: int) -> tuple[int | None, int]:
  """Returns the signal that a process has received, and the least portion.

  All processes count the same portions of steps, and so stop at the same step.

  Args:
    portion: steps that this process would do next.
  """
  numbers, portions = zip(
    *exchange.values((signals.received(), portion)), strict=True
  )
  received = [number for number in numbers if number is not None]
  return (received[0] if received else None), min(portions)


def _stop(
  number: int,
  state: train.TrainState,
  reports: Reports,
  workdir: pathlib.Path,
) -> NoReturn:
  """Saves the state and raises `signals.Stopped`, in all processes."""
  reports.save(state)
  reports.finish()
  distributed.leave_together()
  raise signals.Stopped(
    number,
    f'saved at step {step_of(state):,} in {workdir}; the same command '
    f'continues from there',
  )


def _is_one_left(state: train.TrainState) -> bool:
  """Returns whether a replica is still finite."""
  return bool((replicas.gather(state.failed_at) < 0).any())


def require_one_left(state: train.TrainState, workdir: pathlib.Path) -> None:
  """Raises `NoReplicaLeft` if all replicas have failed."""
  if _is_one_left(state):
    return
  distributed.leave_together()
  steps = ', '.join(f'{step:,}' for step in replicas.gather(state.failed_at))
  raise NoReplicaLeft(
    f'No replica is finite any more; they failed at step {steps}. Records and '
    f'checkpoint are kept in {workdir}: check the data, or use a smaller '
    f'--learning_rate, and name another --workdir.'
  )
