"""The claims that a grid names beforehand, each a list of asks about its rows.

In a grid they are "claims": {"columns": {NAME: ENDING, ...}, "list": [CLAIM,
...]}. A CLAIM is {"name": NAME, "says": TEXT, "asks": [ASK, ...]}. An ASK has
one of these kinds, with ROW as a row's name without the ending of a column:

  "better": [ROW, OTHER, ...]  the first is better than each of the others
  "no_better": [ROW, OTHER, ...]  it is better than none of them
  "alike": [ROW, ...]  no two of them differ
  "grows": [[ROW, OTHER], [ROW, OTHER]]  the lead of the first of a pair over
    its other is larger in the second pair
  "none_best": [[ROW, ...], [ROW, ...], ...]  with a list for each task, models
    in the same order: each model is worse than another one on some task
  "learned": [ROW, ...]  they read their memories

and, but for "learned", "metric", one of the study's or "read_from", and
"margin", the least difference that counts. A column is a setting of all rows,
such as the published one, told by the ending that it gives to their names.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from studies import grid_file
from studies.outcomes import METRICS

_FORM = '{"columns": {NAME: ENDING, ...}, "list": [CLAIM, ...]}'
# The first step at which memory is read, of each replica.
READ_FROM = 'read_from'
# Kinds of asks about one list of rows, and about several.
_OF_ROWS = ('better', 'no_better', 'alike', 'learned')
_OF_GROUPS = ('grows', 'none_best')
_WITHOUT_METRIC = ('learned',)


class Ask(NamedTuple):
  """One thing that must be so if a claim holds.

  Attributes:
    kind: 'better', 'no_better', 'alike', 'grows', 'none_best' or 'learned'.
    groups: names of rows, without the ending of a column; one group for kinds
      that have one list.
    metric: that is compared, '' for 'learned'.
    margin: the least difference that counts, in the metric's unit, >= 0.
  """

  kind: str
  groups: tuple[tuple[str, ...], ...]
  metric: str
  margin: float


class Claim(NamedTuple):
  """A claim, and all that must be so if it holds."""

  name: str
  says: str
  asks: tuple[Ask, ...]


class Claims(NamedTuple):
  """The claims of a grid.

  Attributes:
    columns: the endings of the names of their rows, by name.
    claims: in order.
  """

  columns: Mapping[str, str]
  claims: tuple[Claim, ...]


def read(file: pathlib.Path) -> Claims | None:
  """Reads the claims of a grid; None if the grid has none.

  Raises:
    ValueError: they are not claims, or name rows that no column has.
    OSError: the grid cannot be read.
  """
  parts = grid_file.question(file, 'claims', ('columns', 'list'), _FORM)
  if parts is None:
    return None
  columns, claims = parts['columns'], parts['list']
  is_named = isinstance(columns, dict) and all(
    isinstance(ending, str) for ending in columns.values()
  )
  if not is_named or not columns or not isinstance(claims, list) or not claims:
    raise ValueError(f'{file}: "claims" must be {_FORM}.')
  every = tuple(_claim(file, each) for each in claims)
  names = [each.name for each in every]
  if len(names) > len(set(names)):
    raise ValueError(f'{file}: two of "claims" have the same name.')
  rows = {cell.row or name for name, cell in grid_file.read(file).items()}
  for claim in every:
    for row in (row for ask in claim.asks for row in rows_of(ask)):
      if not any(row + ending in rows for ending in columns.values()):
        raise ValueError(
          f'{file}: the claim {claim.name} is about the row {row!r}, which no '
          f'column of the grid has.'
        )
  return Claims(columns, every)


def rows_of(ask: Ask) -> Iterator[str]:
  """Yields the names of all rows of an ask."""
  return (row for group in ask.groups for row in group)


def _claim(file: pathlib.Path, value: Any) -> Claim:
  """Checks a claim of a grid."""
  fields = Claim._fields
  if not isinstance(value, dict) or set(value) != {*fields}:
    raise ValueError(
      f'{file}: each of "claims" must have only "name", "says" and "asks".'
    )
  name, says, asks = (value[field] for field in fields)
  if not (isinstance(name, str) and name and isinstance(says, str) and says):
    raise ValueError(f'{file}: "name" and "says" of a claim must be texts.')
  if not isinstance(asks, list) or not asks:
    raise ValueError(f'{file}: "asks" of the claim {name} must be a list.')
  return Claim(name, says, tuple(_ask(file, name, each) for each in asks))


def _ask(file: pathlib.Path, claim: str, value: Any) -> Ask:
  """Checks an ask of a claim."""
  where = f'{file}: an ask of the claim {claim}'
  kinds = [
    kind
    for kind in (*_OF_ROWS, *_OF_GROUPS)
    if isinstance(value, dict) and kind in value
  ]
  if len(kinds) != 1:
    raise ValueError(
      f'{where} must have one of {", ".join((*_OF_ROWS, *_OF_GROUPS))}.'
    )
  (kind,) = kinds
  rest = () if kind in _WITHOUT_METRIC else ('metric', 'margin')
  if set(value) != {kind, *rest}:
    words = ', '.join((kind, *rest))
    raise ValueError(f'{where} must have only {words}.')
  groups = value[kind] if kind in _OF_GROUPS else [value[kind]]
  _require_groups(where, kind, groups)
  metric, margin = value.get('metric', ''), value.get('margin', 0.0)
  if rest and metric not in (*METRICS, READ_FROM):
    raise ValueError(
      f'{where} has the metric {metric!r}; it must be one of '
      f'{", ".join((*METRICS, READ_FROM))}.'
    )
  is_number = isinstance(margin, (int, float)) and not isinstance(margin, bool)
  if not is_number or not 0 <= margin < math.inf:
    raise ValueError(
      f'{where} has the margin {margin!r}; it must be a number from 0 on.'
    )
  return Ask(
    kind, tuple(tuple(group) for group in groups), metric, float(margin)
  )


def _require_groups(where: str, kind: str, groups: Any) -> None:
  """Raises `ValueError` unless rows are listed as the kind needs them."""
  is_listed = isinstance(groups, list) and all(
    isinstance(group, list) and all(isinstance(row, str) for row in group)
    for group in groups
  )
  if not is_listed or not groups:
    raise ValueError(f'{where}: {kind} must have lists of the names of rows.')
  sizes = {len(group) for group in groups}
  least = 1 if kind == 'learned' else 2
  if len(sizes) > 1 or min(sizes) < least:
    raise ValueError(
      f'{where}: each list of {kind} must have at least {least} rows, and all '
      f'as many.'
    )
  if kind == 'grows' and (len(groups), *sizes) != (2, 2):
    raise ValueError(f'{where}: grows must have two pairs of rows.')
