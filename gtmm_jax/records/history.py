"""Whether `metrics.jsonl` has a line for every report, and what to do if not.

A run that goes on from a checkpoint trusts that the lines before it are there.
Lines that were lost are made up for by lines that say so, with nothing but
nulls in them; so neither a reader nor a curve takes the file for whole.
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
    missing: steps of the lines that are not there, in their order.
    is_in_order: whether each step has one line, after those of lesser steps.
  """

  missing: list[int]
  is_in_order: bool


def compare(
  lines: Sequence[Mapping[str, Any]], expected: Iterable[int], until: int
) -> History:
  """Compares lines with the steps that had been reported until a checkpoint.

  Args:
    lines: as read from `metrics.jsonl`.
    expected: steps of the reports.
    until: step of the checkpoint; later lines are not looked at.
  """
  steps = [line['step'] for line in lines if line['step'] <= until]
  missing = sorted(set(expected) - set(steps))
  return History(
    missing, all(one < other for one, other in itertools.pairwise(steps))
  )


def guess_expected(
  lines: Sequence[Mapping[str, Any]], every: int, until: int
) -> list[int]:
  """Guesses the steps of all reports until a checkpoint that was made at one.

  Lines further apart than reports are have others between them.

  Args:
    lines: as read from `metrics.jsonl`.
    every: steps between two reports now; there may have been more between those
      of the lines, of which most are taken to be whole.
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
  """Puts lines in order, and a line marked `lost` in each gap.

  Args:
    folder: the workdir.
    history: from `compare`.
    until: step of the checkpoint; later lines are left out.
    blank: from a step to what its line would hold, all of it null but `step`.

  Returns:
    Where the file is kept as it was. Of lines of one step the last remains.
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
  kept = _free_name(path)
  if path.exists():
    shutil.copyfile(path, kept)
  documents.replace(path, text.encode())
  return kept


def in_words(steps: Sequence[int]) -> str:
  """Names steps: up to three of them, or the first, the last and how many."""
  if len(steps) > 3:
    return f'steps {steps[0]:,} to {steps[-1]:,} ({len(steps)} lines)'
  named = ', '.join(f'{step:,}' for step in steps)
  return f'step {named}' if len(steps) == 1 else f'steps {named}'


def _free_name(path: Path) -> Path:
  """Returns a path beside `path` that is not taken."""
  for attempt in itertools.count():
    name = f'damaged-{path.stem}' + (f'-{attempt}' if attempt else '')
    if not (kept := path.with_name(f'{name}{path.suffix}')).exists():
      return kept
