"""Reads pages of report.py, and checks that they are well formed."""

import html.parser
import urllib.parse

# Elements that have no end.
_VOID = {'img', 'link', 'meta', 'wbr'}


class Page(html.parser.HTMLParser):
  """A page that was read.

  Attributes:
    ids: of its elements.
    addresses: that src and href name.
    scripts: the texts of its scripts.
    elements: names of all its elements.
    table: texts of the cells of each line of the table of rows.
    text: all of its text, without style and script.
  """

  def __init__(self, path):
    super().__init__()
    self.ids, self.addresses, self.scripts = [], [], []
    self.elements, self.table, self.text = [], [], ''
    self._open, self._path = [], path
    self.feed(path.read_text())
    self.close()
    assert not self._open, self._open
    assert len(set(self.ids)) == len(self.ids)

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    assert len(attributes) == len(attrs)
    # An attribute with an event runs code.
    assert not any(name.startswith('on') for name in attributes)
    self.elements.append(tag)
    self.addresses += [
      attributes[k] for k in ('src', 'href') if k in attributes
    ]
    if 'id' in attributes:
      self.ids.append(attributes['id'])
    if tag not in _VOID:
      self._open.append((tag, attributes.get('id')))
    if self._is_in_rows():
      if tag == 'tr':
        self.table.append([])
      elif tag in ('td', 'th'):
        self.table[-1].append('')

  def handle_endtag(self, tag):
    assert self._open.pop()[0] == tag

  def handle_data(self, data):
    names = [name for name, _ in self._open]
    if 'script' in names:
      self.scripts.append(data)
    elif 'style' not in names:
      self.text += data
      if self._is_in_rows() and 'svg' not in names:
        self.table[-1][-1] += data

  def _is_in_rows(self):
    return ('table', 'rows') in self._open

  def require_addresses(self):
    """Checks that each address is a file beside the page, or in the page."""
    for address in self.addresses:
      if address.startswith('#'):
        assert address[1:] in self.ids, address
      elif not address.startswith('data:'):
        file = self._path.parent / urllib.parse.unquote(address)
        assert file.is_file(), address
        assert file.resolve().is_relative_to(self._path.parent.resolve())
