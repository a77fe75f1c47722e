"""Completes a run: trains its remaining steps, evaluates, draws."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from rich.console import Console

from gtmm_jax import checkpoints, records, replicas
from gtmm_jax.checkpoints import silence
from gtmm_jax.process import (
  background,
  command,
  distributed,
  exchange,
  jax_settings,
  locks,
  signals,
)
from gtmm_jax.runs import (
  event_files,
  exam,
  held_out,
  own_frames,
  progress,
  restoring,
  results,
  retries,
  starts,
  training,
  workdirs,
)
from gtmm_jax.runs.reports import Reports
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import describe
from gtmm_jax.train import TrainState

# Printed if a signal ends the program at once.
_KEPT = (
  'the last complete checkpoint is kept; the same command continues from there'
)
_TRAINED = (
  'training is complete and saved; the same command evaluates and draws'
)


def complete(run: Run) -> None:
  """Trains the remaining steps of a run, evaluates it, and draws figures.

  Of several processes each trains and evaluates its replicas, and the first one
  decides what is left to do, writes the records and prints.

  Raises:
    CannotGoOn: this would overwrite the workdir's contents, or processes have
      different settings; nothing is changed.
    CannotLock: another program runs in the workdir, or has taken it over.
    CheckpointMismatch: the checkpoint belongs to another model.
    DataError: the file of episodes was changed during the run; a checkpoint is
      kept, also with the following errors.
    NoReplicaLeft: all replicas have failed.
    OSError: something cannot be written.
    signals.Stopped: a signal was received; the state is saved.
  """
  console = command.console(is_quiet=not exchange.is_first())
  settings, workdir = run.settings, run.workdir
  jax_settings.set_precision(settings.precision)
  _require_same(run.config)
  _require_alone_for_retries(run)
  announce(run, console)
  if exchange.agree(workdirs.is_complete(workdir, settings)):
    console.print('This run is complete; nothing is left to train.')
    if exchange.is_first():
      _show_again(run, console)
    return
  with _folder(run) as lock:
    evaluation = held_out.Evaluation(exam.of_run(run))
    state = _train(run, evaluation, lock, console)
    training.require_one_left(state, workdir)
    retried = retries.train(
      run,
      state,
      lambda second: _train(
        second, held_out.Evaluation(exam.of_run(second)), lock, console
      ),
      console,
    )
    if lock is not None:
      lock.require()
    with signals.at_once(_TRAINED):
      results.conclude(run, retried, evaluation, console)
  exchange.wait()


def _require_same(config: Mapping[str, Any]) -> None:
  """Raises `CannotGoOn` unless all processes run the same."""
  own = {
    **config['settings'],
    'data': config['data']['checksum'],
    **config['versions'],
  }
  every = exchange.values(records.documents.as_json(own, name_it=True))
  for number, other in enumerate(every):
    names = [name for name in other if other[name] != every[0].get(name)]
    if names:
      distributed.leave_together()
      raise workdirs.CannotGoOn(
        f'Process {number} differs from process 0 in {", ".join(names)}; start '
        f'all with the same flags, but for --process_id, and on the same data.'
      )


def _require_alone_for_retries(run: Run) -> None:
  """Raises `CannotGoOn` for second tries in one of several processes."""
  has_begun = workdirs.second_try(run.workdir).exists()
  if distributed.count() > 1 and (
    run.settings.retry_failed_replicas or has_begun
  ):
    distributed.leave_together()
    raise workdirs.CannotGoOn(
      f'Second tries are trained in one process. Finish {run.workdir} without '
      f'--coordinator, --process_id, --process_count and --distributed.'
    )


def _show_again(run: Run, console: Console) -> None:
  """Shows the results of a complete run, and writes its event files."""
  if run.settings.tensorboard:
    # Those of its records; nothing is evaluated any more.
    lock = locks.alone(run.workdir, run.settings.take_over)
    with lock, event_files.opened(run, None):
      pass
  results.show(run.workdir, run.settings, console)


@contextlib.contextmanager
def _folder(run: Run) -> Iterator[locks.Lock | None]:
  """Locks the folder of a run that can go on there, and records the start.

  Of several processes the first one does so; for the others it yields None.
  """
  if not exchange.is_first():
    yield None
    return
  workdir = run.workdir
  with locks.alone(workdir, run.settings.take_over) as lock:
    workdirs.require_checkpoint(workdir, run.settings.steps)
    with starts.recorded(workdir, run.config, starts.before(workdir)):
      yield lock


def _train(
  run: Run,
  evaluation: held_out.Evaluation,
  lock: locks.Lock | None,
  console: Console,
) -> TrainState:
  """Trains in a locked folder; returns the state."""
  programs = training.make_programs(run)
  with silence.storage(), signals.deferred(_KEPT):
    with signals.at_once(training.NOTHING_NEW):
      shapes = functools.partial(
        jax.eval_shape,
        jax.vmap(programs.initialise, in_axes=(0, None)),
        replica_keys(run.settings),
        # Shapes of a state do not depend on the number of images.
        run.images.validation,
      )
      start = restoring.restore(
        run.workdir, run.settings.report_every, shapes, console
      )
      images = own_frames.Training(run.layout, run.images)
      if start.state is None:
        with progress.saying('compiling the first state', console):
          state = jax.block_until_ready(programs.start(images.at(0)))
      else:
        state = replicas.scatter(run.layout, start.state)
    directory = checkpoints.open_directory(
      run.workdir / 'checkpoints', alone=False
    )
    try:
      with (
        event_files.opened(run, evaluation) as events,
        background.opened(is_inline=distributed.count() > 1) as writer,
      ):
        reports = Reports(
          *(run, evaluation, directory, events, lock, writer),
          start.seconds,
        )
        return training.train_on(run, programs, reports, state, images, console)
    finally:
      checkpoints.close(directory)


def announce(run: Run, console: Console) -> None:
  """Prints the run's settings, device and data."""
  settings, device = run.settings, run.config['device']
  console.print(
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'{settings.steps:,} steps, '
    f'{settings.replicas} replicas, store {settings.store}'
  )
  for stage in run.stages:
    console.print(f'until    step {stage.until:,}: {stage.words}')
  console.print(f'preset   {settings.preset} ({run.why})')
  several = ''
  if device['processes'] > 1:
    several = f' of {device["processes"]} processes'
  console.print(
    f'device   {device["count"]} x {device["kind"]} ({device["platform"]})'
    f'{several}, jax {run.config["versions"]["jax"]}'
  )
  data = run.config['data']
  console.print(f'data     {data["source"]}')
  console.print(f'         sha256 {data["checksum"]}')
  for doubt in run.images.doubts:
    console.print(f'warning  {doubt}')
  if settings.preset == 'paper' and data['flag'] == 'bundled':
    console.print(f'         {run.more_images}')
  console.print(f'workdir  {run.workdir}')
