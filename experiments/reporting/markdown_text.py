"""The Markdown of a study's tables as HTML: headings, tables, paragraphs."""

import re
from collections.abc import Sequence

from reporting.elements import Html, escape, join, tag

_CODE = re.compile('(`[^`]+`)')
_STRONG, _EMPHASIS = re.compile(r'\*\*(.+?)\*\*'), re.compile(r'\*(.+?)\*')


def blocks(parts: Sequence[str], level: int = 2) -> Html:
  """Returns the parts of a document of `studies.tables` as HTML.

  Args:
    parts: each a heading, a table or a paragraph.
    level: of a heading that Markdown begins with '##'.
  """
  made = []
  for part in parts:
    if part.startswith('## '):
      made.append(tag(f'h{level}', part.removeprefix('## ')))
    elif part.startswith('| '):
      made.append(_table(part))
    else:
      made.append(tag('p', words(part)))
  return join(*made)


def words(text: str) -> Html:
  """Returns a line of Markdown, with its code and emphasis, as HTML."""
  made = []
  for part in _CODE.split(text):
    if _CODE.fullmatch(part):
      made.append(tag('code', part[1:-1]))
      continue
    part = _STRONG.sub(r'<strong>\1</strong>', escape(part))
    made.append(Html(_EMPHASIS.sub(r'<em>\1</em>', part)))
  return join(*made)


def _table(text: str) -> Html:
  """Returns a table, which scrolls where the window is narrower."""
  headings, _, *lines = (
    line.removeprefix('| ').removesuffix(' |').split(' | ')
    for line in text.splitlines()
  )
  head = [tag('th', words(each), scope='col') for each in headings]
  body = []
  for first, *others in lines:
    cells = [tag('td', words(each)) for each in others]
    body.append(tag('tr', tag('th', words(first), scope='row'), *cells))
  return tag(
    'div',
    tag('table', tag('thead', tag('tr', *head)), tag('tbody', *body)),
    class_='wide',
  )
