"""Tells from which sources the runs of a table come."""

from collections.abc import Sequence

from studies.outcomes import Row

# Letters of a commit that are told.
_SHORT = 12
# Names of cells that are told.
_MOST = 3


def in_words(rows: Sequence[Row]) -> str:
  """Returns a paragraph about commits: unknown, mixed and changed ones, too."""
  by_source: dict[tuple[str | None, bool | None], list[str]] = {}
  for row in rows:
    for source in row.sources:
      by_source.setdefault(source, []).append(row.name)
  parts = [
    f'{_source(*source)} ({_cells(names)})'
    if len(by_source) > 1
    else _source(*source)
    for source, names in by_source.items()
  ]
  text = f'Sources: {"; ".join(parts)}.'
  if len({commit for commit, _ in by_source}) > 1:
    text += ' **This table mixes versions of the sources.**'
  resumed = [name for row in rows for name in row.resumed]
  if resumed:
    text += f' **Trained by several commits: {_cells(resumed)}.**'
  return text


def _source(commit: str | None, clean: bool | None) -> str:
  if commit is None:
    return 'commit unknown'
  if clean is False:
    return f'commit `{commit[:_SHORT]}`, **with changes that it does not have**'
  return f'commit `{commit[:_SHORT]}`'


def _cells(names: Sequence[str]) -> str:
  """Returns the number of cells and the first of their names."""
  listed = ', '.join(names[:_MOST])
  more = ', ...' if len(names) > _MOST else ''
  count = f'{len(names)} cell{"" if len(names) == 1 else "s"}'
  return f'{count}: {listed}{more}'
