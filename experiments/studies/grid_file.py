"""Grids: files of JSON that say which runs a study is made of; no jax.

A grid is {"cells": [BLOCK, ...]}, where a BLOCK has "flags", given to each of
its runs, and "over", lists of values of further flags; there is a cell for
each combination of these. "set" may have a list of NAME=VALUE for its value;
what "over" sets comes on top of what "flags" sets.
"""

import itertools
import json
import math
import pathlib
import re
from typing import Any, NamedTuple

_FORM = '{"cells": [{"flags": {...}, "over": {FLAG: [...]}}]}'
# Folder and log are named after the cell.
_LONGEST_NAME = 255 - len('.log')
_MOST_CELLS = 10_000
# Of names that are too long, as many letters are told.
_TOLD = 40


class Cell(NamedTuple):
  """A run that a grid asks for.

  Attributes:
    flags: of run.py, and their values.
    row: the cell's name without its seed, '' where only the seed is varied.
  """

  flags: dict[str, Any]
  row: str


def read(file: pathlib.Path) -> dict[str, Cell]:
  """Reads the cells of a grid, by their names.

  Args:
    file: of the grid.

  Returns:
    The cells, in order. A name joins the values that the grid varies.

  Raises:
    ValueError: if it is not a grid; one sentence says where.
    OSError: if it cannot be read.
  """
  cells: dict[str, Cell] = {}
  for number, block in enumerate(_blocks(file), 1):
    flags, over = _parts(file, number, block)
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
      fixed = {flag: varied[flag] for flag in varied if flag != 'seed'}
      both = _texts(flags) + _texts(varied)
      whole = {**flags, **varied} | ({'set': both} if both else {})
      cells[name] = Cell(whole, _name(fixed))
  if not cells:
    raise ValueError(f'{file} has no cells.')
  return cells


def _texts(flags: dict[str, Any]) -> list[str]:
  """Returns the values of --set among flags."""
  texts = flags.get('set', [])
  return texts if isinstance(texts, list) else [texts]


def _blocks(file: pathlib.Path) -> list[Any]:
  """The blocks of a grid, which may be anything yet."""
  try:
    content = json.loads(file.read_bytes(), object_pairs_hook=_unique)
  except RecursionError as error:
    raise _no_grid(file, 'it is nested too deep') from error
  except ValueError as error:
    raise _no_grid(file, str(error)) from error
  if not isinstance(content, dict) or set(content) != {'cells'}:
    raise _no_grid(file, 'it is no object that has "cells" alone')
  if not isinstance(content['cells'], list):
    raise _no_grid(file, '"cells" is no list')
  return content['cells']


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """An object of JSON; of two values of one name JSON would keep the last."""
  found = dict(pairs)
  if len(found) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f'{twice[:_TOLD]!r} is there twice in one object')
  return found


def _parts(
  file: pathlib.Path, number: int, block: Any
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
  """The flags of a block and the lists that it varies, each value checked."""
  where = f'block {number}'
  if not isinstance(block, dict) or set(block) != {'flags', 'over'}:
    raise _no_grid(file, f'{where} has not "flags" and "over" alone')
  flags, over = block['flags'], block['over']
  if not (isinstance(flags, dict) and isinstance(over, dict)):
    raise _no_grid(file, f'"flags" and "over" of {where} are no objects')
  for flag in over:
    if not isinstance(over[flag], list):
      raise _no_grid(file, f'{flag[:_TOLD]!r} in "over" of {where} is no list')
  for name, value in (
    *flags.items(),
    *((flag, value) for flag in over for value in over[flag]),
  ):
    for each in value if name == 'set' and isinstance(value, list) else [value]:
      _require_flag(file, name, each)
  return flags, over


def _require_flag(file: pathlib.Path, name: str, value: Any) -> None:
  """Raises unless these are one flag and one value, and never a workdir's."""
  if not re.fullmatch(r'[A-Za-z]\w*', name, re.ASCII):
    raise ValueError(f'{file}: {name[:_TOLD]!r} is not the name of a flag.')
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
  if isinstance(value, str) and not value.isprintable():
    raise ValueError(
      f'{file}: a value of {name} has characters that cannot be printed.'
    )
  if any(word.startswith('--') for word in str(value).split()):
    raise ValueError(
      f'{file}: a value of {name} carries a flag of its own; give each flag by '
      f'its own name.'
    )


def _require_folder(
  file: pathlib.Path, name: str, others: dict[str, Cell]
) -> None:
  """Raises unless a new folder can have the name, inside the study's."""
  if not re.fullmatch(r'\w[\w.,+=-]*', name) or name in others:
    raise ValueError(
      f'{file}: the cell {name[:_TOLD]!r} has no name of its own that a folder '
      f'can have; vary in "over" what tells cells apart, and no paths.'
    )
  length = len(name.encode())
  if length > _LONGEST_NAME:
    raise ValueError(
      f'{file}: the name of the cell {name[:_TOLD]}... takes {length:,} bytes, '
      f'and a file may have {_LONGEST_NAME}; vary fewer flags in "over".'
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
      parts.append(f'{flag}={value}')
  return '-'.join(parts)


def _no_grid(file: pathlib.Path, why: str) -> ValueError:
  return ValueError(f'{file} is not a grid, {why}; it must be {_FORM}.')
