"""The status of a study, read from workdirs and records alone."""

import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import own_records
import program_flags
from gtmm_jax import records
from gtmm_jax.process import command, holders, locks
from studies import grid_file, logs, results_file, status
from studies.about import About
from studies.request import Study

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _study(folder, names, **flags):
  """Makes a study of cells with these names."""
  cells = {
    name: grid_file.Cell({'steps': '3000', **flags}, name) for name in names
  }
  return Study(
    cells, None, About(), {}, folder, folder / 'table', folder / 'run.py'
  )


def _values(ratio, replicas=2):
  """Makes values of an evaluation, or of a line of metrics."""
  return {
    'negative_bound': np.full(replicas, 1000.0),
    'kl_last': np.full(replicas, 4.0),
    'kl_new': np.full(replicas, 10.0),
    'kl_predictable': np.full(replicas, 10.0 * ratio),
    'failed_at': np.array([None] * replicas, object),
  }


def _report(workdir, *steps, ratio=0.5, **more):
  """Writes reports of a run that takes a second for ten steps."""
  records.write_config(workdir, {'settings': {'steps': 3000}})
  for step in steps:
    line = {'step': step, 'seconds': 7 + step / 10, **_values(ratio), **more}
    records.append_metrics(workdir, line)


def _evaluate(workdir, step=3000, **changes):
  records.write_evaluation(
    workdir,
    {
      'step': step,
      'episodes': 20,
      'split': 'validation',
      **_values(0.25),
      **changes,
    },
  )


def test_a_cell_without_a_workdir_waits_or_has_its_record(tmp_path):
  study = _study(tmp_path / 'none', ['new', 'kept', 'short'])
  record = own_records.record('navigation', 'dnc', [100.0, 300.0])
  results_file.write(
    study.results, {'kept': {**record, 'step': 3000}, 'short': record}
  )
  before = sorted(tmp_path.rglob('*'))
  states = status.read(study)
  assert states == {
    'new': status.State('waiting', 0, 3000),
    'kept': status.State('done', 3000, 3000, 0.0, pytest.approx(0.2)),
    # It has fewer steps than are asked for now.
    'short': status.State('waiting', 3, 3000),
  }
  assert sorted(tmp_path.rglob('*')) == before


def test_a_cell_is_done_by_the_evaluation_that_is_asked_for(tmp_path):
  names = ['done', 'other steps', 'other episodes']
  for name in names:
    _report(tmp_path / name, 2800, 3000)
  _evaluate(tmp_path / 'done')
  _evaluate(tmp_path / 'other steps', 2800)
  _evaluate(tmp_path / 'other episodes', split='test')
  states = status.read(_study(tmp_path, names, evaluate_on='validation'))
  assert [state.name for state in states.values()] == [
    'done',
    'waiting',
    'waiting',
  ]
  assert states['done'] == status.State('done', 3000, 3000, 0.0, 0.25)
  more = _study(tmp_path, ['done'], evaluation_episodes=21)
  assert status.read(more)['done'].name == 'waiting'


def test_a_cell_runs_while_its_lock_is_held_which_is_left_alone(tmp_path):
  workdir = tmp_path / 'ntm'
  _report(workdir, 900, 1200, 1500, held_out=_values(0.4))
  study = _study(tmp_path, ['ntm'])
  with locks.alone(workdir):
    (state,) = status.read(study).values()
    assert locks.is_taken(workdir)
  # 1,500 steps at ten a second.
  assert state == status.State('running', 1500, 3000, 2.5, pytest.approx(0.4))
  (state,) = status.read(study).values()
  assert state == status.State('waiting', 1500, 3000, None, pytest.approx(0.4))


def test_a_ratio_that_does_not_count_yet_and_one_report_say_nothing(tmp_path):
  _report(tmp_path / 'ntm', 50)
  with locks.alone(tmp_path / 'ntm'):
    (state,) = status.read(_study(tmp_path, ['ntm'])).values()
  assert state == status.State('running', 50, 3000, None, None)


def test_a_cell_failed_where_its_log_ends_so_or_its_records_are_damaged(
  tmp_path,
):
  names = ['failed', 'again', 'damaged']
  for name in names:
    _report(tmp_path / name, 100)
    log = tmp_path / f'{name}.log'
    log.write_text('step 100')
    logs.note_failure(log, 'ended with code 1:\nno luck')
  with (tmp_path / 'again.log').open('a') as log:
    log.write('step 200\n')
  (tmp_path / 'damaged' / 'evaluation.json').write_text('{')
  states = status.read(_study(tmp_path, names))
  assert [state.name for state in states.values()] == [
    'failed',
    'waiting',
    'failed',
  ]
  assert states['failed'].reason == 'ended with code 1: no luck'
  assert 'damaged records' in states['damaged'].reason
  assert 'evaluation.json' in states['damaged'].reason


