"""The benchmark of training steps, run as a user runs it, on a few digits."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import benchmark
import data_sources
import program_flags
from benchmarking import parameter_counts
from gtmm_jax import presets

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / 'experiments' / 'benchmark.py'
_MISTAKES = {
  '--grow=replicas=0': 'from 1 on',
  '--grow=replicas=1,two': "'replicas=1,two'",
  '--grow=replicas=': 'from 1 on',
  '--grow=4': 'from 1 on',
  '--grow=layers=1,2': 'layers',
  '--grow=model=1,2': '--grow=model',
  '--replicas=2 --grow=replicas=1,4': 'give one',
  '--seconds=0': 'above 0',
  '--seconds=nan': 'above 0',
  '--seconds=inf': 'above 0',
  '--json=.': 'is a folder',
  '--json=nowhere/numbers.json': 'does not exist',
  '--model=gru': 'introspective',
  'replicas': '--name=value',
  '--recall=11': 'recall',
  '--batch_size=0': 'at least 1',
  '--set=slots=0': 'slots',
  '--grow=slots=8 --model=vrnn': 'slots',
  '--model=associative --top_k=8 --grow=slots=4,16': 'top_k is 8',
  '--data=files:nowhere': 'nowhere does not exist',
  '--sizes=4x8x2': 'add --cores',
  '--plain': 'add --cores',
  '--cores --parameters': 'give one',
  '--cores --seconds=0': 'above 0',
  '--cores --sizes=25x32': "'25x32'",
  '--cores --sizes=0x32x0': 'from 1 on',
  '--cores --sizes=4x8x2,2x8x3': "'2x8x3'",
  '--cores --sizes=-4x8x2': "'-4x8x2'",
}


def _python(arguments: list, folder: pathlib.Path):
  """Starts Python in a folder, where the project is found."""
  paths = os.pathsep.join(map(str, (_ROOT, _PROGRAM.parent)))
  return subprocess.run(
    [sys.executable, *map(str, arguments)],
    cwd=folder,
    env={**program_flags.environment(), 'PYTHONPATH': paths, 'COLUMNS': '80'},
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.fixture(scope='module')
def digits(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Makes a folder with four idx files of random digits."""
  folder = tmp_path_factory.mktemp('some digits')
  data_sources.write_idx(folder)
  return folder


@pytest.fixture(scope='module')
def measured(digits: pathlib.Path, tmp_path_factory: pytest.TempPathFactory):
  """Runs a benchmark of 1 and 2 replicas; returns what it printed and wrote."""
  folder = tmp_path_factory.mktemp('elsewhere')
  result = _python(
    [
      _PROGRAM,
      '--preset=small',
      '--model=vrnn',
      '--pre_recall=3',
      '--recall=2',
      '--batch_size=2',
      '--store=mean',
      '--grow=replicas=2,1,2',
      '--seconds=0.2',
      f'--data=files:{digits}',
      '--pytorch',
      '--json=numbers.json',
    ],
    folder,
  )
  assert result.returncode == 0, result.stderr
  assert [path.name for path in folder.iterdir()] == ['numbers.json']
  return result.stdout, json.loads((folder / 'numbers.json').read_text())


@pytest.mark.slow
def test_json_says_what_was_measured_where_and_on_what(measured):
  _, content = measured
  assert content['settings'] == {
    'task': 'perfect_recall',
    'model': 'vrnn',
    'preset': 'small',
    'batch_size': 2,
    'pre_recall': 3,
    'recall': 2,
    'store': 'mean',
    'recompute': 'nothing',
    'precision': 'default',
    'key_generator': 'threefry2x32',
    'x64': False,
    'set': [],
  }
  assert content['grows'] == 'replicas'
  assert content['seconds'] == 0.2
  assert content['versions']['jax'] == jax.__version__
  assert content['versions']['python'].startswith('3.')
  assert content['device']['platform'] == 'cpu'
  assert content['device']['cores'] == os.cpu_count()
  assert '50 training, 10 validation' in content['data']['source']
  assert len(content['data']['checksum']) == 64


@pytest.mark.slow
def test_rows_are_laid_out_as_runs_of_as_many_replicas(measured):
  _, content = measured
  layout = [
    (
      row['value'],
      row['replicas'],
      row['devices'],
      row['replicas_per_device'],
      row['loops_on_device'],
    )
    for row in content['rows']
  ]
  assert layout == [(1, 1, 1, 1, True), (2, 2, 2, 1, True)]
  for row in content['rows']:
    sizes = [row[name] for name in ('frames', 'batch_size', 'slots')]
    assert sizes == [5, 2, None]


@pytest.mark.slow
def test_numbers_of_a_row_agree_with_each_other(measured):
  _, content = measured
  for row in content['rows']:
    step, replica = row['step_milliseconds'], row['replica_milliseconds']
    assert 0 < step['min'] <= step['lower_quartile'] <= step['median']
    assert step['median'] <= step['upper_quartile']
    for name, value in step.items():
      assert replica[name] == pytest.approx(value / row['replicas'])
    drawing = row['drawing_milliseconds']
    assert 0 < drawing['min'] <= drawing['median']
    # Two episodes of five frames for each replica.
    assert row['frames_per_second'] == pytest.approx(
      1e3 * row['replicas'] * 2 * 5 / drawing['median']
    )
    assert row['portions'] >= 5
    # The portions fill the seconds: no more than half is before the quartile.
    spent = row['portions'] * row['portion'] * step['upper_quartile'] / 1e3
    assert spent > content['seconds'] / 4
    # A program that trained takes far longer to compile than to run a step.
    assert row['compile_seconds'] > 10 * step['median'] / 1e3
    assert row['initialise_seconds'] > 0
    assert row['device_peak_bytes'] is None
    assert 1e8 < row['process_peak_bytes'] < 1e11
  one, two = (row['step_milliseconds']['median'] for row in content['rows'])
  powers = [row['power'] for row in content['rows']]
  assert powers == [None, pytest.approx(np.log2(two / one))]


