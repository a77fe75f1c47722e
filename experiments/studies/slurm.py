"""Runs cells as jobs of a Slurm cluster; no jax.

Jobs do not end with the study. The next one finds them in Slurm's queue, and
how their runs ended in JSON that they leave.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gtmm_jax.process import command, locks
from studies import logs, slurm_queue, slurm_submit
from studies.cell_records import Cell
from studies.executor import Ended, Executor
from studies.slurm_flags import Options
from studies.slurm_submit import Job

# Seconds between two questions to squeue.
_PAUSE = 5.0
# Seconds until what a job wrote is seen on every machine that shares a folder.
_SEEN = 15.0


class _Watched(NamedTuple):
  """The job of a cell.

  Attributes:
    cell: the cell.
    number: of the job.
    over: monotonic time at which it was first seen to be over, None before.
  """

  cell: Cell
  number: str
  over: float | None = None


class _Jobs:
  """Jobs of runs, in Slurm's queue or on its nodes."""

  def __init__(
    self,
    program: pathlib.Path,
    folder: pathlib.Path,
    options: Options,
    grace: float,
    tell: Callable[[str], None],
  ) -> None:
    self._program, self._folder = program.absolute(), folder.absolute()
    self._options, self._grace, self._tell = options, grace, tell
    self._jobs: dict[str, _Watched] = {}
    self._asked_at = 0.0
    self._is_silent = False

  def attach(self, cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells whose jobs are in the queue, and watches these.

    Raises:
      ValueError: squeue is missing, or does not answer.
    """
    cells = {cell.name: cell for cell in cells}
    numbers = slurm_queue.alive(self._folder, cells, slurm_queue.ask())
    for name, number in numbers.items():
      self._jobs[name] = _Watched(cells[name], number)
    return [cells[name] for name in numbers]

  def start(self, cell: Cell) -> str:
    """Submits the job of a cell.

    Raises:
      ValueError: Slurm refuses it.
      OSError: its files cannot be written.
    """
    ended = slurm_queue.ended_file(self._folder, cell.name)
    words = command.words({**cell.flags, 'workdir': cell.workdir})
    job = Job(
      os.fspath(self._program),
      tuple(words),
      os.fspath(cell.workdir.absolute()),
      os.fspath(cell.log.absolute()),
      os.fspath(ended),
      self._options.minutes,
      self._grace,
    )
    number = slurm_submit.submit(job, cell.name, ended.parent, self._options)
    self._jobs[cell.name] = _Watched(cell, number)
    return f'is job {number}'

  def take_ended(self) -> list[Ended]:
    """Returns the runs whose jobs are over; asks squeue now and then."""
    now = time.monotonic()
    if not self._jobs or now < self._asked_at + _PAUSE:
      return []
    self._asked_at = now
    try:
      queue = slurm_queue.ask()
    except ValueError as error:
      # A controller that is started again answers soon.
      if not self._is_silent:
        self._tell(f'{error} It is asked again.')
      self._is_silent = True
      return []
    self._is_silent = False
    ended = []
    for name, job in list(self._jobs.items()):
      report = queue.get(job.number)
      if report is not None and not report.is_over:
        self._jobs[name] = job._replace(over=None)
        continue
      state = 'no longer in the queue' if report is None else report.state
      result = self._result(job, state, now)
      if result is None:
        self._jobs[name] = job._replace(over=job.over or now)
      else:
        del self._jobs[name]
        ended.append(result)
    return ended

  def leave(
    self, number: int, grace: float, tell: Callable[[str], None]
  ) -> None:
    """Leaves all jobs to go on, and prints how they can be ended."""
    del number, grace
    numbers = ' '.join(job.number for job in self._jobs.values())
    tell(
      f'{len(self._jobs)} jobs go on without this program; the same command '
      f'watches them again. To end them: scancel {numbers}'
    )

  def _result(self, job: _Watched, state: str, now: float) -> Ended | None:
    """Returns how the run of a job ended, None if that may be known later."""
    file = slurm_queue.ended_file(self._folder, job.cell.name)
    ended = slurm_queue.read_ended(file, job.number)
    # A job that is preempted may be over for a moment, before it waits again.
    if ended is not None and (job.over is not None or ended['code'] == 0):
      lines = logs.output(job.cell.log, ended['log_start'])
      return Ended(job.cell, ended['code'], lines)
    if job.over is None or now < job.over + _SEEN:
      return None
    return Ended(job.cell, None, [f'Slurm job {job.number} is {state}'])


@contextlib.contextmanager
def executor(
  program: pathlib.Path,
  folder: pathlib.Path,
  options: Options,
  jobs: int | None,
  grace: float,
  take_over: bool,
  tell: Callable[[str], None],
) -> Iterator[Executor]:
  """Yields the executor that submits jobs, alone in its folder.

  Args:
    program: run.py.
    folder: of the study, which all nodes share.
    options: of each job.
    jobs: in the queue at a time, None for any number.
    grace: seconds before the end of its time at which a run is asked to end.
    take_over: whether to take the folder over from a study on another host
      that has shown no sign of life for two minutes.
    tell: prints a line.

  Raises:
    ValueError: another study submits jobs from there, or others may read or
      write where jobs are pickled.
  """
  handed_over = slurm_queue.folder(folder)
  slurm_submit.make_private(handed_over)
  try:
    with locks.alone(handed_over, take_over):
      runs = _Jobs(program, folder, options, grace, tell)
      yield Executor(
        jobs=jobs,
        attach=runs.attach,
        start=runs.start,
        take_ended=runs.take_ended,
        leave=runs.leave,
        kill=lambda: None,
      )
  except locks.CannotLock as error:
    if locks.TAKEN not in str(error):
      raise
    raise ValueError(
      f'Another study.py submits jobs from {folder}; --status tells how far '
      f'they are.'
    ) from error
