"""Dreams against a plain loop of the model's parts, and what they may see."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
import tiny_preset
from gtmm_jax import presets
from gtmm_jax.model import build, generate

_LENGTH, _WATCHED, _BATCH, _LATENT = 6, 3, 3, 4
_DREAMED = _LENGTH - _WATCHED
# No unit that is off may hide a change.
_TINY = tiny_preset.make(latent_size=_LATENT, prior_hidden=())
# Every core, and every store with and without a core that sees frames.
_STORES = ('sample', 'mean', 'denoised')
_CASES = [(name, 'sample') for name in presets.MODELS] + [
  (name, store) for name in ('vrnn', 'introspective') for store in _STORES[1:]
]
# Frames are seen by the memory's store, by the core, and by neither; and a core
# that writes to slots.
_QUICK = [
  ('introspective', 'mean'),
  ('vrnn', 'sample'),
  ('introspective', 'denoised'),
  ('dnc', 'sample'),
]
_cases = pytest.mark.parametrize(
  ('name', 'store'), slow_cases.but_for(_QUICK, _CASES)
)
_VARIANCE = np.array([0.0, 0.3, 0.8, 1.5], np.float32)


def _sees_frames(name, store):
  """Tells whether later steps depend on the dreamed frames."""
  return name == 'vrnn' or store == 'mean'


def _data(seed=0):
  """Draws prefix, condition, noise of latents and noise of dreamed frames."""
  rng = np.random.default_rng(seed)
  frame = (_BATCH, 8, 8, 1)
  return (
    rng.uniform(size=(_WATCHED, *frame)).astype(np.float32),
    rng.normal(size=(_LENGTH, _BATCH, 2)).astype(np.float32),
    rng.normal(size=(_LENGTH, _BATCH, _LATENT)).astype(np.float32),
    rng.uniform(size=(_DREAMED, *frame)).astype(np.float32),
  )


@functools.cache
def _case(name, store):
  """Returns a model, its variables and the compiled dream."""
  model = build.temporal_vae(name, _TINY, (8, 8, 1), _LENGTH, store=store)
  prefix, condition, noise, _ = _data()
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), None, prefix[0], condition[0], noise[0]
  )
  rng = np.random.default_rng(1)
  params = jax.tree.map(
    lambda leaf: rng.normal(0.0, 0.3, leaf.shape).astype(np.float32),
    shapes['params'],
  )
  variables = {
    'params': params,
    'batch_stats': {'posterior_variance': jnp.asarray(_VARIANCE)},
  }
  return (
    model,
    variables,
    jax.jit(functools.partial(generate.continue_episode, model)),
  )


@functools.cache
def _parts(name, store):
  """Compiles a model's parts: of the core, of a frame, and of a dreamed one."""
  model, variables, _ = _case(name, store)
  parts = model.bind(variables)

  def see(frame, context):
    features = parts.posterior_map.encode(frame, False)
    return features, parts.posterior_map(features, context)

  def dream(context, noise):
    prior = parts.prior_map(context)
    z = prior.mean + jnp.exp(prior.log_scale) * noise
    return z, parts.observation_map(z, context, False).mean

  return tuple(
    jax.jit(lambda *inputs, part=part: part(*inputs))
    for part in (parts.core, see, dream)
  )


def _by_hand(name, store, prefix, condition, noise, frame_noise):
  """Dreams by calling the model's parts one after another, step by step."""
  model, *_ = _case(name, store)
  core, see, dream = _parts(name, store)
  batch = prefix.shape[1]
  stored = np.zeros((batch, _LATENT))
  features = np.zeros((batch, 2 * _LATENT))
  width = 2 * _LATENT if model.core_sees_frames else 0
  carry = model.core.initialize_carry(
    jax.random.key(0), (batch, width + _LATENT + condition.shape[-1])
  )
  frames, latents, given = [], [], []
  for t in range(condition.shape[0]):
    heard = model.condition_scale * condition[t]
    inputs = [features[:, :width], stored, heard]
    inputs = np.concatenate(inputs, axis=-1, dtype=np.float32)
    carry, context = core(carry, inputs)
    if t < len(prefix):
      features, posterior = see(prefix[t], context)
      z = posterior.mean + np.exp(posterior.log_scale) * noise[t]
    else:
      z, frame = dream(context, noise[t])
      if frame_noise is not None:
        frame = np.float32(frame_noise[t - len(prefix)] < frame)
      features, posterior = see(frame, context)
      frames.append(frame)
      latents.append(z)
    stored = {
      'sample': z,
      'mean': posterior.mean,
      'denoised': z * (1.0 - np.minimum(_VARIANCE, 1.0)),
    }[model.store]
    if t >= len(prefix):
      given.append(stored)
  return np.stack(frames), np.stack(latents), np.stack(given), stored, carry


