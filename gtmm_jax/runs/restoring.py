"""Restores a run: its latest checkpoint, and records that match it."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from gtmm_jax import checkpoints, records, train
from gtmm_jax.process import exchange
from gtmm_jax.records import history
from gtmm_jax.train import TrainState


class Start(NamedTuple):
  """A state from which a run resumes.

  Attributes:
    state: of all replicas, on the host; None where nothing was trained yet.
    seconds: that training took up to the state.
  """

  state: TrainState | None
  seconds: float


def restore(
  workdir: pathlib.Path,
  report_every: int,
  shapes: Callable[[], TrainState],
  console: Console,
) -> Start:
  """Restores the latest state, and makes the records match it.

  Where lines of the records are lost, an earlier checkpoint is taken before
  which none is, and the steps since are trained again. Where there is none,
  lines marked as lost stand in. Both are printed, and nothing is deleted. The
  notes of a checkpoint hold which steps had been `reported`, and how many
  `seconds` training had taken. Of several processes the first one chooses the
  checkpoint and mends the records, and all read it.

  Args:
    workdir: of the run, in a file system that all processes share.
    report_every: steps between two lines of the records.
    shapes: returns the state of all replicas, as shapes; called where there is
      a checkpoint, since tracing takes seconds.
    console: to print on.

  Raises:
    CheckpointMismatch: the checkpoint is of another model.
  """
  folder, start, chosen = workdir / 'checkpoints', Start(None, 0.0), None
  if exchange.is_first():
    directory = checkpoints.open_directory(folder)
    try:
      start = _choose(workdir, report_every, directory, shapes, console)
    finally:
      checkpoints.close(directory)
    if start.state is not None:
      chosen = int(start.state.step[0]), start.seconds
  chosen = exchange.agree(chosen)
  if chosen is None or exchange.is_first():
    return start
  step, seconds = chosen
  return Start(checkpoints.read_whole(folder, shapes(), step), seconds)


def _choose(
  workdir: pathlib.Path,
  report_every: int,
  directory: checkpoints.Directory,
  shapes: Callable[[], TrainState],
  console: Console,
) -> Start:
  """Restores the latest state in one process, and mends the records."""
  lines = records.read_metrics(workdir)

  def compare(step: int, notes: Any) -> history.History:
    expected = notes.get('reported')
    if expected is None:
      expected = history.guess_expected(lines, report_every, step)
    return history.compare(lines, expected, step)

  template = shapes() if directory.steps() else None
  restored = checkpoints.restore_latest(
    directory, template, lambda *at: not compare(*at).missing
  ) or checkpoints.restore_latest(directory, template)
  if restored is None:
    records.drop_metrics_after(workdir, 0)
    return Start(None, 0.0)
  _print_skipped(restored, console)
  step, past = restored.step, compare(restored.step, restored.notes)
  if past.missing or not past.is_in_order:
    original = history.mend(
      workdir, past, step, lambda at: _blank(at, restored.tree)
    )
    _print_mended(past, original.name, console)
  else:
    records.drop_metrics_after(workdir, step)
  console.print(f'Resuming from step {step:,}.')
  times = [line['seconds'] for line in lines if line['step'] <= step]
  times = [time for time in times if time is not None]
  return Start(
    restored.tree, restored.notes.get('seconds', max(times, default=0.0))
  )


def _print_skipped(restored: checkpoints.Restored, console: Console) -> None:
  """Prints which checkpoints were skipped, and why."""
  for step, why in sorted(restored.damaged.items()):
    console.print(
      f'The checkpoint of step {step:,} is damaged: {why}. It is kept as '
      f'unreadable-{step}; its steps are trained again.'
    )
  for step in sorted(restored.unwanted):
    console.print(
      f'metrics.jsonl has lost lines before the checkpoint of step {step:,}. '
      f'It is kept as unwanted-{step}; its steps are trained again.'
    )


def _print_mended(
  past: history.History, original: str, console: Console
) -> None:
  """Prints what was wrong with the records, and how they were mended."""
  if past.missing:
    console.print(
      f'metrics.jsonl has lost the lines of {history.in_words(past.missing)}; '
      f'lines marked "lost" stand there now. The file as it was: {original}'
    )
  else:
    console.print(
      f'Lines of metrics.jsonl were out of order, or there twice; they are in '
      f'order now. The file as it was: {original}'
    )


def _blank(step: int, state: TrainState) -> dict[str, Any]:
  """Returns the values of a lost line, all unknown."""
  failed_at = np.where(state.failed_at <= step, state.failed_at, -1)
  nothing = type(state.totals)(*map(np.zeros_like, state.totals))
  return {
    'step': step,
    'seconds': None,
    **train.means(nothing, np.zeros(failed_at.shape), failed_at),
  }
