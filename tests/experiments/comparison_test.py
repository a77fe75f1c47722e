"""The comparison that a grid names beforehand."""

import json

import numpy as np
import pytest

import own_records
from studies import comparison, statistics, tables
from studies.comparison import Comparison
from studies.purpose import Purpose

KL = Comparison('associative', ('dnc', 'ntm'), 'kl_predictable', 0.5)
_PARTS = {
  'ours': 'associative',
  'others': ['dnc', 'ntm'],
  'metric': 'kl_predictable',
  'margin': 0.5,
}


def _grid(folder, parts):
  file = folder / 'grid.json'
  over = {'task': ['navigation'], 'model': ['associative', 'dnc', 'ntm']}
  grid = {'cells': [{'flags': {}, 'over': over}]}
  if parts is not None:
    grid['comparison'] = parts
  file.write_text(json.dumps(grid))
  return file


def test_a_grid_names_a_comparison_or_none(tmp_path):
  assert comparison.read(_grid(tmp_path, _PARTS)) == KL
  assert comparison.read(_grid(tmp_path, None)) is None


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'ours': 'lru'}, "names 'lru'; its cells are associative, dnc, ntm"),
    ({'others': ['dnc', 'lru']}, "names 'lru'"),
    ({'others': ['associative']}, 'with itself'),
    ({'others': []}, 'must be a list'),
    ({'others': 'dnc'}, 'must be a list'),
    ({'metric': 'beauty'}, "'beauty'; it must be one of negative_bound"),
    ({'margin': -1}, 'a number from 0 on'),
    ({'margin': True}, 'a number from 0 on'),
    ({'margin': '1'}, 'a number from 0 on'),
    ({'margins': 1}, '"comparison" must be'),
  ],
)
def test_what_is_no_comparison_is_refused(tmp_path, changes, words):
  with pytest.raises(ValueError, match=words) as caught:
    comparison.read(_grid(tmp_path, {**_PARTS, **changes}))
  assert 'grid.json' in str(caught.value) and '\n' not in str(caught.value)
  with pytest.raises(ValueError, match='must be'):
    comparison.read(_grid(tmp_path, [3]))


def _run(task, model, values, validation=None, **changes):
  values = np.array(values, float)
  found = {'kl_predictable': values, 'retrieval_free': values}
  run = own_records.record(
    task, model, np.ones(len(values)), replicas=found, **changes
  )
  before = values if validation is None else np.array(validation, float)
  run['validation'] = {
    'replicas': {'kl_predictable': before, 'retrieval_free': before}
  }
  return run


def _compare(*runs, named=KL):
  return comparison.compare(list(own_records.rows(*runs).values()), named)


def test_the_other_is_chosen_on_validation_and_compared_on_test():
  (found,) = _compare(
    _run('navigation', 'associative', [1.0, 2.0, 3.0]),
    # Best on test, which must not count.
    _run('navigation', 'dnc', [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]),
    _run('navigation', 'ntm', [5.0, 7.0, 6.0], [1.0, 1.0, 1.0]),
  )
  assert found.other == 'ntm'
  assert found.difference == statistics.paired_difference(
    [1.0, 2.0, 3.0], [5.0, 7.0, 6.0]
  )
  assert found.adjusted == found.difference.p


def test_replicas_that_were_trained_again_are_in_no_pair():
  ours = _run(
    'navigation',
    'associative',
    [1.0, 2.0, 99.0, 3.0],
    retried_replicas=[(2, 700)],
  )
  others = [
    _run('navigation', 'dnc', [5.0, 7.0, 6.0, 8.0]),
    _run('navigation', 'ntm', [5.0] * 4, [9.0] * 4),
  ]
  (found,) = _compare(ours, *others)
  assert found.difference == statistics.paired_difference(
    [1.0, 2.0, 3.0], [5.0, 7.0, 8.0]
  )
  (row, *_) = own_records.rows(ours, *others).values()
  # Its mean has all of them.
  assert row.n == 4 and row.values['kl_predictable'][2] == 99.0


