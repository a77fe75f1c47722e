"""Logs of cells: the output of their runs, and why they failed."""

import contextlib
import os
import pathlib
from collections.abc import Callable

# Begins the last line of a log whose run failed.
_FAILED = 'study.py: failed: '
# Bytes at the end of a log that hold its last lines.
_TAIL = 2**16


def output(log: pathlib.Path, start: int) -> list[str]:
  """Returns what a run has printed from a byte of its log on, by lines.

  Empty lines are left out, and notes of its failure.
  """
  try:
    lines = _lines(log, lambda _: start)
  except OSError as error:
    return [str(error)]
  return [line for line in lines if not line.startswith(_FAILED)]


def last_lines(log: pathlib.Path) -> list[str]:
  """Returns the lines at the end of a log, none if it is not there.

  The first may be a part of one.

  Raises:
    OSError: the log cannot be read.
  """
  if not log.is_file():
    return []
  return _lines(log, lambda size: max(0, size - _TAIL))


def note_failure(log: pathlib.Path, reason: str) -> None:
  """Adds a line to a log that tells why its run failed, if that can be done."""
  with contextlib.suppress(OSError), log.open('ab') as file:
    line = ' '.join(reason.split())
    file.write(f'\n{_FAILED}{line}\n'.encode(errors='replace'))


def failure(log: pathlib.Path) -> str | None:
  """Returns why the latest run of a log failed, None if none was noted."""
  try:
    lines = last_lines(log)
  except OSError:
    return None
  if lines and lines[-1].startswith(_FAILED):
    return lines[-1].removeprefix(_FAILED)
  return None


def _lines(log: pathlib.Path, start: Callable[[int], int]) -> list[str]:
  """Returns the lines from a byte on, which depends on the log's size."""
  with log.open('rb') as file:
    file.seek(start(file.seek(0, os.SEEK_END)))
    lines = file.read().decode(errors='replace').splitlines()
  return [line for line in lines if line.strip()]
