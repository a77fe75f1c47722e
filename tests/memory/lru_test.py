"""Least-recently-used access against a plain loop of its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
from gtmm_jax.memory import contract
from gtmm_jax.memory.lru import LRU, LRUInterface, access
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

# More writes than slots, so that slots are used again.
STEPS, WIDTH, SLOTS, WORD, CONTROLLER, LATENT = 7, 3, 5, 4, 3, 2


def make(**settings) -> LRU:
  return LRU(
    slots=SLOTS, word_size=WORD, controller_size=CONTROLLER, **settings
  )


def writes_key(core: LRU) -> bool:
  return core.write_vector == 'key' and core.latent_size == 0


def linear_parts(core: LRU) -> dict[str, tuple[int, ...]]:
  """Lists the parts of the linear map of h_t, in order."""
  heads = core.read_heads
  parts = {}
  if not core.latent_size:
    parts['read_keys'] = (heads, WORD)
    if not writes_key(core):
      parts['write_vectors'] = (heads, WORD)
  parts['gates'] = (heads,)
  if core.strength != 'none':
    parts['strengths'] = (heads,)
  return parts


def random_parameters(core: LRU) -> dict:
  return plain_loops.random_parameters(core, WIDTH, linear_parts(core))


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws one sequence [T, Z + A]."""
  return np.random.default_rng(1).normal(size=(STEPS, WIDTH))


# A slow answer for one sequence, in float64.


def slow_interface(core, parameters, h, x, tag):
  """Returns raw parts, keys and written vectors by name, and the new tag."""
  raw = cut(linear_parts(core), affine(parameters['linear'], h))
  if not core.latent_size:
    squash = plain_loops.squash(core)
    raw['read_keys'] = squash(raw['read_keys'])
    raw['write_vectors'] = (
      raw['read_keys'] if writes_key(core) else squash(raw['write_vectors'])
    )
    return raw, tag
  word, raw['read_keys'], tag = question(core, parameters, h, x, tag)
  raw['write_vectors'] = [word / core.read_heads] * core.read_heads
  return raw, tag


def slow_write(memory, usage, read_weights, gates, vectors):
  """Computes memory and write weights: Santoro et al. 2016, eqs. 6 to 8."""
  order = sorted(range(SLOTS), key=lambda slot: (usage[slot], slot))
  marked = [float(slot in order[: len(gates)]) for slot in range(SLOTS)]
  memory = memory.copy()
  memory[order[0]] = 0.0
  weights = np.zeros((len(gates), SLOTS))
  for head, gate in enumerate(gates):
    for slot in range(SLOTS):
      weights[head, slot] = (
        gate * read_weights[head][slot] + (1 - gate) * marked[slot]
      )
      memory[slot] += weights[head, slot] * np.asarray(vectors[head])
  return memory, weights


def slow_read(memory, keys, strengths):
  """Computes weights and reads of all heads: Santoro et al. 2016, eqs. 2-4."""
  weights = []
  for key, strength in zip(keys, strengths, strict=True):
    weights.append(by_content(memory, key, strength))
  reads = [sum(w * m for w, m in zip(v, memory, strict=True)) for v in weights]
  return np.array(weights), np.array(reads)


def slow_lru(core, variables, inputs):
  """Yields the carry of every step by name, and its context."""
  parameters, heads = variables['params'], core.read_heads
  cell, h = np.zeros(CONTROLLER), np.zeros(CONTROLLER)
  memory = parameters.get('initial_memory', np.full((SLOTS, WORD), 1e-6))
  usage, read_weights = np.zeros(SLOTS), np.zeros((heads, SLOTS))
  reads = np.zeros((heads, WORD))
  tag = first_tag(core)
  for x in inputs:
    cell, h = control(parameters['controller'], x, reads, cell, h)
    raw, tag = slow_interface(core, parameters['interface'], h, x, tag)
    strengths = np.ones(heads)
    if core.strength != 'none':
      strengths = softplus(raw['strengths']) + (core.strength == 'oneplus')
    gates = sigmoid(raw['gates'])
    written, write_weights = slow_write(
      memory, usage, read_weights, gates, raw['write_vectors']
    )
    source = written if core.reads == 'after' else memory
    read_weights, reads = slow_read(source, raw['read_keys'], strengths)
    memory = written
    usage = core.decay * usage + sum(read_weights) + sum(write_weights)
    yield (
      {
        'memory': memory,
        'usage': usage,
        'read_weights': read_weights,
        'write_weights': write_weights,
        'reads': reads,
        'gates': gates,
        'tag': tag,
      },
      np.concatenate([reads.reshape(-1), h]),
    )


# Few shapes, so that operations are compiled once for many of them.
LEARNED = {'initial_memory': 'learned'}
ONE, THREE = {'read_heads': 1}, {'read_heads': 3}
SETTINGS = [
  {**THREE},
  {**THREE, 'latent_size': LATENT},
  {**THREE, **LEARNED},
  {**THREE, **LEARNED, 'write_vector': 'separate', 'reads': 'before'},
  {**THREE, **LEARNED, 'latent_size': LATENT, 'strength': 'softplus'},
  {**THREE, **LEARNED, 'strength': 'oneplus', 'decay': 0.5},
  {
    **THREE,
    **LEARNED,
    'latent_size': LATENT,
    'controller_weight': 1.0,
    'key_activation': 'tanh',
    'strength': 'oneplus',
    'reads': 'before',
  },
  {
    **THREE,
    **LEARNED,
    'key_activation': 'tanh',
    'write_vector': 'separate',
    'strength': 'softplus',
  },
  {**ONE, **LEARNED, 'key_activation': 'tanh', 'reads': 'before'},
]


