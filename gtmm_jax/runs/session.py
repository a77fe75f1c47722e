"""Completes a run: trains from where it stands, evaluates, draws."""

import jax
from rich.console import Console

from gtmm_jax import checkpoints, replicas
from gtmm_jax.checkpoints import silence
from gtmm_jax.process import command, jax_settings, signals
from gtmm_jax.runs import (
  held_out,
  own_frames,
  progress,
  restoring,
  results,
  starts,
  training,
  workdirs,
)
from gtmm_jax.runs.reports import Reports
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import describe
from gtmm_jax.train import TrainState

# Printed where a signal ends the program at once.
_KEPT = 'the last whole checkpoint is kept; the same command goes on from there'
_TRAINED = (
  'training is complete and saved; the same command evaluates and draws'
)


def complete(run: Run) -> None:
  """Trains a run from where its workdir stands, evaluates it, and draws.

  Raises:
    CannotGoOn: where that would spoil what is there; it is as it was.
    CheckpointMismatch: if the checkpoint is of another model.
    DataError: if the file of episodes was changed meanwhile; a checkpoint is
      kept, as with what follows.
    NoReplicaLeft: if no replica is finite any more.
    OSError: if something cannot be written; what was is kept.
    signals.Stopped: if a signal came; what was trained is saved.
  """
  console = command.console()
  settings, workdir = run.settings, run.workdir
  jax_settings.set_precision(settings.precision)
  announce(run, console)
  if workdirs.is_complete(workdir, settings):
    console.print('This run is complete; nothing is left to train.')
    results.show(workdir, settings, console)
    return
  with workdirs.alone(workdir):
    workdirs.require_checkpoint(workdir, settings.steps)
    with starts.recorded(workdir, run.config, starts.before(workdir)):
      evaluation = held_out.Evaluation(run)
      state = _train(run, evaluation, console)
      with signals.at_once(_TRAINED):
        results.conclude(run, state, evaluation, console)


def _train(
  run: Run, evaluation: held_out.Evaluation, console: Console
) -> TrainState:
  """Trains in a folder that no other program writes to; returns the state."""
  programs = training.make_programs(run)
  with silence.storage(), signals.deferred(_KEPT):
    directory = checkpoints.open_directory(run.workdir / 'checkpoints')
    try:
      with signals.at_once(training.NOTHING_NEW):
        template = jax.eval_shape(
          jax.vmap(programs.initialise, in_axes=(0, None)),
          replica_keys(run.settings),
          # Shapes of a state do not depend on how many images there are.
          run.images.held_out,
        )
        start = restoring.restore(
          run.workdir, run.settings.report_every, directory, template, console
        )
        images = own_frames.Training(run.layout, run.images)
        if start.state is None:
          with progress.saying('compiling the first state', console):
            state = jax.block_until_ready(programs.start(images.at(0)))
        else:
          state = replicas.scatter(run.layout, start.state)
      reports = Reports(run, evaluation, directory, start.seconds)
      return training.train_on(run, programs, reports, state, images, console)
    finally:
      checkpoints.close(directory)


def announce(run: Run, console: Console) -> None:
  """Prints what will run, where, and on what data."""
  settings, device = run.settings, run.config['device']
  console.print(
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'{settings.steps:,} steps, '
    f'{settings.replicas} replicas, store {settings.store}'
  )
  console.print(f'preset   {settings.preset} ({run.why})')
  console.print(
    f'device   {device["count"]} x {device["kind"]} ({device["platform"]}), '
    f'jax {run.config["versions"]["jax"]}'
  )
  data = run.config['data']
  console.print(f'data     {data["source"]}')
  console.print(f'         sha256 {data["checksum"]}')
  for doubt in run.images.doubts:
    console.print(f'warning  {doubt}')
  if settings.preset == 'paper' and data['flag'] == 'bundled':
    console.print(f'         {run.more_images}')
  console.print(f'workdir  {run.workdir}')
