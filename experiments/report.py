r"""Shows runs and studies, whole or partial, as one page; runs nothing.

  python experiments/report.py runs/tasks
  python experiments/report.py runs/rates experiments/results/rates.json

A folder is that of a run or of a study; a file is a results file, OUTPUT.json
of study.py. A file and a folder that have a cell in common are one study.
Writes index.html, table.csv and, beside them, pictures/: with pictures in it,
the page of a study would have tens of megabytes, which a phone loads at once.
The page needs no network, and the folder can be moved as a whole. Whatever is
read stays as it is, and is shown as text.
"""

import datetime
import pathlib
import sys

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch('the page may lack pictures')

from absl import app, flags

from gtmm_jax.process import command, places
from gtmm_jax.records import documents
from reporting import page, reading, table
from reporting.pictures import FOLDER, Pictures

FLAGS = flags.FLAGS

_GRIDS = pathlib.Path(__file__).with_name('grids')
_PAGE, _CSV = 'index.html', 'table.csv'


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string(
    'output',
    None,
    f'Folder of the report: {_PAGE}, {_CSV} and {FOLDER}/; nothing else is '
    f'written. Default: the folder "report" in the first FOLDER, or beside the '
    f'results file, NAME-report.',
  )
  flags.DEFINE_string(
    'grid',
    None,
    'File of the grid of all studies, whose cells that wait are told, and '
    'whose comparison or choice is made. Default: experiments/grids/NAME.json '
    'for a study named NAME, if it has a cell in common with it.',
  )


def main(arguments: list[str]) -> None:
  """Reads runs, writes their page, and prints its path."""
  try:
    paths = [places.locate(each, 'FOLDER') for each in arguments[1:]]
    if not paths:
      raise ValueError(
        'no folder is named; name folders of runs or studies, or results files.'
      )
    output = _locate_output(paths[0])
    grid = places.locate(FLAGS.grid, 'grid') if FLAGS.grid else None
    studies = reading.read(paths, _GRIDS, grid)
    pictures = Pictures(output)
    now = datetime.datetime.now(datetime.UTC)
    text = page.document(studies, pictures, now)
    documents.replace(output / _CSV, table.as_csv(studies).encode())
    documents.replace(output / _PAGE, text.encode())
    pictures.remove_others()
  except (ValueError, OSError) as error:
    command.fail(error)
  command.console().print(str(output / _PAGE))


def _locate_output(first: pathlib.Path) -> pathlib.Path:
  """Returns the folder of the report.

  Raises:
    ValueError: it cannot be written, or is a file.
  """
  output = first / 'report'
  if first.is_file():
    output = first.with_name(f'{first.stem}-report')
  if FLAGS.output:
    output = places.locate(FLAGS.output, 'output')
  if output.exists() and not output.is_dir():
    raise ValueError(f'--output={output} is a file; name a folder.')
  places.require_writable(output, f'--output={output}')
  return output


if __name__ == '__main__':
  define_flags()
  app.run(
    main,
    flags_parser=lambda words: command.parse_flags(words, has_words=True),
  )