@pytest.mark.slow
def test_steps_stand_beside_the_least_that_they_can_take(measured):
  printed, content = measured
  first, second = content['rows']
  # Its 0.8 million parameters are used six times for each frame of a sequence.
  assert 6 * 10 * 0.7e6 < first['operations'] < 8 * 10 * 0.9e6
  assert second['operations'] == first['operations']
  # Gradients, at least.
  assert first['temporary_bytes'] > 4 * 0.7e6
  for row in (first, second):
    total = row['replicas'] * row['operations']
    least = 1e3 * total / content['machine']['best']
    assert row['roofline_milliseconds'] == pytest.approx(least)
    median = row['step_milliseconds']['median']
    assert row['roofline_fraction'] == pytest.approx(least / median)
    assert row['pytorch'] is row['pytorch_ratio'] is None
  (remark,) = content['remarks']
  assert 'store mean is timed in JAX alone' in remark
  assert remark in printed


@pytest.mark.slow
def test_table_shows_a_line_for_each_row(measured):
  printed, content = measured
  lines = [line.split() for line in printed.splitlines() if '│' in line]
  shown = [[word for word in line if word != '│'] for line in lines]
  steps, costs = shown[:2], shown[2:]
  for line, row in zip(steps, content['rows'], strict=True):
    assert line[0] == str(row['replicas'])
    median = float(line[1].replace(',', ''))
    assert median == pytest.approx(row['step_milliseconds']['median'], abs=0.06)
    if row['power'] is not None:
      assert float(line[4]) == pytest.approx(row['power'], abs=6e-3)
    drawing = row['drawing_milliseconds']['median']
    assert float(line[5]) == pytest.approx(drawing, abs=0.06)
  for line, row in zip(costs, content['rows'], strict=True):
    assert line[0] == str(row['replicas'])
    assert float(line[1]) == pytest.approx(row['operations'] / 1e9, abs=6e-3)
    fraction = row['roofline_fraction']
    assert float(line[-1]) == pytest.approx(fraction, abs=6e-4)
  assert 'process' in printed
  drawn = [line for line in printed.splitlines() if line[:1] in ('│', '┃')]
  assert max(len(line) for line in drawn) <= 80


# tests/project/results_test.py compares the counts of the paper's preset.
@pytest.mark.slow
@pytest.mark.parametrize('preset', presets.PRESETS)
def test_models_have_about_as_many_parameters(
  preset: str, tmp_path: pathlib.Path
):
  words = ['--parameters', '--json=counts.json']
  if preset != 'paper':
    words.append(f'--preset={preset}')
  result = _python([_PROGRAM, *words], tmp_path)
  assert result.returncode == 0, result.stderr
  rows = json.loads((tmp_path / 'counts.json').read_text())['parameters']
  assert [(row['frames'], row['model']) for row in rows] == [
    (frames, model)
    for frames in ('digits', 'environments')
    for model in presets.MODELS
  ]
  for row in rows:
    most = max(
      other['parameters'] for other in rows if other['frames'] == row['frames']
    )
    share = 100 * row['parameters'] / most
    assert row['share_percent'] == pytest.approx(share)
    assert share > 98
    (line,) = (
      line
      for line in result.stdout.splitlines()
      if row['model'] in line and row['frames'] in line
    )
    assert f'{row["parameters"]:,}' in line
    assert f'{share:.2f}%' in line
    if preset != 'paper':
      assert row['paper'] is row['difference_percent'] is None
      continue
    table = parameter_counts.TABLE_1[row['frames']]
    ours = {'associative', 'transformer', 'ssm'}
    assert set(table) == {*presets.MODELS} - ours
    paper = table.get(row['model'], table['introspective'])
    assert row['paper'] == paper
    percent = 100 * (row['parameters'] - paper) / paper
    assert row['difference_percent'] == pytest.approx(percent)
    assert abs(percent) < 1
    assert f'{paper:,}' in line
    assert f'{percent:+.2f}%' in line


@pytest.fixture(scope='module')
def defined():
  """Defines the flags of benchmark.py in this process."""
  with program_flags.defined(benchmark.define_flags):
    yield


@pytest.mark.parametrize(('words', 'told'), _MISTAKES.items())
def test_mistake_is_one_line_that_says_what_is_allowed(
  defined, tmp_path: pathlib.Path, monkeypatch, capsys, words, told
):
  arguments = [
    'benchmark.py',
    '--preset=small',
    '--json=numbers.json',
    *words.split(' '),
  ]
  monkeypatch.chdir(tmp_path)
  assert told in program_flags.refused(capsys, arguments, benchmark.main)
  assert list(tmp_path.iterdir()) == []


# That of show_task.py shows them in the same way.
@pytest.mark.slow
def test_help_shows_flags_wherever_they_are_defined(tmp_path: pathlib.Path):
  shown = _python([_PROGRAM, '--helpshort'], tmp_path).stdout
  for name in ('--model', '--recall', '--[no]cores', '--top_k', '--precision'):
    assert name in shown
