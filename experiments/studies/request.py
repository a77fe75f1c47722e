"""The flags of a study, and the study that they ask for; no jax."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from absl import flags

from gtmm_jax.process import places
from studies import about, grid_file, grid_flags, slurm_flags
from studies.about import About
from studies.grid_flags import Additions

FLAGS = flags.FLAGS
# Makes --help of a program show the flags that are defined here.
flags.disclaim_key_flags()

RUN = pathlib.Path(__file__).resolve().parents[1] / 'run.py'
# The place of images differs between machines, so grids do not have it.
_SHARED = ('data', 'data_dir')
# A grid does not say either what is to be done about stale locks.
_ALSO_SHARED = (*_SHARED, 'take_over')
# Flags of runs that a study sets for all cells, instead of their grid.
_FIXED = ('preset', 'replicas', 'steps')


class Study(NamedTuple):
  """A study, before its cells are checked.

  Attributes:
    grid: the cells by name, with all of their flags.
    file: of the grid, None if flags alone make it.
    about: what the grid says of itself.
    fixed: flags of all cells that replace those of the grid.
    folder: of the runs.
    stem: path of the table's files without their suffixes.
    program: that runs a cell.
    jobs: runs at a time, None for any number.
    slurm: options of a cluster's jobs, None where runs are local.
    take_over: whether stale locks of programs on other hosts are taken over.
    retry: times that a failed cell is started again.
    grace: seconds that runs have to end, where the study is to end.
  """

  grid: dict[str, grid_file.Cell]
  file: pathlib.Path | None
  about: About
  fixed: Mapping[str, Any]
  folder: pathlib.Path
  stem: pathlib.Path
  program: pathlib.Path
  jobs: int | None = 1
  slurm: slurm_flags.Options | None = None
  take_over: bool = False
  retry: int = 0
  grace: float = 30.0

  @property
  def results(self) -> pathlib.Path:
    """The results file, with the records of finished cells."""
    return self.stem.with_name(f'{self.stem.name}.json')

  @property
  def tables(self) -> pathlib.Path:
    """The document of the tables."""
    return self.stem.with_name(f'{self.stem.name}.md')


def define_flags() -> None:
  """Defines every flag of study.py."""
  flags.DEFINE_string(
    'grid', None, 'File of the grid; must be given, or --over.'
  )
  flags.DEFINE_multi_string(
    'over',
    [],
    'NAME=VALUE,VALUE,...: values of a flag to vary; may be repeated. There is '
    'a cell for each combination. On top of --grid it multiplies the cells, '
    'and refuses a flag that the grid sets.',
  )
  for name, define in (
    ('preset', flags.DEFINE_string),
    ('replicas', flags.DEFINE_integer),
    ('steps', flags.DEFINE_integer),
  ):
    define(
      name,
      None,
      'For all cells, instead of what the grid sets; the default --folder is '
      'another one.',
    )
  flags.DEFINE_bool(
    'dry_run', False, 'Prints the commands of the cells that are left; no more.'
  )
  flags.DEFINE_bool(
    'status',
    False,
    'Prints how far each cell is, while the study runs or not; no more.',
  )
  flags.DEFINE_string(
    'folder',
    None,
    'Folder of the runs, each with a folder and a log. Default: runs/GRID, '
    'where GRID is the name of the file, followed by the names of --over and '
    'by --preset, --replicas and --steps.',
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
    None,
    'Number of parallel runs, >= 1. Default: 1. Two share a CPU well. With '
    'several NVIDIA GPUs, each run gets one of them, and no more run at a time '
    'than there are. With --executor=slurm it bounds the jobs in the queue; by '
    'default all are there.',
  )
  slurm_flags.define_flags()
  flags.DEFINE_integer(
    'retry',
    0,
    'Times, >= 0, that a cell is started again whose run failed; mistakes in '
    'settings (code 2) are not tried again.',
  )
  flags.DEFINE_bool(
    'take_over',
    False,
    'For each run: take its workdir over from a program on another host that '
    'has shown no sign of life for two minutes.',
  )
  flags.DEFINE_float(
    'grace',
    30.0,
    'Seconds, >= 0, that runs have to save their state and end when this '
    'program is interrupted; a second interrupt kills them at once. Of jobs of '
    'a cluster: before the end of their time.',
  )


def read() -> Study:
  """Reads flags and grid.

  Raises:
    ValueError: a flag or the grid is wrong.
    OSError: the grid cannot be read.
  """
  _require_numbers()
  slurm = slurm_flags.read()
  if FLAGS.grid is None and not FLAGS.over:
    raise ValueError(
      '--grid is missing; name the file of a grid, or vary flags by --over.'
    )
  program = places.locate(FLAGS.program or RUN, 'program')
  if not program.is_file():
    raise ValueError(f'--program={program} is not a file; name a Python file.')
  file = None if FLAGS.grid is None else places.locate(FLAGS.grid, 'grid')
  additions = Additions(
    grid_flags.read_over(FLAGS.over),
    {name: FLAGS[name].value for name in _FIXED if FLAGS[name].present},
  )
  shared = {
    name: FLAGS[name].value for name in _ALSO_SHARED if FLAGS[name].present
  }
  grid = {
    name: cell._replace(flags=_complete(cell.flags, shared))
    for name, cell in grid_file.read(file, additions).items()
  }
  if slurm and any(
    cell.flags.get('preset', 'auto') == 'auto' for cell in grid.values()
  ):
    raise ValueError(
      'a preset must be named for jobs of a cluster, since a node may have '
      'another device than this machine, and then another default; add '
      '--preset=small or --preset=paper.'
    )
  if FLAGS.data_dir and not any('data_dir' in c.flags for c in grid.values()):
    raise ValueError('--data_dir needs --data=tfds; no cell reads from there.')
  names = [file.stem] if file else []
  names += [each for each in [grid_flags.suffix(additions)] if each]
  folders = places.locate_folders(
    FLAGS.folder or pathlib.Path('runs') / '-'.join(names), FLAGS.output
  )
  return Study(
    grid,
    file,
    about.read(file) if file else About(),
    additions.fixed,
    *folders,
    program,
    FLAGS.jobs or (None if slurm else 1),
    slurm,
    FLAGS.take_over,
    FLAGS.retry,
    FLAGS.grace,
  )


def _require_numbers() -> None:
  """Raises `ValueError` where a number is out of its range."""
  if FLAGS.status and FLAGS.dry_run:
    raise ValueError('--status and --dry_run print different things; use one.')
  if FLAGS.jobs is not None and FLAGS.jobs < 1:
    raise ValueError(f'--jobs is {FLAGS.jobs}; it must be at least 1.')
  if FLAGS.retry < 0:
    raise ValueError(f'--retry is {FLAGS.retry}; it must be at least 0.')
  if not 0 <= FLAGS.grace < math.inf:
    raise ValueError(
      f'--grace is {FLAGS.grace}; it must be a number from 0 on.'
    )


def _complete(
  of_cell: dict[str, Any], of_all: dict[str, Any]
) -> dict[str, Any]:
  """Returns the flags of a cell, with those of all cells that it lacks."""
  flags = {**of_all, **of_cell}
  if flags.get('data') != 'tfds' and 'data_dir' not in of_cell:
    flags.pop('data_dir', None)
  return flags
