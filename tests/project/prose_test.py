"""Measured numbers in prose repeat a table, or a file that is named there."""

import json
import math
import pathlib
import re
from typing import NamedTuple

import numpy as np
import pytest

from gtmm_jax import records
from studies import outcomes

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Documents, and the measured numbers that are in no committed file.
DOCUMENTS = {
  'README.md': [],
  'experiments/README.md': [],
  # How far numbers of parameters are apart; results_test.py derives them.
  'experiments/results/README.md': ['0.1%', '0.2%', '0.3%'],
  'gtmm_jax/memory/README.md': [],
  'gtmm_jax/tasks/README.md': [],
}
_DIGITS = r'(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)'
# A mean and its standard error.
_PAIR = re.compile(rf'{_DIGITS} ± {_DIGITS}')
_NUMBER = re.compile(rf'{_DIGITS}(?![\w.]\d)( ?%| nats| ms\b|)')
# Numbers that were not measured.
_NAMES = re.compile(
  r'(?i)\b(arxiv|jax|python|cuda|section)( from)?\s+[\d.]+( to [\d.]+)?'
)


class Known(NamedTuple):
  """The numbers of tables and files, and the pairs of mean and error."""

  numbers: set[float]
  pairs: set[tuple[float, float]]

  def __or__(self, other):
    return Known(self.numbers | other.numbers, self.pairs | other.pairs)


@pytest.mark.parametrize('document', DOCUMENTS)
def test_measured_numbers_are_in_a_table_or_in_a_file_that_is_named(document):
  missing = unknown((ROOT / document).read_text(), (ROOT / document).parent)
  assert sorted(set(missing)) == sorted(DOCUMENTS[document])


def test_a_sentence_without_its_table_or_file_is_found(tmp_path):
  text = (
    '## A\n\nIt takes 3.5 ms, 1,200.5 nats and 40% of 3 with jax 0.10.2.\n'
    'Of [1.5 ± 0.25](2.5.md): 1.5 ± 0.3, `0.7`.\n\n```\n0.8\n```\n'
    '## B\n\n3.5, 1.5 ± 0.25\n\n| 3.51 | 40% |\n'
  )
  (tmp_path / '2.5.md').write_text('| 40% | 1.5 ± 0.25 | 0.3 |\n')
  missing = ['1.5 ± 0.3', '3.5 ms', '1,200.5 nats', '1.5 ± 0.25']
  assert unknown(text, tmp_path) == [*missing]


def test_a_file_of_records_has_means_errors_and_shares(tmp_path):
  run = {'failed_at': [None, None], 'entropy_floor': 6.5}
  run |= {name: [1.0, 2.0] for name in ('kl_new', 'kl_predictable', 'kl_last')}
  run |= {'negative_bound': [0.5, 0.75], 'retrieval_free': [0.25, 0.5]}
  file = tmp_path / 'runs.json'
  file.write_text(json.dumps({'dnc': {'evaluation': run}}))
  said = '1.5 ± 0.5, 0.62 ± 0.12, 38%, 0.25, 6.5, 1.5 ± 0.6 and 0.63 '
  assert unknown(f'{said} [all](runs.json)', tmp_path) == ['1.5 ± 0.6', '0.63']


def unknown(text, folder):
  """Returns measured numbers that no table or named file of a section has.

  Args:
    text: of a document.
    folder: where its links begin.
  """
  missing = []
  for section in re.split(r'(?m)^#+ ', re.sub(r'(?s)```.*?```', '', text)):
    known = known_of_tables(section)
    for link in re.findall(r'\]\(([^):#]+\.(?:json|md))', section):
      known |= known_of_file(folder / link)
    prose = prose_of(section)
    for pair in _PAIR.findall(prose):
      if not any(is_in_print(pair, each) for each in known.pairs):
        missing.append(' ± '.join(pair))
    for number, unit in _NUMBER.findall(_PAIR.sub('', prose)):
      scale = 0.01 if unit.strip() == '%' else 1.0
      is_measured = '.' in number or unit
      if is_measured and not any(
        is_in_print((number,), (each / scale,)) for each in known.numbers
      ):
        missing.append(number + unit)
  return missing


def prose_of(section):
  """Returns the sentences of a section, without tables, links and code."""
  lines = section.splitlines()
  prose = '\n'.join(line for line in lines if not line.startswith('|'))
  links = r'!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|`[^`]*`'
  return _NAMES.sub('', re.sub(links, '', prose))


def is_in_print(texts, values):
  """Tells whether texts are values, rounded to the places of the texts."""
  return all(
    f'{value:,.{len(text.partition(".")[2])}f}' == text
    for text, value in zip(texts, values, strict=True)
  )


def known_of_tables(text):
  """Returns the numbers in the tables of a document."""
  lines = [line for line in text.splitlines() if line.startswith('|')]
  body = '\n'.join(lines)
  numbers = {
    float(number.replace(',', '')) * (0.01 if unit.strip() == '%' else 1.0)
    for number, unit in _NUMBER.findall(body)
  }
  pairs = {
    tuple(float(each.replace(',', '')) for each in pair)
    for pair in _PAIR.findall(body)
  }
  return Known(numbers, pairs)


def known_of_file(path):
  """Returns the numbers of a file, with means and errors over replicas.

  Of a study only these count: single replicas and intervals are so many that
  nearly any number is among them.
  """
  if path.suffix == '.md':
    beside = path.with_suffix('.json')
    if beside.exists():
      return known_of_file(beside)
    return known_of_tables(path.read_text())
  content = json.loads(path.read_text())
  first = next(iter(content.values()))
  if isinstance(first, dict) and 'replicas' in first:
    rows = outcomes.rows(content).values()
    pairs = set(pairs_of(row.values for row in rows))
    return Known({each for pair in pairs for each in pair}, pairs)
  if isinstance(first, dict) and 'evaluation' in first:
    runs = [run['evaluation'] for run in content.values()]
    columns = [records.by_replica(run) for run in runs]
    pairs = set(pairs_of(columns))
    single = {x for own in columns for each in own.values() for x in each.flat}
    floors = {run['entropy_floor'] for run in runs} - {None}
    return Known({x for pair in pairs for x in pair} | single | floors, pairs)
  return Known(set(numbers_in(content)), set())


def pairs_of(columns):
  """Yields mean and standard error over replicas of each metric."""
  for own in columns:
    for values in own.values():
      left = values[np.isfinite(values)]
      if left.size:
        spread = left.std(ddof=1) if left.size > 1 else 0.0
        yield float(left.mean()), float(spread / math.sqrt(left.size))


def numbers_in(value):
  """Yields all numbers in lists and objects."""
  if isinstance(value, dict):
    value = [*value.values()]
  if isinstance(value, list):
    for each in value:
      yield from numbers_in(each)
  elif isinstance(value, (int, float)):
    yield float(value)
