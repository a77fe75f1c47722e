"""Runs the cells of a study, and shares them with other programs; no jax."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gtmm_jax.process import children, command, signals
from gtmm_jax.runs import workdirs
from studies import cell_records
from studies.cell_records import Cell
from studies.progress import Shown

# Seconds between two looks at the progress of runs, and at cells that other
# programs run.
_SLOWLY = 1.0


class Running(NamedTuple):
  """The process of a cell's run.

  Attributes:
    cell: the cell.
    child: the process.
    log_start: bytes of the log that earlier runs wrote.
  """

  cell: Cell
  child: subprocess.Popen
  log_start: int


class Runs:
  """Runs cells, some at a time.

  Attributes:
    failed: the names of those that failed.
  """

  def __init__(
    self,
    cells: Sequence[Cell],
    program: pathlib.Path,
    jobs: int,
    shown: Shown,
    judge: Callable[[Cell], tuple[str, bool]],
  ) -> None:
    """Takes the cells; starts nothing.

    Args:
      cells: that are not complete.
      program: run.py.
      jobs: runs at a time.
      shown: the progress that is shown.
      judge: returns the result of a cell that ended, in words, and whether it
        is wrong.
    """
    self.failed: set[str] = set()
    self._left = list(cells)
    self._program, self._jobs = program, jobs
    self._shown, self._judge = shown, judge
    self._running: dict[str, Running] = {}
    self._looked: dict[str, float] = {}

  def finish(self, grace: float) -> None:
    """Runs all cells, and waits for those that other programs run.

    Args:
      grace: seconds that runs have to end, where this program is to end.

    Raises:
      Stopped: after a signal, once its runs have ended.
    """
    with signals.deferred(signals.GOES_ON, self._kill):
      try:
        while (self._left or self._running) and signals.received() is None:
          self._begin()
          self._look()
          time.sleep(children.LOOK)
      finally:
        # Runs are left where a signal came, or this program failed.
        self._end(grace)

  def _begin(self) -> None:
    """Starts cells, as many as may run, except those that others run."""
    for cell in list(self._left):
      if len(self._running) >= self._jobs:
        return
      if time.monotonic() < self._looked.get(cell.name, 0.0):
        continue
      if workdirs.is_taken(cell.workdir):
        self._leave(cell)
        continue
      self._left.remove(cell)
      try:
        # A cell that only lacks figures is run, too.
        if not cell.is_evaluated and cell_records.is_done(cell):
          self._say(cell, *self._judge(cell))
          continue
        self._start(cell)
      except (ValueError, OSError) as error:
        self._say(cell, str(error), True)

  def _start(self, cell: Cell) -> None:
    words = command.words({**cell.flags, 'workdir': cell.workdir})
    with cell.log.open('ab') as log:
      log_start = log.seek(0, os.SEEK_END)
      child = children.start(
        self._program,
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )
    self._running[cell.name] = Running(cell, child, log_start)
    self._shown.begin(cell.name, cell.steps)

  def _leave(self, cell: Cell) -> None:
    """Leaves a cell, for now, to the program that runs it."""
    self._looked[cell.name] = time.monotonic() + _SLOWLY
    self._shown.leave(cell.name)

  def _look(self) -> None:
    """Shows the progress of runs, and takes those that have ended."""
    for name, running in list(self._running.items()):
      if running.child.poll() is not None:
        del self._running[name]
        self._finish(running)
      elif time.monotonic() >= self._looked.get(name, 0.0):
        self._looked[name] = time.monotonic() + _SLOWLY
        done = cell_records.steps_done(running.cell)
        self._shown.move(name, done, running.cell.steps)

  def _finish(self, running: Running) -> None:
    """Prints the result of a run that has ended."""
    cell, code = running.cell, running.child.returncode
    if not code:
      self._say(cell, *self._judge(cell))
      return
    lines = _output(running)
    if code == command.MISTAKE and any(
      workdirs.TAKEN in each for each in lines
    ):
      self._left.append(cell._replace(is_evaluated=False))
      self._leave(cell)
      return
    last = lines[-1] if lines else 'no output'
    self._say(cell, f'{_ending(code)}: {last}', True)

  def _say(self, cell: Cell, result: str, failed: bool) -> None:
    """Prints the result of a cell."""
    if failed:
      self.failed.add(cell.name)
    self._shown.end(cell.name, result, failed)

  def _end(self, grace: float) -> None:
    """Ends all runs with the signal that this program received."""
    if not self._running:
      return
    number = signals.received()
    if number not in signals.ENDING:
      number = signal.SIGTERM
    self._tell(f'Ends {", ".join(self._running)}')
    running = [each.child for each in self._running.values()]
    killed = children.end(running, number, grace)
    if killed:
      self._tell(f'{killed} did not end in {grace:g} s, and were killed')

  def _kill(self) -> None:
    """Kills all runs, at a second signal."""
    for each in list(self._running.values()):
      children.send(each.child, signal.SIGKILL)

  def _tell(self, line: str) -> None:
    # The terminal may be gone.
    with contextlib.suppress(OSError):
      self._shown.say(line)


def _output(running: Running) -> list[str]:
  """Returns the lines that a run has printed."""
  try:
    with running.cell.log.open('rb') as log:
      log.seek(running.log_start)
      lines = log.read().decode(errors='replace').splitlines()
  except OSError as error:
    return [str(error)]
  return [line for line in lines if line.strip()]


def _ending(code: int) -> str:
  """Returns how a failed run ended, in words."""
  number = -code if code < 0 else code - 128
  if number in set(signal.Signals):
    return f'was ended by {signal.Signals(number).name}'
  return f'ended with code {code}'
