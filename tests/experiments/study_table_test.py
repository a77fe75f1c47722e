"""The tables of a study: records, rows of one or several runs, and words."""

import pathlib

import numpy as np
import pytest

import own_records
from gtmm_jax import records
from studies import cell_records, drawing, outcomes, run_records, tables
from studies.purpose import Purpose

NAN = float('nan')


def _labelled(*names):
  """Makes rows with these names that differ in their bound."""
  runs = {}
  for index, name in enumerate(names, start=1):
    runs[name] = own_records.record(name.split('-')[0], 'dnc', [100.0 * index])
    runs[name]['row'] = name
  return outcomes.rows(runs)


def test_cells_of_a_model_are_told_apart_by_what_they_vary():
  rows = _labelled(
    'navigation-dnc-store=mean', 'navigation-top_k=2', 'navigation'
  )
  labels = [row.label for row in rows.values()]
  assert labels == ['dnc-store=mean', 'top_k=2', 'dnc']


def test_a_folder_named_like_a_word_leaves_the_rest_as_it_is():
  recorded = {
    'flag': 'files:digits',
    'source': 'digits of ours, from digits: 3 digits',
    'checksum': '0',
  }
  told = run_records._data(recorded)['source']
  assert told == 'digits of ours, from FOLDER: 3 digits'


def test_a_run_that_is_not_complete_has_no_record(tmp_path):
  with pytest.raises(ValueError, match='no evaluation'):
    run_records.record(tmp_path, '')


def _write(workdir, seed, bounds, failed_at, steps=(1, 2), starts=(), **more):
  """Leaves the records of a run of three frames."""
  own = {'jax': f'1.{seed}'}
  settings = {'task': 'navigation', 'model': 'dnc', 'seed': seed}
  records.write_config(
    workdir,
    {
      'settings': settings,
      'versions': own,
      'device': {'kind': 'cpu'},
      'data': {'flag': 'bundled', 'source': 'digits', 'checksum': '0'},
      **({'starts': starts} if starts else {}),
    },
  )
  line = {
    'negative_bound': bounds,
    'kl': np.full((len(bounds), 3), 1.0 + seed),
    'kl_last': bounds,
    'kl_new': bounds,
    'kl_predictable': bounds,
    'failed_at': failed_at,
  }
  for step in steps:
    records.append_metrics(workdir, {'step': step, 'seconds': 5.0, **line})
  records.write_evaluation(
    workdir,
    {'step': 2, 'episodes': 9, 'predictable': [0.0] * 3, **line, **more},
  )


def test_replicas_of_all_seeds_are_pooled(tmp_path, capsys):
  folders = [tmp_path / 'one', tmp_path / 'other']
  _write(folders[0], 0, [3.0, 5.0], [None, 1])
  _write(folders[1], 1, [4.0, 8.0, 9.0], [None, None, None], steps=(2, 3))
  runs = {each.name: run_records.record(each, 'a-dnc') for each in folders}
  assert [run['versions']['jax'] for run in runs.values()] == ['1.0', '1.1']
  assert [run['training_seconds'] for run in runs.values()] == [5.0, 5.0]
  rows = outcomes.rows({**runs, 'alone': {**runs['one'], 'row': 'b-dnc'}})
  row = rows['a-dnc']
  assert (row.n, row.replicas) == (4, 5) and row.failed == [(1, 1)]
  np.testing.assert_array_equal(row.values['negative_bound'], [3, NAN, 4, 8, 9])
  assert row.seeds == ((0, 2), (1, 3)) and rows['b-dnc'].seeds == ((0, 2),)
  # Of metrics what both report on.
  (line,) = drawing.metrics(folders)
  assert line['step'] == 2 and line['kl_last'] == [3, 5, 4, 8, 9]
  (path,) = [
    path
    for path in drawing.draw(
      rows, {'a-dnc': folders, 'b-dnc': folders[:1]}, tmp_path / 'table'
    )
    if path.suffix == '.png'
  ]
  assert path.stat().st_size > 10_000
  # No cell has a ratio that could be a dot.
  assert path.name == 'table-navigation.png' and not capsys.readouterr().err
  # Rows whose runs are not here have no curves.
  assert not drawing.draw(rows, {'b-dnc': folders[:1]}, tmp_path / 'table')


