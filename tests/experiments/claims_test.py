"""The claims that a grid names beforehand, and their verdicts."""

import json

import numpy as np
import pytest

import own_records
from studies import claims, tables, verdicts
from studies.claims import Ask, Claim, Claims
from studies.purpose import Purpose

_BETTER = {'better': ['recall-a', 'recall-b'], 'metric': 'ratio', 'margin': 0.1}
_CLAIM = {'name': 'C1', 'says': 'a recalls', 'asks': [_BETTER]}


def _grid(folder, value):
  file = folder / 'grid.json'
  over = {'task': ['recall'], 'model': ['a', 'b']}
  cells = [
    {'flags': {}, 'over': {**over, 'store': ['sample']}},
    {'flags': {}, 'over': over},
  ]
  file.write_text(json.dumps({'cells': cells, 'claims': value}))
  return file


def _claims(**changes):
  columns = {'as published': '-store=sample', 'as recommended': ''}
  return {'columns': columns, 'list': [{**_CLAIM, **changes}]}


def test_a_grid_names_claims(tmp_path):
  asks = [_BETTER, {'learned': ['recall-a']}]
  named = claims.read(_grid(tmp_path, _claims(asks=asks)))
  assert dict(named.columns) == _claims()['columns']
  assert named.claims == (
    Claim(
      'C1',
      'a recalls',
      (
        Ask('better', (('recall-a', 'recall-b'),), 'ratio', 0.1),
        Ask('learned', (('recall-a',),), '', 0.0),
      ),
    ),
  )


@pytest.mark.parametrize(
  'value, words',
  [
    ({'columns': {}, 'list': [_CLAIM]}, '"claims" must be'),
    ({'columns': {'a': 1}, 'list': [_CLAIM]}, '"claims" must be'),
    ({'columns': {'a': ''}, 'list': []}, '"claims" must be'),
    ({'columns': {'a': ''}, 'list': [_CLAIM, _CLAIM]}, 'the same name'),
    ({'columns': {'a': ''}, 'list': [3]}, '"name", "says" and "asks"'),
    (_claims(says=''), 'must be texts'),
    (_claims(asks=[]), 'must be a list'),
    (_claims(asks=[{'best': ['recall-a']}]), 'must have one of better,'),
    (_claims(asks=[{**_BETTER, 'alike': []}]), 'must have one of better,'),
    (_claims(asks=[{'better': ['recall-a', 'recall-b']}]), 'must have only'),
    (_claims(asks=[{**_BETTER, 'better': ['recall-a']}]), 'at least 2 rows'),
    (_claims(asks=[{**_BETTER, 'better': 'recall-a'}]), 'the names of rows'),
    (
      _claims(asks=[{**_BETTER, 'better': ['recall-a', 'recall-c']}]),
      "C1 is about the row 'recall-c'",
    ),
    (_claims(asks=[{**_BETTER, 'metric': 'beauty'}]), "'beauty'"),
    (_claims(asks=[{**_BETTER, 'margin': -1}]), 'a number from 0 on'),
    (_claims(asks=[{**_BETTER, 'margin': True}]), 'a number from 0 on'),
    (
      _claims(
        asks=[
          {'grows': [['recall-a', 'recall-b']], 'metric': 'ratio', 'margin': 0}
        ]
      ),
      'two pairs',
    ),
  ],
)
def test_what_are_no_claims_is_refused(tmp_path, value, words):
  with pytest.raises(ValueError, match=words) as caught:
    claims.read(_grid(tmp_path, value))
  assert 'grid.json' in str(caught.value) and '\n' not in str(caught.value)


def _run(name, values, **changes):
  """Makes a record whose last-frame KL has these values."""
  task, model = name.split('-', 1)
  values = np.array(values, float)
  replicas = {'kl_last': values, 'kl_predictable': values}
  return own_records.record(
    task, model, values, replicas=replicas, row=name, **changes
  )


