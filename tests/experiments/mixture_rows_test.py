"""Rows of the parts of a mixture in a study."""

import numpy as np

import own_records
from studies import comparison, purpose, run_records, tables

_PARTS = ('perfect_recall', 'navigation')


def _record(model, bounds):
  """Makes the record of a mixture; parts have 1/2 and 1/4 of its values."""
  whole = own_records.record('mixture', model, bounds)
  parts = {}
  for index, task in enumerate(_PARTS, start=1):
    share = np.array(bounds) / 2**index
    part = own_records.record('mixture', model, share)
    parts[task] = {
      name: part[name] for name in ('replicas', 'validation', 'read_from')
    }
    parts[task]['episodes'] = 4 + index
  return {**whole, 'by_task': parts}


def test_each_part_of_a_mixture_has_a_row_after_that_of_the_whole():
  rows = own_records.rows(_record('dnc', [100.0, 300.0]))
  assert list(rows) == [
    'mixture-dnc',
    'mixture-dnc/perfect_recall',
    'mixture-dnc/navigation',
  ]
  whole, first, second = rows.values()
  assert whole.has_parts and not (first.has_parts or second.has_parts)
  assert not whole.is_part and first.is_part and second.is_part
  assert [row.task for row in rows.values()] == [
    'mixture',
    'mixture/perfect_recall',
    'mixture/navigation',
  ]
  assert {row.label for row in rows.values()} == {'dnc'}
  assert (whole.episodes, first.episodes, second.episodes) == (9, 5, 6)
  for row, scale in ((whole, 1), (first, 2), (second, 4)):
    np.testing.assert_array_equal(
      row.values['negative_bound'], np.array([100.0, 300.0]) / scale
    )
    np.testing.assert_array_equal(
      row.validation['negative_bound'], row.values['negative_bound']
    )


def test_the_whole_counts_for_no_regret_and_no_comparison():
  runs = [_record('dnc', [400.0, 404.0]), _record('ntm', [800.0, 816.0])]
  rows = own_records.rows(*runs)
  asked = comparison.Comparison('dnc', ('ntm',), 'negative_bound', 1.0)
  text = tables.document(rows, purpose.Purpose(comparison=asked))
  for task in ('mixture', *(f'mixture/{part}' for part in _PARTS)):
    assert f'## {task}\n' in text
  assert 'On 5 test episodes (a mean over replicas) after 3 steps.' in text
  assert 'On 9 test episodes after 3 steps.' in text
  # Of the parts the first has the greatest regret: (808 - 402) / 2.
  regret = text.partition('## Worst-task regret')[2].partition('## ')[0]
  assert '`ntm` | 2 | 203' in regret
  compared = text.partition('## The comparison named beforehand')[2]
  assert '`mixture/perfect_recall`' in compared
  assert '| `mixture` |' not in compared
  assert text.count('mixture-dnc') <= 1


def test_validation_and_first_reading_are_those_of_the_part():
  def validated(kl):
    return {
      'episodes': [3],
      'failed_at': [None],
      'negative_bound': [50.0],
      'kl_new': [10.0],
      'kl_predictable': [kl],
      'kl_last': [kl],
    }

  lines = [
    {
      'step': step,
      'held_out': {'by_task': {'a': validated(9.5), 'b': validated(kl)}},
    }
    for step, kl in ((100, 9.5), (200, 2.0))
  ]
  lines.append({'step': 300})
  for task, first in (('a', [None]), ('b', [200])):
    own = [run_records._of_part(line, task) for line in lines]
    values = run_records._values(validated(1.0), own, 100)
    assert values['read_from'] == first
    assert values['validation']['step'] == 200
    kl = values['validation']['replicas']['kl_predictable']
    assert kl == (2.0 if task == 'b' else 9.5)


def test_other_tasks_have_one_row():
  rows = own_records.rows(own_records.record('navigation', 'dnc', [1.0]))
  assert list(rows) == ['navigation-dnc']
  assert not rows['navigation-dnc'].has_parts
