"""How costs grow: the cases, the table, and that what was measured is kept."""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import pytest

import growth
from gtmm_jax import presets
from gtmm_jax.runs import flags, settings

_PROGRAM = pathlib.Path(growth.__file__)


def _row(model, axis, value, milliseconds, size):
  spread = {
    'median': milliseconds,
    'lower_quartile': 0.9 * milliseconds,
    'upper_quartile': 1.1 * milliseconds,
  }
  return {
    'model': model,
    'axis': axis,
    'value': value,
    'step_milliseconds': spread,
    'process_peak_bytes': size,
    'compile_seconds': 6.0,
  }


def test_every_model_grows_along_every_axis_it_has():
  cases = list(growth.cases_of(presets.MODELS, list(growth._AXES)))
  assert len({case.name for case in cases}) == len(cases)
  axes = {(case.model, case.axis) for case in cases}
  assert ('dnc', 'slots') in axes and ('vrnn', 'slots') not in axes
  assert ('associative', 'many_slots') in axes
  assert len(axes) == 4 * len(presets.MODELS) - 1 + 1
  assert max(c.value for c in cases if c.axis == 'many_slots') == 16384
  assert max(c.value for c in cases if c.axis == 'frames') == 400
  assert max(c.value for c in cases if c.axis == 'slots') == 512
  assert max(c.value for c in cases if c.axis == 'replicas') == 64


def test_cases_of_another_preset_are_kept_apart():
  small, paper = (
    {case.name for case in growth.cases_of(['dnc'], ['slots'], preset=preset)}
    for preset in ('small', 'paper')
  )
  assert len(small) == len(paper) and not small & paper


def test_the_table_has_powers_of_growth_within_an_axis_alone():
  rows = [
    _row('dnc', 'slots', 25, 10.0, 1e9),
    _row('dnc', 'slots', 100, 160.0, 4e9),
    _row('dnc', 'frames', 25, 10.0, 1e9),
  ]
  text = growth.as_markdown(rows)
  assert re.findall(r'### (.*)', text) == ['dnc, slots', 'dnc, frames']
  lines = [line for line in text.splitlines() if line.startswith('| ')]
  cells = [line.split(' | ') for line in lines if line[2:4].isdigit()]
  assert [row[3] for row in cells] == ['', '2.00', '']
  assert [row[5] for row in cells] == ['', '1.00', '']


def test_what_was_measured_is_not_measured_again(tmp_path):
  folder = tmp_path / 'kept'
  folder.mkdir()
  for case in growth.cases_of(['vrnn'], ['batch_size']):
    row = _row('vrnn', 'batch_size', case.value, float(case.value), 1e9)
    (folder / f'{case.name}.json').write_text(json.dumps({'rows': [row]}))
  command = [sys.executable, _PROGRAM, f'--folder={folder}']
  flags = ['--models=vrnn', '--axes=batch_size', f'--output={tmp_path}/grown']
  result = subprocess.run(
    [*command, *flags], capture_output=True, text=True, check=False
  )
  assert result.returncode == 0, result.stderr
  document = json.loads((tmp_path / 'grown.json').read_text())
  assert [row['value'] for row in document['rows']] == [10, 20, 40, 80]
  assert '| 1.00 |' in (tmp_path / 'grown.md').read_text()
  for flags, told in (
    (['--models=gru'], 'gru'),
    (['--axes=weight'], 'weight'),
    (['--seconds=0'], 'above 0'),
    (['--output=.'], 'has no name'),
    (['--top_k=1'], '2 or more'),
  ):
    result = subprocess.run(
      [*command, *flags], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr.count('\n')) == (2, 1)
    assert told in result.stderr


@pytest.mark.parametrize('value', [25, 400])
def test_a_power_is_a_ratio_of_logarithms(value):
  before, row = {'value': 20, 'cost': 3.0}, {'value': value, 'cost': 7.0}
  found = growth._power(before, row, lambda each: each['cost'])
  assert float(found) == pytest.approx(
    math.log(7 / 3) / math.log(value / 20), abs=0.006
  )


