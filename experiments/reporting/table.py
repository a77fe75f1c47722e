"""The table of all rows, as HTML and as CSV; its numbers are the study's."""

import csv
import io
import re
from collections.abc import Sequence

from reporting import strips
from reporting.elements import Html, join, tag
from reporting.reading import Study
from studies import statistics, tables
from studies.outcomes import METRICS, Row

_METRIC_OF = {heading: metric for metric, heading in METRICS.items()}
_COLUMNS = (
  'study',
  'row',
  'task',
  'model',
  'steps',
  'split',
  'episodes',
  'metric',
  'mean',
  'low',
  'high',
  'n',
  'replicas',
  'values',
)
# First letters with which a spreadsheet takes a text for a formula.
_FORMULA = ('=', '+', '-', '@', '\t', '\r')


def as_html(studies: Sequence[Study]) -> Html:
  """Returns the table, with a heading to sort by above each column."""
  every = [row for study in studies for row in study.rows.values()]
  columns = tables.columns(every)
  with_study = len(studies) > 1
  fixed = ['row', 'task', 'model', *(['study'] if with_study else [])]
  head = [_heading(name) for name in (*fixed, *columns)]
  body = []
  for study in studies:
    scales = strips.ends(list(study.rows.values()))
    for row in study.rows.values():
      names = [row.task, row.model, *([study.name] if with_study else [])]
      cells = [
        _cell(row, heading, tell(row), scales)
        for heading, tell in columns.items()
      ]
      body.append(
        tag(
          'tr',
          tag('th', _breakable(row.label), scope='row', title=row.name),
          *(tag('td', name) for name in names),
          *cells,
          data_task=row.task,
          data_model=row.model,
        )
      )
  return tag(
    'table',
    tag('thead', tag('tr', *head)),
    tag('tbody', *body),
    id='rows',
  )


def as_csv(studies: Sequence[Study]) -> str:
  """Returns a line for each row and metric, with all digits of its numbers."""
  with io.StringIO(newline='') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(_COLUMNS)
    for study in studies:
      for row in study.rows.values():
        for metric, values in row.values.items():
          mean = statistics.mean(values)
          if mean is None:
            continue
          low, high = mean.interval or ('', '')
          writer.writerow(
            [
              *map(_plain, (study.name, row.name, row.task, row.model)),
              *(row.steps, _plain(row.split), row.episodes, metric),
              *(mean.mean, low, high, mean.n, row.replicas),
              ' '.join(map(repr, values.tolist())),
            ]
          )
    return file.getvalue()


def _heading(name: str) -> Html:
  """Returns the heading of a column; the page's script sorts by it."""
  return tag('th', tag('button', name, type='button'), scope='col')


def _cell(row: Row, heading: str, text: str, scales: strips.Ends) -> Html:
  """Returns a cell: the study's text, and the replicas as dots below it."""
  metric = _METRIC_OF.get(heading)
  mean = statistics.mean(row.values.get(metric, ())) if metric else None
  if mean is None:
    return tag('td', text, class_='number')
  number, _, interval = text.partition(' ')
  return tag(
    'td',
    tag('b', number),
    tag('span', f' {interval}') if interval else None,
    strips.strip(row, metric, scales[row.task, metric]),
    class_='number',
    data_value=repr(mean.mean),
  )


def _breakable(label: str) -> Html:
  """Returns a label that can go on in another line after each flag."""
  return join(*re.split('(?<=[=-])', label), between=tag('wbr'))


def _plain(text: str) -> str:
  """Returns text that no spreadsheet takes for a formula."""
  return f"'{text}" if text.startswith(_FORMULA) else text
