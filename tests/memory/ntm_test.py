"""The neural Turing machine against a plain loop of the published equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
from gtmm_jax.memory import contract
from gtmm_jax.memory.ntm import NTM
from plain_loops import (
  affine,
  by_content,
  control,
  cut,
  first_tag,
  label,
  question,
  sigmoid,
  softplus,
)

# As many slots as a shift of two either way meets itself on.
STEPS, WIDTH, SLOTS, WORD, CONTROLLER, LATENT = 6, 3, 4, 5, 3, 2


def make(**settings) -> NTM:
  return NTM(
    slots=SLOTS, word_size=WORD, controller_size=CONTROLLER, **settings
  )


def linear_parts(core: NTM) -> dict[str, tuple[int, ...]]:
  """Lists the parts of the linear map of h_t, in order."""
  shifts = 2 * core.shift_range + 1
  parts = {}
  if not core.latent_size:
    parts['read_keys'] = (core.read_heads, WORD)
    parts['write_vectors'] = (core.write_heads, WORD)
  for kind, heads in (('read', core.read_heads), ('write', core.write_heads)):
    parts[f'{kind}_strengths'] = (heads,)
    parts[f'{kind}_gates'] = (heads,)
    parts[f'{kind}_shifts'] = (heads, shifts)
    parts[f'{kind}_powers'] = (heads,)
  parts['write_keys'] = (core.write_heads, WORD)
  parts['erase'] = (core.write_heads, WORD)
  return parts


def random_parameters(core: NTM) -> dict:
  return plain_loops.random_parameters(core, WIDTH, linear_parts(core))


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws one sequence [T, Z + A]."""
  return np.random.default_rng(1).normal(size=(STEPS, WIDTH))


# A slow answer for one sequence, in float64.


