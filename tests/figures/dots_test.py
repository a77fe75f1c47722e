"""Dots with intervals, read back from figures; the program that draws them."""

import json
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

import program_flags
import show_table
from gtmm_jax import figures
from read_figures import check_layout, legend
from studies import drawing, outcomes, statistics

pytestmark = pytest.mark.filterwarnings('error')

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TABLE = _ROOT / 'experiments' / 'results' / 'ablation.json'


@pytest.fixture(scope='module')
def table():
  return outcomes.rows(json.loads(_TABLE.read_text()))


@pytest.fixture(scope='module')
def figure(table):
  """Returns the figure of the committed ablation."""
  return drawing.dots_figure(table, 'ratio')


def test_a_dot_is_a_mean_and_its_bar_an_interval(table, figure):
  rows = [text.get_text() for text in figure.axes[0].get_yticklabels()]
  assert rows[0] == 'nothing left out'
  assert 'without reads by content' in rows and 'given means' in rows
  assert not any('=' in row or '_' in row for row in rows)
  titles = [axes.get_title() for axes in figure.axes]
  assert titles == [
    'perfect recall',
    'dynamic dependency',
    'similarity-cued recall',
    'navigation',
  ]
  for axes in figure.axes:
    own = [
      row
      for row in table.values()
      if row.task in axes.get_title().replace('-', ' ').replace(' ', '_')
    ]
    assert len(own) == len(axes.containers) == len(rows)
    for place, (row, dot) in enumerate(zip(own, axes.containers, strict=True)):
      mean, (first, last), n = statistics.mean(row.values['ratio'])
      assert n == 3
      np.testing.assert_allclose(dot.lines[0].get_xydata(), [[mean, place]])
      ((low, high),) = (part[:, 0] for part in dot.lines[2][0].get_segments())
      np.testing.assert_allclose([low, high], [first, last])
      low, high = axes.get_xlim()
      assert low <= first and last <= high
    # The first row's mean, with which the others are compared, and replicas.
    first, *replicas = (
      line
      for line in axes.lines
      if line not in {d.lines[0] for d in axes.containers}
    )
    assert set(first.get_xdata()) == {own[0].values['ratio'].mean()}
    found = [line for line in replicas if line.get_markersize() == 3.5]
    for row, line in zip(own, found, strict=True):
      np.testing.assert_allclose(line.get_xdata(), row.values['ratio'])


def test_nothing_is_cut_off_or_covered(figure):
  check_layout(figure)


def test_a_single_replica_has_no_bar_and_absent_cells_leave_gaps():
  dots = {'a': figures.Dot(0.5, None, [0.5]), 'b': None}
  figure = figures.dots_figure({'one': dots, 'two': {'c': None}}, 'title')
  assert len(figure.axes[0].containers) == 1
  assert not figure.axes[1].containers
  assert not any('interval' in label for label in legend(figure))
  with pytest.raises(ValueError, match='no dots'):
    figures.dots_figure({'one': {'a': None}}, 'title')


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    ({'table': f'{_ROOT}/setup.cfg'}, 'not a results file of study.py'),
    ({'table': f'{_ROOT}/nowhere.json'}, 'nowhere.json is not there'),
    ({'metric': 'beauty'}, 'no values of beauty'),
    ({'metric': 'dream_error'}, 'no values of dream_error'),
    ({'output': str(_ROOT)}, '--output'),
  ],
)
def test_mistakes_in_flags_are_told(monkeypatch, flags, message):
  values = {'table': str(_TABLE), 'metric': 'ratio', 'output': None}
  values |= {'grid': None, **flags}
  monkeypatch.setattr(show_table, 'FLAGS', types.SimpleNamespace(**values))
  with pytest.raises(ValueError, match=message):
    show_table._prepare()


def test_a_mistake_ends_the_program_with_one_line(capsys):
  arguments = ['show_table.py', '--output=here']
  with program_flags.defined(show_table.define_flags):
    error = program_flags.refused(capsys, arguments, show_table.main)
  assert '--output needs --table' in error


def test_the_program_writes_the_committed_table_and_draws_it(tmp_path):
  words = [show_table.__file__, f'--table={_TABLE}', '--output=drawn']
  result = subprocess.run(
    [sys.executable, *words],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  assert (result.returncode, result.stderr) == (0, '')
  names = ['drawn.md', 'drawn.png', 'drawn.pdf']
  assert result.stdout.split() == names
  assert {path.name for path in tmp_path.iterdir()} == {*names}
  committed = _TABLE.with_suffix('.md').read_bytes()
  assert (tmp_path / 'drawn.md').read_bytes() == committed
