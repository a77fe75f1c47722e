"""Logs of cells: the output of their runs, and why they failed."""

import contextlib
import pathlib

# Begins the last line of a log whose run failed.
_FAILED = 'study.py: failed: '
# Bytes at the end of a log that hold its last line.
_TAIL = 2**14


def output(log: pathlib.Path, start: int) -> list[str]:
  """Returns the lines that a log has from a byte on, without empty ones."""
  try:
    with log.open('rb') as file:
      file.seek(start)
      lines = file.read().decode(errors='replace').splitlines()
  except OSError as error:
    return [str(error)]
  return [line for line in lines if line.strip()]


def note_failure(log: pathlib.Path, reason: str) -> None:
  """Adds a line to a log that tells why its run failed, if that can be done."""
  with contextlib.suppress(OSError), log.open('ab') as file:
    line = ' '.join(reason.split())
    file.write(f'\n{_FAILED}{line}\n'.encode(errors='replace'))


def failure(log: pathlib.Path) -> str | None:
  """Returns why the latest run of a log failed, None if none was noted."""
  try:
    size = log.stat().st_size
  except OSError:
    return None
  lines = output(log, max(0, size - _TAIL))
  if lines and lines[-1].startswith(_FAILED):
    return lines[-1].removeprefix(_FAILED)
  return None
