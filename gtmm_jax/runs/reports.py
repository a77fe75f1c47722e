"""What a run writes as it is trained: lines of the records, checkpoints."""

import time
from collections.abc import Sequence
from typing import Any

from gtmm_jax import checkpoints, records, replicas, train
from gtmm_jax.runs import held_out, results
from gtmm_jax.runs.run import Run
from gtmm_jax.runs.settings import Settings


class Reports:
  """Lines of the records and checkpoints of a run, and what they tell.

  Steps are timed by `timed`; the clock of the whole starts with the reports.
  """

  def __init__(
    self,
    run: Run,
    evaluation: held_out.Evaluation,
    directory: checkpoints.Directory,
    seconds: float,
  ) -> None:
    """Reads the records.

    Args:
      run: the run.
      evaluation: of it.
      directory: of its checkpoints.
      seconds: that training took before.
    """
    self._run, self._evaluation = run, evaluation
    self._directory = directory
    self._began = time.perf_counter() - seconds
    self._lines = records.read_metrics(run.workdir)
    self._settled_at = records.settled_at(self._lines)
    self._steps, self._spent = 0, 0.0

  def timed(self, steps: int, seconds: float) -> None:
    """Takes note of how long steps took."""
    self._steps, self._spent = self._steps + steps, self._spent + seconds

  def is_slow(self, step: int) -> bool:
    """Returns whether the line of a step takes an evaluation to be compiled."""
    is_evaluated = _is_evaluated(self._run.settings, step)
    return is_evaluated and not self._evaluation.is_compiled

  def add(
    self, step: int, state: train.TrainState, images: Any
  ) -> Sequence[str]:
    """Adds a line on training since the one before; says what it comes to.

    Args:
      step: of training.
      state: of all replicas, on the devices; it is not changed.
      images: as `own_frames.Training`; those held out may take their room.

    Raises:
      OSError: if the line cannot be written.
    """
    settings = self._run.settings
    speed = self._steps / self._spent if self._steps else None
    line = _line(settings, state, speed)
    # Of replicas that all failed there is nothing to tell.
    is_one_left = None in list(line['failed_at'])
    if is_one_left and _is_evaluated(settings, step):
      images.make_room()
      line['held_out'] = self._evaluation.on_the_way(state)
    line = {'step': step, 'seconds': self._seconds(), **line}
    records.append_metrics(self._run.workdir, line)
    self._lines.append(line)
    self._steps, self._spent = 0, 0.0
    if self._settled_at is None:
      self._settled_at = records.settled_at(self._lines)
    return results.headlines(line, self._settled_at is not None)

  def save(self, state: train.TrainState) -> None:
    """Saves a state, once: on the devices, of all replicas.

    Raises:
      CannotSave: if it cannot be written, or the one before it.
    """
    step = step_of(state)
    if step not in self._directory.steps()[:1]:
      reported = [line['step'] for line in self._lines]
      checkpoints.save(
        self._directory,
        step,
        replicas.gather(state),
        {'reported': reported, 'seconds': self._seconds()},
      )

  def _seconds(self) -> float:
    return round(time.perf_counter() - self._began, 3)


def step_of(state: train.TrainState) -> int:
  """Returns how many steps a state on the devices was trained for."""
  return int(replicas.gather(state.step)[0])


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
    'steps_per_second': speed and float(f'{speed:.4g}'),
    **train.means(*replicas.gather(sums)),
  }


def _is_evaluated(settings: Settings, step: int) -> bool:
  """Whether the report of a step tells of held-out episodes."""
  reports = settings.evaluate_every
  return reports > 0 and step % (reports * settings.report_every) == 0