def test_a_record_has_the_last_validation_and_when_memories_are_read(tmp_path):
  _write(tmp_path, 0, [3.0, 5.0], [None, None], split='test')
  (tmp_path / 'metrics.jsonl').unlink()
  # Replicas read from 300 on and from 400 on; what is before 200 has not
  # settled, though its KL of predictable frames is low.
  for step, new, predictable in (
    (100, 5.0, [1.0, 1.0]),
    (200, 10.0, [10.0, 9.5]),
    (300, 10.0, [8.9, 9.1]),
    (400, 10.0, [9.5, 0.1]),
  ):
    line = {
      'negative_bound': [2.0, 2.0],
      'kl_new': [new] * 2,
      'kl_last': [1, 1],
    }
    line |= {'kl_predictable': predictable, 'failed_at': [None, None]}
    held_out = {**line, 'episodes': 7, 'retrieval_free': [0.5, 0.6]}
    whole = {'step': step, 'seconds': 1.0, **line}
    records.append_metrics(tmp_path, {**whole, 'held_out': held_out})
    records.append_metrics(tmp_path, {**whole, 'step': step + 50})
  run = run_records.record(tmp_path, 'navigation-dnc')
  assert run['read_from'] == [300, 400] and run['split'] == 'test'
  assert (run['validation']['step'], run['validation']['episodes']) == (400, 7)
  values = run['validation']['replicas']
  assert values['kl_predictable'] == [9.5, 0.1]
  assert values['retrieval_free'] == [0.5, 0.6]
  text = tables.document(outcomes.rows({'navigation-dnc': run}), Purpose())
  assert '| 350 [300, 400] |' in text and 'On 9 test episodes' in text
  # Medians and tails of prose stand in the file of results, where measured.
  assert run['quantiles'] is None
  quantiles = {'kl_new': {'50%': [1.0, 2.0]}}
  _write(tmp_path, 0, [3.0, 5.0], [None, None], quantiles=quantiles)
  assert run_records.record(tmp_path, '')['quantiles'] == quantiles
  # Before there was a split, these lines were on what is reported.
  _write(tmp_path, 0, [3.0, 5.0], [None, None])
  assert run_records.record(tmp_path, '')['validation'] is None


def test_replicas_that_were_trained_again_are_named(tmp_path):
  _write(
    *(tmp_path, 0, [3.0, 5.0, 4.0], [None, None, None]),
    first_failed_at=[None, 1200, None],
  )
  record = run_records.record(tmp_path, 'navigation-dnc')
  text = tables.document(outcomes.rows({'a': record}), Purpose())
  assert '| `dnc` | 3 |' in text and 'Left out' not in text
  assert (
    'Trained again from another key, and left out of paired differences: '
    'replica 1 of `dnc` (failed at step 1,200).'
  ) in text


def test_replicas_that_failed_are_named(tmp_path):
  _write(tmp_path, 0, [3.0, 5.0, None], [None, 1, None])
  rows = outcomes.rows({'a': run_records.record(tmp_path, 'navigation-dnc')})
  text = tables.document(rows, Purpose())
  assert '| `dnc` | 1 of 3 |' in text
  assert (
    'Left out, not finite: replica 1 of `dnc`, from step 1; replica 2 of `dnc`.'
    in text
  )


