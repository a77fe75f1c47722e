r"""Runs every cell of a grid with run.py; one table, and a figure of each task.

  python experiments/study.py --grid=experiments/grids/tasks.json
  python experiments/study.py --over=task=navigation --over=model=vrnn,dnc

All cells are checked before the first is run. The same command continues where
it stopped: complete cells are not run again, nor are those with a record in
OUTPUT.json, even without their workdirs. Several studies can share a folder and
then divide the cells. A grid is a JSON file, {"cells": [BLOCK, ...]}. A
BLOCK has "flags", which all of its runs get, and "over", lists of values of
further flags; there is a cell for each combination of these. Cells that differ
only in their seed are one row of the table. --dry_run prints the commands, and
--status how far a study is; both write nothing.
"""

import pathlib
import sys

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)

from absl import app
from rich.console import Console

from studies import request, status
from studies.request import FLAGS, Study


def main(_: list[str]) -> None:
  """Runs a study, prints its commands, or prints how far it is."""
  console = command.console()
  try:
    study = request.read()
    if FLAGS.status:
      status.show(study, console)
    else:
      _run(study, console)
  except OSError as error:
    command.fail(f'{error}; {signals.GOES_ON}.')
  except ValueError as error:
    command.fail(error)
  except signals.Stopped as stopped:
    signals.leave(stopped)


def _run(study: Study, console: Console) -> None:
  """Checks all cells, and runs those that are left or prints their commands."""
  # Takes long, and --status and --help do without.
  command.import_jax()
  from studies import cell_records, session, slurm_submit

  if study.slurm and not FLAGS.dry_run:
    slurm_submit.require(study.slurm)
  if not FLAGS.dry_run:
    for line in study.about.lines():
      console.print(line)
    console.print(f'Checking {len(study.grid)} cells, in {study.folder}')
  try:
    checked = session.check(study)
  except cell_records.Mistakes as error:
    for line in error.lines[:-1]:
      command.complain(line)
    command.fail(error.lines[-1])
  if FLAGS.dry_run:
    session.print_commands(checked, console)
  else:
    session.run(checked, console)


if __name__ == '__main__':
  request.define_flags()
  app.run(main, flags_parser=command.parse_flags)
