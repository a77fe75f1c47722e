"""Style, imports and size of the project's own files."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Folders that exist on one machine and mean nothing on another.
_MACHINE_PATH = re.compile(r'(?<![\w.~$}\])])/(?:home|root|tmp|Users|work)/')
_LONGEST = 300


def _run(*command: str) -> None:
  result = subprocess.run(
    command, cwd=_ROOT, capture_output=True, text=True, check=False
  )
  assert result.returncode == 0, result.stdout + result.stderr


def _needs(module: str) -> None:
  if importlib.util.find_spec(module) is None:
    pytest.skip(f'{module} is not installed')


def _files() -> list[pathlib.Path]:
  """Every file under version control."""
  if shutil.which('git') is None or not (_ROOT / '.git').exists():
    pytest.skip('needs git and a clone to list the files of the project')
  names = subprocess.run(
    ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return [_ROOT / name for name in names.split('\0') if name]


@pytest.mark.parametrize('command', [['check'], ['format', '--check']])
def test_ruff_finds_nothing(command: list[str]):
  _needs('ruff')
  _run(sys.executable, '-m', 'ruff', *command)


def test_arrows_point_down():
  _needs('importlinter')
  program = 'from importlinter.cli import lint_imports_command as c; c()'
  _run(sys.executable, '-c', program, '--no-logo')


def test_no_line_names_a_folder_of_one_machine():
  found = []
  for path in _files():
    try:
      lines = path.read_text(encoding='utf-8').splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
      continue
    name = path.relative_to(_ROOT)
    found += [
      f'{name}:{number}: {line.strip()}'
      for number, line in enumerate(lines, 1)
      if _MACHINE_PATH.search(line)
    ]
  assert not found, '\n'.join(found)


def test_pattern_finds_folders_of_one_machine():
  for line in (
    'cd {}home/me',
    "open('{}tmp/x')",
    'file:/{}work/a',
    '({}root/b)',
  ):
    assert _MACHINE_PATH.search(line.format('/')), line
  for line in ('runs/{}tmp/a', 'the test/work/rest', '$HOME{}home/', './work/'):
    assert not _MACHINE_PATH.search(line.format('/').replace('//', '/')), line


@pytest.mark.parametrize('folder', ['gtmm_jax', 'experiments'])
def test_files_stay_short(folder: str):
  long = {
    str(path.relative_to(_ROOT)): lines
    for path in (_ROOT / folder).rglob('*.py')
    if (lines := len(path.read_text(encoding='utf-8').splitlines())) > _LONGEST
  }
  assert not long, f'more than {_LONGEST} lines: {long}'
