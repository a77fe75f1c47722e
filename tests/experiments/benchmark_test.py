"""The benchmark, and the check for machines with an accelerator.

Both are run as a user runs them, in processes of their own, on a few random
digits, so that no package beyond those of the project's core is needed.
"""

import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import types
from typing import get_args

import numpy as np
import pytest

import accelerator_report
import program_flags
from gtmm_jax import presets
from gtmm_jax.memory.scan import Recompute

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / 'experiments' / 'benchmark.py'
_CHECK = _ROOT / 'launch' / 'accelerator_check.sh'
_BASH = shutil.which('bash')
# What the check measures and trains.
_CHECKED = ('introspective', 'vrnn')
_PARTS = ['tests'] + [
  f'{what}-{model}' for what in ('benchmark', 'run') for model in _CHECKED
]

needs_bash = pytest.mark.skipif(_BASH is None, reason='bash is not installed')


def _run(command: list, folder: pathlib.Path, **variables: str):
  """Runs a command in a folder; the project is found there, as if installed."""
  return subprocess.run(
    [str(word) for word in command],
    cwd=folder,
    env={
      **program_flags.environment(),
      'PYTHONPATH': str(_ROOT),
      'COLUMNS': '80',
      **variables,
    },
    capture_output=True,
    text=True,
    check=False,
  )


def _benchmark(folder: pathlib.Path, *flags: str, **variables: str):
  return _run([sys.executable, _PROGRAM, *flags], folder, **variables)


