"""One time step: what the core is given, what the context may depend on."""

import functools
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import slow_cases
import tiny_preset
from gtmm_jax import presets
from gtmm_jax.model import build, free_energy
from gtmm_jax.model.distributions import DiagonalGaussian, kl_divergence
from gtmm_jax.model.temporal_vae import State, Store, TemporalVAE

_LENGTH, _BATCH, _LATENT, _CONDITION = 6, 3, 4, 2
# No unit that is off may hide a change.
_TINY = tiny_preset.make(latent_size=_LATENT, prior_hidden=())
# 1 - the clipped variance: all kept, half, nothing, nothing.
_VARIANCE = np.array([0.0, 0.5, 1.0, 1.7], np.float32)
_KEPT = np.array([1.0, 0.5, 0.0, 0.0], np.float32)

# Every core, and every store with and without a core that sees frames.
_CASES = [(name, 'sample') for name in presets.MODELS] + [
  (name, store)
  for name in ('vrnn', 'introspective')
  for store in ('mean', 'denoised')
]
_QUICK = [
  ('vrnn', 'mean'),
  ('introspective', 'sample'),
  ('introspective', 'denoised'),
  ('dnc', 'sample'),
]
_cases = pytest.mark.parametrize(
  ('name', 'store'), slow_cases.but_for(_QUICK, _CASES)
)
_stores = pytest.mark.parametrize('store', get_args(Store))
_some = pytest.mark.parametrize(
  ('name', 'store'), [('vrnn', 'mean'), ('introspective', 'denoised')]
)


class _Inputs(nn.RNNCellBase):
  """A core whose context is its input, so that it can be looked at."""

  def __call__(self, carry, inputs):
    return carry + 1, inputs

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    return jnp.zeros((*input_shape[:-1], input_shape[-1]))

  @property
  def num_feature_axes(self):
    return 1


def _data(seed=0, leading=(_LENGTH, _BATCH), condition_size=_CONDITION):
  rng = np.random.default_rng(seed)
  return (
    rng.uniform(size=(*leading, 8, 8, 1)).astype(np.float32),
    rng.normal(size=(*leading, condition_size)).astype(np.float32),
    rng.normal(size=(*leading, _LATENT)).astype(np.float32),
  )


def _model(name, store, core=None):
  model = build.temporal_vae(name, _TINY, (8, 8, 1), _LENGTH, store=store)
  return model if core is None else model.clone(core=core)


@functools.cache
def _variables(model, condition_size=_CONDITION):
  """Draws every parameter; the running average is `_VARIANCE`."""
  first = [x[0] for x in _data(condition_size=condition_size)]
  shapes = jax.eval_shape(model.init, jax.random.key(0), None, *first)
  rng = np.random.default_rng(1)
  params = jax.tree.map(
    lambda leaf: rng.normal(0.0, 0.3, leaf.shape).astype(np.float32),
    shapes['params'],
  )
  averages = {'posterior_variance': jnp.asarray(_VARIANCE)}
  assert set(shapes) <= {'params', 'batch_stats'}
  if 'batch_stats' not in shapes:
    return {'params': params}
  jax.tree.map(
    lambda shape, value: np.testing.assert_equal(shape.shape, value.shape),
    shapes['batch_stats'],
    averages,
  )
  return {'params': params, 'batch_stats': averages}


class _Step(NamedTuple):
  """A step with its prior, for comparisons leaf by leaf."""

  z: jax.Array
  context: jax.Array
  posterior: DiagonalGaussian
  prior: DiagonalGaussian
  kl: jax.Array


def _with_prior(model, variables, step):
  prior = model.apply(variables, step.context, method='prior')
  return _Step(*step, prior, kl_divergence(step.posterior, prior))


@functools.cache
def _case(name, store):
  """Returns a model, its variables, a compiled step and a loop over it."""
  model = _model(name, store)
  variables = _variables(model)
  encode = jax.jit(functools.partial(model.apply, method='encode'))

  @jax.jit
  def step(*args):
    state, observed = model.apply(variables, *args, method='observe')
    return state, _with_prior(model, variables, observed)

  def run(frames, condition, noise):
    features, steps = encode(variables, frames), []
    state = model.apply(
      variables, features[0], condition[0], method='initial_state'
    )
    for inputs in zip(features, condition, noise, strict=True):
      state, observed = step(state, *inputs)
      steps.append(observed)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *steps)

  return model, variables, step, run


