"""The interface between a study and the place where its runs go; no jax.

`launcher.Runs` decides which cells run and when; an executor decides how:
`local.executor` as processes of this machine, `slurm.executor` as jobs of a
cluster.
"""

import signal
from collections.abc import Callable, Iterable
from typing import NamedTuple

from studies.cell_records import Cell


class Ended(NamedTuple):
  """A run that has ended.

  Attributes:
    cell: the cell.
    code: exit code, or minus the number of the signal that ended it; None if
      nobody knows.
    lines: that it printed.
  """

  cell: Cell
  code: int | None
  lines: list[str]


class Executor(NamedTuple):
  """The functions that start runs, watch them, and leave them.

  Attributes:
    jobs: runs at a time, None for any number.
    attach: returns those of some cells whose runs an earlier study has left
      to go on; they are watched from then on.
    start: starts the run of a cell, and returns what is told about it. Raises
      `ValueError` or `OSError` if it cannot be started.
    take_ended: returns the runs that have ended since the last call.
    leave: called where the study ends before its runs, with a signal's number,
      seconds that runs have to end, and a function that tells the user a line.
    kill: ends at once, at the second signal; called in another thread.
  """

  jobs: int | None
  attach: Callable[[Iterable[Cell]], list[Cell]]
  start: Callable[[Cell], str]
  take_ended: Callable[[], list[Ended]]
  leave: Callable[[int, float, Callable[[str], None]], None]
  kill: Callable[[], None]


def reason(code: int | None, lines: list[str]) -> str:
  """Returns why a run failed, in words.

  Args:
    code: as in `Ended`.
    lines: that it printed.
  """
  last = lines[-1] if lines else 'no output'
  return f'{_ending(code)}: {last}'


def _ending(code: int | None) -> str:
  """Returns how a failed run ended, in words."""
  if code is None:
    return 'ended without an exit code'
  number = -code if code < 0 else code - 128
  if number in set(signal.Signals):
    return f'was ended by {signal.Signals(number).name}'
  return f'ended with code {code}'
