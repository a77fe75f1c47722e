"""The state-space model against a plain loop over complex numbers."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.memory.ssm import SSM

STEPS, BATCH, WIDTH = 9, 3, 4
CORE = SSM(size=6, state_size=5, layers=2)
KEY = jax.random.key(0)


@pytest.fixture(scope='module')
def variables():
  """Draws parameters as at the start, the vectors of zeros also random."""
  carry = CORE.initialize_carry(KEY, (WIDTH,))
  return jax.jit(CORE.init)(jax.random.key(1), carry, jnp.zeros(WIDTH))


@pytest.fixture(scope='module')
def inputs():
  """Draws sequences [T, B, I]."""
  x = np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))
  return x.astype(np.float32)


@jax.jit
def run(variables, inputs):
  """Returns states and contexts of inputs [T, ..., I], T in front."""

  def body(carry, x):
    carry, context = CORE.apply(variables, carry, x)
    return carry, (carry, context)

  carry = CORE.initialize_carry(KEY, inputs.shape[1:])
  return jax.lax.scan(body, carry, inputs)[1]


def gelu(x):
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slow_ssm(core, variables, inputs):
  """Computes states [T, L, S] and contexts [T, C] of one sequence [T, I]."""
  tree = jax.tree.map(np.float64, variables['params'])
  size, count = core.size, core.state_size
  states = np.zeros((len(inputs), core.layers, count), complex)
  contexts = []
  s = np.zeros((core.layers, count), complex)
  for t, each in enumerate(inputs):
    x = each @ tree['embedding']['kernel'] + tree['embedding']['bias']
    for layer in range(core.layers):
      name = f'layer_{layer}'
      scale = tree[f'{name}_norm']
      u = scale * x / np.sqrt((x**2).mean() + 1e-6)
      eigenvalue = np.exp(
        -np.exp(tree[f'{name}_nu']) + 1j * np.exp(tree[f'{name}_log_phase'])
      )
      gamma = np.exp(tree[f'{name}_log_gamma'])
      kernel = tree[f'{name}_B']['kernel']
      b = (kernel[:, :count] + 1j * kernel[:, count:]).T
      s[layer] = eigenvalue * s[layer] + gamma * (b @ u)
      kernel = tree[f'{name}_C']['kernel']
      c = (kernel[:count] - 1j * kernel[count:]).T
      y = gelu((c @ s[layer]).real + tree[f'{name}_d'] * u)
      mixing = tree[f'{name}_mixing']
      both = y @ mixing['kernel'] + mixing['bias']
      x = x + both[:size] / (1 + np.exp(-both[size:]))
    states[t] = s
    scale = tree['context_norm']
    contexts.append(scale * x / np.sqrt((x**2).mean() + 1e-6))
  return states, np.array(contexts)


def test_steps_equal_a_loop_over_complex_numbers(variables, inputs):
  states, contexts = run(variables, inputs)
  for b in range(BATCH):
    expected, x = slow_ssm(CORE, variables, np.float64(inputs[:, b]))
    np.testing.assert_allclose(states.real[:, b], expected.real, atol=1e-5)
    np.testing.assert_allclose(states.imaginary[:, b], expected.imag, atol=1e-5)
    np.testing.assert_allclose(contexts[:, b], x, rtol=1e-5, atol=1e-5)


def test_eigenvalues_start_uniform_on_a_ring_and_states_with_variance_one():
  core = SSM(
    *(32, 4_000, 1), least_radius=0.5, greatest_radius=0.95, greatest_phase=1.5
  )
  carry = core.initialize_carry(KEY, (32,))
  variables = jax.jit(core.init)(jax.random.key(2), carry, jnp.zeros(32))
  tree = jax.device_get(variables['params'])
  radius = np.exp(-np.exp(tree['layer_0_nu']))
  phase = np.exp(tree['layer_0_log_phase'])
  assert 0.5 <= radius.min() < 0.51 and 0.94 < radius.max() <= 0.95
  # Uniform on the area of the ring: the squares of the radii are uniform.
  np.testing.assert_allclose(
    np.mean(radius**2), (0.5**2 + 0.95**2) / 2, atol=0.02
  )
  np.testing.assert_allclose(np.mean(phase), 0.75, atol=0.03)
  assert phase.min() > 0 and phase.max() <= 1.5
  np.testing.assert_allclose(
    np.exp(tree['layer_0_log_gamma']), np.sqrt(1 - radius**2), rtol=1e-4
  )
  # Of white inputs, E|s|^2 = gamma^2 E|B u|^2 / (1 - radius^2) = E|B u|^2, 1.
  kernel = tree['layer_0_B']['kernel']
  np.testing.assert_allclose(np.var(kernel), 1 / (2 * 32), rtol=0.05)
  np.testing.assert_allclose(
    np.var(tree['layer_0_C']['kernel']), 1 / 4_000, rtol=0.05
  )


def test_a_thousand_steps_stay_bounded_in_value_and_gradient(variables):
  x = np.random.default_rng(4).normal(size=(1_000, WIDTH)).astype(np.float32)
  states, contexts = run(variables, x)
  lengths = np.hypot(states.real, states.imaginary)
  assert np.all(np.isfinite(contexts)) and lengths.max() < 10
  # What comes in first still counts at the end, and not more than at once.
  last = jax.jit(jax.grad(lambda x: run(variables, x)[1][-1].sum()))(x)
  assert np.all(np.isfinite(last))
  assert 0 < np.abs(last[0]).max() < 10 * np.abs(last[-1]).max()


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'state_size': 0}, 'state_size is 0; it must be >= 1'),
    (
      {'least_radius': 0.9, 'greatest_radius': 0.5},
      'least_radius is 0.9 and greatest_radius 0.5; they must rise',
    ),
    ({'greatest_radius': 1.0}, 'they must rise, from 0 on and below 1'),
    ({'greatest_phase': 7.0}, 'greatest_phase is 7.0; it must be above 0'),
    ({'greatest_phase': float('nan')}, 'greatest_phase is nan'),
  ],
)
def test_wrong_settings_are_refused(changes, words):
  core = dataclasses.replace(CORE, **changes)
  with pytest.raises(ValueError, match=re.escape(words)) as caught:
    core.initialize_carry(KEY, (WIDTH,))
  assert '\n' not in str(caught.value)
