r"""Runs every cell of a grid with run.py; one table, and a figure of each task.

  python experiments/study.py --grid=experiments/grids/tasks.json

The same command again goes on where it ended: cells that are complete are not
run again. A grid is a JSON file, {"cells": [BLOCK, ...]}, where a BLOCK has
"flags", given to each of its runs, and "over", lists of values of further
flags; there is a cell for each combination of these.
"""

import concurrent.futures
import json
import pathlib
import re
import signal
import sys
import threading
from typing import Any

import command
from absl import app, flags
from rich.console import Console

FLAGS = flags.FLAGS

_RUN = pathlib.Path(__file__).with_name('run.py')
# Where images are differs from machine to machine; grids do not say it.
_GIVEN = ('data', 'data_dir')
# What a run ends with that was interrupted.
_INTERRUPTED = (130, -signal.SIGINT)


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('grid', None, 'File of the grid; must be given.')
  flags.DEFINE_string(
    'folder',
    None,
    'Where the runs are kept, a folder and a log each. Default: runs/GRID, '
    'where GRID is the name of the file.',
  )
  flags.DEFINE_string(
    'output',
    None,
    'The table, OUTPUT.json and OUTPUT.md, and the figures, OUTPUT-TASK.png '
    'and OUTPUT-TASK.pdf. Default: FOLDER/table.',
  )
  for name in _GIVEN:
    flags.DEFINE_string(name, None, 'Given to each run whose cell has no own.')
  flags.DEFINE_integer(
    'jobs',
    1,
    'Runs at a time, >= 1. Two share a CPU well; on an accelerator, take one.',
  )


def main(_: list[str]) -> None:
  """Runs what is left to run, then writes the table."""
  import study_table

  console = command.console()
  try:
    cells, folder, output = _prepare()
  except (ValueError, OSError) as error:
    command.fail(error)
  console.print(f'{len(cells)} cells, in {folder}')
  try:
    found = _run_all(cells, folder, console)
  except KeyboardInterrupt:
    print('\nInterrupted. The same command goes on with what is left.')
    sys.exit(130)
  rows = {name: found[name] for name in cells if name in found}
  failed = [name for name in cells if name not in found]
  if rows:
    paths = study_table.write(rows, output, console)
    for path in (*paths, *study_table.draw(rows, folder, output)):
      console.print(str(path))
  if failed:
    command.fail(
      f'{len(failed)} of {len(cells)} cells failed: {", ".join(failed)}; why '
      f'is said above and in their logs in {folder}.'
    )


def _run_all(
  cells: dict[str, dict[str, Any]], folder: pathlib.Path, console: Console
) -> dict[str, dict[str, Any]]:
  """Runs the cells; returns what those that did not fail came to."""
  found = {}
  # A run may end by an interrupt before this program hears of it; no thread
  # begins another then.
  interrupted = threading.Event()
  pool = concurrent.futures.ThreadPoolExecutor(FLAGS.jobs)
  try:
    running = {
      pool.submit(_run, name, own, folder, interrupted): name
      for name, own in cells.items()
    }
    for done in concurrent.futures.as_completed(running):
      name, problem = running[done], done.result()
      if interrupted.is_set():
        raise KeyboardInterrupt
      row, problem = (None, problem) if problem else _read(folder / name)
      if row is not None:
        found[name] = row
      _say(console, name, problem, row)
  finally:
    # Where it was interrupted, so were the runs; those to come are not begun.
    pool.shutdown(cancel_futures=True)
  return found


def _read(workdir: pathlib.Path) -> tuple[dict[str, Any] | None, str]:
  """What a run came to, or what is wrong with what it left."""
  import study_table

  try:
    row = study_table.cell(workdir)
  except (ValueError, KeyError, TypeError) as error:
    return None, f'left damaged records: {error!r}'
  return row, '' if row else 'left no evaluation'