def by_slot(state: dict) -> np.ndarray:
  """Returns all of every slot, [N, ...], whatever the order of slots."""
  columns = [
    state['memory'],
    np.reshape(state['usage'], (SLOTS, 1)),
    np.transpose(state['read_weights']),
    np.transpose(state['write_weights']),
  ]
  return np.sort(np.concatenate(columns, axis=-1), axis=0)


@pytest.mark.parametrize('settings', SETTINGS, ids=label)
def test_equals_a_plain_loop(inputs, settings):
  core = make(**settings)
  variables = random_parameters(core)
  close = {'rtol': 1e-9, 'atol': 1e-12}
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    carry = contract.in_dtype(carry, jnp.float64)
    steps = slow_lru(core, variables, inputs)
    for t, (expected, context) in enumerate(steps):
      carry, found = core.apply(variables, carry, jnp.asarray(inputs[t]))
      assert found.dtype == np.float64
      np.testing.assert_allclose(found, context, **close)
      if core.initial_memory == 'constant':
        # Slots that were never written are alike but for rounding, which
        # decides whose turn it is. It changes nothing that is read.
        np.testing.assert_allclose(
          by_slot(carry._asdict()), by_slot(expected), **close
        )
        expected = {name: expected[name] for name in ('reads', 'gates', 'tag')}
      plain_loops.assert_fields_close(carry, expected, t, **close)
      assert carry.calls == t + 1


# Who is written.


def random_state(generator: np.random.Generator, core: LRU):
  """Makes a state amid a sequence whose usages are all different."""
  carry = core.initialize_carry(jax.random.key(0), (WIDTH,))
  weights = generator.dirichlet(np.ones(SLOTS), size=core.read_heads)
  return carry._replace(
    memory=jnp.asarray(generator.normal(size=(SLOTS, WORD))),
    usage=jnp.asarray(generator.permutation(SLOTS) + generator.uniform()),
    read_weights=jnp.asarray(weights),
    calls=jnp.asarray(3),
  )


@pytest.mark.parametrize('heads', [1, 3])
@pytest.mark.parametrize('gate', [0.0, 1.0])
def test_saturated_gates_write_to_the_least_used_or_to_what_was_read(
  heads, gate
):
  generator = np.random.default_rng(4)
  with jax.enable_x64(True):
    state = random_state(generator, make(read_heads=heads))
    words = generator.normal(size=(heads, WORD))
    asked = LRUInterface(
      keys=jnp.asarray(generator.normal(size=(heads, WORD))),
      strengths=jnp.ones(heads),
      write_vectors=jnp.asarray(words),
      gates=jnp.full(heads, gate),
    )
    after = jax.tree.map(np.asarray, access(state, asked))
  order = np.argsort(state.usage)
  kept = np.array(state.memory)
  kept[order[0]] = 0.0
  if gate:
    np.testing.assert_array_equal(after.write_weights, state.read_weights)
    np.testing.assert_allclose(
      after.memory, kept + np.asarray(state.read_weights).T @ words, rtol=1e-12
    )
    return
  # Exactly n of them, whatever else there is, and the same for every head.
  least = sorted(order[:heads])
  for weights in after.write_weights:
    assert list(np.flatnonzero(weights)) == least
    np.testing.assert_array_equal(weights[least], 1.0)
  untouched = sorted(order[heads:])
  np.testing.assert_array_equal(after.memory[untouched], kept[untouched])
  np.testing.assert_allclose(
    after.memory[order[0]], words.sum(0), rtol=1e-12, atol=1e-15
  )
  for slot in order[1:heads]:
    np.testing.assert_allclose(
      after.memory[slot], kept[slot] + words.sum(0), rtol=1e-12
    )


def test_slots_that_tie_are_written_from_the_lowest_index_on():
  core = make(read_heads=2)
  state = core.initialize_carry(jax.random.key(0), (WIDTH,))
  asked = LRUInterface(
    keys=jnp.ones((2, WORD)),
    strengths=jnp.ones(2),
    write_vectors=jnp.ones((2, WORD)),
    gates=jnp.zeros(2),
  )
  for usage, written in (
    ([0, 0, 0, 0, 0], [0, 1]),
    ([1, 0, 1, 0, 0], [1, 3]),
    ([1, 1, 1, 1, 0], [0, 4]),
  ):
    after = access(state._replace(usage=jnp.asarray(usage, float)), asked)
    for weights in after.write_weights:
      assert list(np.flatnonzero(weights)) == written


def test_at_the_start_every_word_goes_to_a_slot_of_its_own(inputs):
  core = make(read_heads=1, latent_size=LATENT, strength='softplus')
  variables, step = (
    {'params': plain_loops.initial(core, WIDTH)},
    jax.jit(core.apply),
  )
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    written = []
    for x in inputs[:SLOTS]:
      carry, _ = step(variables, carry, jnp.asarray(x))
      assert carry.write_weights.max() > 0.8
      written.append(int(carry.write_weights.argmax()))
  assert sorted(written) == list(range(SLOTS))


@pytest.mark.parametrize('strength', ['none', 'softplus', 'oneplus'])
def test_biases_at_the_start(strength):
  core = make(read_heads=3, strength=strength, initial_strength=4.0)
  bias = plain_loops.initial(
    core, WIDTH, lambda p: p['interface']['linear']['bias']
  )
  raw = cut(linear_parts(core), np.asarray(bias))
  np.testing.assert_array_equal(raw.pop('gates'), -3.0)
  if strength != 'none':
    strengths = softplus(raw.pop('strengths')) + (strength == 'oneplus')
    np.testing.assert_allclose(strengths, 4.0, rtol=1e-6)
  assert not any(map(np.any, raw.values()))
