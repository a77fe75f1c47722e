"""One run: trains from where it stands, and concludes."""

import time
from collections.abc import Callable
from typing import Any

import command
import conclude
import continuation
import held_out
import jax
import jax_settings
import numpy as np
import own_frames
import programs as programs_module
import progress
import starts
from preparation import Prepared, replica_keys
from rich.console import Console
from settings import Settings, describe

from gtmm_jax import checkpoints, records, replicas, train

# Seconds of training between two looks at the device.
_PORTION = 0.5


class NoReplicaLeft(Exception):
  """Every replica stopped being finite; there is nothing to train on."""


def run(prepared: Prepared) -> None:
  """Trains from where the workdir stands, and concludes.

  Raises:
    CannotGoOn: where that would spoil what is there; it is as it was.
    CheckpointMismatch: if the checkpoint is of another model.
    DataError: if the file of episodes was changed meanwhile; a checkpoint is
      kept, as with what follows.
    NoReplicaLeft: if no replica is finite any more.
    OSError: if something cannot be written; what was is kept.
  """
  console = command.console()
  settings, workdir = prepared.settings, prepared.workdir
  jax_settings.set_precision(settings.precision)
  announce(prepared, console)
  if conclude.is_complete(workdir, settings):
    console.print('This run is complete; nothing is left to train.')
    conclude.show(workdir, settings, console)
    return
  with continuation.alone(workdir):
    continuation.require_checkpoint(workdir)
    with starts.recorded(workdir, prepared.config, starts.before(workdir)):
      _go_on(prepared, console)


def _go_on(prepared: Prepared, console: Console) -> None:
  """Trains and concludes in a folder that no other program writes to."""
  programs = programs_module.make(prepared)
  evaluation = held_out.Evaluation(prepared)
  manager = checkpoints.open_directory(prepared.workdir / 'checkpoints')
  try:
    state = _restore(prepared, manager, programs.initialise, console)
    images = own_frames.Training(prepared.layout, prepared.images)
    if state is None:
      state = programs.start(images.at(0))
    state = _train(
      prepared, programs, evaluation, state, images, manager, console
    )
  finally:
    checkpoints.close(manager)
  # Room for those held out.
  del images
  conclude.conclude(prepared, state, evaluation, console)


def announce(prepared: Prepared, console: Console) -> None:
  """Prints what will run, where, and on what."""
  settings, device = prepared.settings, prepared.config['device']
  console.print(
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'{settings.steps:,} steps, '
    f'{settings.replicas} replicas, store {settings.store}'
  )
  console.print(f'preset   {settings.preset} ({prepared.why})')
  console.print(
    f'device   {device["count"]} x {device["kind"]} ({device["platform"]}), '
    f'jax {prepared.config["versions"]["jax"]}'
  )
  data = prepared.config['data']
  console.print(f'data     {data["source"]}')
  console.print(f'         sha256 {data["checksum"]}')
  for doubt in prepared.images.doubts:
    console.print(f'warning  {doubt}')
  if settings.preset == 'paper' and data['flag'] == 'bundled':
    console.print(f'         {prepared.more_images}')
  console.print(f'workdir  {prepared.workdir}')


def _restore(
  prepared: Prepared, manager: Any, initialise: Callable, console: Console
) -> Any:
  """The latest state on the devices, or None; records are cut to match it."""
  template = jax.eval_shape(
    jax.vmap(initialise, in_axes=(0, None)),
    replica_keys(prepared.settings),
    # The shapes of a state do not depend on how many there are.
    prepared.images.held_out,
  )
  restored = _latest(manager, template)
  step = restored.step if restored else 0
  records.drop_metrics_after(prepared.workdir, step)
  if restored is None:
    return None
  for bad, why in restored.damaged.items():
    console.print(
      f'The checkpoint of step {bad:,} is damaged: {why}. It is kept as '
      f'unreadable-{bad}; its steps are trained again.'
    )
  console.print(f'Going on from step {step:,}.')
  return replicas.scatter(prepared.layout, restored.tree)


