"""Runs and studies, whole or partial, as a report shows them; no jax."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gtmm_jax import records
from reporting import states
from reporting.states import State
from studies import grid_file, outcomes, purpose, results_file, run_records
from studies.outcomes import Row
from studies.purpose import Purpose

# What records and files that are not of a run make readers raise.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OSError)
_TABLE = 'table.json'
_SEED = re.compile(r'(^|-)seed=\d+(?=-|$)')


class Run(NamedTuple):
  """A run of a study.

  Attributes:
    name: of its cell, or of its folder.
    workdir: its folder, None if it is not here.
    record: as results files hold them, None until it has finished.
    config: its settings and versions; {} if they are not known.
    state: whether it has finished, and why not.
  """

  name: str
  workdir: pathlib.Path | None
  record: Mapping[str, Any] | None
  config: Mapping[str, Any]
  state: State


class Study(NamedTuple):
  """The runs of a folder, of a results file, or of both.

  Attributes:
    name: of the folder or of the file.
    runs: in the order of the grid or of the file; then by name.
    rows: of those that have finished, as `outcomes.rows` returns them.
    workdirs: of the runs of each row whose runs are all here.
    purpose: that its grid names.
  """

  name: str
  runs: list[Run]
  rows: dict[str, Row]
  workdirs: dict[str, list[pathlib.Path]]
  purpose: Purpose


class Source(NamedTuple):
  """A part of a study: a folder, or a results file.

  Attributes:
    name: of the study.
    recorded: records by the names of their cells.
    folders: of runs, by name, and of runs that only have a log.
  """

  name: str
  recorded: dict[str, dict[str, Any]]
  folders: dict[str, pathlib.Path]


def read(
  paths: Sequence[pathlib.Path], grids: pathlib.Path, grid: pathlib.Path | None
) -> list[Study]:
  """Reads studies.

  Args:
    paths: folders of runs, folders of studies, results files. A folder and a
      file that have a cell in common are one study.
    grids: folder where the grid of a study NAME is NAME.json, or missing.
    grid: the grid of all studies instead, or None.

  Raises:
    ValueError: a path has no runs, or a file is damaged.
    OSError: a file cannot be read.
  """
  joined: list[Source] = []
  for source in [_source(path) for path in paths]:
    index = next(
      (i for i, each in enumerate(joined) if _share(each, source)), None
    )
    if index is None:
      joined.append(source)
    else:
      joined[index] = _join(joined[index], source)
  return [_study(source, grids, grid) for source in joined]


def _source(path: pathlib.Path) -> Source:
  """Reads what a path names: a results file, a run, or a folder of runs."""
  if not path.exists():
    raise ValueError(f'{path} is not there; name a folder of runs.')
  if path.is_file():
    return Source(path.stem, _checked(path), {})
  name = path.absolute().name
  if (path / 'config.json').exists():
    return Source(name, {}, {name: path})
  folders = {
    each.parent.name: each.parent for each in sorted(path.glob('*/config.json'))
  }
  # A run that ended by a mistake may have left nothing but its log.
  logs = {log.stem: log for log in sorted(path.glob('*.log'))}
  logged = {name: path / name for name in logs if name not in folders}
  recorded = _checked(path / _TABLE)
  if not (folders or logged or recorded):
    raise ValueError(
      f'{path} has no runs: no {_TABLE}, no folder with a config.json, no log; '
      f'name the folder of a run or of a study, or a results file.'
    )
  return Source(name, recorded, folders | logged)


def _checked(file: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Reads the records of a results file, {} if there is none.

  Raises:
    ValueError: rows cannot be made of them.
  """
  recorded = results_file.read(file)
  try:
    outcomes.rows(recorded)
  except _DAMAGE as error:
    raise ValueError(
      f'{file} is not a results file of study.py ({error!r}).'
    ) from error
  return recorded


def _share(one: Source, other: Source) -> bool:
  """Tells whether one source has the records of the other's folders."""
  return bool(
    one.recorded.keys() & other.folders.keys()
    or other.recorded.keys() & one.folders.keys()
  )


def _join(one: Source, other: Source) -> Source:
  return Source(
    one.name,
    {**other.recorded, **one.recorded},
    {**other.folders, **one.folders},
  )


def _study(
  source: Source, grids: pathlib.Path, grid: pathlib.Path | None
) -> Study:
  """Reads the runs of a source, and makes rows of those that have finished."""
  names = [*source.recorded, *sorted(source.folders)]
  asked = Purpose()
  file = grid or grids / f'{source.name}.json'
  cells = grid_file.read(file) if grid or file.exists() else {}
  if grid or cells.keys() & set(names):
    asked = purpose.read(file)
    names = [*cells, *names]
  runs = [_run(name, source, cells) for name in dict.fromkeys(names)]
  finished = {run.name: run.record for run in runs if run.record}
  workdirs = {run.name: run.workdir for run in runs if run.workdir}
  by_row = {
    row: [workdirs[name] for name in members]
    for row, members in outcomes.group(finished).items()
    if workdirs.keys() >= set(members)
  }
  return Study(source.name, runs, outcomes.rows(finished), by_row, asked)


def _run(name: str, source: Source, cells: Mapping[str, grid_file.Cell]) -> Run:
  """Reads a run; what is in its folder counts more than its record."""
  recorded = source.recorded.get(name)
  workdir = source.folders.get(name)
  if workdir is None:
    if recorded is None:
      flags = {'settings': cells[name].flags}
      return Run(name, None, None, flags, State('waiting', 'Not begun here.'))
    return Run(name, None, recorded, recorded, State('finished'))
  config: Mapping[str, Any] = {}
  try:
    config = records.read_config(workdir) or {}
    row = cells[name].row if name in cells else _row_of(name, config)
    record = config and _record(workdir, row, recorded)
    if not record:
      log = workdir.with_name(f'{name}.log')
      state = states.of_unfinished(config, workdir, log)
      return Run(name, workdir, None, config, state)
    outcomes.rows({name: record})
  except _DAMAGE as error:
    why = str(error) if isinstance(error, ValueError) else repr(error)
    return Run(name, workdir, None, config, State('damaged', why))
  return Run(name, workdir, record, {**config, **record}, State('finished'))


def _record(
  workdir: pathlib.Path, row: str, recorded: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
  """Returns a run's record, from the results file if that is as new."""
  evaluation = records.read_evaluation(workdir)
  if evaluation is None:
    return None
  of_it = [evaluation.get(name) for name in ('step', 'episodes', 'split')]
  if recorded and of_it == [
    recorded.get(name) for name in ('step', 'episodes', 'split')
  ]:
    return recorded
  return run_records.record(workdir, row)


def _row_of(name: str, config: Mapping[str, Any]) -> str:
  """Returns the name of a run without its seed.

  Folders are named after the cells of a grid, or TASK-MODEL-PRESET-SEED.
  """
  settings = config.get('settings', {})
  parts = [settings.get(key) for key in ('task', 'model', 'preset', 'seed')]
  usual = '-'.join(map(str, parts))
  if name == usual or name.startswith(f'{usual}-'):
    return f'{parts[0]}-{parts[1]}{name.removeprefix(usual)}'
  return _SEED.sub('', name).strip('-')
