"""Where a run goes on: its latest checkpoint, and records that reach it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from gtmm_jax import checkpoints, records, train
from gtmm_jax.records import history
from gtmm_jax.runs.run import Run
from gtmm_jax.train import TrainState


class Start(NamedTuple):
  """Where a run goes on.

  Attributes:
    state: of all replicas, on the host; None where nothing was trained yet.
    seconds: of training up to there.
  """

  state: TrainState | None
  seconds: float


def restore(
  run: Run,
  directory: checkpoints.Directory,
  template: TrainState,
  console: Console,
) -> Start:
  """Restores the latest state, and makes the records match it.

  Where lines of the records are lost, an earlier checkpoint that they reach is
  taken, and the steps since are trained again. Where there is none, lines that
  say that they are lost stand in for them. Either is told, and nothing deleted.
  Checkpoints tell in their notes which steps had been `reported`, and how many
  `seconds` training had taken.

  Args:
    run: the run.
    directory: of its checkpoints.
    template: the state of all replicas, as shapes.
    console: to print on.

  Raises:
    CheckpointMismatch: if the checkpoint is of another model.
  """
  workdir = run.workdir
  lines = records.read_metrics(workdir)

  def compare(step: int, noted: Any) -> history.History:
    expected = noted.get('reported')
    if expected is None:
      every = run.settings.report_every
      expected = history.guess_expected(lines, every, step)
    return history.compare(lines, expected, step)

  restored = _latest(
    directory, template, lambda *at: not compare(*at).missing
  ) or _latest(directory, template)
  if restored is None:
    records.drop_metrics_after(workdir, 0)
    return Start(None, 0.0)
  _tell(restored, console)
  step, found = restored.step, compare(restored.step, restored.notes)
  if found.missing or not found.is_in_order:
    kept = history.mend(
      workdir, found, step, lambda at: _blank(at, restored.tree)
    )
    _tell_of_records(found, kept.name, console)
  else:
    records.drop_metrics_after(workdir, step)
  console.print(f'Going on from step {step:,}.')
  times = [line['seconds'] for line in lines if line['step'] <= step]
  times = [time for time in times if time is not None]
  return Start(
    restored.tree, restored.notes.get('seconds', max(times, default=0.0))
  )


def _latest(
  directory: checkpoints.Directory, template: TrainState, *is_wanted: Callable
) -> checkpoints.Restored | None:
  """The latest checkpoint, also of runs that kept no gradients' norms yet."""
  try:
    return checkpoints.restore_latest(directory, template, *is_wanted)
  except checkpoints.CheckpointMismatch as mismatch:
    kept = template._asdict()
    norms = kept.pop('gradient_norm')
    try:
      restored = checkpoints.restore_latest(directory, kept, *is_wanted)
    except checkpoints.CheckpointMismatch:
      raise mismatch from None
    if restored is None:
      return None
    # They were saved after reports, when sums are zero.
    zeros = np.zeros(norms.shape, norms.dtype)
    state = type(template)(**restored.tree, gradient_norm=zeros)
    return restored._replace(tree=state)


def _tell(restored: checkpoints.Restored, console: Console) -> None:
  """Says which checkpoints were passed over, and why."""
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


def _tell_of_records(
  found: history.History, kept: str, console: Console
) -> None:
  """Says what was wrong with the records, and what was made of them."""
  if found.missing:
    console.print(
      f'metrics.jsonl has lost the lines of {history.in_words(found.missing)}; '
      f'lines marked "lost" stand there now. The file as it was: {kept}'
    )
  else:
    console.print(
      f'Lines of metrics.jsonl were out of order, or there twice; they are in '
      f'order now. The file as it was: {kept}'
    )


def _blank(step: int, state: TrainState) -> dict[str, Any]:
  """Makes the values of a line of which nothing is known."""
  failed_at = np.where(state.failed_at <= step, state.failed_at, -1)
  nothing = type(state.totals)(*map(np.zeros_like, state.totals))
  return {
    'step': step,
    'seconds': None,
    **train.means(nothing, np.zeros(failed_at.shape), failed_at),
  }
