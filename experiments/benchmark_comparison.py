"""What moved between two measurements of benchmark.py, beyond the noise."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from gtmm_jax.process import places

# Of a row, what tells which it is; the rest was measured.
_IDENTITY = (
  'model',
  'core',
  'threads',
  'replicas',
  'frames',
  'batch_size',
  'slots',
  'word_size',
  'read_heads',
)
# Of a row, numbers that are measured once, and so have no quartiles.
_SINGLE = ('_seconds', '_bytes')
# Medians nearer than this are taken for equal whatever quartiles say; so are
# single numbers nearer than the second, which compilers alone make differ.
_LEAST_CHANGE, _LEAST_SINGLE_CHANGE = 0.05, 0.25


class Change(NamedTuple):
  """A number of a row that moved.

  Attributes:
    row: which row, for people.
    name: of the number.
    old: median, or the number itself.
    new: likewise.
  """

  row: str
  name: str
  old: float
  new: float


def read(path: str) -> dict[str, Any]:
  """What an earlier --json wrote.

  Raises:
    ValueError: if it cannot be read, or is something else.
  """
  try:
    content = json.loads(places.locate(path, 'compare').read_text())
  except (
    OSError,
    UnicodeDecodeError,
    json.JSONDecodeError,
    RecursionError,
  ) as error:
    raise ValueError(
      f'--compare={path} cannot be read: {error}. Name a file that --json '
      f'wrote.'
    ) from error
  if not isinstance(content, dict) or not _is_rows(content.get('rows')):
    raise ValueError(
      f'--compare={path} holds no rows; name a file that --json wrote.'
    )
  return content


def compare(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[list[Change], int, list[str]]:
  """Finds what moved beyond the noise.

  A median has moved if the quartiles of both measurements lie apart and it is
  more than a twentieth larger or smaller; a number without quartiles, if it is
  by more than a quarter.

  Args:
    old: from `read`.
    new: of the same kind.

  Returns:
    The changes, how many rows are in both, and sentences on what else differs.

  Raises:
    ValueError: if no row is in both.
  """
  notes = [
    f'{part}: {name} was {was.get(name)} and is {now.get(name)}'
    for part in ('settings', 'device', 'versions')
    for was, now in [(old.get(part, {}), new.get(part, {}))]
    for name in {**was, **now}
    if was.get(name) != now.get(name)
  ]
  before = {_identity(row): row for row in old['rows']}
  changes, count = [], 0
  for row in new['rows']:
    identity = _identity(row)
    if identity not in before:
      continue
    count += 1
    label = ', '.join(f'{name} {value}' for name, value in identity)
    changes += [
      Change(label, *change) for change in _changes(before[identity], row)
    ]
  if not count:
    raise ValueError(
      '--compare: no row is in both measurements; measure the same models, '
      'sizes and replicas.'
    )
  return changes, count, notes


def as_table(changes: Sequence[Change]) -> Table:
  """One line for each change."""
  table = Table(title='Moved beyond the noise')
  for name in ('row', 'number'):
    table.add_column(name)
  for name in ('before', 'now', 'now / before'):
    table.add_column(name, justify='right')
  for change in changes:
    table.add_row(
      change.row,
      change.name,
      f'{change.old:,.4g}',
      f'{change.new:,.4g}',
      f'{change.new / change.old:.2f}' if change.old else '-',
    )
  return table


def _is_rows(rows: Any) -> bool:
  return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def _identity(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
  return tuple(
    (name, row[name]) for name in _IDENTITY if row.get(name) is not None
  )


def _changes(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[tuple[str, float, float]]:
  changes = []
  for name, value in new.items():
    before = old.get(name)
    if _is_spread(value) and _is_spread(before):
      apart = (
        value['lower_quartile'] > before['upper_quartile']
        or value['upper_quartile'] < before['lower_quartile']
      )
      pair, least = (before['median'], value['median']), _LEAST_CHANGE
    elif name.endswith(_SINGLE) and None not in (value, before):
      apart, pair, least = True, (before, value), _LEAST_SINGLE_CHANGE
    else:
      continue
    if apart and abs(pair[1] - pair[0]) > least * abs(pair[0]):
      changes.append((name, *pair))
  return changes


def _is_spread(value: Any) -> bool:
  return isinstance(value, dict) and 'median' in value
