"""The interface from a controller to its memory, and what all cores share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from gtmm_jax.memory import contract, interface
from gtmm_jax.memory.interface import Interface, Part

HIDDEN, WIDTH, WORD, READS, WRITES, LATENT = 3, 4, 5, 3, 2, 2
PARTS = {
  'gates': Part((WRITES,), -3.0),
  'shifts': Part((READS, 3), (0.0, 1.5, -2.0)),
  'erase': Part((WRITES, WORD)),
}
SIZE = WRITES + READS * 3 + WRITES * WORD


def make(latent: int = LATENT, **settings) -> Interface:
  settings = {'write_heads': WRITES, 'parts': PARTS, **settings}
  return Interface(WORD, READS, latent_size=latent, **settings)


@pytest.fixture(scope='module')
def asked() -> dict:
  """h [B, H], inputs [B, I] and tag_{t-1} [B, W - Z], in float32."""
  generator = np.random.default_rng(0)
  shapes = {
    'h': (2, HIDDEN),
    'inputs': (2, WIDTH),
    'tag_tm1': (2, WORD - LATENT),
  }
  return {
    name: jnp.asarray(generator.normal(size=shape), jnp.float32)
    for name, shape in shapes.items()
  }


def random_parameters(latent: int, size: int) -> dict:
  generator = np.random.default_rng(1)

  def layer(rows, columns):
    return {
      'kernel': generator.normal(size=(rows, columns)),
      'bias': generator.normal(size=columns),
    }

  layers = {'linear': layer(HIDDEN, size)}
  if latent:
    layers['tag'] = layer(HIDDEN + latent, WORD - latent)
    layers['read_keys'] = layer(HIDDEN + latent, READS * WORD)
  single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), layers)
  return {'params': single}


def affine(variables, name, x):
  layer = variables['params'][name]
  return np.asarray(x) @ layer['kernel'] + layer['bias']


def assert_parts_are(found: dict, flat: np.ndarray) -> None:
  """Every part is the next piece of the linear map, in its shape."""
  for name, part in PARTS.items():
    size = int(np.prod(part.shape))
    expected = flat[:, :size].reshape(2, *part.shape)
    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    flat = flat[:, size:]
  assert found.keys() == PARTS.keys()
  assert flat.size == 0


@pytest.mark.parametrize('activation', ['identity', 'tanh'])
def test_words_of_latents_carry_the_question_asked_a_step_before(
  asked, activation
):
  variables = random_parameters(LATENT, SIZE)
  found = make(activation=activation).apply(variables, **asked)
  latent = np.asarray(asked['inputs'][:, :LATENT])
  seen = np.concatenate([asked['h'], latent], axis=-1)
  close = {'rtol': 1e-5, 'atol': 1e-6}
  known = np.concatenate([4 * asked['h'], latent], axis=-1)
  tag = affine(variables, 'tag', known)
  np.testing.assert_allclose(found.tag, tag, **close)
  correction = affine(variables, 'read_keys', seen).reshape(2, READS, WORD)
  for head in range(READS):
    key = np.concatenate([np.zeros((2, LATENT)), tag], axis=-1)
    np.testing.assert_allclose(
      found.read_keys[:, head], key + correction[:, head], **close
    )
  word = np.concatenate([latent, asked['tag_tm1']], axis=-1)
  assert found.write_vectors.shape == (2, WRITES, WORD)
  for head in range(WRITES):
    np.testing.assert_array_equal(found.write_vectors[:, head], word)
  assert_parts_are(found.parts, affine(variables, 'linear', asked['h']))


@pytest.mark.parametrize('activation', ['identity', 'tanh'])
@pytest.mark.parametrize('writes', [0, WRITES])
def test_without_latents_all_is_linear_in_the_state(asked, activation, writes):
  keys, words = READS * WORD, writes * WORD
  variables = random_parameters(0, keys + words + SIZE)
  module = make(0, write_heads=writes, activation=activation)
  found = module.apply(variables, asked['h'], asked['inputs'], None)
  flat = affine(variables, 'linear', asked['h'])
  squash = np.tanh if activation == 'tanh' else np.asarray
  close = {'rtol': 1e-5, 'atol': 1e-6}
  np.testing.assert_allclose(
    found.read_keys, squash(flat[:, :keys]).reshape(2, READS, WORD), **close
  )
  if writes:
    np.testing.assert_allclose(
      found.write_vectors,
      squash(flat[:, keys : keys + words]).reshape(2, writes, WORD),
      **close,
    )
  else:
    assert found.write_vectors is None
  assert found.tag is None
  assert_parts_are(found.parts, flat[:, keys + words :])
  # Inputs reach the memory by way of the state alone.
  again = module.apply(variables, asked['h'], asked['inputs'] + 1.0, None)
  jax.tree.map(np.testing.assert_array_equal, again, found)


@pytest.mark.parametrize('latent', [0, LATENT])
def test_at_the_start_parts_have_their_biases_and_keys_are_the_question(
  asked, latent
):
  tag_tm1 = asked['tag_tm1'] if latent else None
  found, variables = make(latent).init_with_output(
    jax.random.key(0), 0.0 * asked['h'], asked['inputs'], tag_tm1
  )
  for name, part in PARTS.items():
    expected = np.broadcast_to(np.float32(part.bias), (2, *part.shape))
    np.testing.assert_array_equal(found.parts[name], expected)
  layers = variables['params']
  assert np.std(layers['linear']['kernel']) > 0.1
  if not latent:
    assert layers.keys() == {'linear'}
    assert not np.any(found.read_keys)
    assert not np.any(found.write_vectors)
    return
  assert layers.keys() == {'linear', 'tag', 'read_keys'}
  assert not any(map(np.any, jax.tree.leaves(layers['read_keys'])))
  assert np.std(layers['tag']['kernel']) > 0.1
  assert np.abs(found.tag).max() > 1e-2
  for head in range(READS):
    np.testing.assert_array_equal(found.read_keys[:, head, :LATENT], 0.0)
    np.testing.assert_array_equal(found.read_keys[:, head, LATENT:], found.tag)


@pytest.mark.parametrize('latent', [0, LATENT])
@pytest.mark.parametrize('batch', [(), (1,), (2, 3)])
def test_any_leading_axes(latent, batch):
  found, _ = jax.eval_shape(
    make(latent).init_with_output,
    jax.random.key(0),
    jnp.zeros((*batch, HIDDEN)),
    jnp.zeros((*batch, WIDTH)),
    interface.initial_tag(batch, WORD, latent),
  )
  assert found.read_keys.shape == (*batch, READS, WORD)
  assert found.write_vectors.shape == (*batch, WRITES, WORD)
  if latent:
    assert found.tag.shape == (*batch, WORD - latent)
  else:
    assert found.tag is None
  for name, part in PARTS.items():
    assert found.parts[name].shape == (*batch, *part.shape)


# Strengths, activations and tags.


def test_strengths_are_softplus_or_oneplus():
  x = np.array([-1e4, -30.0, -1.0, 0.0, 2.5, 30.0, 1e4])
  expected = np.logaddexp(0.0, x)
  for strength, offset in (('softplus', 0.0), ('oneplus', 1.0)):
    found = interface.strengthen(jnp.asarray(x, jnp.float32), strength)
    np.testing.assert_allclose(found, offset + expected, rtol=1e-6)
    slopes = jax.vmap(
      jax.grad(lambda y, strength=strength: interface.strengthen(y, strength))
    )(jnp.asarray(x, jnp.float32))
    assert np.all((slopes >= 0) & (slopes <= 1))


@pytest.mark.parametrize('strength', ['softplus', 'oneplus'])
@pytest.mark.parametrize('initial', [1.001, 1.5, 2.0, 5.0, 10.0, 80.0, 1e3])
def test_the_bias_of_a_strength_gives_it(strength, initial):
  bias = interface.strength_bias(initial, strength)
  found = interface.strengthen(jnp.float32(bias), strength)
  np.testing.assert_allclose(found, initial, rtol=1e-6)


def test_a_misspelt_strength_is_refused():
  with pytest.raises(ValueError, match=r'strength is .twoplus.') as e:
    interface.strengthen(jnp.zeros(2), 'twoplus')
  assert 'softplus or oneplus' in str(e.value)


def test_activations():
  x = jnp.linspace(-3.0, 3.0, 7)
  np.testing.assert_array_equal(interface.activate(x, 'identity'), x)
  np.testing.assert_allclose(
    interface.activate(x, 'tanh'), np.tanh(np.linspace(-3, 3, 7)), rtol=1e-6
  )


@pytest.mark.parametrize('batch', [(), (3,), (2, 1)])
def test_the_first_tag_is_zero_and_as_wide_as_words_have_room(batch):
  tag = interface.initial_tag(batch, WORD, LATENT)
  assert tag.shape == (*batch, WORD - LATENT)
  assert not np.any(tag)
  assert interface.initial_tag(batch, WORD, 0) is None


# The checks that cores share.


@pytest.mark.parametrize('shape', [(3,), (1, 4), (2, 3, 5), (0, 3)])
def test_inputs_that_are_wide_enough_pass(shape):
  contract.require_features(jnp.zeros(shape), 3, 'NTM')


@pytest.mark.parametrize('shape', [(), (0,), (2,), (2, 0), (5, 3, 2)])
def test_inputs_that_are_too_narrow_are_refused(shape):
  with pytest.raises(ValueError, match=r'NTM takes inputs \[\.\.\., I\]') as e:
    contract.require_features(jnp.zeros(shape), 3, 'NTM')
  for words in ('I >= 3', str(shape), 'any number of leading batch axes'):
    assert words in str(e.value)


def test_a_word_is_checked_against_the_allowed_ones():
  contract.require_one_of('order', 'age', ('age', 'arrival'))
  with pytest.raises(ValueError, match=r"order is 'AGE'; it must be a or b\."):
    contract.require_one_of('order', 'AGE', ('a', 'b'))


# A learned memory at the start of a sequence.


class Held(NamedTuple):
  memory: jax.Array
  calls: jax.Array


class Beginner(nn.Module):
  initial_memory: str
  slots: int = 40
  word_size: int = WORD

  @nn.compact
  def __call__(self, carry):
    return contract.begin(self, carry)


def held(*calls: int) -> Held:
  memory = jnp.arange(len(calls) * 40.0 * WORD).reshape(-1, 40, WORD)
  return Held(memory, jnp.asarray(calls, jnp.int32))


def test_a_constant_memory_has_no_parameter():
  carry = held(0, 3)
  found, variables = Beginner('constant').init_with_output(
    jax.random.key(0), carry
  )
  assert not variables
  jax.tree.map(np.testing.assert_array_equal, found, carry)


def test_a_learned_memory_begins_every_sequence_and_no_other_step():
  carry = held(0, 1, 0, 7)
  found, variables = Beginner('learned').init_with_output(
    jax.random.key(0), carry
  )
  learned = variables['params'].pop('initial_memory')
  assert not variables['params']
  assert learned.shape == (40, WORD)
  np.testing.assert_allclose(np.std(learned), 0.1, rtol=0.2)
  for b, calls in enumerate(carry.calls):
    expected = carry.memory[b] if calls else learned
    np.testing.assert_array_equal(found.memory[b], expected)
  np.testing.assert_array_equal(found.calls, carry.calls)
