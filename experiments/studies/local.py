"""Runs cells as processes of this machine; no jax.

`launcher.Runs` says which cells run and when; an executor says how. Another
executor has the same `running`, `has_room`, `start`, `take_ended`, `end` and
`kill`.
"""

import os
import pathlib
import signal
import subprocess
from collections.abc import Collection, Sequence
from typing import NamedTuple

from gtmm_jax.process import children, command
from studies import devices, logs
from studies.cell_records import Cell


class Job(NamedTuple):
  """The process of a cell's run.

  Attributes:
    cell: the cell.
    child: the process.
    log_start: bytes of the log that earlier runs wrote.
    device: that the run has alone, None if it has all.
  """

  cell: Cell
  child: subprocess.Popen
  log_start: int
  device: str | None


class Ended(NamedTuple):
  """A run that has ended.

  Attributes:
    cell: the cell.
    code: exit code, or minus the number of the signal that ended it.
    lines: that it printed.
  """

  cell: Cell
  code: int
  lines: list[str]


class Local:
  """An executor: starts processes, some at a time, each on its own device.

  Attributes:
    jobs: runs at a time.
  """

  def __init__(
    self, program: pathlib.Path, jobs: int, dealt: Sequence[str] = ()
  ) -> None:
    """Starts nothing.

    Args:
      program: run.py.
      jobs: runs at a time, at most.
      dealt: devices, of which each run gets one; none if runs share all.
    """
    self.jobs = min(jobs, len(dealt)) if dealt else jobs
    self._program, self._free = program, list(dealt)
    self._jobs: dict[str, Job] = {}

  @property
  def running(self) -> Collection[Cell]:
    """The cells that run."""
    return [job.cell for job in self._jobs.values()]

  def has_room(self) -> bool:
    """Returns whether another run can be started now."""
    return len(self._jobs) < self.jobs

  def start(self, cell: Cell) -> None:
    """Starts the run of a cell.

    Raises:
      OSError: the log cannot be written, or the process cannot be started.
    """
    words = command.words({**cell.flags, 'workdir': cell.workdir})
    device = self._free[0] if self._free else None
    with cell.log.open('ab') as log:
      log_start = log.seek(0, os.SEEK_END)
      child = children.start(
        self._program,
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **devices.variables(device)},
      )
    if device is not None:
      self._free.remove(device)
    self._jobs[cell.name] = Job(cell, child, log_start, device)

  def take_ended(self) -> list[Ended]:
    """Returns the runs that have ended since the last call."""
    ended = []
    for name, job in list(self._jobs.items()):
      if job.child.poll() is not None:
        del self._jobs[name]
        if job.device is not None:
          self._free.append(job.device)
        lines = logs.output(job.cell.log, job.log_start)
        ended.append(Ended(job.cell, job.child.returncode, lines))
    return ended

  def end(self, number: int, grace: float) -> int:
    """Ends all runs with a signal; returns how many had to be killed.

    Args:
      number: of the signal.
      grace: seconds that they have.
    """
    running = [job.child for job in self._jobs.values()]
    return children.end(running, number, grace)

  def kill(self) -> None:
    """Kills all runs; may be called in another thread."""
    for job in list(self._jobs.values()):
      children.send(job.child, signal.SIGKILL)