def _given(store, steps):
  """Returns the latents that the memory should be given."""
  if store == 'sample':
    return np.asarray(steps.z)
  if store == 'mean':
    return np.asarray(steps.posterior.mean)
  return np.asarray(steps.z) * _KEPT


@_stores
def test_memory_is_given_what_the_setting_says(store):
  _, _, _, run = _case('introspective', store)
  state, steps = run(*_data(1))
  given = _given(store, steps)
  np.testing.assert_allclose(state.stored_tm1, given[-1], rtol=1e-6)
  # The newest first: z_{T-1} .. z_1, then the slot of z_0 = 0.
  memory = np.moveaxis(np.asarray(state.core.memory), -2, 0)
  np.testing.assert_allclose(memory[:-1], given[-2::-1], rtol=1e-6)
  np.testing.assert_array_equal(memory[-1], 0.0)
  others = [_given(other, steps) for other in get_args(Store) if other != store]
  assert all(np.abs(given - other).max() > 0.1 for other in others)


@_stores
@pytest.mark.parametrize('sees_frames', [False, True])
def test_core_is_given_features_stored_latent_and_condition(store, sees_frames):
  model = _model('introspective', store, _Inputs()).clone(
    core_sees_frames=sees_frames, condition_scale=2.5
  )
  variables = _variables(model)
  frames, condition, noise = _data(2)
  result = jax.jit(functools.partial(free_energy.infer, model))(
    variables, frames, condition, noise
  )
  features = model.apply(variables, frames, method='encode')
  given = _given(store, result.steps)

  def before(x):
    return np.concatenate([np.zeros_like(x[:1]), x[:-1]])

  parts = [before(given), 2.5 * condition]
  if sees_frames:
    parts = [before(np.asarray(features)), *parts]
  np.testing.assert_allclose(
    result.steps.context, np.concatenate(parts, axis=-1), rtol=1e-5, atol=1e-6
  )


@_cases
@pytest.mark.parametrize('condition_size', [0, _CONDITION])
def test_sequences_start_from_nothing(name, store, condition_size):
  model = _model(name, store)
  features = jnp.full((_BATCH, 2 * _LATENT), 7.0)
  condition = jnp.full((_BATCH, condition_size), 7.0)
  state = model.apply(
    {'batch_stats': {'posterior_variance': _VARIANCE}},
    features,
    condition,
    method='initial_state',
  )
  width = 2 * _LATENT if name == 'vrnn' else 0
  assert state.stored_tm1.shape == (_BATCH, _LATENT)
  assert not np.any(state.stored_tm1)
  if name == 'vrnn':
    assert state.features_tm1.shape == (_BATCH, width)
    assert not np.any(state.features_tm1)
  else:
    assert state.features_tm1 is None
  inputs = (width + _LATENT + condition_size,)
  fresh = model.core.initialize_carry(jax.random.key(1), inputs)

  def all_are_fresh(leaf, one):
    assert leaf.shape == (_BATCH, *one.shape)
    np.testing.assert_array_equal(leaf, np.broadcast_to(one, leaf.shape))

  jax.tree.map(all_are_fresh, state.core, fresh)


@_some
def test_step_without_a_state_starts_a_sequence(name, store):
  model, variables, _, run = _case(name, store)
  frames, condition, noise = _data(3)

  @jax.jit
  def both(frames, condition, noise):
    features = model.apply(variables, frames, method='encode')
    _, scanned = free_energy.scan_steps(
      model, variables, None, features, condition, noise
    )
    _, implicit, _, _ = model.apply(
      variables, None, frames[0], condition[0], noise[0]
    )
    return (
      _with_prior(model, variables, implicit),
      _with_prior(model, variables, scanned),
    )

  implicit, scanned = both(frames, condition, noise)
  _, explicit = run(frames[:1], condition[:1], noise[:1])
  explicit = jax.tree.map(lambda leaf: leaf[0], explicit)
  for other in (implicit, jax.tree.map(lambda leaf: leaf[0], scanned)):
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5),
      explicit,
      other,
    )


