"""Runs the cells of a study, and shares them with other programs; no jax."""

import contextlib
import signal
import time
from collections.abc import Callable, Sequence

from gtmm_jax.process import children, command, locks, signals
from studies import cell_records, logs, reports
from studies.cell_records import Cell
from studies.executor import Ended, Executor, reason
from studies.progress import Shown

# Seconds between two looks at the progress of runs, and at cells that other
# programs run.
_SLOWLY = 1.0
# Runs whose progress is looked at in that time.
_MANY = 20


class Runs:
  """Runs cells, some at a time.

  Attributes:
    failed: the names of those that failed, and are not started again.
    failures: for each name how often its run failed.
  """

  def __init__(
    self,
    cells: Sequence[Cell],
    executor: Executor,
    retry: int,
    shown: Shown,
    judge: Callable[[Cell], tuple[str, bool]],
  ) -> None:
    """Takes the cells and the runs that go on already; starts nothing.

    Args:
      cells: that are not complete.
      executor: that starts their runs.
      retry: times that a failed cell is started again.
      shown: the progress that is shown.
      judge: returns the result of a cell that ended, in words, and whether it
        is wrong.
    """
    self.failed: set[str] = set()
    self.failures: dict[str, int] = {}
    self._executor, self._retry = executor, retry
    self._shown, self._judge = shown, judge
    self._looked: dict[str, float] = {}
    self._running = {cell.name: cell for cell in executor.attach(cells)}
    self._left = [cell for cell in cells if cell.name not in self._running]
    for cell in self._running.values():
      shown.begin(cell.name, cell.steps, 'goes on')

  def finish(self, grace: float) -> None:
    """Runs all cells, and waits for those that other programs run.

    Args:
      grace: seconds that runs have to end, where this program is to end.

    Raises:
      Stopped: after a signal, once its runs have ended.
    """
    with signals.deferred(signals.GOES_ON, self._executor.kill):
      try:
        while self._is_busy() and signals.received() is None:
          self._begin()
          self._look()
          time.sleep(children.LOOK)
      finally:
        # Runs are left where a signal came, or this program failed.
        self._end(grace)

  def _is_busy(self) -> bool:
    """Returns whether a cell is left or runs."""
    return bool(self._left or self._running)

  def _has_room(self) -> bool:
    """Returns whether another run can be started now."""
    most = self._executor.jobs
    return most is None or len(self._running) < most

  def _begin(self) -> None:
    """Starts cells, as many as may run, except those that others run."""
    for cell in list(self._left):
      if not self._has_room() or signals.received() is not None:
        return
      if time.monotonic() < self._looked.get(cell.name, 0.0):
        continue
      if locks.is_taken(cell.workdir):
        self._leave(cell)
        continue
      self._left.remove(cell)
      try:
        # A cell that only lacks figures is run, too.
        if not cell.is_evaluated and cell_records.is_done(cell):
          self._say(cell, *self._judge(cell))
          continue
        word = self._executor.start(cell)
        self._running[cell.name] = cell
        self._shown.begin(cell.name, cell.steps, word)
      except (ValueError, OSError) as error:
        self._say(cell, str(error), True)

  def _leave(self, cell: Cell) -> None:
    """Leaves a cell, for now, to the program that runs it."""
    self._looked[cell.name] = time.monotonic() + _SLOWLY
    self._shown.leave(cell.name)

  def _look(self) -> None:
    """Takes the runs that have ended, and shows the progress of others."""
    for ended in self._executor.take_ended():
      del self._running[ended.cell.name]
      self._finish(ended)
    # A thousand runs are not looked at each second.
    pause = _SLOWLY * (1 + len(self._running) // _MANY)
    for cell in self._running.values():
      if time.monotonic() >= self._looked.get(cell.name, 0.0):
        self._looked[cell.name] = time.monotonic() + pause
        done = reports.steps_done(cell.workdir)
        self._shown.move(cell.name, done, cell.steps)

  def _finish(self, ended: Ended) -> None:
    """Prints the result of a run that has ended."""
    cell, code = ended.cell, ended.code
    if code == 0:
      self._say(cell, *self._judge(cell))
      return
    if code == command.MISTAKE and any(
      locks.TAKEN in each for each in ended.lines
    ):
      self._left.append(cell._replace(is_evaluated=False))
      self._leave(cell)
      return
    why = reason(code, ended.lines)
    count = self.failures.get(cell.name, 0)
    if code == command.MISTAKE or count >= self._retry:
      self._say(cell, why, True)
      return
    self.failures[cell.name] = count + 1
    logs.note_failure(cell.log, why)
    # After the others, which may succeed meanwhile.
    self._left.append(cell)
    self._shown.again(cell.name, f'{why}; retry {count + 1} of {self._retry}')

  def _say(self, cell: Cell, result: str, failed: bool) -> None:
    """Prints the result of a cell."""
    if failed:
      self.failed.add(cell.name)
      self.failures[cell.name] = self.failures.get(cell.name, 0) + 1
      logs.note_failure(cell.log, result)
    self._shown.end(cell.name, result, failed)

  def _end(self, grace: float) -> None:
    """Leaves all runs, with the signal that this program received."""
    if not self._running:
      return
    number = signals.received()
    if number not in signals.ENDING:
      number = signal.SIGTERM
    self._executor.leave(number, grace, self._tell)

  def _tell(self, line: str) -> None:
    # The terminal may be gone.
    with contextlib.suppress(OSError):
      self._shown.say(line)
