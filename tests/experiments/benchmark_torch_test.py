"""The same model in PyTorch, and the times of its training steps."""

import dataclasses
import functools
import json
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from benchmarking import timing
from benchmarking.pytorch import conversion, twin
from gtmm_jax import presets, train
from gtmm_jax.model import build
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe, make_optimizer

# More frames than slots: the oldest latent goes.
_FRAMES, _SLOTS, _BATCH, _CONDITION = 5, 3, 2, 2
_SHAPE = (28, 28, 1)
_CASES = [
  ('introspective', 'small', 'age'),
  ('introspective', 'small', 'arrival'),
  ('introspective', 'paper', 'age'),
  ('vrnn', 'small', 'age'),
  ('vrnn', 'paper', 'age'),
]
# Rounding is all that may differ, in float64.
_close = functools.partial(np.testing.assert_allclose, rtol=1e-7)


class Pair(NamedTuple):
  """A case of PyTorch's, and its bound with gradients in JAX."""

  case: Any
  noise: np.ndarray
  value_and_gradients: Any


@pytest.fixture(scope='module')
def training():
  """Returns the module that trains in PyTorch."""
  pytest.importorskip('torch')
  module = twin.load()
  if isinstance(module, str):
    pytest.skip(module)
  return module


def _case(training, model: str, name: str, order: str, dtype: type):
  """Makes a case, its temporal VAE and statistics, from random parameters."""
  preset = presets.PRESETS[name]
  options = {'order': order} if model == 'introspective' else {}
  vae = build.temporal_vae(model, preset, _SHAPE, _SLOTS, options=options)
  random = np.random.default_rng(0)
  frames = random.uniform(size=(_FRAMES, _BATCH, *_SHAPE)).astype(dtype)
  condition = random.normal(size=(_FRAMES, _BATCH, _CONDITION)).astype(dtype)
  variables = jax.eval_shape(
    vae.init,
    jax.random.key(0),
    None,
    frames[0],
    condition[0],
    np.zeros((_BATCH, preset.latent_size), dtype),
  )

  def draw(leaf):
    # Biases and scales, too, else those of two layers could be exchanged.
    rows = max(1, leaf.size // leaf.shape[-1])
    drawn = random.normal(size=leaf.shape) / np.sqrt(rows if rows > 1 else 20)
    return drawn.astype(dtype)

  parameters = jax.tree.map(draw, variables['params'])
  stats = jax.tree.map(
    lambda leaf: np.ones(leaf.shape, dtype), variables.get('batch_stats', {})
  )
  case = training.Case(
    model, preset, parameters, frames, condition, _SLOTS, order
  )
  return case, vae, stats


def _pair(training, model: str, name: str, order: str) -> Pair:
  """Makes the same model, batch and noise for both; call it under x64."""
  case, vae, stats = _case(training, model, name, order, np.float64)
  noise = np.random.default_rng(1).normal(
    size=(_FRAMES, _BATCH, case.preset.latent_size)
  )
  episode = SimpleNamespace(
    frames=case.frames, condition=case.condition, mask=None
  )
  problem = Problem(vae, None, _BATCH)

  def bound(parameters, noise):
    return train.objective(problem, parameters, stats, episode, noise)[0]

  compiled = (
    jax.jit(jax.value_and_grad(bound))
    .lower(case.parameters, noise)
    # Compiling is most of the time.
    .compile({'xla_backend_optimization_level': 0})
  )
  return Pair(case, noise, compiled)


@pytest.mark.parametrize(('model', 'preset', 'order'), _CASES)
def test_bound_and_each_gradient_are_those_of_jax(
  training, model: str, preset: str, order: str
):
  with jax.enable_x64(True):
    case, noise, value_and_gradients = _pair(training, model, preset, order)
    wanted, gradients = value_and_gradients(case.parameters, noise)
  loss, found = training.loss_and_gradients(case, noise)
  assert loss == pytest.approx(float(wanted), rel=1e-9)
  assert jax.tree.structure(found) == jax.tree.structure(gradients)

  def compare(path, mine, theirs):
    mine, name = np.asarray(mine), jax.tree_util.keystr(path)
    largest = np.abs(mine).max()
    assert largest > 0, name
    _close(theirs, mine, atol=1e-9 * largest, err_msg=name)

  jax.tree_util.tree_map_with_path(compare, gradients, found)


def test_adam_takes_clipped_gradients_to_the_same_parameters(training):
  with jax.enable_x64(True):
    case, noise, value_and_gradients = _pair(training, 'vrnn', 'small', 'age')
    preset = dataclasses.replace(case.preset, gradient_norm=10.0)
    case = case._replace(preset=preset)
    model = training.build(case)
    update = training.updater(case, model)
    optimizer = make_optimizer(
      Recipe(preset.learning_rate, gradient_norm=preset.gradient_norm)
    )

    @jax.jit
    def advance(parameters, state, gradients):
      changes, state = optimizer.update(gradients, state, parameters)
      norm = optax.tree.norm(gradients)
      return optax.apply_updates(parameters, changes), state, norm

    parameters = case.parameters
    state = optimizer.init(parameters)
    # The second step uses the moments that the first one left.
    for each in (noise, -noise):
      _, gradients = value_and_gradients(parameters, each)
      parameters, state, norm = advance(parameters, state, gradients)
      assert norm > preset.gradient_norm
      update(training.torch.from_numpy(each))
  jax.tree.map(
    # A step moves each by about a thousandth.
    lambda mine, theirs: _close(theirs, mine, atol=1e-8),
    parameters,
    training.parameters_of(model, case),
  )


@pytest.mark.parametrize('model', twin.MODELS)
@pytest.mark.parametrize('preset', ['small', 'paper'])
def test_weights_come_back_as_they_went(training, model: str, preset: str):
  case, *_ = _case(training, model, preset, 'age', np.float32)
  state = conversion.as_state(case.parameters)
  shapes = {n: p.shape for n, p in training.build(case).named_parameters()}
  assert {name: array.shape for name, array in state.items()} == shapes
  back = conversion.as_parameters(state, case.parameters)
  jax.tree.map(np.testing.assert_array_equal, case.parameters, back)


@pytest.fixture
def case(training):
  """Makes a small case in float32, of few frames."""
  # With fewer frames there is one word to attend to, and no gradient of how.
  case = _case(training, 'introspective', 'small', 'arrival', np.float32)[0]
  return case._replace(frames=case.frames[:4], condition=case.condition[:4])


def test_steps_draw_new_noise_on_the_threads_that_are_asked_for(
  training, case, monkeypatch: pytest.MonkeyPatch
):
  models, build_one = [], training.build

  def record(case):
    models.append(build_one(case))
    return models[-1]

  monkeypatch.setattr(training, 'build', record)
  before = training.torch.get_num_threads()
  try:
    for threads in (3, 2):
      training.training_step(case, threads)()
      assert training.torch.get_num_threads() == threads
  finally:
    training.torch.set_num_threads(before)

  def distances(one, other):
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), one, other)
    return jax.tree.leaves(apart)

  first, second = (training.parameters_of(model, case) for model in models)
  assert min(distances(case.parameters, first)) > 0
  assert min(distances(case.parameters, second)) > 0
  assert max(distances(first, second)) > 1e-5


