r"""Draws a table of study.py as dots with intervals; runs nothing.

  python experiments/show_table.py --table=experiments/results/ablation.json

The figure has a panel for each task and a row for each cell, and is written as
PNG and as PDF.
"""

import json
import pathlib
import sys
from typing import Any

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch('nothing was drawn')

from absl import app, flags

from gtmm_jax import figures
from gtmm_jax.process import command, places
from studies import tables

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string(
    'table', None, 'File of the table, TABLE.json of study.py; must be given.'
  )
  flags.DEFINE_string(
    'metric',
    'ratio',
    'Metric of the table: ratio (KL of predictable / of new frames), '
    'kl_last, negative_bound, retrieval_ahead, retrieval_free, ...',
  )
  flags.DEFINE_string(
    'output',
    None,
    'Files to write, OUTPUT.png and OUTPUT.pdf. Default: beside the table, '
    'with its name.',
  )


def main(_: list[str]) -> None:
  """Reads the table, draws it, and prints the paths."""
  try:
    rows, stem = _prepare()
  except (ValueError, OSError) as error:
    command.fail(error)
  paths = command.attempt_drawing(
    lambda: figures.save(tables.dots_figure(rows, FLAGS.metric), stem),
    stem,
    'Nothing was written; make room, or name another --output.',
  )
  if not paths:
    sys.exit(2)
  for path in paths:
    command.console().print(str(path))


def _prepare() -> tuple[dict[str, Any], pathlib.Path]:
  """Returns the rows of the table, and the files without their endings.

  Raises:
    ValueError: a flag is wrong, or the file is not a table of study.py.
    OSError: the file cannot be read.
  """
  if not FLAGS.table:
    raise ValueError('--table is missing; name the JSON file of a table.')
  file = places.locate(FLAGS.table, 'table')
  try:
    rows = json.loads(file.read_text())
    values = [row['summary'][FLAGS.metric] for row in rows.values()]
    complete = all(row['settings']['task'] for row in rows.values())
  except (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
  ) as error:
    raise ValueError(
      f'{file} is not a table of study.py with the metric {FLAGS.metric!r} '
      f'({type(error).__name__}: {error}).'
    ) from error
  if not complete or not any(values):
    raise ValueError(f'{file} has no values of {FLAGS.metric}.')
  stem = places.locate(FLAGS.output or file.with_suffix(''), 'output')
  if stem.is_dir() or not stem.name:
    raise ValueError(f'--output={stem} is a folder; name a file in it.')
  places.require_writable(stem.absolute().parent, f'--output={stem}')
  return rows, stem


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