def test_more_is_better_for_retrieval():
  named = KL._replace(metric='retrieval_free', margin=0.01)
  (found,) = _compare(
    _run('navigation', 'associative', [0.91, 0.92, 0.93]),
    _run('navigation', 'dnc', [0.52, 0.51, 0.53]),
    _run('navigation', 'ntm', [0.1, 0.1, 0.1]),
    named=named,
  )
  assert (found.other, found.verdict) == ('dnc', 'better')


def _differing(task, differences, **changes):
  """Makes runs of ours and two others, which ours exceeds by these."""
  differences = np.array(differences, float)
  ours = _run(task, 'associative', 7 + differences, **changes)
  flat = np.full(len(differences), 7.0)
  return [ours, _run(task, 'dnc', flat), _run(task, 'ntm', flat + 1)]


@pytest.mark.parametrize(
  'differences, verdict',
  [
    # Intervals: [-2.25, -1.75], [1.75, 2.25], [-0.27, 0.23], [-0.66, 0.22],
    # [-4.5, 2.5].
    ([-2.1, -1.9, -2.0], 'better'),
    ([2.1, 1.9, 2.0], 'worse'),
    ([-0.12, 0.08, -0.02], 'equal within the margin'),
    ([-0.4, -0.2, -0.05], 'not worse than by the margin'),
    ([-2.0, 0.5, -1.5], 'undecided'),
    ([0.0, 0.0, 0.0], 'equal within the margin'),
    ([-2.0], 'undecided: one pair'),
  ],
)
def test_verdicts(differences, verdict):
  (found,) = _compare(*_differing('navigation', differences))
  assert found.verdict == verdict


def test_p_values_are_adjusted_over_the_tasks():
  tasks = {
    'navigation': [-2.1, -1.9, -2.0],
    'rotation': [0.6, 1.2, 1.3],
    'parity_recall': [-2.0, 0.5, -1.5],
  }
  runs = [run for task, d in tasks.items() for run in _differing(task, d)]
  found = _compare(*runs)
  assert [each.task for each in found] == [*tasks]
  p_values = [each.difference.p for each in found]
  assert [each.adjusted for each in found] == statistics.holm(p_values)
  # Below 0.05 by itself, and not among three.
  assert p_values[1] < 0.05 < found[1].adjusted
  assert [each.verdict for each in found] == [
    'better',
    'undecided',
    'undecided',
  ]


def test_a_replica_that_failed_is_left_out_with_its_pair():
  ours, dnc, ntm = _differing('navigation', [-2.1, -1.9, -2.0, -2.2])
  dnc['replicas']['kl_predictable'][1] = np.nan
  (found,) = _compare(ours, dnc, ntm)
  assert found.difference.n == 3


def test_what_cannot_be_compared_says_why():
  ours, dnc, ntm = _differing('navigation', [-2.0, -2.0])

  def said(*runs):
    (found,) = _compare(*runs)
    assert found.difference is None and found.adjusted is None
    return found.verdict

  assert said(ours, dnc) == 'not compared: no cell of ntm yet'
  older = {**dnc, 'validation': None}
  assert said(ours, older, ntm) == 'not compared: no validation record of dnc'
  other = {**dnc, 'settings': {**dnc['settings'], 'seed': 1}}
  assert said(ours, other, ntm) == 'not compared: seeds or replicas differ'
  assert _compare(dnc, ntm) == []


def test_the_table_of_the_comparison():
  eight = [-2.1, -1.9, -2.0, -2.2, -1.8, -2.0, -1.7, -2.4]
  rows = own_records.rows(*_differing('navigation', eight))
  text = tables.document(rows, Purpose(KL))
  assert 'against the best of `dnc`, `ntm` on validation; margin 0.5.' in text
  d = statistics.paired_difference(np.add(eight, 7.0), [7.0] * 8)
  low, high = d.bootstrap
  assert (
    f'| `navigation` | `dnc` | 8 | -2.013 [-2.199, -1.826] | '
    f'[{low:.3f}, {high:.3f}] | < 0.001 | < 0.001 | better |\n'
  ) in text
  fewer = tables.document(
    own_records.rows(*_differing('navigation', eight[:3])), Purpose(KL)
  )
  assert '| 3 | -2.000 [-2.248, -1.752] | - | < 0.001 |' in fewer
  assert 'named beforehand' not in tables.document(rows, Purpose())