def slow_address(memory, last, key, strength, gate, shifts, power):
  """Computes weights [N] of one head: Graves et al. 2014, eqs. 5 to 9."""
  gated = gate * by_content(memory, key, strength) + (1 - gate) * last
  moved = np.zeros(SLOTS)
  for slot, weight in enumerate(gated):
    for s, probability in enumerate(shifts):
      moved[(slot + s - len(shifts) // 2) % SLOTS] += weight * probability
  sharp = np.array([weight**power for weight in moved])
  return sharp / sharp.sum()


def slow_heads(core, raw, kind, keys):
  """Yields the arguments of `slow_address` for each head of one kind."""
  for head, key in enumerate(keys):
    strength = softplus(raw[f'{kind}_strengths'][head])
    shifts = np.exp(raw[f'{kind}_shifts'][head])
    yield (
      key,
      strength + (core.strength == 'oneplus'),
      sigmoid(raw[f'{kind}_gates'][head]),
      shifts / shifts.sum(),
      1 + softplus(raw[f'{kind}_powers'][head]),
    )


def slow_interface(core, parameters, h, x, tag):
  """Returns raw parts by name, keys and add vectors made, and the new tag."""
  raw = cut(linear_parts(core), affine(parameters['linear'], h))
  squash = plain_loops.squash(core)
  raw['write_keys'] = squash(raw['write_keys'])
  if not core.latent_size:
    raw['read_keys'] = squash(raw['read_keys'])
    raw['write_vectors'] = squash(raw['write_vectors'])
    return raw, tag
  word, raw['read_keys'], tag = question(core, parameters, h, x, tag)
  raw['write_vectors'] = [word] * core.write_heads
  return raw, tag


def slow_ntm(core, variables, inputs):
  """Yields the carry of every step by name, and its context."""
  parameters = variables['params']
  cell, h = np.zeros(CONTROLLER), np.zeros(CONTROLLER)
  memory = parameters.get('initial_memory', np.full((SLOTS, WORD), 1e-6))
  first = np.eye(SLOTS)[0]
  read_weights = [first] * core.read_heads
  write_weights = [first] * core.write_heads
  reads = np.zeros((core.read_heads, WORD))
  tag = first_tag(core)
  for x in inputs:
    cell, h = control(parameters['controller'], x, reads, cell, h)
    raw, tag = slow_interface(core, parameters['interface'], h, x, tag)
    write_weights = [
      slow_address(memory, last, *asked)
      for last, asked in zip(
        write_weights,
        slow_heads(core, raw, 'write', raw['write_keys']),
        strict=True,
      )
    ]
    written = memory.copy()
    for w, erase in zip(write_weights, raw['erase'], strict=True):
      written = written * (1 - np.outer(w, sigmoid(erase)))
    for w, add in zip(write_weights, raw['write_vectors'], strict=True):
      written = written + np.outer(w, add)
    source = written if core.reads == 'after' else memory
    read_weights = [
      slow_address(source, last, *asked)
      for last, asked in zip(
        read_weights,
        slow_heads(core, raw, 'read', raw['read_keys']),
        strict=True,
      )
    ]
    reads = np.array(
      [
        sum(weight * slot for weight, slot in zip(w, source, strict=True))
        for w in read_weights
      ]
    )
    memory = written
    yield (
      {
        'memory': memory,
        'read_weights': read_weights,
        'write_weights': write_weights,
        'reads': reads,
        'read_gates': sigmoid(raw['read_gates']),
        'write_gates': sigmoid(raw['write_gates']),
        'tag': tag,
      },
      np.concatenate([reads.reshape(-1), h]),
    )


# Few shapes, so that operations are compiled once for many of them.
MANY = {'read_heads': 3, 'write_heads': 2}
SETTINGS = [
  {},
  {'latent_size': LATENT, 'strength': 'oneplus'},
  {'reads': 'after', 'initial_memory': 'learned', 'shift_range': 0},
  {
    **MANY,
    'latent_size': LATENT,
    'controller_weight': 1.0,
    'reads': 'after',
    'key_activation': 'tanh',
  },
  {**MANY, 'strength': 'oneplus', 'key_activation': 'tanh', 'shift_range': 2},
  {
    **MANY,
    'latent_size': LATENT,
    'initial_memory': 'learned',
    'shift_range': 2,
  },
]


@pytest.mark.parametrize('settings', SETTINGS, ids=label)
def test_equals_a_plain_loop(inputs, settings):
  core = make(**settings)
  variables = random_parameters(core)
  close = {'rtol': 1e-9, 'atol': 1e-12}
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    carry = contract.in_dtype(carry, jnp.float64)
    steps = slow_ntm(core, variables, inputs)
    for t, (expected, context) in enumerate(steps):
      carry, found = core.apply(variables, carry, jnp.asarray(inputs[t]))
      assert found.dtype == np.float64
      np.testing.assert_allclose(found, context, **close)
      plain_loops.assert_fields_close(carry, expected, t, **close)
      assert carry.calls == t + 1


def test_at_the_start_words_go_to_one_slot_after_the_other(inputs):
  core = make(latent_size=LATENT, strength='oneplus')
  variables, step = (
    {'params': plain_loops.initial(core, WIDTH)},
    jax.jit(core.apply),
  )
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    for t in range(SLOTS):
      carry, _ = step(variables, carry, jnp.asarray(inputs[t]))
      assert np.all(carry.write_weights[:, (t + 1) % SLOTS] > 0.5), t


@pytest.mark.parametrize(
  ('shift_range', 'favoured', 'strength'),
  [(0, 0, 'softplus'), (1, 2, 'oneplus'), (2, 3, 'softplus')],
)
def test_biases_at_the_start(shift_range, favoured, strength):
  core = make(
    shift_range=shift_range, strength=strength, initial_strength=4.0, **MANY
  )
  bias = plain_loops.initial(
    core, WIDTH, lambda p: p['interface']['linear']['bias']
  )
  raw = cut(linear_parts(core), np.asarray(bias))
  offset = strength == 'oneplus'
  for kind, gate, shift in (('read', 0.0, 2.0), ('write', -3.0, 3.0)):
    strengths = offset + softplus(raw.pop(f'{kind}_strengths'))
    np.testing.assert_allclose(strengths, 4.0, rtol=1e-6)
    np.testing.assert_array_equal(raw.pop(f'{kind}_gates'), gate)
    shifts = raw.pop(f'{kind}_shifts')
    np.testing.assert_array_equal(shifts[:, favoured], shift)
    assert np.count_nonzero(shifts) == len(shifts)
  assert not any(map(np.any, raw.values()))