def test_times_are_of_the_number_of_threads_that_suits_best(
  training, case, monkeypatch: pytest.MonkeyPatch
):
  before = training.torch.get_num_threads()
  row = twin.time_steps(training, case, seconds=0.01, threads=(1,))
  assert training.torch.get_num_threads() == before
  assert (row['threads'], row['steps'] >= 5) == (1, True)
  assert row['milliseconds']['median'] > 0
  json.dumps(row, allow_nan=False)
  times = {
    1: np.array([[0.030], [0.031]]),
    2: np.array([[0.020], [0.024], [0.016]]),
  }
  monkeypatch.setattr(training, 'training_step', lambda _, threads: threads)
  monkeypatch.setattr(timing, 'rounds', lambda programs, _: times[programs[0]])
  row = twin.time_steps(training, case, seconds=1.0)
  assert (row['threads'], row['steps']) == (2, 3)
  assert row['milliseconds'] == pytest.approx(
    {'median': 20, 'min': 16, 'lower_quartile': 18, 'upper_quartile': 22}
  )


def test_why_pytorch_is_not_timed(monkeypatch: pytest.MonkeyPatch):
  # The attribute that importing the module leaves behind would do, too.
  monkeypatch.delattr('benchmarking.pytorch.updates', raising=False)
  monkeypatch.setitem(sys.modules, 'benchmarking.pytorch.updates', None)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'cpu')
  assert 'pip install "gtmm_jax[benchmark]"' in twin.load()
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  assert 'jax is on gpu' in twin.load()


def test_what_pytorch_lacks_is_told():
  for model in twin.MODELS:
    assert twin.missing(model, 1, 'sample') is None
    assert 'colour' in twin.missing(model, 3, 'sample')
    assert 'denoised' in twin.missing(model, 1, 'denoised')
    assert 'mixture' in twin.missing(model, 1, 'sample', components=2)
    assert 'residual is' in twin.missing(
      model, 1, 'sample', posterior='residual'
    )
  assert 'dnc on grey' in twin.missing('dnc', 1, 'sample')
