"""HTML from plain text: whatever is not made here is escaped."""

import html
import re
from typing import Any

# Of text that HTML cannot hold.
_CONTROL = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')
_VOID = ('img', 'link', 'meta', 'wbr')


class Html(str):
  """Text that is HTML; a plain string is not, and is escaped."""


Child = str | Html | None


def escape(text: str) -> Html:
  """Returns text as HTML that shows it, quotes and tags included."""
  return Html(html.escape(_CONTROL.sub('\N{REPLACEMENT CHARACTER}', text)))


def join(*children: Child, between: str = '') -> Html:
  """Joins children to HTML; plain strings are escaped, None is left out."""
  return Html(
    between.join(
      each if isinstance(each, Html) else escape(each)
      for each in children
      if each is not None
    )
  )


def tag(name: str, *children: Child, **attributes: Any) -> Html:
  """Makes an element.

  Args:
    name: of the element.
    children: joined as by `join`.
    attributes: by name, with '_' for '-' and one added to a word of Python,
      `class_`. None leaves an attribute out, True has no value.
  """
  words = [name]
  for key, value in attributes.items():
    key = key.rstrip('_').replace('_', '-')
    if value is True:
      words.append(key)
    elif value is not None:
      words.append(f'{key}="{escape(str(value))}"')
  if name in _VOID:
    return Html(f'<{" ".join(words)}>')
  return Html(f'<{" ".join(words)}>{join(*children)}</{name}>')
