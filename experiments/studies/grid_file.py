"""Grids: JSON files that list the runs of a study; no jax.

A grid is {"cells": [BLOCK, ...]}, where a BLOCK has "flags", given to each of
its runs, and "over", lists of values of further flags; there is a cell for
each combination of these. "set" may have a list of NAME=VALUE for its value;
what "over" sets comes on top of what "flags" sets. A grid may also have a
"comparison", a "choice" and "claims", which purpose.py reads, and "about" and
"minutes", which about.py reads. Flags of study.py extend it (grid_flags.py).
"""

import itertools
import json
import math
import pathlib
import re
from typing import Any, NamedTuple

from studies import grid_flags
from studies.grid_flags import Additions

_FORM = '{"cells": [{"flags": {...}, "over": {FLAG: [...]}}]}'
# Folder and log are named after the cell.
_LONGEST_NAME = 255 - len('.log')
_MOST_CELLS = 10_000
# Parts of a grid that it may have beside its cells.
_MORE = ('comparison', 'choice', 'claims', 'about', 'minutes')
# Stands for the grid's file where there is none.
_NO_FILE = pathlib.Path('--over')
_NONE = Additions()
# Number of letters to quote from names that are too long.
_QUOTED = 40


class Cell(NamedTuple):
  """A run of a grid.

  Attributes:
    flags: of run.py, and their values.
    row: the cell's name without its seed, '' if only the seed is varied.
  """

  flags: dict[str, Any]
  row: str


def read(
  file: pathlib.Path | None, additions: Additions = _NONE
) -> dict[str, Cell]:
  """Reads the cells of a grid, by their names.

  Args:
    file: of the grid; None means a grid of the additions alone.
    additions: that flags make to each of its blocks.

  Returns:
    The cells, in order. A name joins the values that are varied.

  Raises:
    ValueError: the file is not a grid, or an addition is wrong; tells in one
      line where.
    OSError: the file cannot be read.
  """
  blocks = [{'flags': {}, 'over': {}}]
  if file is None:
    file = _NO_FILE
  else:
    blocks = content(file)['cells']
  for name, values in additions.over.items():
    for value in values:
      _require_flag(_NO_FILE, name, value)
  cells: dict[str, Cell] = {}
  for number, block in enumerate(blocks, 1):
    flags, over = grid_flags.extend(
      f'{file}: block {number}', *_parts(file, number, block), additions
    )
    count = math.prod(map(len, over.values()))
    if not count:
      raise ValueError(
        f'{file}: block {number} has no cells; each list in "over" must have a '
        f'value.'
      )
    if len(cells) + count > _MOST_CELLS:
      raise ValueError(
        f'{file} has more than {_MOST_CELLS:,} cells; split it into several '
        f'grids.'
      )
    for values in itertools.product(*over.values()):
      varied = dict(zip(over, values, strict=True))
      name = _name(varied)
      _require_folder(file, name, cells)
      cells[name] = _cell(flags, varied)
  if not cells:
    raise ValueError(f'{file} has no cells.')
  return cells


def _cell(flags: dict[str, Any], varied: dict[str, Any]) -> Cell:
  """Returns the cell with these values of the flags that are varied."""
  fixed = {flag: varied[flag] for flag in varied if flag != 'seed'}
  both = _texts(flags) + _texts(varied)
  whole = {**flags, **varied} | ({'set': both} if both else {})
  return Cell(whole, _name(fixed))


def _texts(flags: dict[str, Any]) -> list[str]:
  """Returns the values of --set among flags."""
  texts = flags.get('set', [])
  return texts if isinstance(texts, list) else [texts]


def content(file: pathlib.Path) -> dict[str, Any]:
  """Reads a grid; the contents of its parts are not checked yet.

  Returns:
    The list `cells`, and `comparison`, `choice`, `claims`, `about` and
    `minutes` if the grid has them.

  Raises:
    ValueError: the file is not a grid; tells in one line where.
    OSError: the file cannot be read.
  """
  try:
    grid = json.loads(file.read_bytes(), object_pairs_hook=_unique)
  except RecursionError as error:
    raise _no_grid(file, 'it is nested too deeply') from error
  except ValueError as error:
    raise _no_grid(file, str(error)) from error
  if not isinstance(grid, dict) or set(grid) - {*_MORE} != {'cells'}:
    raise _no_grid(
      file,
      'it is not an object with only "cells" and perhaps '
      + ', '.join(f'"{part}"' for part in _MORE),
    )
  if not isinstance(grid['cells'], list):
    raise _no_grid(file, '"cells" is not a list')
  return grid


