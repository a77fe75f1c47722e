"""Runs cells as processes of this machine; no jax."""

import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gtmm_jax.process import children, command
from studies import devices, logs
from studies.cell_records import Cell
from studies.executor import Ended, Executor


class _Job(NamedTuple):
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


class _Processes:
  """Processes of runs, each on a device of its own if devices are dealt out."""

  def __init__(self, program: pathlib.Path, dealt: Sequence[str]) -> None:
    self._program, self._free = program, list(dealt)
    self._jobs: dict[str, _Job] = {}

  def start(self, cell: Cell) -> str:
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
    self._jobs[cell.name] = _Job(cell, child, log_start, device)
    return 'begins'

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

  def leave(
    self, number: int, grace: float, tell: Callable[[str], None]
  ) -> None:
    """Ends all runs with a signal, and kills those that do not end in time."""
    tell(f'Ends {", ".join(self._jobs)}')
    running = [job.child for job in self._jobs.values()]
    killed = children.end(running, number, grace)
    if killed:
      tell(f'{killed} did not end in {grace:g} s, and were killed')

  def kill(self) -> None:
    """Kills all runs; may be called in another thread."""
    for job in list(self._jobs.values()):
      children.send(job.child, signal.SIGKILL)


def executor(
  program: pathlib.Path, jobs: int, dealt: Sequence[str] = ()
) -> Executor:
  """Returns the executor that starts processes of this machine.

  Args:
    program: run.py.
    jobs: runs at a time, at most.
    dealt: devices, of which each run gets one; none if runs share all.
  """
  runs = _Processes(program, dealt)
  return Executor(
    jobs=min(jobs, len(dealt)) if dealt else jobs,
    # No run of this machine outlives its study.
    attach=lambda _: [],
    start=runs.start,
    take_ended=runs.take_ended,
    leave=runs.leave,
    kill=runs.kill,
  )