_NUMBERS = {
  'recall-a': [1.0, 2.0, 3.0, 4.0],
  # Behind a by 2, a little more or less.
  'recall-b': [3.1, 3.9, 5.1, 5.9],
  # Ahead of a, or behind.
  'recall-c': [5.0, 1.0, 2.0, 4.5],
  # Like a.
  'recall-d': [1.1, 1.9, 3.1, 3.9],
  'other-a': [2.0, 3.0, 4.0, 5.0],
  'other-b': [7.0, 8.1, 8.9, 10.0],
  'third-a': [9.0, 9.0, 9.0, 8.9],
  'third-b': [1.0, 2.0, 1.0, 2.1],
}


def _judge(kind, *groups, metric='kl_last', margin=0.5, ending='', runs=()):
  every = [_run(name, values) for name, values in _NUMBERS.items()]
  rows = own_records.rows(*every, *runs)
  ask = Ask(kind, groups, metric, margin)
  return verdicts.judge(Claim('C', 'it is so', (ask,)), ending, rows)


@pytest.mark.parametrize(
  'kind, groups, verdict',
  [
    ('better', [('recall-a', 'recall-b')], 'holds'),
    ('better', [('recall-b', 'recall-a')], 'does not hold'),
    ('better', [('recall-a', 'recall-c')], 'cannot be told'),
    ('better', [('recall-a', 'recall-d')], 'does not hold'),
    ('better', [('recall-a', 'recall-b', 'recall-c')], 'cannot be told'),
    ('better', [('recall-a', 'recall-c', 'recall-d')], 'does not hold'),
    ('no_better', [('recall-a', 'recall-b')], 'does not hold'),
    ('no_better', [('recall-b', 'recall-a', 'recall-d')], 'holds'),
    ('no_better', [('recall-a', 'recall-c')], 'cannot be told'),
    ('alike', [('recall-a', 'recall-d')], 'holds'),
    ('alike', [('recall-a', 'recall-d', 'recall-b')], 'does not hold'),
    ('alike', [('recall-a', 'recall-c')], 'cannot be told'),
    ('grows', [('recall-a', 'recall-b'), ('other-a', 'other-b')], 'holds'),
    (
      'grows',
      [('other-a', 'other-b'), ('recall-a', 'recall-b')],
      'does not hold',
    ),
    (
      'grows',
      [('recall-a', 'recall-c'), ('recall-a', 'recall-b')],
      'cannot be told',
    ),
    ('none_best', [('recall-a', 'recall-b')], 'does not hold'),
    (
      'none_best',
      [('recall-a', 'recall-b'), ('third-a', 'third-b')],
      'holds',
    ),
    ('none_best', [('recall-a', 'recall-c')], 'cannot be told'),
  ],
)
def test_verdicts_follow_from_intervals_and_the_margin(kind, groups, verdict):
  finding = _judge(kind, *groups)
  assert finding.verdict == verdict
  assert finding.evidence and all(finding.evidence)


def test_the_margin_is_the_least_lead_that_counts():
  pair = ('recall-a', 'recall-b')
  assert _judge('better', pair, margin=2.5).verdict == 'does not hold'
  assert _judge('better', pair, margin=2.0).verdict == 'cannot be told'
  assert _judge('alike', pair, margin=2.5).verdict == 'holds'
  (words,) = _judge('better', pair).evidence
  # The mean of 2.1, 1.9, 2.1, 1.9; t of three degrees of freedom is 3.182.
  assert words == (
    'KL last frame, lead of `recall-a` over `recall-b`: '
    '2.000 [1.816, 2.184], n 4'
  )


