"""Jobs of a study, with stand-ins for the programs of Slurm."""

import contextlib
import os
import pathlib
import pickle
import shlex
import shutil
import signal
import sys
import threading
import time
from typing import NoReturn
from unittest import mock

import pytest
from rich.console import Console

import program_flags
import study_stand_ins as stand_ins
from gtmm_jax.records import documents
from studies import grid_file, logs, request, slurm, slurm_queue
from studies import status as status_module
from studies.about import About
from studies.cell_records import Cell
from studies.executor import Ended
from studies.request import Study
from studies.slurm_flags import Options
from studies.slurm_queue import Queued


@pytest.fixture(scope='module', autouse=True)
def _flags():
  """Defines the flags of study.py."""
  with program_flags.defined(request.define_flags):
    yield


@pytest.fixture
def programs(tmp_path, monkeypatch):
  """Returns a function that puts a program on the PATH, which has no others."""
  folder = tmp_path / 'bin'
  folder.mkdir()
  (folder / 'cat').symlink_to(shutil.which('cat'))
  monkeypatch.setenv('PATH', str(folder))

  def put(name: str, body: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\n{body}\n')
    (folder / name).chmod(0o755)

  return put


def _cell(folder: pathlib.Path, name: str) -> Cell:
  flags = {'model': 'dnc', 'note': "it's"}
  return Cell(name, '', flags, folder / name, {}, 1, 1, '', False, False, [])


def _submitted(folder: pathlib.Path, name: str, number: str) -> pathlib.Path:
  """Leaves a job's file as submitit does, but one that tells who reads it."""
  own = slurm_queue.folder(folder) / name
  own.mkdir(parents=True)
  file = own / f'{number}_submitted.pkl'

  class Told:
    def __reduce__(self):
      return (pathlib.Path.touch, (own / 'was read',))

  file.write_bytes(pickle.dumps(Told()))
  return own


@pytest.mark.parametrize(
  'words, message',
  [
    (['--partition=gpu'], '--partition is about jobs of a cluster'),
    (['--executor=slurm', '--gpus=0'], '--gpus is 0; it must be at least 1'),
    (['--executor=slurm', '--time=1'], '--time is 1; it must be at least 2'),
    (['--executor=slurm', '--time=2', '--grace=60'], 'use a longer --time'),
    (['--executor=slurm'], 'a preset must be named'),
    (['--jobs=0'], '--jobs is 0'),
  ],
)
def test_flags_are_checked(tmp_path, words, message):
  grid = stand_ins.grid(tmp_path, stand_ins.block(['dnc']))
  result = stand_ins.run(tmp_path, grid.name, *words)
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert message in result.stderr
  assert not (tmp_path / 'runs').exists()


def test_options_have_the_names_of_sbatch():
  options = Options(30, 'gpu', 'lab', gpus=1, cpus=4, memory=16)
  assert options.parameters() == {
    'time': 30,
    'partition': 'gpu',
    'account': 'lab',
    'gpus_per_node': 1,
    'cpus_per_task': 4,
    'mem': '16G',
  }
  assert Options().parameters() == {'time': 60}


def test_submitit_and_slurm_are_asked_for_before_anything_is_written(
  tmp_path, programs
):
  grid = stand_ins.grid(
    tmp_path, stand_ins.block(['dnc'], ['navigation'], preset='small')
  )
  words = (grid.name, '--executor=slurm', '--partition=gpu')

  def refuse() -> str:
    result = stand_ins.run(tmp_path, *words)
    assert (result.returncode, result.stderr.count('\n')) == (2, 1)
    assert not (tmp_path / 'runs').exists()
    return result.stderr

  with mock.patch.dict(sys.modules, submitit=None):
    assert 'pip install "gtmm_jax[slurm]"' in refuse()
    # Commands are printed without either.
    result = stand_ins.run(tmp_path, *words, '--dry_run')
    assert '--model=dnc --workdir=runs/grid/navigation-dnc' in result.stdout
  pytest.importorskip('submitit')
  assert 'sbatch, which is not installed here' in refuse()
  programs('sbatch', 'echo "$@" >&2; echo "no partition gpu" >&2; exit 1')
  assert 'Slurm refuses such jobs: no partition gpu' in refuse()


def test_the_queue_is_asked_once_and_pickles_are_not_read(tmp_path, programs):
  asked = tmp_path / 'asked'
  programs(
    'squeue',
    f'echo "$@" >>{shlex.quote(str(asked))}\n'
    'echo "7 RUNNING ntm"; echo "8 PENDING dnc"; echo "9 COMPLETED lru"\n'
    'echo "10 RUNNING a name of another program"',
  )
  names = ['ntm', 'dnc', 'lru', 'vrnn']
  # No job, no question.
  assert slurm_queue.states(tmp_path, names) == {}
  assert not asked.exists()
  for name, number in (('ntm', '7'), ('dnc', '8'), ('lru', '9')):
    _submitted(tmp_path, name, number)
  # Slurm gave the number of an old job to another one.
  _submitted(tmp_path, 'vrnn', '10')
  jobs = slurm_queue.states(tmp_path, names)
  assert jobs == {
    'ntm': Queued('ntm', 'RUNNING'),
    'dnc': Queued('dnc', 'PENDING'),
  }
  assert len(asked.read_text().splitlines()) == 1

  cells = {name: grid_file.Cell({'steps': 3}, name) for name in names}
  study = Study(
    cells, None, About(), {}, tmp_path, tmp_path / 'table', tmp_path / 'run.py'
  )
  logs.note_failure(tmp_path / 'dnc.log', 'before it was queued again')
  logs.note_failure(tmp_path / 'lru.log', 'for good')
  states = status_module.read(study, jobs)
  assert {name: state.name for name, state in states.items()} == {
    'ntm': 'running',
    'dnc': 'waiting',
    'lru': 'failed',
    'vrnn': 'waiting',
  }
  assert not list(tmp_path.rglob('was read'))


def test_a_queue_that_does_not_answer_is_told(tmp_path, programs, capsys):
  own = _submitted(tmp_path, 'ntm', '7')
  study = Study(
    {'ntm': grid_file.Cell({'steps': 3}, 'ntm')},
    None,
    About(),
    {},
    tmp_path,
    tmp_path / 'table',
    tmp_path / 'run.py',
  )
  status_module.show(study, Console(soft_wrap=True))
  assert 'squeue is not installed here' in capsys.readouterr().out
  programs('squeue', 'echo "no controller" >&2; exit 1')
  status_module.show(study, Console(soft_wrap=True))
  told = capsys.readouterr().out
  assert 'squeue failed: no controller' in told
  assert '0 running, 1 waiting' in told
  assert [path.name for path in own.iterdir()] == ['7_submitted.pkl']


@contextlib.contextmanager
def _executor(folder, options=None, told=None):
  """Makes the executor, which asks squeue each time."""
  options = options or Options()
  tell = (told if told is not None else []).append
  with (
    mock.patch.multiple(slurm, _PAUSE=0.0, _SEEN=0.2),
    slurm.executor(
      folder / 'run.py', folder, options, None, 20.0, False, tell
    ) as executor,
  ):
    yield executor


def test_a_job_is_submitted_watched_and_left(tmp_path, programs):
  pytest.importorskip('submitit')
  sent, queue = tmp_path / 'sent', tmp_path / 'queue'
  programs('srun', 'exit 1')
  programs('squeue', f'cat {shlex.quote(str(queue))}')
  programs(
    'sbatch',
    f'cat "$1" >{shlex.quote(str(sent))}; echo "Submitted batch job 7"',
  )
  cell, told = _cell(tmp_path, 'ntm'), []
  own = tmp_path / 'slurm'
  with _executor(tmp_path, Options(30, gpus=1, cpus=4), told) as executor:
    queue.touch()
    assert executor.attach([cell]) == []
    assert executor.start(cell) == 'is job 7'
    script = sent.read_text()
    for line in (
      '--time=30',
      '--gpus-per-node=1',
      '--cpus-per-task=4',
      '--job-name=ntm',
      '--requeue',
      '--signal=USR2@35',
    ):
      assert f'#SBATCH {line}\n' in script
    assert ' --cpus-per-task=4 ' in script.partition('\nsrun ')[2]
    # Two studies would submit each job twice.
    with (
      pytest.raises(ValueError, match='Another study.py submits'),
      _executor(tmp_path),
    ):
      pass
    queue.write_text('7 PENDING ntm\n')
    assert executor.take_ended() == []
    executor.leave(signal.SIGINT, 30.0, told.append)
    assert told[-1].endswith('scancel 7')
  assert own.stat().st_mode & 0o777 == 0o700

  # The next one finds it in the queue, and later why it ended.
  with _executor(tmp_path, told=told) as executor:
    assert executor.attach([cell, _cell(tmp_path, 'dnc')]) == [cell]
    programs('squeue', 'echo "no controller" >&2; exit 1')
    assert executor.take_ended() == executor.take_ended() == []
    assert told[-1] == 'squeue failed: no controller It is asked again.'
    assert len(told) == 2
    programs('squeue', 'echo 7 COMPLETED ntm')
    cell.log.write_text('before\nhello\n')
    ended = {'job': '6', 'code': 3, 'log_start': 7}
    file = own / 'ntm' / 'ended.json'
    # That of an earlier job.
    documents.replace_document(file, ended)
    assert executor.take_ended() == []
    documents.replace_document(file, {**ended, 'job': '7'})
    # It may have been preempted, and be queued again.
    programs('squeue', 'echo 7 PENDING ntm')
    assert executor.take_ended() == []
    programs('squeue', 'echo 7 COMPLETED ntm')
    assert executor.take_ended() == []
    assert executor.take_ended() == [Ended(cell, 3, ['hello'])]


def test_a_job_that_disappears_has_ended_after_a_while(tmp_path, programs):
  _submitted(tmp_path, 'ntm', '7').parent.chmod(0o700)
  cell = _cell(tmp_path, 'ntm')
  programs('squeue', 'echo 7 RUNNING ntm')
  with _executor(tmp_path) as executor:
    assert executor.attach([cell]) == [cell]
    programs('squeue', 'echo 7 OUT_OF_MEMORY ntm')
    assert executor.take_ended() == []
    # A job that is queued again was only seen in between.
    programs('squeue', 'echo 7 PENDING ntm')
    assert executor.take_ended() == []
    programs('squeue', 'echo 7 CANCELLED ntm')
    assert executor.take_ended() == []
    time.sleep(0.3)
    (ended,) = executor.take_ended()
  assert (ended.code, ended.lines) == (None, ['Slurm job 7 is CANCELLED'])


@pytest.mark.parametrize('mode, above', [(0o750, 0o755), (0o700, 0o777)])
def test_the_folder_of_jobs_is_the_users_alone(tmp_path, mode, above):
  folder = tmp_path / 'study'
  (folder / 'slurm').mkdir(parents=True)
  (folder / 'slurm').chmod(mode)
  folder.chmod(above)
  with pytest.raises(ValueError, match='alone|everybody'), _executor(folder):
    pass


def test_the_folder_of_jobs_is_no_link_and_has_no_percent(tmp_path):
  (tmp_path / 'other').mkdir(mode=0o700)
  (tmp_path / 'slurm').symlink_to(tmp_path / 'other')
  with pytest.raises(ValueError, match='alone'), _executor(tmp_path):
    pass
  (tmp_path / '9%').mkdir()
  with (
    pytest.raises(ValueError, match='which Slurm'),
    _executor(tmp_path / '9%'),
  ):
    pass


# Saves a checkpoint if it is asked to end, and never ends by itself.
_RUNS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(number, _):
  if 'IDLE' not in os.environ:
    (folder / 'checkpoints' / '5').mkdir(parents=True)
  print('saved', flush=True)
  os._exit(128 + number)
if len(sys.argv) > 2:
  print('done', flush=True)
  sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGUSR2, end)