@pytest.mark.parametrize(
  ('name', 'store', 'draws'),
  [
    *slow_cases.but_for(
      [(*case, True) for case in _QUICK], [(*case, True) for case in _CASES]
    ),
    ('vrnn', 'sample', False),
  ],
)
def test_dream_is_a_plain_loop_of_the_parts(name, store, draws):
  _, variables, dream = _case(name, store)
  *inputs, frame_noise = _data(2)
  if not draws:
    frame_noise = None
  result = dream(variables, *inputs, frame_noise)
  # What nothing needs to see is not drawn: frames are then means.
  drawn = frame_noise if _sees_frames(name, store) else None
  frames, z, given, last, carry = _by_hand(name, store, *inputs, drawn)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  close(result.frames, frames)
  close(result.z, z)
  close(result.stored, given)
  close(result.state.stored_tm1, last)
  jax.tree.map(close, result.state.core, carry)


@_cases
def test_what_the_memory_is_given(name, store):
  model, variables, dream = _case(name, store)
  *inputs, frame_noise = _data(3)
  result = dream(variables, *inputs, frame_noise)
  np.testing.assert_array_equal(result.state.stored_tm1, result.stored[-1])
  if store == 'sample':
    np.testing.assert_array_equal(result.stored, result.z)
  elif store == 'denoised':
    np.testing.assert_allclose(
      result.stored, result.z * (1 - np.minimum(_VARIANCE, 1)), rtol=1e-6
    )
    np.testing.assert_array_equal(result.stored[..., -1], 0.0)
  else:
    assert (result.stored != result.z).all()
  if name == 'introspective':
    # The newest first; what was dreamed last waits in the state.
    memory = np.moveaxis(np.asarray(result.state.core.memory), -2, 0)
    np.testing.assert_allclose(
      memory[: _DREAMED - 1], result.stored[-2::-1], rtol=1e-6
    )
  if name == 'vrnn':
    features = model.apply(variables, result.frames[-1], method='encode')
    np.testing.assert_allclose(
      result.state.features_tm1, features, rtol=1e-4, atol=1e-5
    )


@_cases
def test_every_watched_frame_matters_and_sequences_keep_apart(name, store):
  _, variables, dream = _case(name, store)
  prefix, *rest = _data(4)
  before = dream(variables, prefix, *rest)
  for t in range(_WATCHED):
    changed = prefix.copy()
    changed[t, 0] = 1.0 - changed[t, 0]
    after = dream(variables, changed, *rest)
    assert (before.z[:, 0] != after.z[:, 0]).any(axis=-1).all()
    jax.tree.map(
      lambda old, new: np.testing.assert_array_equal(old[:, 1:], new[:, 1:]),
      before[:3],
      after[:3],
    )


@_cases
def test_noise_and_condition_reach_no_earlier_step(name, store):
  _, variables, dream = _case(name, store)
  prefix, condition, noise, frame_noise = _data(5)
  before = dream(variables, prefix, condition, noise, frame_noise)
  for t in range(_LENGTH):
    other_noise, other_condition = noise.copy(), condition.copy()
    other_noise[t] *= -1.0
    other_condition[t] *= -1.0
    first = max(t - _WATCHED, 0)
    # The mean of a posterior that was watched does not see the noise.
    kinds = [(condition, other_noise)] if store != 'mean' else []
    for c, n in [*kinds, (other_condition, noise)]:
      after = dream(variables, prefix, c, n, frame_noise)
      for old, new in zip(before[:3], after[:3], strict=True):
        np.testing.assert_array_equal(old[:first], new[:first])
      assert (before.z[first:] != after.z[first:]).any(axis=(1, 2)).all()


