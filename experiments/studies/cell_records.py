"""Cells of a study: settings, and the records in their folders; no jax."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gtmm_jax import runs
from gtmm_jax.process import children
from gtmm_jax.runs import workdirs
from studies import grid_file, outcomes, run_records, statistics

# Mistakes that are printed, at most.
_MOST = 5


class Cell(NamedTuple):
  """A run of a study, resolved.

  Attributes:
    name: of the cell.
    row: of the table, the name without the seed; may be ''.
    flags: of run.py, and their values.
    workdir: of the run.
    config: what its config.json would hold.
    steps: updates in all.
    episodes: of the evaluation, at least.
    split: whose episodes these are, validation or test.
    is_evaluated: whether its evaluation was there when it was resolved.
    is_complete: whether its figures were there, too.
    doubts: what may be wrong with its data, in sentences.
  """

  name: str
  row: str
  flags: dict[str, Any]
  workdir: pathlib.Path
  config: dict[str, Any]
  steps: int
  episodes: int
  split: str
  is_evaluated: bool
  is_complete: bool
  doubts: list[str]

  @property
  def log(self) -> pathlib.Path:
    """Returns the file to which the run adds its output."""
    return self.workdir.with_name(f'{self.name}.log')


class Mistakes(ValueError):
  """Cells have settings that are wrong.

  Attributes:
    lines: messages about the first cells, and the number of further ones.
  """

  def __init__(self, problems: Mapping[str, str]) -> None:
    lines = tell(problems.items())
    self.lines = lines[:_MOST]
    left = len(lines) - len(self.lines)
    if left:
      self.lines.append(f'{left} more mistakes are in other cells.')
    super().__init__(' '.join(self.lines))


def tell(sentences: Iterable[tuple[str, str]]) -> list[str]:
  """Returns a line for each sentence, with the cells that it is about.

  Args:
    sentences: names of cells, each with a sentence.
  """
  cells_of: dict[str, list[str]] = {}
  for name, sentence in sentences:
    cells_of.setdefault(sentence, []).append(name)
  return [
    f'{first}{f" and {len(others)} more" if others else ""}: {sentence}'
    for sentence, (first, *others) in cells_of.items()
  ]


def resolve(
  grid: Mapping[str, grid_file.Cell],
  folder: pathlib.Path,
  program: pathlib.Path,
) -> list[Cell]:
  """Resolves cells as their program would, in a process that ends with this.

  Args:
    grid: the cells by name, with all flags that they are given.
    folder: of the study.
    program: that runs a cell, such as run.py.

  Raises:
    Mistakes: a run would end with a mistake before it compiles.
    ValueError: the process fails.
  """
  question = {
    'folder': os.fspath(folder),
    'cells': {name: cell.flags for name, cell in grid.items()},
  }
  child = children.start(
    program,
    [runs.CHECK_CELLS],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    # A device's memory is left to runs of others that may be under way.
    env={**os.environ, 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
  )
  try:
    answer, said = child.communicate(json.dumps(question).encode())
  finally:
    # This program may be asked to end meanwhile.
    child.kill()
    child.wait()
  if child.returncode:
    lines = said.decode(errors='replace').strip().splitlines()
    why = lines[-1] if lines else f'ended with code {child.returncode}'
    raise ValueError(f'The cells cannot be checked: {why}')
  try:
    resolved = json.loads(answer)
  except ValueError:
    resolved = None
  if not isinstance(resolved, dict) or resolved.keys() != grid.keys():
    raise ValueError(
      f'{program} does not answer when cells are checked; --program is a file '
      f'that prints nothing and calls gtmm_jax.runs.main.'
    )
  problems = {
    name: each['problem']
    for name, each in resolved.items()
    if 'problem' in each
  }
  if problems:
    raise Mistakes(problems)
  return [
    Cell(name, cell.row, cell.flags, folder / name, **resolved[name])
    for name, cell in grid.items()
  ]


def is_done(cell: Cell) -> bool:
  """Returns whether a cell is trained and evaluated as its settings ask.

  Raises:
    ValueError: they are damaged, or of a run with other settings.
  """
  workdirs.require(cell.workdir, cell.steps, dict(cell.config))
  return workdirs.is_evaluated(
    cell.workdir, cell.steps, cell.episodes, cell.split
  )


def read(cell: Cell) -> tuple[dict[str, Any] | None, str]:
  """Returns a cell's record, None if that is wrong, and its result in words."""
  try:
    if not is_done(cell):
      return None, 'left no evaluation'
    record = run_records.record(cell.workdir, cell.row)
    (row,) = outcomes.rows({cell.name: record}).values()
  except (ValueError, LookupError, TypeError, OSError) as error:
    return None, f'left damaged records: {error!r}'
  ratio = statistics.mean(row.values['ratio'])
  words = '- (nothing predictable, or too few steps to tell)'
  if ratio is not None:
    words = f'{ratio.mean:.3f}'
  return record, f'KL predictable / new {words}'


def require_different(cells: Iterable[Cell]) -> None:
  """Checks that no two cells of a row are the same run, seed and all.

  Raises:
    Mistakes: two are.
  """
  runs = {cell.name: {**cell.config, 'row': cell.row} for cell in cells}
  for names in outcomes.group(runs).values():
    seeds = [runs[name]['settings'].get('seed') for name in names]
    if len(set(seeds)) < len(seeds):
      raise Mistakes({names[-1]: f'is the same run as {names[0]}.'})