@pytest.mark.parametrize('axis', growth._AXES)
def test_a_case_is_measured_as_it_is_named(tmp_path, monkeypatch, axis):
  case = growth.Case('associative', axis, 64, 8, 'paper')
  asked = {}

  def measured(program, given, log):
    assert (program.name, log.suffix) == ('benchmark.py', '.log')
    asked.update(given)
    given['json'].write_text(json.dumps({'rows': [{'step': 1}]}))
    return 0

  monkeypatch.setattr(growth, 'FLAGS', types.SimpleNamespace(seconds=0.5))
  monkeypatch.setattr(growth.command, 'run_logged', measured)
  row = growth._measure(case, tmp_path)
  assert row == {**case._asdict(), 'step': 1}
  known = {*settings.about(), *flags.EPISODE, *flags.OPTIONS}
  assert asked.keys() <= known | {'slots', 'seconds', 'json'}
  assert asked.pop('json').parent == tmp_path
  sizes = {'frames': 25, 'batch_size': 10, 'replicas': 1, 'slots': None}
  sizes['slots' if axis == 'many_slots' else axis] = 64
  frames = sizes.pop('frames')
  assert asked.pop('pre_recall') + asked['recall'] == frames
  assert asked.pop('slots', None) == sizes.pop('slots')
  assert asked == sizes | {
    'task': 'perfect_recall',
    'model': 'associative',
    'preset': 'paper',
    'recall': 5,
    'top_k': 8,
    'seconds': 0.5,
  }
  # Kept, and not asked for again.
  monkeypatch.setattr(growth.command, 'run_logged', None)
  assert growth._measure(case, tmp_path) == row


def test_a_case_that_failed_leaves_nothing_that_is_taken_for_it(
  tmp_path, monkeypatch
):
  def failed(program, given, log):
    given['json'].write_text('{"rows": []}')
    return 1

  monkeypatch.setattr(growth, 'FLAGS', types.SimpleNamespace(seconds=0.5))
  monkeypatch.setattr(growth.command, 'run_logged', failed)
  case = growth.Case('dnc', 'slots', 64)
  assert growth._measure(case, tmp_path) is None
  assert not list(tmp_path.iterdir())


def test_a_signal_ends_the_case_that_is_measured(tmp_path):
  # Stands for benchmark.py.
  (tmp_path / 'benchmark.py').write_text(
    'import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(30)\n'
  )
  program = (
    'import pathlib\n'
    'from gtmm_jax.process import signals\n'
    'signals.watch(signals.GOES_ON)\n'
    'from gtmm_jax.process import command\n'
    'import growth\n'
    'from absl import app\n'
    'growth._BENCHMARK = pathlib.Path("benchmark.py").absolute()\n'
    'command.require_device_for_others = lambda: None\n'
    'growth.define_flags()\n'
    'app.run(growth.main, flags_parser=command.parse_flags)\n'
  )
  paths = (str(_PROGRAM.parents[2]), str(_PROGRAM.parent))
  process = subprocess.Popen(
    [sys.executable, '-c', program, '--folder=made', '--models=vrnn'],
    cwd=tmp_path,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(paths)},
  )
  log = tmp_path / 'made' / 'vrnn-frames-25-small.log'
  while not (log.exists() and log.read_text()):
    time.sleep(0.02)
    assert process.poll() is None, process.communicate()
  process.send_signal(signal.SIGTERM)
  _, said = process.communicate(timeout=30)
  assert process.returncode == 143
  last = '-c: SIGTERM: the same command continues where it stopped.'
  assert said.splitlines()[1:] == [last]
  with pytest.raises(ProcessLookupError):
    os.kill(int(log.read_text()), 0)
  assert [path.name for path in log.parent.iterdir()] == [log.name]