@pytest.mark.parametrize(
  ('name', 'store'),
  slow_cases.but_for(
    _QUICK[:3], itertools.product(['vrnn', 'introspective'], _STORES)
  ),
)
def test_frames_are_drawn_only_for_those_who_see_them(name, store):
  _, variables, dream = _case(name, store)
  *inputs, frame_noise = _data(6)
  means = dream(variables, *inputs).frames
  drawn = dream(variables, *inputs, frame_noise).frames
  assert means.shape == drawn.shape == (_DREAMED, _BATCH, 8, 8, 1)
  assert ((means > 0) & (means < 1)).all()
  if _sees_frames(name, store):
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(drawn[0], frame_noise[0] < means[0])
    other = dream(variables, *inputs, 1.0 - frame_noise)
    later = dream(variables, *inputs, frame_noise).z[1:] != other.z[1:]
    assert later.any(axis=-1).all()
  else:
    np.testing.assert_array_equal(means, drawn)


@pytest.mark.parametrize(
  ('name', 'store'), [('introspective', 'mean'), ('introspective', 'denoised')]
)
def test_state_goes_on_where_the_dream_ended(name, store):
  model, variables, dream = _case(name, store)
  prefix, condition, noise, frame_noise = _data(7)
  whole = dream(variables, prefix, condition, noise, frame_noise)
  short = dream(variables, prefix, condition[:-1], noise[:-1], frame_noise[:-1])
  for all_of_it, start in zip(whole[:3], short[:3], strict=True):
    np.testing.assert_allclose(all_of_it[:-1], start, rtol=1e-5, atol=1e-6)
  state, last = jax.jit(functools.partial(model.apply, method='imagine'))(
    variables, short.state, condition[-1], noise[-1], frame_noise[-1]
  )
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  close(whole.z[-1], last.z)
  jax.tree.map(close, whole.state, state)


@pytest.mark.parametrize(
  ('watched', 'name', 'store'),
  [(1, 'introspective', 'mean'), (_LENGTH - 1, 'vrnn', 'sample')],
)
def test_prefix_may_be_one_frame_or_all_but_one(watched, name, store):
  _, variables, dream = _case(name, store)
  _, condition, noise, _ = _data(8)
  prefix = np.random.default_rng(9).uniform(size=(watched, _BATCH, 8, 8, 1))
  prefix = prefix.astype(np.float32)
  result = dream(variables, prefix, condition, noise)
  expected = _by_hand(name, store, prefix, condition, noise, None)
  for one, other in zip(result[:3], expected[:3], strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('watched', [0, _LENGTH, _LENGTH + 1])
def test_prefix_of_no_frame_or_of_all_is_refused(watched):
  model, variables, _ = _case('introspective', 'sample')
  _, condition, noise, _ = _data()
  prefix = np.zeros((watched, _BATCH, 8, 8, 1), np.float32)
  message = f'prefix has {watched} frames and condition {_LENGTH} steps'
  with pytest.raises(ValueError, match=message):
    generate.continue_episode(model, variables, prefix, condition, noise)


def test_colour_frames_of_the_digit_networks():
  preset = dataclasses.replace(_TINY, networks='digit')
  model = build.temporal_vae(
    'introspective', preset, (8, 8, 3), _LENGTH, store='mean'
  )
  prefix, condition, noise, _ = _data(10)
  prefix = np.repeat(prefix, 3, axis=-1)
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), None, prefix[0], condition[0], noise[0]
  )
  rng = np.random.default_rng(11)
  variables = jax.tree.map(
    lambda leaf: rng.uniform(0.0, 0.2, leaf.shape).astype(np.float32), shapes
  )
  dream = jax.jit(functools.partial(generate.continue_episode, model))
  shape = (_DREAMED, _BATCH, 8, 8, 3)
  no_noise = np.zeros(shape, np.float32)
  means = dream(variables, prefix, condition, noise, no_noise).frames
  assert means.shape == shape
  assert np.isfinite(means).all()
  frame_noise = rng.normal(size=shape).astype(np.float32)
  drawn = dream(variables, prefix, condition, noise, frame_noise).frames
  # Gaussian frames are drawn with their channels' deviations.
  scale = np.exp(variables['params']['observation_map']['log_scale'])
  np.testing.assert_allclose(
    drawn[0], means[0] + scale * frame_noise[0], rtol=1e-4, atol=1e-5
  )
