"""The check for machines with an accelerator, run as a user runs it."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import accelerator_report
import data_sources
import program_flags

_ROOT = pathlib.Path(__file__).resolve().parents[2]
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


@needs_bash
@pytest.mark.parametrize(
  ('arguments', 'message'),
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
  tmp_path: pathlib.Path, arguments: list[str], message: str
):
  (tmp_path / 'digits').mkdir()
  (tmp_path / 'file').write_text('')
  result = _run([_BASH, _CHECK, *arguments], tmp_path, PYTHON=sys.executable)
  assert result.returncode == 1
  assert result.stdout == ''
  assert result.stderr.count('\n') == 1
  assert message in result.stderr
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
  """Returns the plan for milliseconds of a step by number of replicas."""
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


@pytest.fixture
def digits(tmp_path: pathlib.Path) -> pathlib.Path:
  """Makes a folder with four idx files of random digits."""
  folder = tmp_path / 'some digits'
  folder.mkdir()
  data_sources.write_idx(folder)
  return folder


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