print('begins', flush=True)
time.sleep(60)
"""


def _job(folder: pathlib.Path, *words: str, minutes: int = 60):
  """Makes a job's function, whose run is a stand-in."""
  pytest.importorskip('submitit')
  from studies import slurm_job, slurm_submit

  (folder / 'run.py').write_text(_RUNS)
  names = ('ntm', 'ntm.log', 'ended.json')
  paths = [os.fspath(folder / name) for name in names]
  return slurm_job.Run(
    slurm_submit.Job(
      os.fspath(folder / 'run.py'), (paths[0], *words), *paths, minutes, 20.0
    )
  )


@pytest.mark.parametrize('code', [0, 3])
def test_a_job_tells_how_its_run_ended(tmp_path, monkeypatch, code):
  monkeypatch.setenv('SLURM_JOB_ID', '7')
  run = _job(tmp_path, str(code))
  (tmp_path / 'ntm.log').write_text('before\n')
  (tmp_path / 'ended.json').write_text('of an earlier one')
  with pytest.raises(SystemExit) as ended:
    run()
  assert ended.value.code == code
  assert slurm_queue.read_ended(tmp_path / 'ended.json', '7') == {
    'job': '7',
    'code': code,
    'log_start': 7,
  }
  assert logs.output(tmp_path / 'ntm.log', 7) == ['done']
  assert logs.failure(tmp_path / 'ntm.log') == (
    'ended with code 3: done' if code else None
  )


