"""Shows how far a study is: live lines on a terminal, else one now and then."""

import time
from typing import Any

from rich.console import Console
from rich.progress import (
  BarColumn,
  MofNCompleteColumn,
  Progress,
  TaskID,
  TextColumn,
  TimeElapsedColumn,
)
from rich.table import Column

# Seconds between two lines about a run if the output is not a terminal.
_QUIET = 300.0
# Live lines of runs, at most.
_BARS = 16


class Shown:
  """Shows the cells that run, their progress, and how many are left.

  Use as a context manager.
  """

  def __init__(self, console: Console, cells: int, complete: int) -> None:
    self._console = console
    self._cells, self._done, self._failed = cells, complete, 0
    self._elsewhere: set[str] = set()
    self._spoken: dict[str, float] = {}
    self._tasks: dict[str, TaskID] = {}
    self._bars = Progress(
      TextColumn(
        '{task.description}',
        markup=False,
        table_column=Column(no_wrap=True, overflow='ellipsis', max_width=48),
      ),
      BarColumn(bar_width=24),
      MofNCompleteColumn(),
      TimeElapsedColumn(),
      TextColumn('{task.fields[note]}', markup=False),
      console=console,
      disable=not console.is_terminal,
    )
    self._all = self._bars.add_task('cells', total=cells, note='')
    self._count()

  def __enter__(self) -> 'Shown':
    # rich 13 prints an empty line for bars that were not shown.
    if self._console.is_terminal:
      self._bars.start()
    return self

  def __exit__(self, *_: Any) -> None:
    if self._console.is_terminal:
      self._bars.stop()

  def begin(self, name: str, steps: int, word: str) -> None:
    """Shows that the run of a cell begins.

    Args:
      name: of the cell.
      steps: of its run, in all.
      word: what is told about it.
    """
    self._elsewhere.discard(name)
    self._tasks[name] = self._bars.add_task(
      name, total=steps, note='', visible=len(self._tasks) < _BARS
    )
    self._spoken[name] = time.monotonic()
    self._count()
    if not self._console.is_terminal:
      self.say(f'{name}: {word}; {self._counts()}')

  def move(self, name: str, step: int, steps: int) -> None:
    """Moves a running cell on to the step of its last report."""
    self._bars.update(self._tasks[name], completed=step)
    now = time.monotonic()
    if now - self._spoken[name] >= _QUIET and not self._console.is_terminal:
      self._spoken[name] = now
      self.say(f'{name}: step {step:,} of {steps:,}')

  def leave(self, name: str) -> None:
    """Shows that another program runs a cell."""
    self._drop(name)
    if name not in self._elsewhere:
      self._elsewhere.add(name)
      self.say(f'{name}: another program runs it, and is waited for')
    self._count()

  def again(self, name: str, reason: str) -> None:
    """Prints why the run of a cell failed, which is left to be run again."""
    self._drop(name)
    self._count()
    self.say(f'{name}: {reason}')

  def end(self, name: str, result: str, failed: bool) -> None:
    """Prints the result of a cell."""
    self._drop(name)
    self._elsewhere.discard(name)
    self._failed += failed
    self._done += not failed
    self._count()
    self.say(f'{name}: {result}')

  def say(self, line: str) -> None:
    """Prints a line above the live ones."""
    self._console.print(line)

  def _drop(self, name: str) -> None:
    if name in self._tasks:
      self._bars.remove_task(self._tasks.pop(name))
      for task in list(self._tasks.values())[:_BARS]:
        self._bars.update(task, visible=True)

  def _count(self) -> None:
    over = self._done + self._failed
    self._bars.update(self._all, completed=over, note=self._counts())

  def _counts(self) -> str:
    left = self._cells - self._done - self._failed - len(self._tasks)
    failed = f', {self._failed} failed' if self._failed else ''
    elsewhere = len(self._elsewhere)
    others = f', {elsewhere} of them run by others' if elsewhere else ''
    return f'{self._done} done{failed}, {left} left{others}'
