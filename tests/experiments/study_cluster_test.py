"""Studies on a real Slurm cluster, which the tests start on this machine.

pytest -m slow -rs tests/experiments/study_cluster_test.py
"""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import slurm_cluster
import study_stand_ins as stand_ins
from slurm_cluster import wait_for

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MISSING = slurm_cluster.missing()
if importlib.util.find_spec('submitit') is None:
  _MISSING.append('submitit')

pytestmark = [
  pytest.mark.slow,
  pytest.mark.timeout(3600),
  pytest.mark.skipif(
    bool(_MISSING), reason=f'not installed: {", ".join(_MISSING)}'
  ),
]

# Stands for training: a checkpoint for each tenth of a second, at least until
# the test lets it end. A signal ends it as it ends run.py. The stand-in has the
# lock of its folder already.
_TRAINS = """
node, job = (os.environ.get(f'SLURM{name}', '-')
             for name in ('D_NODENAME', '_JOB_ID'))
with open(folder.parent / 'begun', 'a') as file:
  file.write(f'{folder.name} {node} {job} {os.getpid()}\\n')
def end(number, _):
  signal.signal(signal.SIGUSR2, signal.SIG_IGN)
  print('ends by', number, flush=True)
  sys.exit(128 + number)
for name in ('SIGTERM', 'SIGUSR1', 'SIGUSR2'):
  signal.signal(getattr(signal, name), end)
checkpoints = folder / 'checkpoints'
checkpoints.mkdir(exist_ok=True)
(done,) = [int(path.name) for path in checkpoints.iterdir()] or [0]
seconds = float(os.environ['LONG' if folder.name in os.environ['LONG_CELL']
                           else 'TRAINS'])
goes_on = folder.parent / 'goes_on'
while done < 10 * seconds or not goes_on.exists():
  time.sleep(0.1)
  old, done = checkpoints / str(done), done + 1
  old.rename(checkpoints / str(done)) if old.exists() else (
    checkpoints / str(done)).mkdir()
"""
_SLEEPS = "time.sleep(float(os.environ.get('TRAINS', '0')))\n"
assert _SLEEPS in stand_ins.RUN
_RUN = stand_ins.RUN.replace(_SLEEPS, _TRAINS)
_LONG_CELL = 'perfect_recall-vrnn'


class _Study:
  """A study of stand-ins, started as a process as often as asked."""

  def __init__(self, folder: pathlib.Path, environment: dict[str, str]) -> None:
    self.root, self.folder = folder, folder / 'runs' / 'grid'
    self._environment = environment
    self._program = (
      f'import pathlib, sys\n'
      f'sys.path[:0] = [{str(_ROOT / "experiments")!r}, {str(_ROOT)!r}]\n'
      'import signal, study\n'
      'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
      'from gtmm_jax.process import command, signals\n'
      'signals.watch(signals.GOES_ON)\n'
      'from absl import app\n'
      'from studies import drawing, request\n'
      'drawing.draw = lambda *_: []\n'
      'request.RUN = pathlib.Path("run.py").absolute()\n'
      'request.define_flags()\n'
      'app.run(study.main, flags_parser=command.parse_flags)\n'
    )

  def start(self, *flags: str, **variables: str) -> subprocess.Popen:
    """Starts study.py."""
    return subprocess.Popen(
      [sys.executable, '-c', self._program, '--grid=grid.json', *flags],
      cwd=self.root,
      env={**self._environment, 'LONG_CELL': _LONG_CELL, **variables},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      start_new_session=True,
    )

  def begun(self, name: str = '') -> list[list[str]]:
    """Returns cell, node, job and process of each run that began."""
    file = self.folder / 'begun'
    lines = file.read_text().splitlines() if file.exists() else []
    words = [line.split() for line in lines]
    return [each for each in words if name in ('', each[0])]

  def step(self, name: str) -> int:
    """Returns the step that the run of a cell has reached."""
    found = (self.folder / name / 'checkpoints').glob('*')
    return max((int(path.name) for path in found), default=0)


def _is_alive(pid: str) -> bool:
  try:
    os.kill(int(pid), 0)
  except OSError:
    return False
  return True


@pytest.fixture(scope='module')
def cluster():
  with slurm_cluster.started() as cluster:
    yield cluster


