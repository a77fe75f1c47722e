"""Tables of times show the numbers of committed measurements."""

import itertools
import json
import math
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / 'experiments' / 'results'
PERFORMANCE = (RESULTS / 'PERFORMANCE.md').read_text()
CORES = json.loads((RESULTS / 'cores.json').read_text())['rows']
MEMORY_README = (ROOT / 'gtmm_jax' / 'memory' / 'README.md').read_text()


def _read(name):
  return json.loads((RESULTS / 'performance' / f'{name}.json').read_text())


def _milliseconds(row):
  """Returns the median and the quartiles of a step, in print."""
  times = row['step_milliseconds']
  names = ('median', 'lower_quartile', 'upper_quartile')
  return [f'{times[name]:,.1f}' for name in names]


@pytest.mark.parametrize('preset', ['small', 'paper'])
@pytest.mark.parametrize('model', ['introspective', 'vrnn'])
def test_steps_beside_the_least_time_are_those_of_the_file(preset, model):
  measured = _read(f'{preset}_{model}')
  (eager,) = [x for x in measured['others'] if x['mode'] == 'eager'][:1]
  for row, least in zip(measured['rows'], measured['roofline'], strict=True):
    count = row['replicas']
    median, low, high = _milliseconds(row)
    cells = [
      *(f'`{preset}`', f'`{model}`', str(count), f'{median} ({low}-{high})'),
      f'{row["replica_milliseconds"]["median"]:,.1f}',
      f'{least["roofline_milliseconds"]:,.1f}',
      f'{least["fraction"]:.2f}',
      f'{eager["ratios"][str(count)]:.2f}x',
    ]
    assert f'| {" | ".join(cells)} |\n' in PERFORMANCE


def test_growth_is_that_of_the_file():
  sections = re.split(r'(?m)^### ', PERFORMANCE)[1:]
  shown = []
  for section in sections:
    model, axis = section.splitlines()[0].split(', ')
    tables = re.split(r'\n\n(?=\| \|)', section)[1:]
    for table, top_k in zip(tables, (0, 8), strict=False):
      lines = re.findall(r'(?m)^\| \d.*', table)
      shown.append(((model, axis.replace(' ', '_'), top_k), lines))
  groups = itertools.groupby(
    _read('growth')['rows'], lambda r: (r['model'], r['axis'], r['top_k'])
  )
  expected = [(each, _growth([*rows])) for each, rows in groups]
  assert sorted(shown) == sorted(expected)


def _growth(rows):
  """Returns the lines of a table, with powers from row to row."""
  lines, before = [], None
  for row in rows:
    costs = row['step_milliseconds']['median'], row['process_peak_bytes']
    powers = ['', '']
    if before is not None:
      size, others = before
      step = math.log(row['value'] / size)
      pairs = zip(costs, others, strict=True)
      powers = [f'{math.log(now / then) / step:.2f}' for now, then in pairs]
    before = row['value'], costs
    median, low, high = _milliseconds(row)
    cells = [str(row['value']), median, f'{low}-{high}', powers[0]]
    cells += [f'{costs[1] / 1e6:,.0f}', powers[1]]
    cells.append(f'{row["compile_seconds"]:.1f}')
    lines.append(f'| {" | ".join(cells)} |')
  return lines


def _median(core, slots):
  """Returns the least median of a core's settings, in milliseconds."""
  return min(
    row['milliseconds']['median']
    for row in CORES
    if (row['core'], row['slots'], row['word_size'], row['read_heads'])
    == (core, slots, 32, 5)
  )


def test_times_of_cores_are_those_of_the_file():
  slots = (25, 64, 128, 256)
  for name in ('DNC', 'NTM', 'LRU', 'Associative'):
    times = [f'{_median(name.lower(), n):.1f}' for n in slots]
    assert f'| `{name}`, ms | {" | ".join(times)} |\n' in MEMORY_README
  theirs = [_median('pytorch dnc', n) for n in slots]
  times = ' | '.join(f'{time:.1f}' for time in theirs)
  assert f"| PyTorch's `dnc`, ms | {times} |\n" in MEMORY_README
  ratios = ' | '.join(
    f'{time / _median("dnc", n):.1f}'
    for n, time in zip(slots, theirs, strict=True)
  )
  assert f'| ratio | {ratios} |\n' in MEMORY_README
  for name in ('LSTM', 'Introspective', 'Associative', 'NTM', 'LRU', 'DNC'):
    row = rf'(?m)^\| \[`{name}`\].* \| {_median(name.lower(), 25):.1f} \|$'
    assert re.search(row, MEMORY_README), name
