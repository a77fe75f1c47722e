"""Runs a study: checks its cells, runs those left, writes the tables."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console

from gtmm_jax.process import command, places
from gtmm_jax.records import documents
from studies import (
  cell_records,
  devices,
  drawing,
  finished,
  launcher,
  local,
  outcomes,
  progress,
  purpose,
  results_file,
  slurm,
  tables,
)
from studies.cell_records import Cell
from studies.executor import Executor
from studies.purpose import Purpose
from studies.request import Study


class Checked(NamedTuple):
  """A study whose cells are checked, before anything is run or written.

  Attributes:
    study: as flags ask for it.
    purpose: that its grid names.
    cells: all of them, resolved.
    away: names of finished cells whose records are there without workdirs.
    devices: that runs get, one each; none if they share all.
  """

  study: Study
  purpose: Purpose
  cells: list[Cell]
  away: set[str]
  devices: list[str]

  @property
  def left(self) -> list[Cell]:
    """The cells that are not complete."""
    return [
      cell
      for cell in self.cells
      if cell.name not in self.away and not cell.is_complete
    ]


def check(study: Study) -> Checked:
  """Checks all cells of a study; writes nothing.

  Raises:
    cell_records.Mistakes: settings of cells are wrong.
    ValueError: the grid's purpose, a record or a folder is wrong.
    OSError: a file cannot be read.
  """
  asked = Purpose() if study.file is None else purpose.read(study.file)
  for path in (study.folder, study.stem.parent):
    places.require_writable(path, str(path))
  is_parallel = not study.slurm and study.jobs > 1
  dealt = devices.local() if is_parallel else []
  cells = cell_records.resolve(study.grid, study.folder, study.program)
  cell_records.require_different(cells)
  recorded = results_file.read(study.results)
  done = finished.names(study.results, recorded, cells)
  # What is in a workdir counts more than its record.
  away = {name for name in done if not (study.folder / name).exists()}
  return Checked(study, asked, cells, away, dealt)


def print_commands(checked: Checked, console: Console) -> None:
  """Prints the command of each cell that is left, for a shell."""
  for cell in checked.left:
    words = command.words({**cell.flags, 'workdir': cell.workdir})
    console.print(
      shlex.join([sys.executable, str(checked.study.program), *words])
    )


def run(checked: Checked, console: Console) -> None:
  """Runs the cells that are left, and writes the tables and figures.

  Raises:
    OSError: a file cannot be written.
    signals.Stopped: after a signal, once the runs have ended.
  """
  study = checked.study
  places.make_folders(study.folder, study.stem)
  cells = checked.cells
  doubts = [
    (cell.name, doubt)
    for cell in cells
    if cell.name not in checked.away
    for doubt in cell.doubts
  ]
  for line in cell_records.tell(doubts):
    console.print(f'warning  {line}')
  count = len(cells)
  complete = count - len(checked.left)
  if complete:
    console.print(f'{complete} of {count} cells are complete.')

  def judge(cell: Cell) -> tuple[str, bool]:
    record, words = cell_records.read(cell)
    if record:
      results_file.add(study.results, cell.name, record, study.grid)
      _write_tables(checked, results_file.read(study.results))
    return words, not record

  with (
    _executor(checked, console) as executor,
    progress.Shown(console, count, complete) as shown,
  ):
    runs = launcher.Runs(checked.left, executor, study.retry, shown, judge)
    runs.finish(study.grace)
  _conclude(checked, runs, console)


@contextlib.contextmanager
def _executor(checked: Checked, console: Console) -> Iterator[Executor]:
  """Yields the executor that the study asks for."""
  study = checked.study
  if study.slurm:
    with slurm.executor(
      study.program,
      study.folder,
      study.slurm,
      study.jobs,
      study.grace,
      study.take_over,
      console.print,
    ) as executor:
      yield executor
    return
  executor = local.executor(study.program, study.jobs, checked.devices)
  if checked.devices:
    console.print(
      f'Runs {executor.jobs} at a time, each on one of '
      f'{len(checked.devices)} GPUs.'
    )
  yield executor


def _conclude(checked: Checked, runs: launcher.Runs, console: Console) -> None:
  """Writes the tables of all finished cells, and prints the names of others."""
  study, failed = checked.study, set(runs.failed)
  recorded = results_file.read(study.results)
  good = {}
  for cell in checked.cells:
    if cell.name in checked.away:
      good[cell.name] = recorded[cell.name]
      continue
    record, words = cell_records.read(cell)
    if record:
      good[cell.name] = record
    elif cell.name not in failed:
      failed.add(cell.name)
      console.print(f'{cell.name}: {words}')
  if good:
    results_file.write(study.results, good)
    rows = _write_tables(checked, good)
    tables.show(rows, console)
    workdirs = {
      row: [study.folder / name for name in names]
      for row, names in outcomes.group(good).items()
      if checked.away.isdisjoint(names)
    }
    drawn = drawing.draw(rows, workdirs, study.stem)
    for path in (study.results, study.tables, *drawn):
      console.print(str(path))
  for name in study.grid:
    if name in runs.failures and name not in failed:
      console.print(
        f'{name}: succeeded after it had failed {_times(runs.failures[name])}'
      )
  if failed:
    names = ', '.join(
      _with_failures(name, runs.failures.get(name, 0))
      for name in study.grid
      if name in failed
    )
    command.fail(
      f'{len(failed)} of {len(study.grid)} cells failed: {names}; see above '
      f'and their logs in {study.folder} for the reasons.'
    )


def _with_failures(name: str, count: int) -> str:
  return f'{name} ({_times(count)})' if count > 1 else name


def _times(count: int) -> str:
  return 'once' if count == 1 else f'{count} times'


def _write_tables(
  checked: Checked, records: results_file.Records
) -> dict[str, outcomes.Row]:
  """Writes the tables of finished cells; returns their rows."""
  rows = outcomes.rows(records)
  text = tables.document(rows, checked.purpose, checked.study.fixed)
  documents.replace(checked.study.tables, text.encode())
  return rows
