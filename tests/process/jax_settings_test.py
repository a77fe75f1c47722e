"""jax's own settings of dtypes and ranks, which other programs may have set.

Everything is traced alone, which is where these settings count. All three at
once find what each of them would; each alone is tested with the slow ones.
"""

import contextlib
import functools
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cores_test import CORES, KEY, WIDTH, every_core, fresh

from cells_test import _BATCH, _KEY, _SIZES, _TINY, _images, _network
from gtmm_jax import presets, records, train
from gtmm_jax.evaluation import classifier, evaluate
from gtmm_jax.memory import contract
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe
from gtmm_jax.tasks import TASKS

_SETTINGS = {
  'enable_x64': True,
  'numpy_rank_promotion': 'raise',
  'numpy_dtype_promotion': 'strict',
}
_ALL = tuple(_SETTINGS)
every_setting = pytest.mark.parametrize(
  'names',
  [
    _ALL,
    *(pytest.param((name,), marks=pytest.mark.slow) for name in _SETTINGS),
  ],
  ids='-'.join,
)
_PAPER = {
  'perfect_recall': presets.choose('paper', 1),
  'rotation': presets.choose('paper', 3),
}


class Form(NamedTuple):
  """Shape and dtype of an array."""

  shape: tuple[int, ...]
  dtype: str


def forms(names, function, *arguments):
  """Evaluates shapes and dtypes of a function's results under settings."""
  with contextlib.ExitStack() as stack:
    for name in names:
      stack.enter_context(getattr(jax, name)(_SETTINGS[name]))
    made = jax.eval_shape(function, *arguments)
  return jax.tree.map(lambda x: Form(x.shape, str(x.dtype)), made)


def dtypes(found) -> set[str]:
  leaves = jax.tree.leaves(found, is_leaf=lambda x: isinstance(x, Form))
  return {leaf.dtype for leaf in leaves}


# Cores.


def stepped(core, dtype, inputs):
  """Takes a step; returns parameters, carries before and after, and context."""
  carry = contract.in_dtype(fresh(core, *inputs.shape[:-1]), dtype)
  variables = core.init(KEY, carry, inputs)
  return variables, carry, *core.apply(variables, carry, inputs)


def differentiated(core, inputs):
  """Differentiates a scan by parameters and inputs [T, B, I].

  Also returns its outputs.
  """
  carry = fresh(core, *inputs.shape[1:-1])
  variables = core.init(KEY, carry, inputs[0])

  def total(variables, inputs):
    step = functools.partial(core.apply, variables)
    after, contexts = jax.lax.scan(step, carry, inputs)
    return contexts.sum(), (after, contexts)

  return jax.grad(total, (0, 1), has_aux=True)(variables, inputs)


@every_setting
@every_core
def test_a_core_and_its_gradients_stay_single(name, names):
  core = CORES[name]
  inputs = jax.ShapeDtypeStruct((3, 2, WIDTH), jnp.float32)
  found = forms(names, functools.partial(differentiated, core), inputs)
  assert dtypes(found) <= {'float32', 'int32'}
  _, (after, _) = found
  assert after == forms((), lambda: fresh(core, 2))


@every_core
@pytest.mark.parametrize(
  ('given', 'dtype'),
  [('float64', 'float32'), ('float32', 'float64'), ('bfloat16', 'bfloat16')],
)
def test_a_core_computes_in_the_dtype_of_its_carry(name, given, dtype):
  inputs = jax.ShapeDtypeStruct((2, WIDTH), given)
  step = functools.partial(stepped, CORES[name], dtype)
  variables, before, after, context = forms(_ALL, step, inputs)
  assert dtypes(variables) == {'float32'}
  assert dtypes(before) <= {dtype, 'int32'}
  assert after == before
  assert dtypes([context]) == {dtype}


@every_core
def test_a_carry_of_two_dtypes_is_refused(name):
  """Checks the error: such a carry would leave a scan with another dtype."""
  core = CORES[name]
  leaves, structure = jax.tree.flatten(fresh(core, 2))
  leaves[0] = leaves[0].astype(jnp.bfloat16)
  wrong = jax.tree.unflatten(structure, leaves)
  inputs = jnp.zeros((2, WIDTH))
  with pytest.raises(ValueError, match=r'carry are bfloat16 and float32; they'):
    jax.eval_shape(core.init, KEY, wrong, inputs)


# Tasks.