@pytest.mark.parametrize(
  'predictable, verdict',
  [
    ([8.9, 8.9, 8.9, 8.9, 9.1], 'holds'),
    ([8.9, 8.9, 8.9, 9.1, 9.1], 'cannot be told'),
    ([8.9, 9.1, 9.1, 9.1, 9.1], 'does not hold'),
    ([8.9, 8.9], 'cannot be told'),
  ],
)
def test_a_row_has_learned_in_all_replicas_but_one(predictable, verdict):
  finding = _judge(
    'learned', ('recall-e',), runs=[_run('recall-e', predictable)]
  )
  assert finding.verdict == verdict
  assert f'of {len(predictable)}' in finding.evidence[0]


def test_a_memory_that_is_never_read_counts_as_read_at_the_end():
  runs = [
    _run('recall-e', [1.0] * 4, step=3000, read_from=[600, 800, 600, 800]),
    _run('recall-f', [1.0] * 4, step=3000, read_from=[900, None, None, None]),
    _run('recall-g', [1.0] * 4, step=3000, read_from=[None] * 4),
  ]
  sooner = _judge(
    'better', ('recall-e', 'recall-g'), metric='read_from', runs=runs
  )
  assert sooner.verdict == 'holds'
  assert '2,300' in sooner.evidence[0] or '2300' in sooner.evidence[0]
  unsure = _judge(
    'better', ('recall-f', 'recall-g'), metric='read_from', runs=runs
  )
  assert unsure.verdict == 'cannot be told'


def test_replicas_of_the_same_number_are_paired():
  five = _run('recall-e', [*np.array(_NUMBERS['recall-a']) + 3, 90.0])
  finding = _judge('better', ('recall-a', 'recall-e'), runs=[five])
  assert finding.verdict == 'holds' and finding.evidence[0].endswith('n 4')
  settings = {'task': 'recall', 'model': 'e', 'seed': 1}
  apart = _run('recall-e', [9.0] * 4, settings=settings)
  finding = _judge('better', ('recall-a', 'recall-e'), runs=[apart])
  assert finding.verdict == 'cannot be told'
  assert finding.evidence[0].endswith('no pair of replicas')


def test_replicas_that_were_trained_again_are_left_out_of_pairs():
  values = [*np.array(_NUMBERS['recall-a'][:3]) + 3, 90.0]
  again = _run('recall-e', values, retried_replicas=[[3, 100]])
  finding = _judge('better', ('recall-a', 'recall-e'), runs=[again])
  assert finding.verdict == 'holds' and finding.evidence[0].endswith('n 3')


def test_a_claim_holds_if_all_of_it_does_and_not_before_it_was_run():
  holds = Ask('better', (('recall-a', 'recall-b'),), 'kl_last', 0.5)
  fails = Ask('better', (('recall-b', 'recall-a'),), 'kl_last', 0.5)
  unsure = Ask('better', (('recall-a', 'recall-c'),), 'kl_last', 0.5)
  missing = Ask('better', (('recall-a', 'recall-x'),), 'kl_last', 0.5)
  rows = own_records.rows(
    *(_run(name, values) for name, values in _NUMBERS.items())
  )

  def verdict(*asks):
    return verdicts.judge(Claim('C', 'it is so', asks), '', rows).verdict

  assert verdict(holds, holds) == 'holds'
  assert verdict(holds, unsure) == 'cannot be told'
  assert verdict(unsure, fails, holds) == 'does not hold'
  assert verdict(fails, missing) == 'not run'


def test_the_table_has_a_verdict_for_each_column():
  named = Claims(
    {'as published': '-store=sample', 'as recommended': ''},
    (
      Claim(
        'C1',
        'a recalls best',
        (Ask('better', (('recall-a', 'recall-b'),), 'kl_last', 0.5),),
      ),
    ),
  )
  rows = own_records.rows(
    *(_run(name, values) for name, values in _NUMBERS.items())
  )
  text = tables.document(rows, Purpose(claims=named))
  assert '## The claims named beforehand' in text
  published, recommended = (
    line for line in text.splitlines() if line.startswith('| C1')
  )
  assert '| as published | not run | not there: `recall-a-store=s' in published
  assert '| as recommended | holds | KL last frame, lead of' in recommended