def test_a_run_of_another_host_runs_while_its_heart_beats(
  tmp_path, monkeypatch, capsys
):
  elsewhere = ('node7', 'another boot', 'pid:[1]')
  names = ['ntm', 'dnc', 'lru']
  with monkeypatch.context() as patch:
    patch.setattr(holders, 'this_host', lambda: elsewhere)
    for name in names:
      _report(tmp_path / name, 1500)
      file = tmp_path / name / 'lock.json'
      file.write_bytes(holders.to_bytes(holders.this_program(False)))
  for name, age in zip(names, (20, 7200, 0), strict=True):
    beat = time.time() - age
    os.utime(tmp_path / name / 'lock.json', (beat, beat))
  (tmp_path / 'lru' / 'lock.json').unlink()
  study = _study(tmp_path, names)
  states = status.read(study)
  assert [state.name for state in states.values()] == [
    'running',
    'waiting',
    'waiting',
  ]
  status.show(study, command.console())
  lines = capsys.readouterr().out.splitlines()
  process = f'process {os.getpid()} on node7, heartbeat'
  assert f'ntm: {process} 20 s ago' in lines
  assert f'dnc: {process} 2 h ago, a stale lock' in lines
  assert lines[-1].startswith('0 done, 1 running, 2 waiting, 0 failed')


def _seconds():
  """Returns the processor time of the processes that this one has started."""
  times = os.times()
  return times.children_user + times.children_system


def _ask(tmp_path, grid):
  """Asks study.py for the status of the study in the folder `many`.

  Returns:
    The process that has ended, and its processor time in seconds.
  """
  program = ROOT / 'experiments' / 'study.py'
  began = _seconds()
  result = subprocess.run(
    [
      sys.executable,
      '-X',
      'importtime',
      str(program),
      f'--grid={grid}',
      '--folder=many',
      '--status',
    ],
    cwd=tmp_path,
    env={**program_flags.environment(), 'COLUMNS': '200'},
    capture_output=True,
    text=True,
    check=False,
  )
  return result, _seconds() - began


def _fake(folder, count):
  """Fakes the workdirs of finished cells of 20 replicas; returns the grid."""
  block = {'flags': {'steps': 3000}, 'over': {'seed': [*range(count)]}}
  grid = folder / 'grid.json'
  grid.write_text(
    json.dumps({'about': 'many seeds', 'minutes': 90, 'cells': [block]})
  )
  first = folder / 'many' / 'seed=0'
  rng = np.random.default_rng(0)
  frames = {name: rng.random((20, 25)) for name in ('kl', 'log_likelihood')}
  line = {**_values(0.5, 20), **frames}
  records.write_config(first, {'settings': {'steps': 3000}})
  text = json.dumps(
    records.documents.as_json(
      {**line, 'held_out': {**line, 'episodes': 100}, 'seconds': 3.0}
    )
  )
  (first / 'metrics.jsonl').write_text(
    ''.join(f'{{"step": {step}, {text[1:]}\n' for step in range(200, 3001, 200))
  )
  _evaluate(first, **line)
  for seed in range(1, count):
    workdir = folder / 'many' / f'seed={seed}'
    workdir.mkdir()
    for file in first.iterdir():
      (workdir / file.name).write_bytes(file.read_bytes())
  return grid


def test_status_is_printed_without_jax_and_writes_nothing(tmp_path):
  grid = _fake(tmp_path, 3)
  before = {path: path.stat() for path in tmp_path.rglob('*')}
  os.chmod(tmp_path / 'many', 0o555)
  result, _ = _ask(tmp_path, grid)
  os.chmod(tmp_path / 'many', 0o755)
  assert result.returncode == 0, result.stderr
  imported = {
    line.rpartition('|')[2].strip() for line in result.stderr.splitlines()
  }
  assert 'numpy' in imported
  assert not imported & {'jax', 'scipy', 'matplotlib'}
  lines = result.stdout.splitlines()
  assert lines[:2] == ['many seeds', 'About 90 minutes on two CPU cores.']
  (row,) = [line for line in lines if 'seed=1 ' in line]
  assert row.split() == ['seed=1', 'done', '3,000', '3,000', '0', '0.500']
  assert lines[-1] == '3 done, 0 running, 0 waiting, 0 failed; many'
  assert {path: path.stat().st_mtime for path in before} == {
    path: stat.st_mtime for path, stat in before.items()
  }
  assert sorted(before) == sorted(tmp_path.rglob('*'))


@pytest.mark.slow
def test_the_status_of_a_thousand_cells_takes_less_than_five_seconds(tmp_path):
  grid = _fake(tmp_path, 1000)
  # Others may use the machine meanwhile: time that it waits is not counted.
  result, seconds = _ask(tmp_path, grid)
  assert '1000 done' in result.stdout, result.stderr
  assert seconds < 5