def question(
  file: pathlib.Path, name: str, fields: tuple[str, ...], form: str
) -> dict[str, Any] | None:
  """Reads a question that a grid asks of its cells; None if it has none.

  Args:
    file: of the grid.
    name: 'comparison', 'choice' or 'claims'.
    fields: that it must have, no others; their contents are not checked yet.
    form: of a right one, for the error message.

  Raises:
    ValueError: the file is not a grid, or the question has other fields.
    OSError: the file cannot be read.
  """
  parts = content(file).get(name)
  if parts is not None and (
    not isinstance(parts, dict) or set(parts) != {*fields}
  ):
    raise ValueError(f'{file}: "{name}" must be {form}.')
  return parts


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Makes an object of JSON; refuses names that are there twice."""
  value = dict(pairs)
  if len(value) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f'{twice[:_QUOTED]!r} is twice in one object')
  return value


def _parts(
  file: pathlib.Path, number: int, block: Any
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
  """Checks a block; returns its flags and the lists that it varies."""
  where = f'block {number}'
  if not isinstance(block, dict) or set(block) != {'flags', 'over'}:
    raise _no_grid(file, f'{where} must have only "flags" and "over"')
  flags, over = block['flags'], block['over']
  if not (isinstance(flags, dict) and isinstance(over, dict)):
    raise _no_grid(file, f'"flags" and "over" of {where} are not objects')
  for flag in over:
    if not isinstance(over[flag], list):
      raise _no_grid(
        file, f'{flag[:_QUOTED]!r} in "over" of {where} is not a list'
      )
  for name, value in (
    *flags.items(),
    *((flag, value) for flag in over for value in over[flag]),
  ):
    for each in value if name == 'set' and isinstance(value, list) else [value]:
      _require_flag(file, name, each)
  return flags, over


def _require_flag(file: pathlib.Path, name: str, value: Any) -> None:
  """Raises `ValueError` unless a flag and its value can be in a grid."""
  if not re.fullmatch(r'[A-Za-z]\w*', name, re.ASCII):
    raise ValueError(f'{file}: {name[:_QUOTED]!r} is not the name of a flag.')
  if name == 'workdir':
    raise ValueError(
      f'{file} sets the workdir; each cell has its own, in the folder of the '
      f'study. Leave it out.'
    )
  if value is None:
    raise ValueError(
      f'{file}: {name} is null; leave the flag out where the preset decides.'
    )
  if not isinstance(value, (str, int, float)):
    kind = {dict: 'an object', list: 'a list'}[type(value)]
    raise ValueError(
      f'{file}: a value of {name} is {kind}; it must be a text, a number, true '
      f'or false.'
    )
  if name == 'set' and not isinstance(value, str):
    raise ValueError(
      f'{file}: a value of set is {value}; it must be a text, "NAME=VALUE".'
    )
  if isinstance(value, str) and not value.isprintable():
    raise ValueError(
      f'{file}: a value of {name} has characters that cannot be printed.'
    )
  if any(word.startswith('--') for word in str(value).split()):
    raise ValueError(
      f'{file}: a value of {name} contains another flag; give each flag by its '
      f'own name.'
    )


def _require_folder(
  file: pathlib.Path, name: str, others: dict[str, Cell]
) -> None:
  """Raises `ValueError` unless a new folder of the study can have the name."""
  if not re.fullmatch(r'\w[\w.,+=-]*', name) or name in others:
    raise ValueError(
      f'{file}: the cell {name[:_QUOTED]!r} has no unique name that a folder '
      f'can have; vary in "over" only flags that differ, and no paths.'
    )
  length = len(name.encode())
  if length > _LONGEST_NAME:
    raise ValueError(
      f'{file}: the name of the cell {name[:_QUOTED]}... takes {length:,} '
      f'bytes, and a file may have {_LONGEST_NAME}; vary fewer flags in "over".'
    )


def _name(varied: dict[str, Any]) -> str:
  """Names a cell: tasks and models by their names, other flags FLAG=VALUE."""
  parts = []
  for flag, value in varied.items():
    if flag == 'set':
      parts += _texts(varied)
    elif flag in ('task', 'model'):
      parts.append(str(value))
    else:
      # Folders of some systems may have no colon.
      parts.append(f'{flag}={value}'.replace(':', '='))
  return '-'.join(parts)


def _no_grid(file: pathlib.Path, why: str) -> ValueError:
  return ValueError(f'{file} is not a grid, {why}; it must be {_FORM}.')
