"""Reports of a run as it trains: lines of the records, and checkpoints."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gtmm_jax import checkpoints, records, replicas, train
from gtmm_jax.process import distributed, exchange, locks
from gtmm_jax.process.background import Background
from gtmm_jax.recipe import rate_at
from gtmm_jax.runs import exam, held_out, own_frames, progress
from gtmm_jax.runs.event_files import EventFiles
from gtmm_jax.runs.run import Run
from gtmm_jax.runs.settings import Settings

# Share of the time that checkpoints may take, and the longest time in seconds
# after which the next one is due.
_SHARE, _LONGEST = 0.01, 600.0


class Reports:
  """Writes lines of the records and checkpoints of a run, in the background.

  A line is written when the checkpoint before it is complete. Not every line
  has a checkpoint: the next one is due when the time since the last one is 100
  times what that took.

  Of several processes the first one writes the lines, and each its share of the
  checkpoints; all have the same reports.

  The clock of the whole run starts with this object. The caller times the steps
  and passes the times to `timed`.
  """

  def __init__(
    self,
    run: Run,
    evaluation: held_out.Evaluation,
    directory: checkpoints.Directory,
    events: EventFiles | None,
    lock: locks.Lock | None,
    background: Background,
    seconds: float,
  ) -> None:
    """Reads the records.

    Args:
      run: the run.
      evaluation: of the run.
      directory: of the run's checkpoints.
      events: event files that get each line, too; None without.
      lock: of the workdir; None in a process that does not write.
      background: that writes.
      seconds: that training took before.
    """
    self._run, self._evaluation = run, evaluation
    self._directory, self._events, self._lock = directory, events, lock
    self._background = background
    self._saved_step = next(iter(directory.steps()), None)
    self._is_saving, self._due_at = False, 0.0
    self._began = time.perf_counter() - seconds
    self._lines = records.read_metrics(run.workdir)
    self._settled_at = records.settled_at(self._lines)
    self._steps, self._spent = 0, 0.0

  def timed(self, steps: int, seconds: float) -> None:
    """Notes how long steps took."""
    self._steps, self._spent = self._steps + steps, self._spent + seconds

  def is_slow(self, step: int) -> bool:
    """Returns whether the line of a step waits for a program to compile."""
    is_evaluated = _is_evaluated(self._run.settings, step)
    return is_evaluated and not self._evaluation.is_compiled

  def add(
    self, step: int, state: train.TrainState, images: own_frames.Training
  ) -> Sequence[str]:
    """Adds a line on training since the one before; returns its headlines.

    Args:
      step: of training.
      state: of all replicas, on the devices; it is not changed.
      images: `own_frames.Training`, which makes room for those of validation.

    Returns:
      What `progress.headlines` returns.

    Raises:
      OSError: something before it cannot be written.
      Lost: the lock was lost; nothing is written.
    """
    self._require_lock()
    settings = self._run.settings
    speed = self._steps / self._spent if self._steps else None
    line = {
      'learning_rate': float(f'{rate_at(self._run.recipe, step):.6g}'),
      'steps_per_second': speed and float(f'{speed:.4g}'),
      **_means(state),
    }
    # An evaluation says nothing where all replicas failed.
    is_one_left = None in list(line['failed_at'])
    if is_one_left and _is_evaluated(settings, step):
      images.make_room()
      line['held_out'] = self._evaluation.on_the_way(exam.weights_of(state))
    line = {'step': step, 'seconds': self._seconds(), **line}
    if exchange.is_first():
      self._background.do(records.append_metrics, self._run.workdir, line)
    self._lines.append(line)
    self._steps, self._spent = 0, 0.0
    if self._settled_at is None:
      self._settled_at = records.settled_at(self._lines)
    if self._events is not None:
      self._events.add(line, self._settled_at, state)
    return progress.headlines(line, self._settled_at is not None)

  def save(self, state: train.TrainState) -> None:
    """Saves the state of all replicas, on the devices, unless it is saved.

    Raises:
      OSError: something before it cannot be written.
      Lost: the lock was lost; nothing is written.
    """
    self._require_lock()
    step = step_of(state)
    if step == self._saved_step:
      return
    reported = [line['step'] for line in self._lines]
    notes = {'reported': reported, 'seconds': self._seconds()}
    self._saved_step, self._is_saving = step, True
    began = time.perf_counter()
    rows = replicas.rows(self._run.layout, state)
    self._background.do(self._write, began, step, rows, notes)

  def save_if_due(self, state: train.TrainState) -> None:
    """Saves the state as `save` does, unless the last time is too near."""
    is_due = not self._is_saving and time.perf_counter() >= self._due_at
    # Several processes save together, and have clocks of their own.
    if is_due or distributed.count() > 1:
      self.save(state)

  def finish(self) -> None:
    """Waits until all is written.

    Raises:
      OSError: something cannot be written.
    """
    self._background.finish()

  def _write(
    self,
    began: float,
    step: int,
    tree: train.TrainState,
    notes: Mapping[str, Any],
  ) -> None:
    """Writes a checkpoint, and decides when the next one is due."""
    checkpoints.save(self._directory, step, tree, notes)
    checkpoints.wait(self._directory)
    self._due_at = next_due(began, time.perf_counter())
    self._is_saving = False

  def _require_lock(self) -> None:
    if self._lock is not None:
      self._lock.require()

  def _seconds(self) -> float:
    return round(time.perf_counter() - self._began, 3)


def next_due(began: float, ended: float) -> float:
  """Returns when the next checkpoint is due, in seconds.

  Args:
    began: when the last one was begun.
    ended: when it was complete.
  """
  return began + min((ended - began) / _SHARE, _LONGEST)


def step_of(state: train.TrainState) -> int:
  """Returns for how many steps a state on the devices was trained."""
  return int(replicas.gather(state.step)[0])


def _means(state: train.TrainState) -> dict[str, Any]:
  """Returns means over the batches of all replicas, which are on devices."""
  sums = (state.totals, state.gradient_norm, state.failed_at)
  return train.means(*replicas.gather(sums))


def _is_evaluated(settings: Settings, step: int) -> bool:
  """Returns whether the report of a step includes validation episodes."""
  reports = settings.evaluate_every
  return reports > 0 and step % (reports * settings.report_every) == 0
