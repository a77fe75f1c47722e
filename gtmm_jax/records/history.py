"""Finds and replaces lines that are missing from `metrics.jsonl`.

A run that resumes from a checkpoint expects a line for every report before it.
Lost lines are replaced by lines marked `lost` that hold only nulls, so that
neither a reader nor a curve takes the file for complete.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gtmm_jax.records import documents, workdir


class History(NamedTuple):
  """The state of the lines up to a step.

  Attributes:
    missing: steps without a line, in ascending order.
    is_in_order: whether the steps of the lines are strictly ascending.
  """

  missing: list[int]
  is_in_order: bool


def compare(
  lines: Sequence[Mapping[str, Any]], expected: Iterable[int], until: int
) -> History:
  """Compares the lines with the steps of all reports up to a checkpoint.

  Args:
    lines: as read from `metrics.jsonl`.
    expected: steps of the reports.
    until: step of the checkpoint; later lines are ignored.
  """
  steps = [line['step'] for line in lines if line['step'] <= until]
  missing = sorted(set(expected) - set(steps))
  return History(
    missing, all(one < other for one, other in itertools.pairwise(steps))
  )


def guess_expected(
  lines: Sequence[Mapping[str, Any]], every: int, until: int
) -> list[int]:
  """Guesses the steps of all reports up to a checkpoint, itself at a report.

  Where two lines are further apart than two reports, lines are missing.

  Args:
    lines: as read from `metrics.jsonl`.
    every: steps between two reports now. The interval may have been longer when
      the lines were written; the median of their distances then replaces it.
    until: step of the checkpoint.
  """
  steps = sorted({line['step'] for line in lines if line['step'] <= until})
  between = [other - one for one, other in itertools.pairwise([0, *steps])]
  if len(between) > 2:
    every = max(every, statistics.median_low(between))
  expected = {*steps, until}
  for one, other in itertools.pairwise(sorted({0, *expected})):
    if other - one > every:
      expected |= set(range(every * (one // every + 1), other, every))
  return sorted(expected)


def mend(
  folder: str | Path,
  history: History,
  until: int,
  blank: Callable[[int], Mapping[str, Any]],
) -> Path:
  """Sorts the lines and fills each gap with a line marked `lost`.

  Of several lines of one step the last remains.

  Args:
    folder: the workdir.
    history: from `compare`.
    until: step of the checkpoint; later lines are left out.
    blank: maps a step to its line, in which all but `step` is null.

  Returns:
    The path of a copy of the file as it was before.
  """
  path = Path(folder) / 'metrics.jsonl'
  lines = {
    line['step']: line
    for line in workdir.read_metrics(folder)
    if line['step'] <= until
  }
  lines |= {step: {**blank(step), 'lost': True} for step in history.missing}
  text = ''.join(
    json.dumps(documents.as_json(lines[step]), allow_nan=False) + '\n'
    for step in sorted(lines)
  )
  copy = _free_name(path)
  if path.exists():
    shutil.copyfile(path, copy)
  documents.replace(path, text.encode())
  return copy


def in_words(steps: Sequence[int]) -> str:
  """Lists up to three steps; of more, the first, the last and their number."""
  if len(steps) > 3:
    return f'steps {steps[0]:,} to {steps[-1]:,} ({len(steps)} lines)'
  named = ', '.join(f'{step:,}' for step in steps)
  return f'step {named}' if len(steps) == 1 else f'steps {named}'


def _free_name(path: Path) -> Path:
  """Returns a path beside `path` that is not taken."""
  for attempt in itertools.count():
    name = f'damaged-{path.stem}' + (f'-{attempt}' if attempt else '')
    if not (free := path.with_name(f'{name}{path.suffix}')).exists():
      return free
