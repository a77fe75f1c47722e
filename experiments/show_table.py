r"""Writes and draws the tables of study.py from its records; runs nothing.

  python experiments/show_table.py
  python experiments/show_table.py --table=experiments/results/ablation.json

The first writes the tables of every study in experiments/results/ again. The
second does so for one study and draws a metric as dots with intervals, a panel
for each task and a row for each cell, as PNG and as PDF.
"""

import pathlib
import sys
from typing import NamedTuple

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch('nothing more was written')

from absl import app, flags

from gtmm_jax import figures
from gtmm_jax.process import command, places
from gtmm_jax.records import documents
from studies import drawing, outcomes, purpose, results_file, tables
from studies.outcomes import Row

FLAGS = flags.FLAGS

_RESULTS = pathlib.Path(__file__).with_name('results')
_GRIDS = pathlib.Path(__file__).with_name('grids')


class Shown(NamedTuple):
  """A study that is shown.

  Attributes:
    rows: of its tables.
    purpose: that its grid names.
    stem: of the files to write, without their endings.
  """

  rows: dict[str, Row]
  purpose: purpose.Purpose
  stem: pathlib.Path


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string(
    'table',
    None,
    'Results file of a study, OUTPUT.json of study.py. Default: those in '
    'experiments/results/ whose grids are in experiments/grids/, without '
    'figures.',
  )
  flags.DEFINE_string(
    'grid',
    None,
    'File of its grid, whose comparison or choice is made. Default: '
    'experiments/grids/NAME.json, if the table is named NAME.json.',
  )
  flags.DEFINE_string(
    'metric',
    'ratio',
    f'Metric of the figure: {", ".join(outcomes.METRICS)}, or another one of '
    f'the records.',
  )
  flags.DEFINE_string(
    'output',
    None,
    'Files to write, OUTPUT.md, OUTPUT.png and OUTPUT.pdf. Default: beside the '
    'table, with its name.',
  )


def main(_: list[str]) -> None:
  """Reads results files, writes their tables, and prints the paths."""
  try:
    studies = [_prepare()] if FLAGS.table else _every()
    paths = []
    for each in studies:
      paths.append(each.stem.with_name(f'{each.stem.name}.md'))
      text = tables.document(each.rows, each.purpose)
      documents.replace(paths[-1], text.encode())
  except (ValueError, OSError) as error:
    command.fail(error)
  drawn = []
  if FLAGS.table:
    (shown,) = studies
    drawn = command.attempt_drawing(
      lambda: figures.save(
        drawing.dots_figure(shown.rows, FLAGS.metric), shown.stem
      ),
      shown.stem,
      'The table was written; make room, or name another --output.',
    )
    if not drawn:
      sys.exit(2)
  for path in (*paths, *drawn):
    command.console().print(str(path))


def _every() -> list[Shown]:
  """Returns the studies of experiments/results/.

  Raises:
    ValueError: a flag is given that needs --table, or a file is damaged.
    OSError: a file cannot be read.
  """
  for name in ('grid', 'output'):
    if FLAGS[name].value:
      raise ValueError(f'--{name} needs --table; name a results file.')
  files = sorted(_RESULTS.glob('*.json'))
  return [
    _read(file, _GRIDS / file.name, file.with_suffix(''))
    for file in files
    if (_GRIDS / file.name).exists()
  ]


def _prepare() -> Shown:
  """Returns the study that --table names.

  Raises:
    ValueError: a flag is wrong, or the file is not one of study.py.
    OSError: a file cannot be read.
  """
  file = places.locate(FLAGS.table, 'table')
  if not file.exists():
    raise ValueError(f'--table={file} is not there; name a results file.')
  grid = _GRIDS / file.name
  if FLAGS.grid:
    grid = places.locate(FLAGS.grid, 'grid')
  elif not grid.exists():
    grid = None
  stem = places.locate(FLAGS.output or file.with_suffix(''), 'output')
  if stem.is_dir() or not stem.name:
    raise ValueError(f'--output={stem} is a folder; name a file in it.')
  shown = _read(file, grid, stem)
  if not any(
    outcomes.has_values(row, FLAGS.metric) for row in shown.rows.values()
  ):
    raise ValueError(f'{file} has no values of {FLAGS.metric}.')
  places.require_writable(stem.absolute().parent, f'--output={stem}')
  return shown


def _read(
  file: pathlib.Path, grid: pathlib.Path | None, stem: pathlib.Path
) -> Shown:
  """Reads a results file and the purpose of its grid."""
  runs = results_file.read(file)
  try:
    rows = outcomes.rows(runs)
  except (ValueError, LookupError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{file} is not a results file of study.py ({error!r}).'
    ) from error
  return Shown(rows, purpose.read(grid) if grid else purpose.Purpose(), stem)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
