"""The transformer against plain causal attention over whole sequences."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from gtmm_jax.memory import transformer
from gtmm_jax.memory.transformer import Transformer

STEPS, BATCH, WIDTH = 9, 3, 4
CORE = Transformer(
  size=6, slots=STEPS, layers=2, heads=2, head_size=4, positions='rotary'
)
PLAIN = dataclasses.replace(CORE, layers=1, positions='none')
KEY = jax.random.key(0)


def random_variables(core):
  """Draws parameters, Gaussian with deviation 0.6."""
  carry = core.initialize_carry(KEY, (WIDTH,))
  shapes = jax.eval_shape(core.init, KEY, carry, jnp.zeros(WIDTH))
  generator = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: (0.6 * generator.normal(size=x.shape)).astype(np.float32), shapes
  )


@pytest.fixture(scope='module')
def inputs():
  """Draws sequences [T, B, I]."""
  x = np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))
  return x.astype(np.float32)


def run(core, variables, inputs, calls=0):
  """Returns states and contexts of inputs [T, ..., I], T in front."""
  carry = core.initialize_carry(KEY, inputs.shape[1:])
  carry = carry._replace(calls=carry.calls + calls)

  def body(carry, x):
    carry, context = core.apply(variables, carry, x)
    return carry, (carry, context)

  return jax.device_get(jax.jit(lambda: jax.lax.scan(body, carry, inputs))())[1]


def norm(x, scale):
  return scale * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def gelu(x):
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rotated(x, position):
  """Turns a vector of D features pair by pair, as complex numbers."""
  half = len(x) // 2
  result = np.zeros_like(x)
  for i in range(half):
    angle = position * 10_000.0 ** (-2 * i / len(x))
    pair = complex(x[i], x[half + i]) * np.exp(1j * angle)
    result[i], result[half + i] = pair.real, pair.imag
  return result


def slow_transformer(core, variables, inputs):
  """Computes contexts [T, C] of one sequence [T, I], block after block.

  Every block sees the whole sequence; weights of the future are 0.
  """
  tree = jax.tree.map(np.float64, variables['params'])
  x = inputs @ tree['embedding']['kernel'] + tree['embedding']['bias']
  if core.positions in ('sinusoidal', 'both'):
    half = (core.size + 1) // 2
    for t in range(len(x)):
      for i in range(half):
        angle = (t + 1) * 10_000.0 ** (-2 * i / core.size)
        x[t, i] += np.sin(angle)
        if half + i < core.size:
          x[t, half + i] += np.cos(angle)
  for layer in range(core.layers):
    name = f'block_{layer}'
    normed = norm(x, tree[f'{name}_norm'])
    parts = (normed @ tree[f'{name}_projections']['kernel']).reshape(
      len(x), 3, core.heads, core.head_size
    )
    reads = np.zeros((len(x), core.heads, core.head_size))
    for head in range(core.heads):
      queries, keys, values = (parts[:, part, head] for part in range(3))
      if core.positions in ('rotary', 'both'):
        queries, keys = (
          np.array([rotated(row, t) for t, row in enumerate(rows)])
          for rows in (queries, keys)
        )
      for t in range(len(x)):
        first = max(0, t + 1 - core.slots)
        logits = [
          queries[t] @ keys[m] / np.sqrt(core.head_size)
          for m in range(first, t + 1)
        ]
        weights = np.exp(logits) / np.exp(logits).sum()
        reads[t, head] = weights @ values[first : t + 1]
    x = x + reads.reshape(len(x), -1) @ tree[f'{name}_output']['kernel']
    hidden = tree[f'{name}_hidden']
    output = tree[f'{name}_hidden_output']
    normed = norm(x, tree[f'{name}_hidden_norm'])
    hidden = gelu(normed @ hidden['kernel'] + hidden['bias'])
    x = x + hidden @ output['kernel'] + output['bias']
  return norm(x, tree['context_norm'])


@pytest.mark.parametrize('positions', ['rotary', 'sinusoidal', 'both', 'none'])
def test_steps_equal_causal_attention_over_the_sequence(inputs, positions):
  core = dataclasses.replace(CORE, positions=positions)
  variables = random_variables(core)
  _, contexts = run(core, variables, inputs)
  for b in range(BATCH):
    expected = slow_transformer(core, variables, np.float64(inputs[:, b]))
    np.testing.assert_allclose(contexts[:, b], expected, rtol=1e-5, atol=1e-5)


def test_few_slots_are_a_window(inputs):
  core = dataclasses.replace(CORE, slots=3)
  variables = random_variables(core)
  _, contexts = run(core, variables, inputs)
  expected = slow_transformer(core, variables, np.float64(inputs[:, 0]))
  np.testing.assert_allclose(contexts[:, 0], expected, rtol=1e-5, atol=1e-5)


def test_a_block_equals_the_attention_of_flax(inputs):
  variables = random_variables(PLAIN)
  tree = variables['params']
  # What the hidden layer adds is left out.
  tree['block_0_hidden_output'] = jax.tree.map(
    np.zeros_like, tree['block_0_hidden_output']
  )
  states, contexts = run(PLAIN, variables, inputs)
  x = inputs @ tree['embedding']['kernel'] + tree['embedding']['bias']
  normed = norm(x, tree['block_0_norm']).swapaxes(0, 1)
  heads = PLAIN.heads, PLAIN.head_size
  layer = nn.MultiHeadDotProductAttention(
    *(PLAIN.heads, np.float32),
    qkv_features=PLAIN.heads * PLAIN.head_size,
    out_features=PLAIN.size,
    use_bias=False,
  )
  kernels = tree['block_0_projections']['kernel'].reshape(PLAIN.size, 3, *heads)
  attention = {
    name: {'kernel': kernels[:, part]}
    for part, name in enumerate(('query', 'key', 'value'))
  }
  attention['out'] = {
    'kernel': tree['block_0_output']['kernel'].reshape(*heads, PLAIN.size)
  }
  mask = nn.make_causal_mask(np.ones((BATCH, STEPS)))
  found = layer.apply({'params': attention}, normed, mask=mask)
  expected = norm(x + np.swapaxes(found, 0, 1), tree['context_norm'])
  np.testing.assert_allclose(contexts, expected, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(states.calls[-1], STEPS)


def test_more_slots_than_inputs_change_nothing(inputs):
  variables = random_variables(CORE)
  _, contexts = run(CORE, variables, inputs)
  longer = dataclasses.replace(CORE, slots=5 * STEPS)
  states, found = run(longer, variables, inputs)
  np.testing.assert_allclose(found, contexts, rtol=1e-6, atol=1e-6)
  assert not np.any(states.read_weights[..., STEPS:])


def test_inputs_older_than_the_slots_are_forgotten(inputs):
  core = dataclasses.replace(PLAIN, slots=4, positions='rotary')
  variables = random_variables(core)
  other = inputs.copy()
  other[:3] += 1.0
  contexts, changed = (run(core, variables, x)[1] for x in (inputs, other))
  # Input 3 is the last that differs; it is in the window until step 6.
  assert np.abs(contexts - changed)[:6].max(axis=(1, 2)).min() > 1e-3
  np.testing.assert_allclose(changed[6:], contexts[6:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('positions', ['rotary', 'sinusoidal'])
def test_rotary_positions_tell_only_how_long_ago(inputs, positions):
  core = dataclasses.replace(CORE, positions=positions)
  variables = random_variables(core)
  waves_of_later = [
    # As if so many inputs had come and gone before.
    run(core, variables, inputs, calls=count * core.slots)[1]
    for count in (1, 5)
  ]
  # The slots of a full ring are all read; zeros were written in them.
  first, second = waves_of_later
  is_same = np.allclose(first, second, rtol=1e-4, atol=1e-4)
  assert is_same == (positions == 'rotary')


def test_waves_and_turns_are_those_of_the_formula():
  number = np.array([3, 700], np.int32)
  sines, cosines = transformer.waves(number, 6, jnp.float32)
  angles = number[:, None] * 10_000.0 ** (-np.arange(3) / 3)
  np.testing.assert_allclose(sines, np.sin(angles), atol=1e-4)
  np.testing.assert_allclose(cosines, np.cos(angles), atol=1e-4)
  sines, cosines = transformer.waves(number, 5, jnp.float32)
  assert sines.shape == (2, 3) and cosines.shape == (2, 2)
  x = np.random.default_rng(3).normal(size=(2, 4, 6)).astype(np.float32)
  found = transformer.turned(x, number)
  np.testing.assert_allclose(
    np.linalg.norm(found, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
  )
  expected = rotated(np.float64(x[1, 2]), 700)
  np.testing.assert_allclose(found[1, 2], expected, atol=1e-3)


def test_what_blocks_add_starts_smaller_by_their_number():
  core = Transformer(size=64, slots=4, layers=8)
  carry = core.initialize_carry(KEY, (64,))
  variables = jax.jit(core.init)(jax.random.key(5), carry, np.zeros(64))
  for name, inputs in (('output', 128), ('hidden_output', 256)):
    kernel = variables['params'][f'block_3_{name}']['kernel']
    np.testing.assert_allclose(np.var(kernel), 1 / (2 * 8 * inputs), rtol=0.1)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'head_size': 3}, 'head_size is 3; it must be even'),
    ({'layers': 0}, 'layers is 0; it must be >= 1'),
    ({'heads': 1.5}, 'heads is 1.5; it must be a whole number'),
    (
      {'positions': 'learned'},
      "positions is 'learned'; it must be rotary or sinusoidal or both or none",
    ),
  ],
)
def test_wrong_settings_are_refused(changes, words):
  core = dataclasses.replace(CORE, **changes)
  with pytest.raises(ValueError, match=re.escape(words)) as caught:
    core.initialize_carry(KEY, (WIDTH,))
  assert '\n' not in str(caught.value)
