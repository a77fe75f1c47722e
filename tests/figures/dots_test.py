"""Dots with intervals, read back from figures; the program that draws them."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from gtmm_jax import figures
from read_figures import check_layout, legend
from studies import tables

pytestmark = pytest.mark.filterwarnings('error')

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TABLE = _ROOT / 'experiments' / 'results' / 'ablation.json'
_PROGRAM = _ROOT / 'experiments' / 'show_table.py'


@pytest.fixture(scope='module')
def table():
  return json.loads(_TABLE.read_text())


@pytest.fixture(scope='module')
def figure(table):
  """Returns the figure of the committed ablation."""
  return tables.dots_figure(table, 'ratio')


def test_a_dot_is_a_mean_and_its_bar_a_standard_error(table, figure):
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
      if row['settings']['task']
      in axes.get_title().replace('-', ' ').replace(' ', '_')
    ]
    assert len(own) == len(axes.containers) == len(rows)
    for place, (row, dot) in enumerate(zip(own, axes.containers, strict=True)):
      mean, error = row['summary']['ratio']
      np.testing.assert_allclose(dot.lines[0].get_xydata(), [[mean, place]])
      ((low, high),) = (part[:, 0] for part in dot.lines[2][0].get_segments())
      np.testing.assert_allclose([low, high], [mean - error, mean + error])
      low, high = axes.get_xlim()
      assert low <= mean - error and mean + error <= high
    # The first row's mean, with which the others are compared, and replicas.
    first, *replicas = (
      line
      for line in axes.lines
      if line not in {d.lines[0] for d in axes.containers}
    )
    assert set(first.get_xdata()) == {own[0]['summary']['ratio'][0]}
    found = [line for line in replicas if line.get_markersize() == 3.5]
    for row, line in zip(own, found, strict=True):
      np.testing.assert_allclose(line.get_xdata(), row['replicas']['ratio'])


def test_nothing_is_cut_off_or_covered(figure):
  check_layout(figure)


def test_a_single_replica_has_no_bar_and_absent_cells_leave_gaps():
  dots = {'a': figures.Dot(0.5, None, [0.5]), 'b': None}
  figure = figures.dots_figure({'one': dots, 'two': {'c': None}}, 'title')
  assert len(figure.axes[0].containers) == 1
  assert not figure.axes[1].containers
  assert not any('error' in label for label in legend(figure))
  with pytest.raises(ValueError, match='no dots'):
    figures.dots_figure({'one': {'a': None}}, 'title')


@pytest.mark.parametrize(
  ('flags', 'told'),
  [
    ([], '--table is missing'),
    ([f'--table={_ROOT}/setup.cfg'], 'not a table of study.py'),
    ([f'--table={_TABLE}', '--metric=beauty'], "'beauty'"),
    ([f'--table={_TABLE}', '--metric=dream_error'], 'no values of dream_error'),
    ([f'--table={_TABLE}', f'--output={_ROOT}'], '--output'),
  ],
)
def test_a_mistake_is_one_line(flags, told):
  result = subprocess.run(
    [sys.executable, str(_PROGRAM), *flags],
    capture_output=True,
    text=True,
    check=False,
  )
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert told in result.stderr


def test_the_program_draws_a_table_and_says_where(tmp_path):
  result = subprocess.run(
    [sys.executable, str(_PROGRAM), f'--table={_TABLE}', '--output=drawn'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  assert not result.stderr
  assert result.stdout.split() == ['drawn.png', 'drawn.pdf']
  assert {path.name for path in tmp_path.iterdir()} == {
    'drawn.png',
    'drawn.pdf',
  }
