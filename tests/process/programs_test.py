"""Tests of all programs: how they start, and what they refuse."""

import pathlib
import subprocess
import sys

import jax
import pytest

import benchmark
import program_flags
import show_task
import slow_cases
from gtmm_jax.process import command, places
from gtmm_jax.runs import workdirs

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / 'experiments'
# With flags for which each of them would begin to work.
PROGRAMS = {
  'run': ['--workdir=made'],
  'evaluate': ['--workdir=made'],
  'show_task': ['--output=made'],
  'show_table': [],
  'report': [],
  'generate': ['--workdir=made'],
  'study': [f'--grid={EXPERIMENTS}/grids/tasks.json', '--folder=made'],
  'copy_task': ['--workdir=made'],
  'benchmark': ['--parameters'],
  'record_rotation': ['--output=made.npz'],
  'pack_frames': ['made', 'made.npz', '--length=2'],
  'accelerator_report': ['describe', '.'],
}


def _file(program):
  folder = 'launch' if program == 'accelerator_report' else 'experiments'
  return ROOT / folder / f'{program}.py'


def _start(words, folder, **variables):
  environment = program_flags.environment()
  # As a launcher leaves it that has the project alone on its path.
  environment['PYTHONPATH'] = str(ROOT)
  return subprocess.run(
    [sys.executable, *words],
    cwd=folder,
    env={**environment, **variables},
    capture_output=True,
    text=True,
    check=False,
  )


# The other starts below show it of run.py and benchmark.py.
@pytest.mark.parametrize(
  ('program', 'is_module'),
  slow_cases.but_for(
    [('run', True), ('study', False), ('accelerator_report', False)],
    [
      ('run', True),
      *((name, False) for name in PROGRAMS if name not in ('run', 'benchmark')),
    ],
  ),
)
def test_a_program_finds_its_parts_however_it_is_started(
  tmp_path, program, is_module
):
  file = str(_file(program))
  if is_module:
    result = _start(['-m', f'experiments.{program}', '--help'], tmp_path)
  else:
    result = _start([file, '--help'], tmp_path, PYTHONSAFEPATH='1')
  assert 'Traceback' not in result.stderr
  assert file in result.stdout or 'describe' in result.stdout


def _refused(program, tmp_path, **variables):
  """Checks that a program ends with one line of error; returns the line."""
  words = [str(_file(program)), *PROGRAMS[program]]
  result = _start(words, tmp_path, PYTHONSAFEPATH='1', **variables)
  assert result.returncode == 2, result.stderr
  assert result.stderr.startswith(f'{program}.py: ')
  assert result.stderr.count('\n') == 1 and len(result.stderr) < 600
  assert result.stdout == ''
  return result.stderr


# One uses the CPU alone, whatever is asked for, three no device at all, and one
# needs a trained run.
_WITHOUT_DEVICE = {
  'pack_frames',
  'record_rotation',
  'report',
  'show_table',
  'evaluate',
}


@pytest.mark.slow
@pytest.mark.parametrize('program', sorted(PROGRAMS.keys() - _WITHOUT_DEVICE))
@pytest.mark.parametrize('platform', ['cuda', 'tpu', 'abacus'])
def test_no_program_starts_on_a_device_that_is_not_there(
  tmp_path, program, platform
):
  if platform in {device.platform for device in jax.devices()}:
    pytest.skip('this machine has one')
  said = _refused(program, tmp_path, JAX_PLATFORMS=platform)
  assert f'JAX_PLATFORMS is {platform!r}' in said


@pytest.mark.parametrize(
  'program', slow_cases.but_for(['run'], ['run', 'benchmark'])
)
def test_a_platform_that_is_unknown_is_told_in_one_line(tmp_path, program):
  said = _refused(program, tmp_path, JAX_PLATFORMS='abacus')
  assert "JAX_PLATFORMS is 'abacus'" in said and 'JAX_PLATFORMS=cpu' in said


def test_a_variable_that_jax_refuses_is_told_in_one_line(tmp_path):
  said = _refused('copy_task', tmp_path, JAX_ENABLE_X64='perhaps')
  assert 'JAX_ENABLE_X64' in said


def test_an_unknown_flag_is_told_in_one_line(capsys):
  arguments = ['run.py', '--colour=red']
  assert 'colour' in program_flags.refused(capsys, arguments, pytest.fail)


def test_help_ends_quietly_once_nobody_reads_it(tmp_path):
  program = subprocess.Popen(
    [sys.executable, str(_file('run')), '--help'],
    cwd=tmp_path,
    env=program_flags.environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )
  program.stdout.close()
  assert program.stderr.read() == b''
  program.stderr.close()
  assert program.wait() == 1


@pytest.mark.parametrize(
  'error', [RuntimeError('no\ndriver'), AssertionError()]
)
def test_a_broken_driver_is_a_mistake_that_names_a_way_out(monkeypatch, error):
  def broken():
    raise error

  monkeypatch.setattr(jax, 'devices', broken)
  with pytest.raises(ValueError, match='JAX_PLATFORMS=cpu') as raised:
    command.require_device()
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
  ('value', 'words'),
  [
    ('gs://bucket/run', 'mounted bucket'),
    ('file:///run', 'is an address'),
    ('~nobody_here/run', 'unknown user'),
    ('run\udcff', 'not valid UTF-8'),
  ],
)
def test_what_is_no_place_on_this_machine_is_refused(value, words):
  with pytest.raises(ValueError, match=words) as raised:
    places.locate(value, 'workdir')
  str(raised.value).encode()
  with pytest.raises(ValueError, match=words):
    places.require_local_data(f'files:{value}')


@pytest.mark.parametrize(
  ('flag', 'read'),
  [
    ('workdir', workdirs.usable),
    ('folder', lambda value: places.locate_folders(value, None)),
    ('output', lambda value: places.locate_folders('folder', value)),
    ('output', show_task._stem),
    ('json', benchmark._writable),
  ],
)
def test_every_flag_that_names_a_place_refuses_an_address(flag, read):
  with pytest.raises(ValueError, match=f'--{flag}=gs://bucket/x is an address'):
    read('gs://bucket/x')


def test_paths_are_as_they_were_given():
  home = pathlib.Path.home()
  assert places.locate('~/run', 'workdir') == home / 'run'
  assert places.locate('a:b/c', 'workdir') == pathlib.Path('a:b/c')