@_cases
def test_context_and_prior_depend_on_nothing_of_the_frame(name, store):
  _, _, step, run = _case(name, store)
  state, _ = run(*_data(4))
  features = np.random.default_rng(5).normal(size=(2, _BATCH, 2 * _LATENT))
  _, condition, noise = _data(6, (_BATCH,))
  after, made = zip(
    *(step(state, x.astype(np.float32), condition, noise) for x in features),
    strict=True,
  )
  np.testing.assert_array_equal(made[0].context, made[1].context)
  jax.tree.map(np.testing.assert_array_equal, made[0].prior, made[1].prior)
  jax.tree.map(np.testing.assert_array_equal, after[0].core, after[1].core)
  assert (made[0].posterior.mean != made[1].posterior.mean).all()
  assert (made[0].posterior.log_scale != made[1].posterior.log_scale).all()
  # Nor on this step's noise, which the sample alone sees.
  _, other = step(state, features[0].astype(np.float32), condition, -noise)
  np.testing.assert_array_equal(other.context, made[0].context)
  np.testing.assert_array_equal(other.kl, made[0].kl)
  assert (other.z != made[0].z).all()


@_cases
def test_context_depends_on_stored_latent_condition_and_core(name, store):
  _, _, step, run = _case(name, store)
  state, _ = run(*_data(7))
  features = np.ones((_BATCH, 2 * _LATENT), np.float32)
  _, condition, noise = _data(8, (_BATCH,))
  _, before = step(state, features, condition, noise)
  other_core = jax.tree.map(
    lambda leaf: leaf + 1 if leaf.dtype == jnp.float32 else leaf, state.core
  )
  for changed, c in (
    (state._replace(stored_tm1=state.stored_tm1 + 1.0), condition),
    (state._replace(core=other_core), condition),
    (state, condition + 1.0),
  ):
    _, after = step(changed, features, c, noise)
    assert (before.context != after.context).any(axis=-1).all()
    assert (before.prior.mean != after.prior.mean).any(axis=-1).all()


@pytest.mark.parametrize('store', slow_cases.but_for(['mean'], get_args(Store)))
def test_only_the_vrnn_sees_the_frame_before(store):
  features = np.ones((_BATCH, 2 * _LATENT), np.float32)
  _, condition, noise = _data(9, (_BATCH,))
  _, _, step, run = _case('vrnn', store)
  state, _ = run(*_data(9))
  other = state._replace(features_tm1=state.features_tm1 + 1.0)
  contexts = [
    step(x, features, condition, noise)[1].context for x in (state, other)
  ]
  assert (contexts[0] != contexts[1]).any(axis=-1).all()
  state, _ = step(state, features, condition, noise)
  np.testing.assert_array_equal(state.features_tm1, features)
  _, _, step, run = _case('introspective', store)
  state, _ = run(*_data(9))
  assert state.features_tm1 is None


@pytest.mark.parametrize(
  'name', slow_cases.but_for(['introspective', 'dnc'], presets.MODELS)
)
def test_latent_and_kl_are_those_of_the_two_gaussians(name):
  _, _, _, run = _case(name, 'sample')
  frames, condition, noise = _data(10)
  _, steps = run(frames, condition, noise)
  (m_q, l_q), (m_p, l_p) = jax.tree.map(
    lambda leaf: np.asarray(leaf, np.float64), (steps.posterior, steps.prior)
  )
  np.testing.assert_allclose(
    steps.z, m_q + np.exp(l_q) * noise, rtol=1e-5, atol=1e-5
  )
  kl = l_p - l_q + (np.exp(2 * l_q) + (m_q - m_p) ** 2) / (2 * np.exp(2 * l_p))
  np.testing.assert_allclose(steps.kl, (kl - 0.5).sum(-1), rtol=1e-5, atol=1e-5)


@_some
def test_any_number_of_leading_axes(name, store):
  model, variables, _, _ = _case(name, store)

  def call(*inputs):
    state, *_ = model.apply(variables, None, *inputs)
    return model.apply(variables, state, *inputs)

  inputs = _data(11, (2, 3))
  many = jax.jit(call)(*inputs)
  apart = jax.jit(jax.vmap(jax.vmap(call)))(*inputs)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5),
    apart,
    many,
  )


