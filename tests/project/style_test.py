"""Style, imports, docstrings and size of the project's own files."""

import ast
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
_WORDS = 20
# First words of a fragment, where a sentence should begin.
_FRAGMENTS = {'As', 'From', 'How', 'Of', 'What', 'Where', 'Whether', 'Which'}
# A verb in the third person, and words that only end like one.
_VERB = re.compile(
  '(?!(?:Always|Arrays|Axes|Bytes|Cells|Columns|Contexts|Cosines|Episodes|'
  'Features|Floats|Frames|Gradients|Images|Its|Keys|Latents|Less|Logits|'
  'Parameters|Perhaps|Pixels|Rows|Seconds|Settings|Slots|States|Steps|Timings|'
  'Towards|Values|Weights|Whose|Words|Zeros)$)[A-Z][a-z]+s$'
)


def _run(*command: str) -> None:
  result = subprocess.run(
    command, cwd=_ROOT, capture_output=True, text=True, check=False
  )
  assert result.returncode == 0, result.stdout + result.stderr


def _needs(module: str) -> None:
  if importlib.util.find_spec(module) is None:
    pytest.skip(f'{module} is not installed')


def _files() -> list[pathlib.Path]:
  """Lists the files under version control."""
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
  hits = []
  for path in _files():
    try:
      lines = path.read_text(encoding='utf-8').splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
      continue
    name = path.relative_to(_ROOT)
    hits += [
      f'{name}:{number}: {line.strip()}'
      for number, line in enumerate(lines, 1)
      if _MACHINE_PATH.search(line)
    ]
  assert not hits, '\n'.join(hits)


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


def test_files_of_tests_have_names_of_their_own():
  """Checks what pytest needs: it imports them as modules of one folder."""
  names = [path.name for path in (_ROOT / 'tests').rglob('*_test.py')]
  assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize('folder', ['gtmm_jax', 'experiments'])
def test_files_stay_short(folder: str):
  long = {
    str(path.relative_to(_ROOT)): lines
    for path in (_ROOT / folder).rglob('*.py')
    if (lines := len(path.read_text(encoding='utf-8').splitlines())) > _LONGEST
  }
  assert not long, f'more than {_LONGEST} lines: {long}'


def _docstring_fault(summary: str, of_function: bool) -> str | None:
  """Names what is wrong with a docstring's summary; None if nothing is."""
  first, *rest = summary.split()
  if len(rest) >= _WORDS:
    return f'more than {_WORDS} words'
  if first in _FRAGMENTS:
    return f'begins with {first}'
  if not of_function:
    return None
  # Some words are nouns, too: 'Names a file.', but 'Names of files.'.
  is_noun = not rest or rest[0] in ('of', 'per') or rest[0].startswith('[')
  is_verb = _VERB.match(first) and not is_noun
  return None if is_verb else f'{first} is not a verb'


def _docstring_faults(path: pathlib.Path) -> list[str]:
  """Lists the docstrings of a file that break the rule."""
  faults = []
  functions = ast.FunctionDef, ast.AsyncFunctionDef
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if not isinstance(node, (*functions, ast.ClassDef, ast.Module)):
      continue
    summary = (ast.get_docstring(node) or '').split('\n\n')[0]
    # As Google's guide has it, a property is named like an attribute.
    of_function = isinstance(node, functions) and not any(
      'property' in ast.unparse(each) for each in node.decorator_list
    )
    if summary and (fault := _docstring_fault(summary, of_function)):
      line = getattr(node, 'lineno', 1)
      faults.append(f'{path.relative_to(_ROOT)}:{line}: {fault}: {summary}')
  return faults


@pytest.mark.parametrize('folder', ['gtmm_jax', 'experiments', 'launch'])
def test_docstrings_begin_with_a_verb(folder: str):
  paths = sorted((_ROOT / folder).rglob('*.py'))
  assert paths
  faults = [fault for path in paths for fault in _docstring_faults(path)]
  assert not faults, '\n'.join(faults)


def test_rule_of_docstrings_finds_what_breaks_it():
  for summary in ('Returns the usage after writing.', 'Names the file.'):
    assert _docstring_fault(summary, of_function=True) is None, summary
  for summary in (
    'What a cell holds.',
    'The usage after writing.',
    'Names of files.',
    'Weights [N].',
    'Return the usage.',
    'Returns ' + 'a ' * _WORDS + 'list.',
  ):
    assert _docstring_fault(summary, of_function=True), summary
  assert _docstring_fault('The usage of slots.', of_function=False) is None
  assert _docstring_fault('Of slots.', of_function=False)
