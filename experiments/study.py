r"""Runs every cell of a grid with run.py; one table, and a figure of each task.

  python experiments/study.py --grid=experiments/grids/tasks.json

All cells are checked before the first is run. The same command continues where
it stopped: complete cells are not run again, nor are those with a record in
OUTPUT.json, even without their workdirs. Several studies can share a folder and
then divide the cells. A grid is a JSON file, {"cells": [BLOCK, ...]}. A
BLOCK has "flags", which all of its runs get, and "over", lists of values of
further flags; there is a cell for each combination of these. Cells that differ
only in their seed are one row of the table.
"""

import math
import pathlib
import sys
from typing import Any, NamedTuple

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)
  command.import_jax()

from absl import app, flags
from rich.console import Console

from gtmm_jax.process import places
from gtmm_jax.records import documents
from studies import (
  cell_records,
  drawing,
  finished,
  grid_file,
  launcher,
  outcomes,
  progress,
  purpose,
  results_file,
  tables,
)
from studies.cell_records import Cell
from studies.purpose import Purpose

FLAGS = flags.FLAGS

_RUN = pathlib.Path(__file__).with_name('run.py')
# The place of images differs between machines, so grids do not have it.
_SHARED = ('data', 'data_dir')


class Study(NamedTuple):
  """A checked study, before anything is run or written.

  Attributes:
    grid: the cells by name, with all of their flags.
    purpose: that the grid names.
    folder: of the runs.
    stem: path of the table's files without their suffixes.
    program: that runs a cell.
  """

  grid: dict[str, grid_file.Cell]
  purpose: Purpose
  folder: pathlib.Path
  stem: pathlib.Path
  program: pathlib.Path

  @property
  def results(self) -> pathlib.Path:
    """The results file, with the records of finished cells."""
    return self.stem.with_name(f'{self.stem.name}.json')

  @property
  def tables(self) -> pathlib.Path:
    """The document of the tables."""
    return self.stem.with_name(f'{self.stem.name}.md')


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('grid', None, 'File of the grid; must be given.')
  flags.DEFINE_string(
    'folder',
    None,
    'Folder of the runs, each with a folder and a log. Default: runs/GRID, '
    'where GRID is the name of the file.',
  )
  flags.DEFINE_string(
    'output',
    None,
    'Files of the results: OUTPUT.json, which gets a record of each cell when '
    'it has finished, and OUTPUT.md, its tables; in the end the figures '
    'OUTPUT.png (all cells as dots) and OUTPUT-TASK.png, also as PDF. Default: '
    'FOLDER/table.',
  )
  flags.DEFINE_string(
    'program',
    None,
    'Program that runs a cell: a file that calls gtmm_jax.runs.main. Default: '
    'run.py.',
  )
  for name in _SHARED:
    flags.DEFINE_string(name, None, 'For each run whose cell does not set it.')
  flags.DEFINE_integer(
    'jobs',
    1,
    'Number of parallel runs, >= 1. Two share a CPU well; on an accelerator, '
    'use one.',
  )
  flags.DEFINE_float(
    'grace',
    30.0,
    'Seconds, >= 0, that runs have to save their state and end when this '
    'program is interrupted; a second interrupt kills them at once.',
  )


def main(_: list[str]) -> None:
  """Checks all cells, runs those that are not complete, writes the table."""
  console = command.console()
  try:
    _study(console)
  except OSError as error:
    command.fail(f'{error}; {signals.GOES_ON}.')
  except signals.Stopped as stopped:
    signals.leave(stopped)


def _study(console: Console) -> None:
  try:
    study = _prepare()
    console.print(f'Checking {len(study.grid)} cells, in {study.folder}')
    cells = cell_records.resolve(study.grid, study.folder, study.program)
    cell_records.require_different(cells)
    recorded = results_file.read(study.results)
    done = finished.names(study.results, recorded, cells)
    # What is in a workdir counts more than its record.
    away = {name for name in done if not (study.folder / name).exists()}
    places.make_folders(study.folder, study.stem)
  except cell_records.Mistakes as error:
    for line in error.lines[:-1]:
      command.complain(line)
    command.fail(error.lines[-1])
  except (ValueError, OSError) as error:
    command.fail(error)
  failed = _run(study, [c for c in cells if c.name not in away], console)
  _conclude(study, cells, away, failed, console)


