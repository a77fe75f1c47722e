"""The results file of a study, and which cells are done by its records."""

import json
import pathlib

import pytest

import own_records
from gtmm_jax.records import documents
from studies import cell_records, finished, results_file


def _cell(name, steps=3, episodes=9, defaults=(), **settings):
  config = {
    'settings': {'task': 'navigation', 'model': 'dnc', 'seed': 0, **settings},
    'data': {'checksum': '0'},
    'option_defaults': dict(defaults),
  }
  return cell_records.Cell(
    name=name,
    row='',
    flags={},
    workdir=pathlib.Path(name),
    config=config,
    steps=steps,
    episodes=episodes,
    split=settings.get('evaluate_on', 'validation'),
    is_evaluated=False,
    is_complete=False,
    doubts=[],
  )


def _record(**changes):
  return own_records.record('navigation', 'dnc', [1.0], **changes)


def _done(*cells, **recorded):
  return finished.names(pathlib.Path('table.json'), recorded, cells)


def test_records_are_added_in_the_order_of_the_grid(tmp_path):
  file = tmp_path / 'new' / 'table.json'
  assert results_file.read(file) == {}
  for name in ('c', 'a', 'b', 'a'):
    results_file.add(file, name, _record(step=len(name)), ['a', 'b', 'c', 'd'])
  assert list(results_file.read(file)) == ['a', 'b', 'c']
  assert results_file.read(file)['a'] == documents.as_json(_record(step=1))
  results_file.write(file, {'b': _record()})
  assert list(json.loads(file.read_text())) == ['b']


@pytest.mark.parametrize(
  'text', ['', '[]', '{"a": 3}', '{"a": {"settings": {}}}', '[' * 10_000]
)
def test_what_is_no_results_file_is_refused(tmp_path, text):
  file = tmp_path / 'table.json'
  file.write_text(text)
  with pytest.raises(ValueError, match='not a results file') as caught:
    results_file.read(file)
  assert 'name another --output' in str(caught.value)


def test_a_cell_is_done_with_its_steps_and_episodes():
  assert _done(_cell('a'), _cell('b'), a=_record()) == {'a'}
  assert _done(_cell('a', steps=4), a=_record()) == set()
  assert _done(_cell('a', episodes=10), a=_record()) == set()
  assert _done(_cell('a', episodes=8), a=_record()) == {'a'}


def test_settings_that_a_run_may_change_do_not_matter():
  cell = _cell('a', report_every=5, evaluate_every=2, evaluation_episodes=9)
  assert _done(cell, a=_record()) == {'a'}
  # On other episodes it is to be evaluated again.
  assert _done(_cell('a', evaluate_on='test'), a=_record()) == set()


def test_a_setting_that_is_younger_than_the_record_had_its_default():
  defaults = {'reads': 'after'}
  assert _done(_cell('a', defaults=defaults, reads='after'), a=_record()) == {
    'a'
  }
  with pytest.raises(ValueError, match=r"reads \('after' in the file, 'bef"):
    _done(_cell('a', defaults=defaults, reads='before'), a=_record())


@pytest.mark.parametrize(
  'cell, words',
  [
    (_cell('a', batch_size=3), r'a with other settings: batch_size \(None in'),
    (_cell('a', steps=2), 'a after 3 steps, more than the 2 asked for'),
    (_cell('b'), 'a, which is no cell of the grid'),
  ],
)
def test_records_of_other_runs_are_refused(cell, words):
  with pytest.raises(ValueError, match=words) as caught:
    _done(cell, a=_record())
  said = str(caught.value)
  assert said.startswith('table.json has a')
  assert said.endswith('; delete the file, or name another --output.')


def test_records_of_other_data_are_refused():
  with pytest.raises(ValueError, match=r"data \('1' in the file, '0' now"):
    _done(_cell('a'), a=_record(data={'checksum': '1'}))