def test_running_average_of_the_posterior_variance():
  model, variables, _, _ = _case('introspective', 'denoised')
  average = np.asarray(_VARIANCE, np.float64)
  rng = np.random.default_rng(12)
  for _ in range(3):
    log_scale = rng.normal(size=(_LENGTH, _BATCH, _LATENT)).astype(np.float32)
    posterior = DiagonalGaussian(jnp.zeros_like(log_scale), log_scale)
    _, moved = model.apply(
      variables, posterior, method='update_statistics', mutable=['batch_stats']
    )
    variables = {**variables, **moved}
    variance = np.exp(2.0 * log_scale.astype(np.float64)).mean((0, 1))
    average = 0.99 * average + 0.01 * variance
    np.testing.assert_allclose(
      variables['batch_stats']['posterior_variance'], average, rtol=1e-5
    )


@pytest.mark.parametrize('name', ['vrnn', 'introspective'])
@pytest.mark.parametrize('store', ['sample', 'mean'])
def test_without_denoising_there_is_no_running_average(name, store):
  model = _model(name, store)
  variables = _variables(model)
  assert set(variables) == {'params'}
  posterior = DiagonalGaussian(*jnp.ones((2, _LENGTH, _BATCH, _LATENT)))
  _, moved = model.apply(
    variables, posterior, method='update_statistics', mutable=['batch_stats']
  )
  assert not jax.tree.leaves(moved)


def test_fresh_running_average_is_zero_and_denoises_nothing():
  model, variables, _, _ = _case('introspective', 'denoised')
  frames, condition, noise = (x[0] for x in _data(13))
  features = np.zeros((_BATCH, 2 * _LATENT), np.float32)
  fresh = model.init(
    jax.random.key(0), features, condition, method='initial_state'
  )['batch_stats']
  np.testing.assert_array_equal(fresh['posterior_variance'], np.zeros(_LATENT))
  fresh = {**variables, 'batch_stats': fresh}
  state, step, *_ = model.apply(fresh, None, frames, condition, noise)
  np.testing.assert_array_equal(state.stored_tm1, step.z)


@_cases
def test_imagining_draws_from_the_prior(name, store):
  model, variables, step, run = _case(name, store)
  state, _ = run(*_data(14))
  _, condition, noise = _data(15, (_BATCH,))
  features = np.zeros((_BATCH, 2 * _LATENT), np.float32)
  _, inferred = step(state, features, condition, noise)
  after, imagined = jax.jit(
    lambda *args: model.apply(variables, *args, method='imagine')
  )(state, condition, noise)
  mean, log_scale = inferred.prior
  np.testing.assert_allclose(
    imagined.z, mean + np.exp(log_scale) * noise, rtol=1e-5, atol=1e-5
  )
  np.testing.assert_allclose(
    imagined.context, inferred.context, rtol=1e-5, atol=1e-6
  )
  sees = name == 'vrnn' or store == 'mean'
  assert (imagined.frame is not None) == sees
  assert isinstance(after, State)
  np.testing.assert_array_equal(after.stored_tm1, imagined.stored)


def test_model_is_a_flax_module_that_can_be_named_by_its_parts():
  model = _model('vrnn', 'sample')
  assert isinstance(model, TemporalVAE)
  params = _variables(model)['params']
  assert set(params) == {
    'core',
    'prior_map',
    'posterior_map',
    'observation_map',
  }


@pytest.mark.parametrize('store', get_args(Store))
def test_a_summary_is_a_linear_map_of_what_is_stored(store):
  plain = _model('introspective', store, _Inputs())
  model = plain.clone(summary_size=3)
  variables = _variables(model)
  kernel = np.asarray(variables['params']['summary']['kernel'])
  assert kernel.shape == (_LATENT, 3)
  assert set(variables['params']['summary']) == {'kernel'}
  frames, condition, noise = _data(leading=(2, _BATCH))
  state = None
  for t in range(2):
    state, step, *_ = jax.jit(model.apply)(
      variables, state, frames[t], condition[t], noise[t]
    )
    if t == 0:
      stored = np.asarray(state.stored_tm1)
      assert stored.shape == (_BATCH, _LATENT)
  # The context of that core is its input.
  np.testing.assert_allclose(
    step.context,
    np.concatenate(
      [stored @ kernel, model.condition_scale * condition[1]], axis=-1
    ),
    rtol=1e-4,
    atol=1e-6,
  )