def _latest(
  manager: Any, template: train.TrainState
) -> checkpoints.Restored | None:
  """The latest checkpoint, also of runs that kept no gradients' norms yet."""
  try:
    return checkpoints.restore_latest(manager, template)
  except checkpoints.CheckpointMismatch as mismatch:
    kept = template._asdict()
    norms = kept.pop('gradient_norm')
    try:
      restored = checkpoints.restore_latest(manager, kept)
    except checkpoints.CheckpointMismatch:
      raise mismatch from None
    if restored is None:
      return None
    # They were saved after reports, when sums are zero.
    zeros = np.zeros(norms.shape, norms.dtype)
    state = train.TrainState(**restored.tree, gradient_norm=zeros)
    return restored._replace(tree=state)


def _train(
  prepared: Prepared,
  programs: programs_module.Programs,
  evaluation: held_out.Evaluation,
  state: train.TrainState,
  images: own_frames.Training,
  manager: Any,
  console: Console,
) -> train.TrainState:
  """Trains to the last step, reporting on the way; returns the state."""
  settings = prepared.settings
  reset = replicas.lift(
    prepared.layout, lambda state, *_: train.reset_totals(state), donate=True
  )
  step = int(replicas.gather(state.step)[0])
  _require_one_left(prepared, state)
  if step >= settings.steps:
    return state
  lines = records.read_metrics(prepared.workdir)
  before = lines[-1]['seconds'] if lines else 0.0
  settled_at = records.settled_at(lines)
  started = time.perf_counter()

  def images_at(step: int) -> Any:
    # Windows change with reports, at which a run that is cut short goes on.
    return images.at(step // settings.report_every)

  # The first step on its own, since it waits for the compiler.
  state = jax.block_until_ready(programs.advance(state, images_at(step), 1))
  step += 1
  console.print(f'compiled in {time.perf_counter() - started:.1f} s')
  portion, timed, spent = 1, 0, 0.0
  with progress.Training(console, step, settings.steps) as shown:
    while True:
      ends = step == settings.steps or not _is_one_left(state)
      if ends or step % settings.report_every == 0:
        line = _line(settings, state, timed / spent if timed else None)
        if _is_evaluated(settings, step):
          images.make_room()
          line['held_out'] = evaluation.on_the_way(state)
        seconds = before + time.perf_counter() - started
        line = {'step': step, 'seconds': round(seconds, 3), **line}
        records.append_metrics(prepared.workdir, line)
        timed, spent = 0, 0.0
        state = reset(state, programs.own, programs.own, 0)
        checkpoints.save(manager, step, replicas.gather(state))
        if settled_at is None:
          lines.append(line)
          settled_at = records.settled_at(lines)
        told = conclude.headlines(line, settled_at is not None)
        shown.report(step, *told)
      if ends:
        break
      until = settings.report_every - step % settings.report_every
      count = min(portion, until, settings.steps - step)
      # A window is read and moved before the clock of steps runs.
      images_at(step)
      began = time.perf_counter()
      state = programs.advance(state, images_at(step), count)
      jax.block_until_ready(state)
      took = time.perf_counter() - began
      step, timed, spent = step + count, timed + count, spent + took
      portion = max(1, int(_PORTION * count / took))
      shown.advance(step)
  _require_one_left(prepared, state)
  return state


def _is_one_left(state: train.TrainState) -> bool:
  """Whether a replica is still finite."""
  return bool((replicas.gather(state.failed_at) < 0).any())


def _require_one_left(prepared: Prepared, state: train.TrainState) -> None:
  """Raises `NoReplicaLeft` unless a replica is still finite."""
  if _is_one_left(state):
    return
  steps = ', '.join(f'{step:,}' for step in replicas.gather(state.failed_at))
  raise NoReplicaLeft(
    f'No replica is finite any more; they stopped being so at step {steps}. '
    f'Records and checkpoint are kept in {prepared.workdir}: look at the data, '
    f'or take a smaller --learning_rate, and name another --workdir.'
  )


def _line(
  settings: Settings, state: train.TrainState, speed: float | None
) -> dict[str, Any]:
  """What a line of the records tells of training since the one before.

  Args:
    settings: of the run.
    state: of all replicas, on the devices.
    speed: steps a second, where any were timed.
  """
  sums = (state.totals, state.gradient_norm, state.failed_at)
  return {
    'learning_rate': settings.learning_rate,
    'steps_per_second': speed and round(speed, 3),
    **train.means(*replicas.gather(sums)),
  }


def _is_evaluated(settings: Settings, step: int) -> bool:
  """Whether the report of a step tells of held-out episodes."""
  reports = settings.evaluate_every
  return reports > 0 and step % (reports * settings.report_every) == 0
