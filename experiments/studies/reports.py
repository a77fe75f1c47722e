"""The latest reports of a run, read from the end of its metrics; no jax."""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

from gtmm_jax.records import documents

# Bytes at the end of metrics.jsonl that hold several lines of most runs.
_TAIL = 2**18


def backwards(workdir: pathlib.Path) -> Iterator[dict[str, Any]]:
  """Yields the reports of a run, the latest first; may stop before the first.

  Damaged lines are left out, and lines that were lost.
  """
  try:
    with (workdir / 'metrics.jsonl').open('rb') as file:
      size = file.seek(0, os.SEEK_END)
      # Reads the whole file if its last line is longer than the end.
      for start in dict.fromkeys((max(0, size - _TAIL), 0)):
        file.seek(start)
        is_empty = True
        # The last line may be torn, and the first begin in the middle.
        for line in reversed(file.read(size - start).split(b'\n')):
          report = documents.parse(line) if line else None
          if (
            isinstance(report, dict)
            and isinstance(report.get('step'), int)
            and not report.get('lost')
          ):
            is_empty = False
            yield report
        if not is_empty:
          return
  except OSError:
    return


def steps_done(workdir: pathlib.Path) -> int:
  """Returns the step of a run's last report, 0 without any."""
  return next((report['step'] for report in backwards(workdir)), 0)
