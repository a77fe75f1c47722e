"""The import rule of experiments: parts never import programs."""

import ast
import pathlib

import pytest

_EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / 'experiments'
# The contracts of setup.cfg hold the package; parts here are no package of it.
_PROGRAMS = {
  path.stem
  for path in _EXPERIMENTS.glob('*.py')
  if '__main__' in path.read_text()
}
_PARTS = sorted(_EXPERIMENTS.glob('*/**/*.py'))


def _imported(file: pathlib.Path) -> set[str]:
  """Returns the first names of the modules that a file imports anywhere."""
  names = set()
  for node in ast.walk(ast.parse(file.read_text())):
    if isinstance(node, ast.Import):
      names |= {each.name for each in node.names}
    elif isinstance(node, ast.ImportFrom):
      names |= {node.module or ''}
  return {name.split('.')[0] for name in names}


def test_there_are_programs_and_parts():
  assert {'run', 'study', 'own_core'} <= _PROGRAMS
  assert len(_PARTS) > 10


@pytest.mark.parametrize(
  'file', _PARTS, ids=lambda file: str(file.relative_to(_EXPERIMENTS))
)
def test_a_part_imports_no_program(file):
  assert not _imported(file) & _PROGRAMS
