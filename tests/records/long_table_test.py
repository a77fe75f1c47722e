"""The long table of a run holds every number of its files, once."""

import sys

import pytest

from gtmm_jax import records

pandas = pytest.importorskip('pandas', reason='pandas is not here')

_LINE = {
  'step': 10,
  'seconds': 1.5,
  'learning_rate': 1e-3,
  'steps_per_second': None,
  'negative_bound': [100.0, None],
  # As many frames as replicas: axes are not told apart by their lengths.
  'kl': [[5.0, 1.0], [None, None]],
  'failed_at': [None, 7],
}
_HELD_OUT = {
  'episodes': 4,
  'split': 'validation',
  'kl_new': [3.0, None],
  'by_task': {'navigation': {'episodes': [2, 1], 'kl_new': [4.0, None]}},
}
_EVALUATION = {
  'step': 20,
  'episodes': 8,
  'split': 'test',
  'kl': [[0.5, 0.25], [None, None]],
  'predictable': [0.0, 1.0],
  'entropy_floor': 2.0,
  'classifier_accuracy': None,
  'quantiles': {'kl_new': {'5%': [1.0, None]}},
  'last_iterate': None,
}


@pytest.fixture(name='table')
def _table(tmp_path):
  records.append_metrics(tmp_path, _LINE)
  records.append_metrics(tmp_path, {**_LINE, 'step': 20, 'held_out': _HELD_OUT})
  records.write_evaluation(tmp_path, _EVALUATION)
  return records.to_frame(tmp_path)


def _rows(table, **where):
  """Returns (replica, frame, value) of the rows with these labels."""
  for name, label in where.items():
    table = table[table[name] == label]
  columns = table[['replica', 'frame', 'value']].astype(object)
  return [
    tuple(None if pandas.isna(each) else each for each in row)
    for row in columns.itertuples(index=False)
  ]


def test_columns_are_those_of_a_long_table(table):
  assert list(table.columns) == [
    *('source', 'split', 'task', 'replica', 'step', 'frame', 'metric', 'value')
  ]
  assert table.value.dtype == float and table.step.dtype == int


def test_every_number_has_its_place(table):
  training = {'source': 'metrics', 'split': 'training', 'step': 10}
  assert _rows(table, **training, metric='negative_bound') == [
    (0, None, 100.0),
    (1, None, None),
  ]
  assert _rows(table, **training, metric='kl') == [
    (0, 0, 5.0),
    (0, 1, 1.0),
    (1, 0, None),
    (1, 1, None),
  ]
  assert _rows(table, **training, metric='seconds') == [(None, None, 1.5)]
  assert _rows(table, **training, metric='failed_at')[1] == (1, None, 7.0)
  validation = {'source': 'metrics', 'split': 'validation', 'metric': 'kl_new'}
  assert _rows(table, **validation, task='all') == [
    (0, None, 3.0),
    (1, None, None),
  ]
  assert _rows(table, **validation, task='navigation')[0] == (0, None, 4.0)
  end = {'source': 'evaluation', 'split': 'test', 'step': 20}
  assert _rows(table, **end, metric='predictable') == [
    (None, 0, 0.0),
    (None, 1, 1.0),
  ]
  assert _rows(table, **end, metric='entropy_floor') == [(None, None, 2.0)]
  quantile = 'quantiles/kl_new/5%'
  assert _rows(table, **end, metric=quantile)[0] == (0, None, 1.0)


def test_there_are_as_many_rows_as_numbers(table):
  def count(value, name):
    if isinstance(value, dict):
      return sum(count(each, key) for key, each in value.items())
    if isinstance(value, list):
      return sum(count(each, name) or each is None for each in value)
    return int(isinstance(value, (int, float)) and name != 'step')

  files = [_LINE, _LINE, _HELD_OUT, _EVALUATION]
  assert len(table) == sum(count(each, '') for each in files)


def test_the_example_of_the_docstring_runs(tmp_path, monkeypatch, capsys):
  name = 'runs/perfect_recall-introspective-small-0'
  held_out = {**_HELD_OUT, 'kl_predictable': [0.5, 0.25]}
  for step in (10, 20):
    line = {**_LINE, 'step': step, 'held_out': held_out}
    records.append_metrics(tmp_path / name, line)
  monkeypatch.chdir(tmp_path)
  lines = records.to_frame.__doc__.splitlines()
  example = [line for line in lines if line.startswith('    ')][:4]
  exec('\n'.join(line.strip() for line in example), {'records': records})
  printed = capsys.readouterr().out.split('\n')
  assert printed[2].split() == ['10', '0.5', '0.25']


def test_a_folder_without_files_is_an_empty_table(tmp_path):
  table = records.to_frame(tmp_path)
  assert len(table) == 0 and 'metric' in table.columns


def test_a_damaged_file_is_told(tmp_path):
  (tmp_path / 'evaluation.json').write_text('{')
  with pytest.raises(ValueError, match='evaluation.json is not a JSON object'):
    records.to_frame(tmp_path)


def test_pandas_is_named_where_it_is_missing(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'pandas', None)
  with pytest.raises(ImportError, match='pip install pandas'):
    records.to_frame(tmp_path)