@pytest.mark.parametrize('is_idle', [False, True])
def test_a_job_is_queued_again_if_it_saves_something(
  tmp_path, monkeypatch, is_idle
):
  monkeypatch.setenv('SLURM_JOB_ID', '7')
  if is_idle:
    monkeypatch.setenv('IDLE', 'yes')
  # So short that all of its time is late.
  run = _job(tmp_path, minutes=1)
  log, again = tmp_path / 'ntm.log', []

  def warn(*_: object) -> NoReturn:
    again.append(run.checkpoint())
    raise InterruptedError

  # As submitit does it: in a handler, while the job waits for its run.
  before = signal.signal(signal.SIGUSR1, warn)
  threading.Thread(target=_send_once_begun, args=(log,)).start()
  try:
    with pytest.raises((InterruptedError, SystemExit)) as ended:
      run()
  finally:
    signal.signal(signal.SIGUSR1, before)
  lines = logs.output(log, 0)
  assert lines[:2] == ['begins', 'saved']
  if is_idle:
    assert ended.value.code == 128 + signal.SIGUSR2
    assert again == [] and 'use a longer --time' in lines[-1]
    assert 'SIGUSR2: no checkpoint was saved' in logs.failure(log)
  else:
    assert again[0].function._job == run._job
    assert logs.failure(log) is None
    assert not (tmp_path / 'ended.json').exists()


def _send_once_begun(log: pathlib.Path) -> None:
  """Warns this process as soon as the stand-in has begun."""
  while not (log.exists() and 'begins' in log.read_text()):
    time.sleep(0.02)
  os.kill(os.getpid(), signal.SIGUSR1)