def test_six_runs_end_through_every_fault_and_none_runs_twice(
  tmp_path, cluster
):
  stand_ins.write(tmp_path, _RUN)
  stand_ins.grid(
    tmp_path, stand_ins.block(['vrnn', 'dnc', 'ntm'], preset='small')
  )
  study = _Study(
    tmp_path, {**cluster.environment, 'TRAINS': '30', 'LONG': '170'}
  )
  flags = ('--executor=slurm', '--time=3', '--grace=20', '--retry=1')

  # Ctrl-C leaves jobs where they are.
  process = study.start(*flags)
  wait_for(lambda: len(study.begun()) == 4, 'four runs on two nodes')
  assert process.poll() is None, process.communicate()
  wait_for(lambda: len(_jobs(cluster)) == 6, 'six jobs')
  process.send_signal(signal.SIGINT)
  said, _ = process.communicate(timeout=120)
  assert process.returncode == 130, said
  assert '6 jobs go on without this program' in said and 'scancel' in said
  jobs = _jobs(cluster)
  assert len(jobs) == 6
  status, _ = study.start('--status').communicate()
  assert '0 done, 4 running, 2 waiting, 0 failed' in status, status

  # The same command watches the same jobs.
  process = study.start(*flags)
  wait_for((study.folder / 'slurm' / 'lock.json').exists, 'the study')
  other, _ = study.start(*flags).communicate()
  assert 'Another study.py submits jobs' in other
  wait_for(lambda: _choose(study), 'runs to break')
  victim, lost = _choose(study)
  os.kill(int(victim[3]), signal.SIGKILL)
  wait_for(lambda: study.step(lost[0]) > 10, 'a run on the other node')
  cluster.break_node(lost[1])
  wait_for(
    lambda: 'down' in cluster.ask('sinfo', '-h', '-n', lost[1], '-o', '%T'),
    'a node that is down',
  )
  cluster.start_node(lost[1])
  (study.folder / 'goes_on').touch()
  said, _ = process.communicate(timeout=1500)
  assert process.returncode == 0, said
  assert said.count('goes on') == 6
  assert 'was ended by SIGKILL: hello' in said and 'retry 1 of 1' in said

  # Nothing was begun again but what had to be.
  counts = {name: len(study.begun(name)) for name, *_ in study.begun()}
  again = {victim[0], lost[0], _LONG_CELL}
  on_lost = {name for name, node, *_ in study.begun() if node == lost[1]}
  warned = {
    log.stem
    for log in study.folder.glob('*.log')
    if 'ends by 12' in log.read_text()
  }
  assert len(counts) == 6
  others = counts.keys() - again - on_lost - warned
  assert all(counts[name] == 1 for name in others)
  assert all(counts[name] > 1 for name in again)
  assert _LONG_CELL in warned
  # The lock that a lost node leaves is taken over.
  log = (study.folder / f'{lost[0]}.log').read_text()
  assert '--take_over=True' in log
  # A run trains after it has taken the lock of its folder.
  trained = (study.folder / 'trained').read_text().split()
  assert sorted(trained) == sorted(counts)
  assert _jobs(cluster) == set()

  # Files of jobs are the user's alone.
  assert (study.folder / 'slurm').stat().st_mode & 0o777 == 0o700
  status, _ = study.start('--status').communicate()
  assert '6 done, 0 running, 0 waiting, 0 failed' in status

  (tmp_path / 'local').mkdir()
  (tmp_path / 'local' / 'goes_on').touch()
  local = study.start('--folder=local', '--jobs=3', TRAINS='0', LONG='0')
  said, _ = local.communicate(timeout=600)
  assert local.returncode == 0, said
  for name in ('table.json', 'table.md'):
    # A run that was begun again says so in its command.
    text = (study.folder / name).read_text().replace(' --take_over=True', '')
    assert text == (tmp_path / 'local' / name).read_text()


def _jobs(cluster) -> set[str]:
  """Returns the numbers of jobs that are not over."""
  return set(cluster.ask('squeue', '-h', '-o', '%i').split())


def _choose(study: _Study) -> tuple[list[str], list[str]] | None:
  """Returns two runs that go on, neither of them the long one; None if none.

  The second one is on the node on which the long run is not.
  """
  (_, node, *_), *_ = study.begun(_LONG_CELL)
  others = [
    each
    for each in study.begun()
    if each[0] != _LONG_CELL and _is_alive(each[3])
  ]
  lost = next((each for each in others if each[1] != node), None)
  victim = next((each for each in others if each != lost), None)
  return (victim, lost) if victim and lost else None


def test_a_real_run_that_is_preempted_equals_an_undisturbed_one(
  tmp_path, cluster
):
  flags = {
    'task': 'perfect_recall',
    'model': 'vrnn',
    'preset': 'small',
    'steps': 1200,
    'batch_size': 4,
    'replicas': 1,
    'pre_recall': 4,
    'recall': 2,
    'report_every': 100,
    'evaluation_episodes': 20,
    'set': ['latent_size=4', 'controller_size=8'],
  }
  grid = {'cells': [{'flags': flags, 'over': {'seed': [0, 1]}}]}
  (tmp_path / 'grid.json').write_text(json.dumps(grid))
  program = str(_ROOT / 'experiments' / 'study.py')
  cells = ('seed=0', 'seed=1')

  def start(folder: str, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
      [
        sys.executable,
        program,
        '--grid=grid.json',
        f'--folder={folder}',
        *words,
      ],
      cwd=tmp_path,
      env={
        **cluster.environment,
        'PYTHONPATH': str(_ROOT),
        'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  process = start('cluster', '--executor=slurm', '--time=30', '--jobs=1')
  metrics = tmp_path / 'cluster' / cells[0] / 'metrics.jsonl'
  wait_for(
    lambda: metrics.exists() or process.poll() is not None, 'training', 1200
  )
  assert process.poll() is None, process.communicate()
  (file,) = (tmp_path / 'cluster' / 'slurm' / cells[0]).glob('*_submitted.pkl')
  number = file.name.partition('_')[0]
  cluster.ask('scancel', '--signal=USR2', number)
  said, _ = process.communicate(timeout=1500)
  assert process.returncode == 0, said
  process = start('local')
  said, _ = process.communicate(timeout=1500)
  assert process.returncode == 0, said

  records = {
    folder: json.loads((tmp_path / folder / 'table.json').read_text())
    for folder in ('cluster', 'local')
  }
  for cell in cells:
    one, other = (records[folder][cell] for folder in records)
    assert one['replicas'] == other['replicas']
    assert one['settings'] == other['settings']
  config = json.loads((metrics.parent / 'config.json').read_text())
  first, second = config['starts']
  assert '--take_over=True' in second['command']
  assert first['command'] + ' --take_over=True' == second['command']
  assert (
    'SIGUSR2: finishes its current work'
    in metrics.parent.with_name(f'{cells[0]}.log').read_text()
  )