def test_a_task_has_metrics_side_by_side():
  better = own_records.record(
    'navigation',
    'dnc',
    [100.0, 200.0],
    replicas={
      'kl_floor': [0.25, 0.25],
      'retrieval_ahead': [0.5, 0.7],
      'retrieval_ahead_chance': [0.1, 0.1],
    },
    read_from=[20, None],
  )
  worse = own_records.record('navigation', 'vrnn', [1000.0], step=5)
  text = tables.document(own_records.rows(better, worse), Purpose())
  assert (
    '|  | steps | n | negative bound | KL new | KL predictable | '
    'KL of a perfect read | predictable / new | KL last frame | '
    'retrieved ahead | learned | from step |\n'
  ) in text
  # 12.7062 times half of the difference.
  assert (
    '| `dnc` | 3 | 2 | 150.0 [-485.3, 785.3] | 10.000 [10.000, 10.000] | '
    '1.500 [-4.853, 7.853] | 0.250 [0.250, 0.250] | 0.150 [-0.485, 0.785] | '
    '1.500 [-4.853, 7.853] | 0.600 [-0.671, 1.871] | 2 of 2 | 20 |\n'
  ) in text
  assert '| `vrnn` | 5 | 1 | 1,000.0 | 10.000 | 10.000 | - | ' in text
  assert '| 10.000 | - | 0 of 1 | - |' in text
  assert 'By chance, 0.100 one step ahead.' in text


def test_sources_are_told():
  def said(*sources, **more):
    runs = [
      own_records.record('navigation', f'm{index}', [1.0], commit=c, clean=d)
      for index, (c, d) in enumerate(sources)
    ]
    runs[0] |= more
    text = tables.document(own_records.rows(*runs), Purpose())
    (line,) = [each for each in text.splitlines() if 'Sources:' in each]
    return line

  one, other = 'a' * 40, 'b' * 40
  assert said((one, True), (one, True)) == f'Sources: commit `{"a" * 12}`.'
  assert said((None, None)) == 'Sources: commit unknown.'
  assert 'with changes that it does not have**.' in said((one, False))
  mixed = said((one, True), (None, None), (other, True), (other, True))
  assert '(1 cell: navigation-m0); commit unknown (1 cell: navig' in mixed
  assert '(2 cells: navigation-m2, navigation-m3)' in mixed
  assert mixed.endswith('**This table mixes versions of the sources.**')
  both = said((one, True), (one, False))
  assert 'changes' in both and 'mixes' not in both
  resumed = said((one, True), earlier_commits=[other])
  assert 'Trained by several commits: 1 cell: navigation-m0-seed=0' in resumed


def test_commits_are_those_of_all_starts(tmp_path):
  starts = [
    {'commit': 'a', 'clean': False, 'command': 'python run.py --workdir=/x'},
    {'commit': 'b', 'clean': True, 'command': 'python run.py --workdir=/y'},
  ]
  _write(tmp_path, 0, [3.0], [None], starts=starts)
  run = run_records.record(tmp_path, '')
  assert (run['commit'], run['clean']) == ('b', False)
  assert run['earlier_commits'] == ['a']
  assert run['command'] == 'python run.py --workdir=FOLDER'
  _write(tmp_path, 0, [3.0], [None], starts=starts[1:] * 2)
  run = run_records.record(tmp_path, '')
  assert run['clean'] is True and 'earlier_commits' not in run
  _write(tmp_path, 0, [3.0], [None])
  assert run_records.record(tmp_path, '')['commit'] is None


