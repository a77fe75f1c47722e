"""The interface from a controller to its memory, and what all cores share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from gtmm_jax.memory import DNC, contract, interface
from gtmm_jax.memory.interface import Interface, Part

HIDDEN, WIDTH, WORD, READS, WRITES, LATENT = 3, 4, 5, 3, 2, 2


class Parts(NamedTuple):
  gates: Part | jax.Array
  shifts: Part | jax.Array
  left_out: None
  erase: Part | jax.Array


PARTS = Parts(
  gates=Part((WRITES,), -3.0),
  shifts=Part((READS, 3), (0.0, 1.5, -2.0)),
  left_out=None,
  erase=Part((WRITES, WORD)),
)
SIZE = WRITES + READS * 3 + WRITES * WORD


def make(latent: int = LATENT, **settings) -> Interface:
  settings = {'write_heads': WRITES, 'parts': PARTS, **settings}
  return Interface(WORD, READS, latent_size=latent, **settings)


@pytest.fixture(scope='module')
def asked() -> dict:
  """Draws h [B, H], inputs [B, I] and tag_{t-1} [B, W - Z], in float32."""
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


def pairs(parts: Parts) -> list[tuple[Part, jax.Array]]:
  """Pairs each part with its array, in the order of the fields."""
  assert type(parts) is Parts
  assert parts.left_out is None
  return [
    (part, array)
    for part, array in zip(PARTS, parts, strict=True)
    if part is not None
  ]


def assert_parts_are(parts: Parts, flat: np.ndarray) -> None:
  """Checks that each part is the next piece of the linear map, in its shape."""
  for part, array in pairs(parts):
    size = int(np.prod(part.shape))
    expected = flat[:, :size].reshape(2, *part.shape)
    np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    flat = flat[:, size:]
  assert flat.size == 0


@pytest.mark.parametrize(
  ('settings', 'weight'),
  [
    ({}, 4.0),
    ({'activation': 'tanh'}, 4.0),
    ({'controller_weight': 1.0}, 1.0),
  ],
)
def test_words_of_latents_carry_the_question_asked_a_step_before(
  asked, settings, weight
):
  variables = random_parameters(LATENT, SIZE)
  words, parts, new_tag = make(**settings).apply(variables, **asked)
  latent = np.asarray(asked['inputs'][:, :LATENT])
  seen = np.concatenate([asked['h'], latent], axis=-1)
  close = {'rtol': 1e-5, 'atol': 1e-6}
  known = np.concatenate([weight * asked['h'], latent], axis=-1)
  tag = affine(variables, 'tag', known)
  np.testing.assert_allclose(new_tag, tag, **close)
  correction = affine(variables, 'read_keys', seen).reshape(2, READS, WORD)
  for head in range(READS):
    key = np.concatenate([np.zeros((2, LATENT)), tag], axis=-1)
    np.testing.assert_allclose(
      words.read_keys[:, head], key + correction[:, head], **close
    )
  word = np.concatenate([latent, asked['tag_tm1']], axis=-1)
  assert words.write_vectors.shape == (2, WRITES, WORD)
  for head in range(WRITES):
    np.testing.assert_array_equal(words.write_vectors[:, head], word)
  assert_parts_are(parts, affine(variables, 'linear', asked['h']))


@pytest.mark.parametrize('activation', ['identity', 'tanh'])
@pytest.mark.parametrize('writes', [0, WRITES])
def test_without_latents_all_is_linear_in_the_state(asked, activation, writes):
  keys, written = READS * WORD, writes * WORD
  variables = random_parameters(0, keys + written + SIZE)
  module = make(0, write_heads=writes, activation=activation)
  found = module.apply(variables, asked['h'], asked['inputs'], None)
  words, parts, tag = found
  flat = affine(variables, 'linear', asked['h'])
  squash = np.tanh if activation == 'tanh' else np.asarray
  close = {'rtol': 1e-5, 'atol': 1e-6}
  np.testing.assert_allclose(
    words.read_keys, squash(flat[:, :keys]).reshape(2, READS, WORD), **close
  )
  if writes:
    np.testing.assert_allclose(
      words.write_vectors,
      squash(flat[:, keys : keys + written]).reshape(2, writes, WORD),
      **close,
    )
  else:
    assert words.write_vectors is None
  assert tag is None
  assert_parts_are(parts, flat[:, keys + written :])
  # Inputs reach the memory by way of the state alone.
  again = module.apply(variables, asked['h'], asked['inputs'] + 1.0, None)
  jax.tree.map(np.testing.assert_array_equal, again, found)


@pytest.mark.parametrize('latent', [0, LATENT])
def test_at_the_start_parts_have_their_biases_and_keys_are_the_question(
  asked, latent
):
  tag_tm1 = asked['tag_tm1'] if latent else None
  (words, parts, tag), variables = make(latent).init_with_output(
    jax.random.key(0), 0.0 * asked['h'], asked['inputs'], tag_tm1
  )
  for part, array in pairs(parts):
    expected = np.broadcast_to(np.float32(part.bias), (2, *part.shape))
    np.testing.assert_array_equal(array, expected)
  layers = variables['params']
  assert np.std(layers['linear']['kernel']) > 0.1
  if not latent:
    assert layers.keys() == {'linear'}
    assert not np.any(words.read_keys)
    assert not np.any(words.write_vectors)
    return
  assert layers.keys() == {'linear', 'tag', 'read_keys'}
  assert not any(map(np.any, jax.tree.leaves(layers['read_keys'])))
  assert np.std(layers['tag']['kernel']) > 0.1
  assert np.abs(tag).max() > 1e-2
  for head in range(READS):
    np.testing.assert_array_equal(words.read_keys[:, head, :LATENT], 0.0)
    np.testing.assert_array_equal(words.read_keys[:, head, LATENT:], tag)


@pytest.mark.parametrize('latent', [0, LATENT])
@pytest.mark.parametrize('batch', [(), (1,), (2, 3)])
def test_any_leading_axes(latent, batch):
  (words, parts, tag), _ = jax.eval_shape(
    make(latent).init_with_output,
    jax.random.key(0),
    jnp.zeros((*batch, HIDDEN)),
    jnp.zeros((*batch, WIDTH)),
    interface.initial_tag(batch, WORD, latent),
  )
  assert words.read_keys.shape == (*batch, READS, WORD)
  assert words.write_vectors.shape == (*batch, WRITES, WORD)
  if latent:
    assert tag.shape == (*batch, WORD - latent)
  else:
    assert tag is None
  for part, array in pairs(parts):
    assert array.shape == (*batch, *part.shape)


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
  core = DNC(slots=2, word_size=4, latent_size=3)
  carry = core.initialize_carry(jax.random.key(0), shape)
  inputs = contract.check_call(core, carry, jnp.zeros(shape, jnp.int32))
  assert inputs.shape == shape
  assert inputs.dtype == jnp.float32


def test_a_word_is_checked_against_the_allowed_ones():
  contract.check_word('order', 'age', ('age', 'arrival'))
  with pytest.raises(ValueError, match=r"order is 'AGE'; it must be a or b\."):
    contract.check_word('order', 'AGE', ('a', 'b'))


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
    return contract.with_initial_memory(self, carry)


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