def _prepare() -> tuple[dict[str, dict[str, Any]], pathlib.Path, pathlib.Path]:
  """The cells, the folder of runs, and the stem of the table.

  Raises:
    ValueError: if a flag or the grid makes no sense.
    OSError: if the grid cannot be read, or a folder not be made.
  """
  if FLAGS.grid is None:
    raise ValueError('--grid is missing; name the file of a grid.')
  if FLAGS.jobs < 1:
    raise ValueError(f'--jobs is {FLAGS.jobs}; it must be at least 1.')
  file = pathlib.Path(FLAGS.grid).expanduser()
  given = {name: FLAGS[name].value for name in _GIVEN if FLAGS[name].present}
  cells = {name: _complete(own, given) for name, own in read(file).items()}
  if FLAGS.data_dir and not any('data_dir' in own for own in cells.values()):
    raise ValueError('--data_dir needs --data=tfds; no cell reads from there.')
  folder = FLAGS.folder or pathlib.Path('runs') / file.stem
  return cells, *command.make_folders(folder, FLAGS.output)


def _complete(own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
  """A cell's flags, and those given to all; of --data_dir, where it is read."""
  flags = {**given, **own}
  if flags.get('data') != 'tfds' and 'data_dir' not in own:
    flags.pop('data_dir', None)
  return flags


def read(file: pathlib.Path) -> dict[str, dict[str, Any]]:
  """The flags of each cell, by the cell's name.

  Args:
    file: of the grid.

  Returns:
    For each cell, in order, flags of run.py and their values. Its name joins
    the values that the grid varies.

  Raises:
    ValueError: if it is not a grid.
    OSError: if it cannot be read.
  """
  try:
    blocks = json.loads(file.read_text())['cells']
    cells = {}
    for block in blocks:
      for varied in _combinations(block['over']):
        own = {**block['flags'], **varied}
        name = _name(varied)
        # A folder's name, and never a way out of the study's.
        if (
          not re.fullmatch(r'\w[\w.,+=-]*', name)
          or name in cells
          or 'workdir' in own
        ):
          raise ValueError(
            f'{file}: the cell {name!r} has no name of its own that a folder '
            f'can have, or sets the workdir; vary in "over" what tells cells '
            f'apart, and no paths.'
          )
        cells[name] = own
  except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{file} is not a grid ({error!r}); it must be '
      f'{{"cells": [{{"flags": {{...}}, "over": {{FLAG: [...]}}}}]}}.'
    ) from error
  if not cells:
    raise ValueError(f'{file} has no cells.')
  return cells


def _name(varied: dict[str, Any]) -> str:
  """Of a cell: tasks and models by themselves, other flags as FLAG=VALUE."""
  return '-'.join(
    str(value) if flag in ('task', 'model') else f'{flag}={value}'
    for flag, value in varied.items()
  )


def _combinations(over: dict[str, list[Any]]) -> list[dict[str, Any]]:
  """Each combination of the values, the last flag's changing fastest."""
  combined: list[dict[str, Any]] = [{}]
  for flag, values in over.items():
    combined = [{**one, flag: value} for one in combined for value in values]
  return combined


def _run(
  name: str,
  own: dict[str, Any],
  folder: pathlib.Path,
  interrupted: threading.Event,
) -> str:
  """Runs one cell; returns what was wrong with it, or nothing."""
  if interrupted.is_set():
    return 'was not begun'
  log = folder / f'{name}.log'
  code = command.run_logged(_RUN, {**own, 'workdir': folder / name}, log)
  if not code:
    return ''
  if code in _INTERRUPTED:
    interrupted.set()
  lines = [line for line in log.read_text().splitlines() if line.strip()]
  return f'ended with code {code}: {lines[-1] if lines else "no output"}'


def _say(
  console: Console, name: str, problem: str, row: dict[str, Any] | None
) -> None:
  """A line on a cell that has ended."""
  if row is None:
    console.print(f'{name}: {problem}')
    return
  ratio = row['summary']['ratio']
  told = '-' if ratio is None else f'{ratio[0]:.3f}'
  console.print(f'{name}: KL predictable / new {told}')


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