def test_regret_is_over_the_tasks_that_have_values():
  def run(task, model, bounds, retrieved):
    values = {'retrieval_free': np.array(retrieved)}
    return own_records.record(task, model, bounds, replicas=values)

  text = tables.document(
    own_records.rows(
      run('navigation', 'dnc', [100.0, 100.0], [0.9, 0.9]),
      run('navigation', 'ntm', [140.0, 140.0], [0.8, 0.8]),
      run('rotation', 'dnc', [500.0, 500.0], [NAN, NAN]),
      run('rotation', 'ntm', [470.0, 470.0], [NAN, NAN]),
      run('parity_recall', 'dnc', [100.0, 100.0], [0.1, 0.1]),
      run('parity_recall', 'ntm', [100.0, 100.0], [0.4, 0.4]),
      # On one task alone.
      run('rotation', 'lru', [0.0, 0.0], [NAN, NAN]),
    ),
    Purpose(),
  )
  assert '## Worst-task regret' in text
  assert (
    '| `dnc` | 2 | 30.0 [30.0, 30.0] | 0.300 [0.300, 0.300] | 0.300 [0.300, '
    '0.300] |\n| `ntm` | 2 | 40.0 [40.0, 40.0] | 0.400 [0.400, 0.400] | 0.100 '
    '[0.100, 0.100] |\n'
  ) in text
  alone = tables.document(
    own_records.rows(run('navigation', 'dnc', [1.0], [0.5])), Purpose()
  )
  assert 'regret' not in alone
  # The second replica of three failed on one of the tasks.
  failed = tables.document(
    own_records.rows(
      run('navigation', 'dnc', [100.0, 100.0, 100.0], [NAN] * 3),
      run('navigation', 'ntm', [140.0, NAN, 140.0], [NAN] * 3),
      run('rotation', 'dnc', [100.0, 100.0, 100.0], [NAN] * 3),
      run('rotation', 'ntm', [100.0, 100.0, 100.0], [NAN] * 3),
    ),
    Purpose(),
  )
  assert '| `ntm` | 2 to 3 | 40.0 [40.0, 40.0] |' in failed


def test_a_task_without_retrieval_has_the_closeness_of_its_dreams():
  values = {'dream_similarity': [0.5], 'copy_similarity': [0.4]}
  values |= {'retrieval_free': [NAN]}
  run = own_records.record('rotation', 'dnc', [100.0], replicas=values)
  text = tables.document(own_records.rows(run), Purpose())
  end = '| similarity of dreams | of the nearest frame seen | learned |'
  assert end in text and 'retrieved' not in text.partition('## ')[2]
  assert '| 0.500 | 0.400 | 1 of 1 |' in text


def _cell(name, row, **settings):
  config = {'settings': settings, 'data': {'checksum': '0'}}
  return cell_records.Cell(
    name, row, {}, pathlib.Path(name), config, 3, 9, 'test', True, True, []
  )


def _grouped(*cells):
  return outcomes.group(
    {cell.name: {**cell.config, 'row': cell.row} for cell in cells}
  )


def test_cells_that_differ_in_more_than_the_seed_have_rows_of_their_own():
  assert _grouped(
    _cell('dnc-seed=0', 'dnc', model='dnc', steps=3, seed=0),
    _cell('dnc-seed=1', 'dnc', model='dnc', steps=3, seed=1),
    # Of another block, with other flags.
    _cell('dnc-seed=2', 'dnc', model='dnc', steps=4, seed=2),
    # The same settings by another name, as a grid may have it.
    _cell('top_k=0', 'top_k=0', model='dnc', steps=3, seed=0),
  ) == {
    'dnc': ['dnc-seed=0', 'dnc-seed=1'],
    'dnc-seed=2': ['dnc-seed=2'],
    'top_k=0': ['top_k=0'],
  }
  with pytest.raises(
    cell_records.Mistakes, match='ntm-seed=0: is the same run'
  ):
    cell_records.require_different(
      [
        _cell('ntm', 'ntm', model='ntm', seed=0),
        _cell('ntm-seed=0', 'ntm', model='ntm', seed=0),
      ]
    )


def test_a_row_of_seeds_alone_is_named_by_task_and_model():
  cells = [
    _cell(f'seed={seed}', '', task='rotation', model='dnc', seed=seed)
    for seed in (0, 1)
  ]
  assert list(_grouped(*cells)) == ['rotation-dnc']
  assert list(_grouped(cells[0])) == ['seed=0']
