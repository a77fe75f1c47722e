"""Decides which cells are done by the records in a results file."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from gtmm_jax import records
from gtmm_jax.runs import workdirs
from gtmm_jax.runs.settings import may_differ
from studies.cell_records import Cell
from studies.results_file import REMEDY, Records

# Settings that decide on which episodes a run is evaluated in the end.
_OF_EVALUATION = ('evaluate_on',)


def names(
  file: pathlib.Path, recorded: Records, cells: Sequence[Cell]
) -> set[str]:
  """Returns the names of cells whose records are all that they ask for.

  Args:
    file: of the results, for error messages.
    recorded: its records.
    cells: of the study.

  Raises:
    ValueError: a record is of no cell, or of one with other settings.
  """
  names = {cell.name for cell in cells}
  foreign = [name for name in recorded if name not in names]
  if foreign:
    raise ValueError(
      f'{file} has {foreign[0]}, which is no cell of the grid; {REMEDY}.'
    )
  found = set()
  for cell in cells:
    if cell.name in recorded:
      _require_same(file, cell, recorded[cell.name])
      if _is_done(cell, recorded[cell.name]):
        found.add(cell.name)
  return found


def _is_done(cell: Cell, run: Mapping[str, Any]) -> bool:
  """Tells whether a record has the steps and the evaluation that are asked."""
  asked = cell.config['settings']
  return (
    run['step'] == cell.steps
    and run['episodes'] >= cell.episodes
    and all(
      run['settings'].get(name) == asked.get(name) for name in _OF_EVALUATION
    )
  )


def _require_same(
  file: pathlib.Path, cell: Cell, run: Mapping[str, Any]
) -> None:
  """Raises `ValueError` if a record is of a run with other settings."""
  was, now = workdirs.comparable(run['settings'], cell.config)
  if run['step'] > cell.steps:
    raise ValueError(
      f'{file} has {cell.name} after {run["step"]:,} steps, more than the '
      f'{cell.steps:,} asked for; {REMEDY}.'
    )
  try:
    records.require_same_settings(
      {**was, 'data': run['data']['checksum']},
      {**now, 'data': cell.config['data']['checksum']},
      (*may_differ(now.get('device_megabytes') is not None), *_OF_EVALUATION),
    )
  except records.SettingsDiffer as error:
    differing = str(error).partition(': ')[2].partition('. ')[0]
    raise ValueError(
      f'{file} has {cell.name} with other settings: '
      f'{differing.replace("in the workdir", "in the file")}; {REMEDY}.'
    ) from error