def _run(study: Study, cells: list[Cell], console: Console) -> set[str]:
  """Runs the cells that are not complete; returns the names that failed."""
  doubts = [(cell.name, doubt) for cell in cells for doubt in cell.doubts]
  for line in cell_records.tell(doubts):
    console.print(f'warning  {line}')
  left = [cell for cell in cells if not cell.is_complete]
  count = len(study.grid)
  complete = count - len(left)
  if complete:
    console.print(f'{complete} of {count} cells are complete.')

  def judge(cell: Cell) -> tuple[str, bool]:
    record, words = cell_records.read(cell)
    if record:
      results_file.add(study.results, cell.name, record, study.grid)
      _write_tables(study, results_file.read(study.results))
    return words, not record

  with progress.Shown(console, count, complete) as shown:
    runs = launcher.Runs(left, study.program, FLAGS.jobs, shown, judge)
    runs.finish(FLAGS.grace)
  return runs.failed


def _conclude(
  study: Study,
  cells: list[Cell],
  away: set[str],
  failed: set[str],
  console: Console,
) -> None:
  """Writes the tables of all finished cells, and prints the names of others."""
  recorded = results_file.read(study.results)
  good = {}
  for cell in cells:
    if cell.name in away:
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
    rows = _write_tables(study, good)
    tables.show(rows, console)
    workdirs = {
      row: [study.folder / name for name in names]
      for row, names in outcomes.group(good).items()
      if away.isdisjoint(names)
    }
    drawn = drawing.draw(rows, workdirs, study.stem)
    for path in (study.results, study.tables, *drawn):
      console.print(str(path))
  if failed:
    names = ', '.join(name for name in study.grid if name in failed)
    command.fail(
      f'{len(failed)} of {len(study.grid)} cells failed: {names}; see above '
      f'and their logs in {study.folder} for the reasons.'
    )


def _write_tables(
  study: Study, finished: results_file.Records
) -> dict[str, outcomes.Row]:
  """Writes the tables of finished cells; returns their rows."""
  rows = outcomes.rows(finished)
  text = tables.document(rows, study.purpose)
  documents.replace(study.tables, text.encode())
  return rows


def _prepare() -> Study:
  """Reads flags and grid.

  Raises:
    ValueError: a flag or the grid is wrong.
    OSError: the grid cannot be read.
  """
  if FLAGS.grid is None:
    raise ValueError('--grid is missing; name the file of a grid.')
  if FLAGS.jobs < 1:
    raise ValueError(f'--jobs is {FLAGS.jobs}; it must be at least 1.')
  if not 0 <= FLAGS.grace < math.inf:
    raise ValueError(
      f'--grace is {FLAGS.grace}; it must be a number from 0 on.'
    )
  program = places.locate(FLAGS.program or _RUN, 'program')
  if not program.is_file():
    raise ValueError(f'--program={program} is not a file; name a Python file.')
  file = places.locate(FLAGS.grid, 'grid')
  shared = {name: FLAGS[name].value for name in _SHARED if FLAGS[name].present}
  grid = {
    name: cell._replace(flags=_complete(cell.flags, shared))
    for name, cell in grid_file.read(file).items()
  }
  if FLAGS.data_dir and not any('data_dir' in c.flags for c in grid.values()):
    raise ValueError('--data_dir needs --data=tfds; no cell reads from there.')
  folder = FLAGS.folder or pathlib.Path('runs') / file.stem
  folders = places.locate_folders(folder, FLAGS.output)
  return Study(grid, purpose.read(file), *folders, program)


def _complete(
  of_cell: dict[str, Any], of_all: dict[str, Any]
) -> dict[str, Any]:
  """Returns the flags of a cell, with those of all cells that it lacks."""
  flags = {**of_all, **of_cell}
  if flags.get('data') != 'tfds' and 'data_dir' not in of_cell:
    flags.pop('data_dir', None)
  return flags


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
