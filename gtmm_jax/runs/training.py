"""The loop of training: portions of steps, reports, a look for signals."""

import time
from typing import Any

import jax
from rich.console import Console

from gtmm_jax import replicas, train
from gtmm_jax.process import signals
from gtmm_jax.runs import own_frames, progress
from gtmm_jax.runs import programs as programs_module
from gtmm_jax.runs.reports import Reports, step_of
from gtmm_jax.runs.run import Run

# What is told where a signal ends the program before its first step.
NOTHING_NEW = 'nothing new was trained yet; the same command goes on'
# Seconds of training between two looks at the device.
_PORTION = 0.5


class NoReplicaLeft(Exception):
  """Every replica stopped being finite; there is nothing to train on."""


def train_on(
  run: Run,
  programs: programs_module.Programs,
  reports: Reports,
  state: train.TrainState,
  images: own_frames.Training,
  console: Console,
) -> train.TrainState:
  """Trains to the last step, reporting on the way; returns the state.

  Args:
    run: the run.
    programs: that train it.
    reports: of it.
    state: of all replicas, on the devices; its memory is used again.
    images: to train on.
    console: to print on.

  Raises:
    NoReplicaLeft: if no replica is finite any more.
    signals.Stopped: if a signal came; the state is saved.
  """
  settings = run.settings
  step = step_of(state)
  _require_one_left(run, state)
  if step >= settings.steps:
    return state

  def images_at(step: int) -> Any:
    # Windows change with reports, at which a run that is cut short goes on.
    return images.at(step // settings.report_every)

  # The first step on its own, since it waits for the compiler.
  began = time.perf_counter()
  with signals.at_once(NOTHING_NEW), progress.saying('compiling', console):
    state = jax.block_until_ready(programs.advance(state, images_at(step), 1))
  step += 1
  console.print(f'compiled in {time.perf_counter() - began:.1f} s')
  portion = 1
  with progress.Training(console, step, settings.steps) as shown:
    while True:
      ends = step == settings.steps or not _is_one_left(state)
      if ends or step % settings.report_every == 0:
        if reports.is_slow(step):
          shown.say('compiling the evaluation')
        told = reports.add(step, state, images)
        state = programs.reset(state)
        reports.save(state)
        shown.report(step, *told)
      if ends:
        break
      if signals.received() is not None:
        reports.save(state)
        raise signals.Stopped(
          signals.received(),
          f'saved at step {step:,} in {run.workdir}; the same command '
          f'goes on from there',
        )
      until = settings.report_every - step % settings.report_every
      count = min(portion, until, settings.steps - step)
      # A window is read and moved before the clock of steps runs.
      images_at(step)
      began = time.perf_counter()
      state = programs.advance(state, images_at(step), count)
      jax.block_until_ready(state)
      took = time.perf_counter() - began
      step += count
      reports.timed(count, took)
      portion = max(1, int(_PORTION * count / took))
      shown.advance(step)
  _require_one_left(run, state)
  return state


def _is_one_left(state: train.TrainState) -> bool:
  """Whether a replica is still finite."""
  return bool((replicas.gather(state.failed_at) < 0).any())


def _require_one_left(run: Run, state: train.TrainState) -> None:
  """Raises `NoReplicaLeft` unless a replica is still finite."""
  if _is_one_left(state):
    return
  steps = ', '.join(f'{step:,}' for step in replicas.gather(state.failed_at))
  raise NoReplicaLeft(
    f'No replica is finite any more; they stopped being so at step {steps}. '
    f'Records and checkpoint are kept in {run.workdir}: look at the data, '
    f'or take a smaller --learning_rate, and name another --workdir.'
  )