@every_setting
@pytest.mark.parametrize('name', presets.TASKS)
def test_episodes_stay_single(name, names):
  sample = jax.vmap(TASKS[name](*_SIZES[name]).sample, in_axes=(0, None))
  keys = jax.random.split(_KEY, _BATCH)
  episode = forms(names, sample, keys, _images(name))
  kinds = ('float32', 'float32', 'int32', 'bool', 'int32')
  if name == 'mixture':
    kinds += ('bool', 'int32', 'bool')
  assert tuple(form.dtype for form in episode if form) == kinds


# The temporal VAE.


def trained_and_evaluated(problem, task, key, images):
  """States before and after a step, and sums of an evaluation with dreams."""
  recipe = Recipe(1e-3, 'decay', 2, 9, gradient_norm=50.0, average=0.9)
  parts = len(getattr(task, 'parts', ()))
  before = train.init_state(problem, recipe, key, images)
  after = train.train_step(problem, recipe, before, key, images)
  sums = evaluate.evaluate_batch(
    evaluate.Protocol(problem, task.prefix, task.asks, binarize=True),
    state=evaluate.zeros(problem, task.length, 2, parts),
    variables={'params': after.params, 'batch_stats': after.batch_stats},
    key=key,
    images=images,
  )
  return before, after, evaluate.zeros(problem, task.length, 2, parts), sums


def check_model(names, model, name, preset=_TINY):
  task, images = TASKS[name](*_SIZES[name]), _images(name)
  network = _network(name, task.length, images.shape, model, preset)
  problem = Problem(network, task.sample, _BATCH)
  function = functools.partial(trained_and_evaluated, problem, task)
  before, after, none, sums = forms(names, function, _KEY, images)
  assert dtypes(before) == {'float32', 'int32'}
  assert dtypes(sums) == {'float32', 'int32', 'bool', 'int8'}
  assert after == before
  assert sums == none


@pytest.mark.parametrize(
  'model',
  [
    'vrnn',
    'dnc',
    *(
      pytest.param(model, marks=pytest.mark.slow)
      for model in presets.MODELS
      if model not in ('vrnn', 'dnc')
    ),
  ],
)
def test_training_evaluation_and_dreams_stay_single(model):
  check_model(_ALL, model, 'navigation')


def test_the_mixture_stays_single():
  check_model(_ALL, 'introspective', 'mixture')


@pytest.mark.slow
@pytest.mark.parametrize('name', _SETTINGS)
@pytest.mark.parametrize('model', presets.MODELS)
def test_a_model_stays_single_under_each_setting(model, name):
  check_model((name,), model, 'parity_recall')


@pytest.mark.slow
@pytest.mark.parametrize('name', _PAPER)
def test_the_papers_networks_stay_single(name, monkeypatch):
  monkeypatch.setitem(_SIZES, 'rotation', (14, 32))
  _images.cache_clear()
  check_model(_ALL, 'introspective', name, _PAPER[name])
  _images.cache_clear()


def test_the_classifier_stays_single():
  images = _images('parity_recall')

  def judge(key):
    parameters = classifier.fit(key, images, 10, 2)
    frames = jnp.zeros((3, 28, 28, 1), jnp.float32)
    found = classifier.classify(parameters, frames)
    return parameters, classifier.accuracy(parameters, images), found

  parameters, accuracy, found = forms(_ALL, judge, _KEY)
  assert dtypes(parameters) == {'float32'}
  assert (accuracy, found) == (((), 'float32'), ((3,), 'int32'))


# A whole run.


@pytest.mark.slow
@pytest.mark.parametrize('task', presets.TASKS[:-1])
def test_a_whole_run(task, tmp_path):
  """Runs each of the models once."""
  model = presets.MODELS[presets.TASKS.index(task) % len(presets.MODELS)]
  program = pathlib.Path(records.__file__).parents[2] / 'experiments' / 'run.py'
  flags = {
    'task': task,
    'model': model,
    'steps': 2,
    'replicas': 1,
    'evaluation_episodes': 2,
    'batch_size': 2,
    'workdir': tmp_path,
  }
  environment = {
    f'JAX_{name.upper()}': str(value) for name, value in _SETTINGS.items()
  }
  result = subprocess.run(
    [sys.executable, program, *(f'--{k}={v}' for k, v in flags.items())],
    env={**os.environ, **environment, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'},
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  bound = records.read_evaluation(tmp_path)['negative_bound']
  assert np.isfinite(np.float64(bound)).all()
