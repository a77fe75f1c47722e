"""The table of a study: rows of one or several runs, and how they are told."""

import pathlib

import numpy as np
import pytest
from rich.console import Console

from gtmm_jax import records
from studies import cell_records, outcomes, tables


def _rows(*names):
  """Makes rows with these names that differ in their ratio."""
  return {
    name: {
      'settings': {'task': name.split('-')[0], 'model': 'dnc', 'steps': 3},
      'step': 3,
      'n': 1,
      'replicas': {'negative_bound': [1.0]},
      'summary': {'ratio': (0.1 * index, None), 'kl_last': None},
    }
    for index, name in enumerate(names, start=1)
  }


def test_cells_of_a_model_are_told_apart_by_what_they_vary(tmp_path):
  rows = _rows('navigation-dnc-store=mean', 'navigation-top_k=2', 'navigation')
  text = _written(tmp_path / 'v1.5', rows)
  assert '| `dnc-store=mean` | 0.100 |\n| `top_k=2` | 0.200 |\n' in text
  assert '|  | `navigation` |\n' in text and '| `dnc` | 0.300 |' in text


def test_there_are_no_more_columns_than_lines(tmp_path):
  rows = _rows('navigation-dnc', 'rotation-dnc', 'rotation-top_k=2')
  text = _written(tmp_path / 'table', rows)
  assert '| task | `dnc` | `top_k=2` |' in text
  assert '| `navigation` | 0.100 |  |\n| `rotation` | 0.200 | 0.300 |' in text


def _written(stem, rows):
  console = Console(file=(stem.parent / 'printed').open('w'))
  _, path = tables.write(rows, stem, console)
  assert path == stem.with_name(f'{stem.name}.md')
  return path.read_text()


def test_a_folder_named_like_a_word_leaves_the_rest_as_it_is():
  recorded = {
    'flag': 'files:digits',
    'source': 'digits of ours, from digits: 3 digits',
    'checksum': '0',
  }
  told = outcomes._data(recorded)['source']
  assert told == 'digits of ours, from FOLDER: 3 digits'


def test_a_run_that_is_not_complete_has_no_row(tmp_path):
  with pytest.raises(ValueError, match='no evaluation'):
    outcomes.read([tmp_path])


def _write(workdir, seed, bounds, failed_at, steps=(1, 2)):
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
    {'step': 2, 'episodes': 9, 'predictable': [0.0] * 3, **line},
  )


def test_replicas_of_all_seeds_are_pooled(tmp_path, capsys):
  folders = [tmp_path / 'one', tmp_path / 'other']
  _write(folders[0], 0, [3.0, 5.0], [None, 1])
  _write(folders[1], 1, [4.0, 8.0, 9.0], [None, None, None], steps=(2, 3))
  row = outcomes.read(folders)
  assert row['n'] == 4 and row['failed_replicas'] == [(1, 1)]
  mean, error = row['summary']['negative_bound']
  assert mean == 6
  np.testing.assert_allclose(error, np.std([3, 4, 8, 9], ddof=1) / 2)
  assert row['settings']['seed'] == [0, 1] and row['training_seconds'] == 10
  assert [run['versions']['jax'] for run in row['runs']] == ['1.0', '1.1']
  # Of metrics what both report on, of frames those of a run.
  (line,) = outcomes.metrics(folders)
  assert line['step'] == 2 and line['kl_last'] == [3, 5, 4, 8, 9]
  pooled = outcomes.evaluation(folders)
  assert pooled['predictable'] == [0, 0, 0] and len(pooled['kl']) == 5
  alone = outcomes.read(folders[:1])
  assert alone['settings']['seed'] == 0 and 'runs' not in alone
  (path,) = [
    path
    for path in tables.draw(
      {'a-dnc': row, 'b-dnc': alone},
      {'a-dnc': folders, 'b-dnc': folders[:1]},
      tmp_path / 'table',
    )
    if path.suffix == '.png'
  ]
  assert path.stat().st_size > 10_000
  # No cell has a ratio that could be a dot.
  assert path.name == 'table-navigation.png' and not capsys.readouterr().err


def test_a_replica_that_failed_is_told(tmp_path):
  _write(tmp_path, 0, [3.0, 5.0], [None, 1])
  row = outcomes.read([tmp_path])
  assert '| navigation-dnc | 2 | 1 of 2 |' in _written(
    tmp_path / 'table', {'navigation-dnc': row}
  )


def _cell(name, row, **settings):
  config = {'settings': settings, 'data': {'checksum': '0'}}
  return cell_records.Cell(
    name, row, {}, pathlib.Path(name), config, 3, 9, True, True, []
  )


def test_cells_that_differ_in_more_than_the_seed_have_rows_of_their_own():
  cells = [
    _cell('dnc-seed=0', 'dnc', model='dnc', steps=3, seed=0),
    _cell('dnc-seed=1', 'dnc', model='dnc', steps=3, seed=1),
    # Of another block, with other flags.
    _cell('dnc-seed=2', 'dnc', model='dnc', steps=4, seed=2),
    # The same settings by another name, as a grid may have it.
    _cell('top_k=0', 'top_k=0', model='dnc', steps=3, seed=0),
  ]
  rows = cell_records.rows(cells)
  names = {name: [cell.name for cell in group] for name, group in rows.items()}
  assert names == {
    'dnc': ['dnc-seed=0', 'dnc-seed=1'],
    'dnc-seed=2': ['dnc-seed=2'],
    'top_k=0': ['top_k=0'],
  }
  with pytest.raises(
    cell_records.Mistakes, match='ntm-seed=0: is the same run'
  ):
    cell_records.rows(
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
  assert list(cell_records.rows(cells)) == ['rotation-dnc']
  assert list(cell_records.rows(cells[:1])) == ['seed=0']
