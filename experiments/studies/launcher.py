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

# Seconds between two looks at how far runs are, and whether a cell is free that
# another program has.
_SLOWLY = 1.0


class Running(NamedTuple):
  """A cell's run that was begun.

  Attributes:
    cell: the cell.
    child: its process.
    said_before: bytes of the log that earlier runs have written.
  """

  cell: Cell
  child: subprocess.Popen
  said_before: int


class Runs:
  """Cells that are to run, that run, and that failed.

  Attributes:
    failed: the names of those that failed.
  """

  def __init__(
    self,
    cells: Sequence[Cell],
    program: pathlib.Path,
    jobs: int,
    shown: Shown,
    told: Callable[[Cell], tuple[str, bool]],
  ) -> None:
    """Takes what is to run.

    Args:
      cells: that are not complete.
      program: run.py.
      jobs: runs at a time.
      shown: is told what happens.
      told: says what a cell that is done came to, and whether that is wrong.
    """
    self.failed: set[str] = set()
    self._left = list(cells)
    self._program, self._jobs = program, jobs
    self._shown, self._told = shown, told
    self._running: dict[str, Running] = {}
    self._looked: dict[str, float] = {}

  def finish(self, grace: float) -> None:
    """Runs all cells, or waits for those that others run.

    Args:
      grace: seconds that runs have to end in where this program has to.

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
        # None is left but where a signal came, or this program fails.
        self._end(grace)

  def _begin(self) -> None:
    """Begins what there is room for, and passes over what others run."""
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
        # Where figures are missing, the run draws them.
        if not cell.is_evaluated and cell_records.is_done(cell):
          self._say(cell, *self._told(cell))
          continue
        self._start(cell)
      except (ValueError, OSError) as error:
        self._say(cell, str(error), True)

  def _start(self, cell: Cell) -> None:
    words = command.words({**cell.flags, 'workdir': cell.workdir})
    with cell.log.open('ab') as log:
      said_before = log.seek(0, os.SEEK_END)
      child = children.start(
        self._program,
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )
    self._running[cell.name] = Running(cell, child, said_before)
    self._shown.begin(cell.name, cell.steps)

  def _leave(self, cell: Cell) -> None:
    """Leaves a cell to the program that runs it, for now."""
    self._looked[cell.name] = time.monotonic() + _SLOWLY
    self._shown.leave(cell.name)

  def _look(self) -> None:
    """Looks at what runs: how far it is, and whether it has ended."""
    for name, running in list(self._running.items()):
      if running.child.poll() is not None:
        del self._running[name]
        self._judge(running)
      elif time.monotonic() >= self._looked.get(name, 0.0):
        self._looked[name] = time.monotonic() + _SLOWLY
        done = cell_records.steps_done(running.cell)
        self._shown.move(name, done, running.cell.steps)

  def _judge(self, running: Running) -> None:
    """Says what came of a run that has ended."""
    cell, code = running.cell, running.child.returncode
    if not code:
      self._say(cell, *self._told(cell))
      return
    said = _said(running)
    if code == command.MISTAKE and any(workdirs.TAKEN in s for s in said):
      self._left.append(cell._replace(is_evaluated=False))
      self._leave(cell)
      return
    last = said[-1] if said else 'no output'
    self._say(cell, f'{_ending(code)}: {last}', True)

  def _say(self, cell: Cell, told: str, failed: bool) -> None:
    """Says what came of a cell."""
    if failed:
      self.failed.add(cell.name)
    self._shown.end(cell.name, told, failed)

  def _end(self, grace: float) -> None:
    """Ends what runs, if anything does, by the signal that this program got."""
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
    """Kills what runs, at a second signal."""
    for each in list(self._running.values()):
      children.send(each.child, signal.SIGKILL)

  def _tell(self, line: str) -> None:
    # The terminal may be gone.
    with contextlib.suppress(OSError):
      self._shown.say(line)


def _said(running: Running) -> list[str]:
  """The lines that a run has written."""
  try:
    with running.cell.log.open('rb') as log:
      log.seek(running.said_before)
      lines = log.read().decode(errors='replace').splitlines()
  except OSError as error:
    return [str(error)]
  return [line for line in lines if line.strip()]


def _ending(code: int) -> str:
  """Tells how a failed run ended, for people."""
  number = -code if code < 0 else code - 128
  if number in set(signal.Signals):
    return f'was ended by {signal.Signals(number).name}'
  return f'ended with code {code}'