@pytest.fixture(scope='module')
def digits(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A folder with four idx files of random digits."""
  folder = tmp_path_factory.mktemp('some digits')
  random = np.random.default_rng(0)
  for part, count in {'train': 60, 't10k': 30}.items():
    pixels = random.integers(0, 256, (count, 28, 28), np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10
    (folder / f'{part}-images-idx3-ubyte').write_bytes(
      struct.pack('>4i', 2051, count, 28, 28) + pixels.tobytes()
    )
    (folder / f'{part}-labels-idx1-ubyte').write_bytes(
      struct.pack('>2i', 2049, count) + labels.tobytes()
    )
  return folder


@pytest.fixture(scope='module')
def measured(digits: pathlib.Path, tmp_path_factory: pytest.TempPathFactory):
  """What a small benchmark of 2 replicas and of 1 printed and wrote."""
  folder = tmp_path_factory.mktemp('elsewhere')
  result = _benchmark(
    folder,
    '--preset=small',
    '--model=vrnn',
    '--pre_recall=3',
    '--recall=2',
    '--batch_size=2',
    '--store=mean',
    '--replicas=2,1,2',
    '--seconds=0.2',
    f'--data=files:{digits}',
    '--json=numbers.json',
  )
  assert result.returncode == 0, result.stderr
  assert [path.name for path in folder.iterdir()] == ['numbers.json']
  return result.stdout, json.loads((folder / 'numbers.json').read_text())


def test_json_says_what_was_measured_where_and_on_what(measured):
  import jax

  _, content = measured
  assert content['settings'] == {
    'task': 'perfect_recall',
    'model': 'vrnn',
    'preset': 'small',
    'batch_size': 2,
    'pre_recall': 3,
    'recall': 2,
    'rows': None,
    'columns': None,
    'length': None,
    'size': None,
    'store': 'mean',
    'recompute': 'nothing',
    'precision': 'default',
    'key_generator': 'threefry2x32',
    'x64': False,
    # The VRNN has none.
    'slots': None,
  }
  assert content['seconds'] == 0.2
  assert content['versions']['jax'] == jax.__version__
  assert content['versions']['python'].startswith('3.')
  assert content['device']['platform'] == 'cpu'
  assert content['device']['cores'] == os.cpu_count()
  assert '60 training' in content['data']['source']
  assert len(content['data']['checksum']) == 64


def test_rows_are_laid_out_as_runs_of_as_many_replicas(measured):
  _, content = measured
  layout = [
    (
      row['replicas'],
      row['devices'],
      row['replicas_per_device'],
      row['loops_on_device'],
    )
    for row in content['rows']
  ]
  assert layout == [(1, 1, 1, True), (2, 2, 1, True)]


def test_numbers_of_a_row_agree_with_each_other(measured):
  _, content = measured
  first = content['rows'][0]
  for row in content['rows']:
    step, replica = row['step_milliseconds'], row['replica_milliseconds']
    assert 0 < step['min'] <= step['lower_quartile'] <= step['median']
    assert step['median'] <= step['upper_quartile']
    for name, value in step.items():
      assert replica[name] == pytest.approx(value / row['replicas'])
    assert row['replica_cost_ratio'] == pytest.approx(
      replica['median'] / first['replica_milliseconds']['median']
    )
    drawing = row['drawing_milliseconds']
    assert 0 < drawing['min'] <= drawing['median']
    # Two episodes of five frames for each replica.
    assert row['frames_per_second'] == pytest.approx(
      1e3 * row['replicas'] * 2 * 5 / drawing['median']
    )
    assert row['steps_timed'] >= row['portions'] >= 4
    # The portions fill the seconds: no more than half is before the quartile.
    spent = row['steps_timed'] * step['upper_quartile'] / 1e3
    assert spent > content['seconds'] / 4
    # A program that trained takes far longer to compile than to run a step.
    assert row['compile_seconds'] > 10 * step['median'] / 1e3
    assert row['initialise_seconds'] > 0
    assert row['device_peak_bytes'] is None
    assert 1e8 < row['process_peak_bytes'] < 1e11
  assert first['replica_cost_ratio'] == 1


def test_steps_stand_beside_the_least_that_they_can_take(measured):
  _, content = measured
  rate = content['machine']['operations']['best']
  first, second = content['roofline']
  # Its 0.8 million parameters are used five times for each of two sequences.
  assert 4 * 10 * 0.7e6 < first['operations'] < 8 * 10 * 0.9e6
  assert second['operations'] == 2 * first['operations']
  for row, least in zip(content['rows'], content['roofline'], strict=True):
    seconds = least['operations'] / rate
    median = row['step_milliseconds']['median']
    assert least['fraction'] == pytest.approx(1e3 * seconds / median)
  # Nobody asked for other roads.
  assert content['others'] == content['remarks'] == []


def test_other_roads_and_an_earlier_measurement_stand_beside(
  digits, tmp_path, measured
):
  (tmp_path / 'old.json').write_text(json.dumps(measured[1]))
  result = _benchmark(
    tmp_path,
    '--preset=small',
    '--model=vrnn',
    '--pre_recall=3',
    '--recall=2',
    '--batch_size=2',
    '--store=mean',
    '--replicas=1',
    '--seconds=0.2',
    f'--data=files:{digits}',
    '--json=new.json',
    '--compare=old.json',
    '--naive',
    '--pytorch=eager',
  )
  assert result.returncode == 0, result.stderr
  new = json.loads((tmp_path / 'new.json').read_text())
  (naive,) = new['others']
  assert naive['mode'] == 'naive JAX'
  own = new['rows'][0]['replica_milliseconds']['median']
  assert naive['ratios']['1'] == pytest.approx(
    naive['replica_milliseconds']['median'] / own
  )
  assert 'store mean is timed in JAX alone' in result.stdout
  assert 'of 1 row moved beyond the noise' in result.stdout


def test_table_shows_a_line_for_each_row(measured):
  printed, content = measured
  lines = [line.split() for line in printed.splitlines() if '│' in line]
  shown = [[word for word in line if word != '│'] for line in lines]
  steps, least = shown[:2], shown[2:]
  assert [line[0] for line in steps] == ['1', '2']
  for line, row in zip(steps, content['rows'], strict=True):
    median = float(line[1].replace(',', ''))
    assert median == pytest.approx(row['step_milliseconds']['median'], abs=0.06)
    assert float(line[4]) == pytest.approx(row['replica_cost_ratio'], abs=6e-3)
    drawing = row['drawing_milliseconds']['median']
    assert float(line[5]) == pytest.approx(drawing, abs=0.06)
  for line, row in zip(least, content['roofline'], strict=True):
    assert line[:2] == ['vrnn', str(row['replicas'])]
    assert float(line[-1]) == pytest.approx(row['fraction'], abs=6e-4)
  assert 'process' in printed
  drawn = [line for line in printed.splitlines() if line[:1] in ('│', '┃')]
  assert max(len(line) for line in drawn) <= 80


def test_spread_and_ratio_equal_their_definitions(
  monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.syspath_prepend(_PROGRAM.parent)
  from benchmarking import timing

  values = [5.0, 1.0, 9.0, 2.0, 7.0, 7.5, 3.0]
  spread = timing.spread(np.array(values))
  quartiles = statistics.quantiles(values, n=4, method='inclusive')
  assert quartiles == pytest.approx(
    [spread.lower_quartile, spread.median, spread.upper_quartile]
  )
  assert spread.min == 1.0
  lone = timing.spread(np.array([4.0]))
  assert lone == (4.0, 4.0, 4.0, 4.0)

  def made(count, milliseconds):
    one = timing.Spread(milliseconds, *[milliseconds] * 3)
    return timing.Timing(
      count, 1, count, True, 8, 4, one, one, one, 1, 1, 1, None, 1
    )

  rows = timing.as_rows([made(1, 10.0), made(4, 2.5)])
  assert [row['replica_cost_ratio'] for row in rows] == [1.0, 0.25]
  rows = timing.as_rows([made(2, 10.0), made(4, 2.5)])
  assert [row['replica_cost_ratio'] for row in rows] == [None, None]
  json.dumps(rows, allow_nan=False)


def test_parameters_stand_beside_table_1_and_differ_by_less_than_a_percent(
  tmp_path: pathlib.Path,
):
  result = _benchmark(tmp_path, '--parameters', '--json=counts.json')
  assert result.returncode == 0, result.stderr
  rows = json.loads((tmp_path / 'counts.json').read_text())['parameters']
  assert [(row['frames'], row['model']) for row in rows] == [
    (frames, model)
    for frames in ('digits', 'environments')
    for model in presets.MODELS
  ]
  for row in rows:
    paper = presets.PAPER_PARAMETERS[row['frames']][row['model']]
    assert row['paper'] == paper
    percent = 100 * (row['parameters'] - paper) / paper
    assert row['difference_percent'] == pytest.approx(percent)
    assert abs(percent) < 1
    (line,) = (
      line
      for line in result.stdout.splitlines()
      if row['model'] in line and row['frames'] in line
    )
    assert f'{row["parameters"]:,}' in line
    assert f'{paper:,}' in line
    assert f'{percent:+.2f}%' in line


def test_slots_that_are_asked_for_are_measured():
  from benchmarking import training_steps

  given = {
    'task': 'perfect_recall',
    'model': 'dnc',
    'preset': 'small',
    'data': 'bundled',
    'recompute': 'nothing',
    'precision': 'default',
    'top_k': 0,
    'nearest': 'exact',
    'without': 'none',
  }

  class Flags(dict):
    slots = 7

  flags = Flags(
    {name: types.SimpleNamespace(value=value) for name, value in given.items()}
  )
  prepared = training_steps.prepare(flags, 2)
  assert prepared.problem.model.core.slots == 7
  assert prepared.settings.replicas == 2
  assert training_steps.document(prepared, 1.0)['settings']['slots'] == 7


def test_memory_is_estimated_for_every_model_and_way(digits, tmp_path):
  flags = ('--preset=small', '--pre_recall=3', '--recall=2', '--batch_size=2')
  flags += (f'--data=files:{digits}', '--json=memory.json')
  result = _benchmark(tmp_path, '--memory', '--replicas=1,3', *flags)
  assert result.returncode == 0, result.stderr
  content = json.loads((tmp_path / 'memory.json').read_text())
  assert not {'model', 'store', 'slots'} & content['settings'].keys()
  rows = content['memory']
  assert [(row['model'], row['recompute']) for row in rows] == [
    (model, way) for model in presets.MODELS for way in get_args(Recompute)
  ]
  assert {row['replicas'] for row in rows} == {3}
  for row in rows:
    together = (row['through_bytes'] + row['inside_bytes']) / 2**30
    assert f'{together:.2f} │' in result.stdout
  for wrong, told in (
    (('--memory', '--cores'), '--cores and --memory'),
    (('--memory', '--model=dnc'), '--model means nothing to --memory'),
    (('--memory', '--top_k=2'), '--top_k means nothing to --memory'),
    (('--memory', '--naive'), '--naive means nothing to --memory'),
    (('--slots=9', '--model=vrnn'), 'no memory'),
    (('--parameters', '--compare=memory.json'), 'for times'),
  ):
    result = _benchmark(tmp_path, *wrong, *flags)
    assert (result.returncode, result.stderr.count('\n')) == (2, 1)
    assert told in result.stderr


@pytest.mark.parametrize(
  ('flag', 'told'),
  [
    ('--replicas=0', 'from 1 on'),
    ('--replicas=1,two', "'two'"),
    ('--replicas=', 'empty'),
    ('--seconds=0', 'above 0'),
    ('--seconds=nan', 'above 0'),
    ('--seconds=inf', 'above 0'),
    ('--json=.', 'is a folder'),
    ('--json=nowhere/numbers.json', 'does not exist'),
    ('--model=gru', 'introspective'),
    ('replicas', '--name=value'),
    ('--recall=11', 'recall'),
    ('--batch_size=0', 'at least 1'),
    ('--compare=nowhere.json', 'cannot be read'),
    ('--slots=0', 'slots'),
    ('--model=associative --top_k=8 --slots=4', 'top_k is 8'),
    ('--data=files:nowhere', 'nowhere does not exist'),
  ],
)
def test_mistake_is_one_line_that_says_what_is_allowed(
  tmp_path: pathlib.Path, flag: str, told: str
):
  flags = flag.split(' ')
  result = _benchmark(tmp_path, '--preset=small', '--json=numbers.json', *flags)
  assert result.returncode == 2
  assert result.stdout == ''
  assert result.stderr.startswith('benchmark.py: ')
  assert result.stderr.count('\n') == 1
  assert told in result.stderr
  assert list(tmp_path.iterdir()) == []


def test_help_shows_flags_wherever_they_are_defined(tmp_path: pathlib.Path):
  shown = _benchmark(tmp_path, '--helpshort').stdout
  for name in ('--model', '--recall', '--[no]cores', '--top_k', '--precision'):
    assert name in shown


@needs_bash
@pytest.mark.parametrize(
  ('arguments', 'told'),
  [
    ([], 'two arguments'),
    (['digits'], 'two arguments'),
    (['digits', 'results', 'more'], 'two arguments'),
    (['nowhere', 'results'], 'nowhere is not a folder'),
    (['file', 'results'], 'file is not a folder'),
    (['digits', 'file'], 'file is a file'),
    (['digits', 'file/results'], 'file/results cannot be made'),
  ],
)
def test_check_says_in_one_line_what_it_needs(
  tmp_path: pathlib.Path, arguments: list[str], told: str
):
  (tmp_path / 'digits').mkdir()
  (tmp_path / 'file').write_text('')
  result = _run([_BASH, _CHECK, *arguments], tmp_path, PYTHON=sys.executable)
  assert result.returncode == 1
  assert result.stdout == ''
  assert result.stderr.count('\n') == 1
  assert told in result.stderr
  assert {path.name for path in tmp_path.iterdir()} == {'digits', 'file'}


@needs_bash
def test_check_does_not_start_without_a_python_that_will_do(
  tmp_path: pathlib.Path,
):
  (tmp_path / 'digits').mkdir()
  arguments = ('digits', 'results')
  result = _run([_BASH, _CHECK, *arguments], tmp_path, PYTHON='false')
  assert result.returncode == 1
  assert result.stderr.count('\n') == 1
  assert 'PYTHON' in result.stderr
  assert not (tmp_path / 'results').exists()


@needs_bash
def test_check_on_a_cpu_says_how_to_try_it(tmp_path: pathlib.Path):
  (tmp_path / 'digits').mkdir()
  result = _run(
    [_BASH, _CHECK, 'digits', 'results'],
    tmp_path,
    PYTHON=sys.executable,
    JAX_PLATFORMS='cpu',
  )
  assert result.returncode == 1
  assert 'GTMM_CHECK_TINY=1' in result.stderr.splitlines()[-1]
  assert list((tmp_path / 'results').iterdir()) == []


def _plan(
  folder: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  steps: dict[int, float],
  seconds: int,
) -> str:
  """The plan for milliseconds of a step by number of replicas."""
  rows = [
    {
      'replicas': count,
      'initialise_seconds': 5.0,
      'compile_seconds': 10.0,
      'step_milliseconds': {'median': milliseconds},
    }
    for count, milliseconds in steps.items()
  ]
  path = folder / 'benchmark.json'
  path.write_text(json.dumps({'rows': rows}))
  accelerator_report.main(['plan', str(path), str(seconds), '100'])
  return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
  ('steps', 'count'),
  [
    # As many replicas as leave a thousand steps.
    ({1: 5.0, 5: 10.0, 20: 50.0}, 20),
    ({1: 5.0, 5: 10.0, 20: 200.0}, 5),
    # None leaves as many: those that leave most.
    ({1: 400.0, 5: 500.0, 20: 900.0}, 1),
    ({20: 50.0}, 20),
  ],
)
def test_plan_fits_into_its_time(
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  steps: dict[int, float],
  count: int,
):
  for seconds in (60, 90, 150, 400):
    plan = _plan(tmp_path, capsys, steps, seconds)
    flags = dict(flag.lstrip('-').split('=') for flag in plan.split())
    training = int(flags['steps']) * steps[int(flags['replicas'])] / 1e3
    assert training <= min(100, seconds - 25)
    assert int(flags['report_every']) * 12 >= int(flags['steps'])
  # Without want of time the steps take what they may, but for a rest.
  assert int(flags['replicas']) == count
  assert training == pytest.approx(100, rel=0.01)


def test_plan_leaves_out_a_run_that_cannot_end(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
  assert _plan(tmp_path, capsys, {1: 5.0}, 20).startswith('skipped: 20 s')
  assert _plan(tmp_path, capsys, {}, 500).startswith('skipped: the benchmark')
  nowhere = str(tmp_path / 'nowhere.json')
  accelerator_report.main(['plan', nowhere, '500', '100'])
  assert capsys.readouterr().out.startswith('skipped: the benchmark')


def test_report_of_nothing_is_a_report(tmp_path: pathlib.Path):
  accelerator_report.main(
    ['assemble', str(tmp_path), str(tmp_path), '--figures']
  )
  assert [path.name for path in tmp_path.iterdir()] == ['accelerator.json']
  content = json.loads((tmp_path / 'accelerator.json').read_text())
  assert content == {'parts': [], 'tests': None, 'benchmarks': {}, 'runs': {}}


def test_tests_that_were_cut_short_are_counted(tmp_path: pathlib.Path):
  (tmp_path / 'parts').write_text(
    'tests\t9\tstopped after 9 s\nrun-vrnn\t3\tcomplete\n'
  )
  (tmp_path / 'run-vrnn.log').write_text('all is well\n')
  (tmp_path / 'tests.log').write_text(
    'tests/a_test.py::test_one PASSED  [ 10%]\n'
    'tests/a_test.py::test_one[x y] PASSED  [ 20%]\n'
    'tests/a_test.py::test_two FAILED  [ 30%]\n'
    'tests/b_test.py::test_three SKIPPED (needs it)  [ 40%]\n'
    'tests/b_test.py::test_four ERROR  [ 50%]\n'
    'tests/b_test.py::test_five '
  )
  accelerator_report.main(['assemble', str(tmp_path), str(tmp_path)])
  content = json.loads((tmp_path / 'accelerator.json').read_text())
  tests = content['tests']
  counted = [tests[name] for name in ('passed', 'failed', 'error', 'skipped')]
  assert counted == [2, 1, 1, 1]
  assert tests['failures'] == [
    'tests/a_test.py::test_two',
    'tests/b_test.py::test_four',
  ]
  stopped, complete = content['parts']
  assert stopped['outcome'] == 'stopped after 9 s'
  assert stopped['log'][-1] == 'tests/b_test.py::test_five '
  assert complete == {'name': 'run-vrnn', 'seconds': 3, 'outcome': 'complete'}


@needs_bash
@pytest.mark.slow
def test_trial_of_the_check_reports_on_every_part(
  tmp_path: pathlib.Path, digits: pathlib.Path
):
  results = tmp_path / 'the results'
  result = _run(
    [_BASH, _CHECK, digits, results],
    tmp_path,
    PYTHON=sys.executable,
    GTMM_CHECK_TINY='1',
    JAX_PLATFORMS='cpu',
    PYTEST_ADDOPTS='-m slow',
  )
  assert result.returncode == 0, result.stdout + result.stderr
  content = json.loads((results / 'accelerator.json').read_text())
  assert [part['name'] for part in content['parts']] == _PARTS
  assert sum(part['seconds'] for part in content['parts']) < 240
  assert content['device']['platform'] == 'cpu'
  assert content['tests']['passed'] > 0
  assert content['tests']['failures'] == []
  assert set(content['benchmarks']) == set(content['runs']) == set(_CHECKED)
  for model in _CHECKED:
    rows = content['benchmarks'][model]['rows']
    assert [row['replicas'] for row in rows] == [1, 2]
    run = content['runs'][model]
    assert run['settings']['model'] == model
    assert run['training'][-1]['step'] == run['settings']['steps']
    evaluation = run['evaluation']
    frames = run['settings']['pre_recall'] + run['settings']['recall']
    assert len(evaluation['kl_per_frame']) == frames
    assert np.isfinite(evaluation['negative_bound']['mean'])
  files = {path.name: path.stat().st_size for path in results.iterdir()}
  assert set(files) == {
    'accelerator.json',
    'results.png',
    *(f'episodes-{model}.png' for model in _CHECKED),
  }
  assert max(files.values()) < 16 * 2**20
