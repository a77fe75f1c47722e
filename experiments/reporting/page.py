"""The page of a report: one file of HTML with its style and its script."""

import base64
import collections
import datetime
import hashlib
import pathlib
from collections.abc import Iterable, Sequence

import gtmm_jax
from reporting import markdown_text, runs, table
from reporting.elements import Html, tag
from reporting.pictures import Pictures
from reporting.reading import Study
from studies import sources, tables

_HERE = pathlib.Path(__file__).parent
_TITLE = 'Report'
_DOTS = (
  'Below a mean, rings are its replicas, the upright line is the mean and the '
  'bar its 95% t interval, on a scale from the least to the greatest replica '
  'of the task; longer intervals are cut.'
)


def document(
  studies: Sequence[Study], pictures: Pictures, now: datetime.datetime
) -> str:
  """Returns the page; draws and copies the pictures that it shows.

  Args:
    studies: as `reading.read` returns them.
    pictures: that writes them beside the page.
    now: when the page is made.
  """
  parts = [
    _study(index, study, pictures) for index, study in _numbered(studies)
  ]
  failed = runs.failures(studies, pictures.problems)
  names = ', '.join(study.name for study in studies)
  body = tag(
    'body',
    tag(
      'header',
      tag('h1', f'{_TITLE}: {names}'),
      tag('p', _counts(studies), class_='note'),
      tag(
        'p',
        f'Made {now:%Y-%m-%d %H:%M} UTC by gtmm_jax {gtmm_jax.__version__}.',
        class_='note',
      ),
      _contents(studies, failed),
    ),
    tag('main', failed, _all_rows(studies), *parts),
    tag('script', Html(_asset('page.js'))),
  )
  return f'<!doctype html>\n{tag("html", _head(names), body, lang="en")}\n'


def _head(names: str) -> Html:
  """Returns the head, which forbids the page everything from elsewhere."""
  digest = hashlib.sha256(_asset('page.js').encode()).digest()
  script = base64.b64encode(digest).decode()
  policy = (
    f"default-src 'none'; img-src 'self' data: file:; base-uri 'none'; "
    f"form-action 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{script}'"
  )
  return tag(
    'head',
    tag('meta', charset='utf-8'),
    tag('meta', http_equiv='Content-Security-Policy', content=policy),
    tag(
      'meta', name_='viewport', content='width=device-width, initial-scale=1'
    ),
    tag('title', f'{_TITLE}: {names}'),
    tag('link', rel='icon', href='data:,'),
    tag('style', Html(_asset('page.css'))),
  )


def _asset(name: str) -> str:
  return (_HERE / name).read_text(encoding='utf-8')


def _counts(studies: Sequence[Study]) -> str:
  """Returns how many runs there are in each state, in words."""
  words = collections.Counter(
    run.state.word for study in studies for run in study.runs
  )
  total = sum(words.values())
  states = ', '.join(f'{count} {word}' for word, count in words.items())
  return f'{total} run{"" if total == 1 else "s"}: {states}.'


def _contents(studies: Sequence[Study], failed: Html | None) -> Html:
  links = [('failures', 'What failed')] if failed else []
  links.append(('all', 'All rows'))
  links += [(f'study-{index}', each.name) for index, each in _numbered(studies)]
  return tag(
    'nav',
    tag(
      'ul', *(tag('li', tag('a', name, href=f'#{to}')) for to, name in links)
    ),
  )


def _all_rows(studies: Sequence[Study]) -> Html:
  """Returns the table of all rows, its filters and its notes."""
  rows = [row for study in studies for row in study.rows.values()]
  heading = tag('h2', 'All rows')
  if not rows:
    return tag('section', heading, tag('p', 'No run has finished.'), id='all')
  return tag(
    'section',
    heading,
    tag(
      'div',
      _select('task', (row.task for row in rows)),
      _select('model', (row.model for row in rows)),
      tag('span', '', id='shown', class_='note', role='status'),
      class_='filters',
    ),
    tag('div', table.as_html(studies), class_='wide', tabindex='0'),
    tag('p', markdown_text.words(tables.NOTE), class_='note'),
    tag('p', _DOTS, class_='note'),
    tag('p', 'With all digits: ', tag('a', 'table.csv', href='table.csv'), '.'),
    id='all',
  )


def _select(name: str, values: Iterable[str]) -> Html:
  """Returns a choice of one value, or of all."""
  options = [tag('option', each, value=each) for each in dict.fromkeys(values)]
  return tag(
    'label',
    name,
    tag('select', tag('option', 'all', value=''), *options, name_=name),
  )


def _study(index: int, study: Study, pictures: Pictures) -> Html:
  """Returns the section of a study: figures, comparisons, runs."""
  rows = list(study.rows.values())
  parts = [tag('h2', study.name)]
  if rows:
    whole = [row for row in rows if not row.is_part]
    parts.append(tag('p', markdown_text.words(sources.in_words(whole))))
  for task in dict.fromkeys(row.task for row in rows):
    drawn = [
      runs.figure(each, of_task=True) for each in pictures.of_task(study, task)
    ]
    if drawn:
      parts.append(tag('section', tag('h3', task), *drawn, data_task=task))
  parts.append(markdown_text.blocks(tables.answers(rows, study.purpose), 3))
  parts.append(runs.section(study, pictures))
  return tag('section', *parts, id=f'study-{index}')


def _numbered(studies: Sequence[Study]) -> list[tuple[int, Study]]:
  return list(enumerate(studies, 1))
