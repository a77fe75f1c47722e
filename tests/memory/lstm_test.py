"""The LSTM against a plain loop and Flax's own cell, in every way it is run."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from gtmm_jax.memory import contract
from gtmm_jax.memory.lstm import LSTM

STEPS, BATCH, WIDTH, SIZE = 7, 4, 3, 5


def random_parameters(scale: float = 0.7, seed: int = 0) -> dict:
  generator = np.random.default_rng(seed)
  return {
    'params': {
      'kernel': scale * generator.normal(size=(WIDTH + SIZE, 4 * SIZE)),
      'bias': scale * generator.normal(size=4 * SIZE),
    }
  }


def in_single(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def sigmoid(x: float) -> float:
  return 1 / (1 + np.exp(-x))


def slow_lstm(variables, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Computes cells and outputs [T, H] of one sequence [T, I], unit by unit."""
  kernel, bias = variables['params']['kernel'], variables['params']['bias']
  cell, hidden = np.zeros(SIZE), np.zeros(SIZE)
  cells, outputs = [], []
  for x in inputs:
    seen = [*x, *hidden]
    new_cell, new_hidden = np.zeros(SIZE), np.zeros(SIZE)
    for unit in range(SIZE):
      i, f, g, o = (
        sum(s * kernel[row, part * SIZE + unit] for row, s in enumerate(seen))
        + bias[part * SIZE + unit]
        for part in range(4)
      )
      new_cell[unit] = sigmoid(f) * cell[unit] + sigmoid(i) * np.tanh(g)
      new_hidden[unit] = sigmoid(o) * np.tanh(new_cell[unit])
    cell, hidden = new_cell, new_hidden
    cells.append(cell)
    outputs.append(hidden)
  return np.array(cells), np.array(outputs)


@jax.jit
def scan(variables, inputs):
  """Returns the last state and outputs [T, ..., H] of inputs [T, ..., I]."""
  core = LSTM(SIZE)
  carry = core.initialize_carry(jax.random.key(0), inputs.shape[1:])
  carry = contract.in_dtype(carry, inputs.dtype)
  return jax.lax.scan(lambda c, x: core.apply(variables, c, x), carry, inputs)


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  return np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))


def test_equals_a_plain_loop(inputs):
  variables = random_parameters()
  with jax.enable_x64(True):
    state, outputs = jax.tree.map(np.asarray, scan(variables, inputs))
  for b in range(BATCH):
    cells, expected = slow_lstm(variables, inputs[:, b])
    np.testing.assert_allclose(outputs[:, b], expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(state.cell[b], cells[-1], rtol=1e-10)
    np.testing.assert_array_equal(state.hidden[b], outputs[-1, b])


def test_equals_the_cell_of_flax_with_the_same_weights(inputs):
  variables = in_single(random_parameters())
  kernel, bias = variables['params']['kernel'], variables['params']['bias']
  theirs = {}
  for part, letter in enumerate('ifgo'):
    columns = slice(part * SIZE, (part + 1) * SIZE)
    theirs[f'i{letter}'] = {'kernel': kernel[:WIDTH, columns]}
    theirs[f'h{letter}'] = {
      'kernel': kernel[WIDTH:, columns],
      'bias': bias[columns],
    }
  single = jnp.asarray(inputs, jnp.float32)
  (cell, hidden), expected = nn.RNN(
    nn.OptimizedLSTMCell(SIZE), time_major=True, return_carry=True
  ).apply({'params': {'cell': theirs}}, single)
  state, outputs = scan(variables, single)
  np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(state.cell, cell, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(state.hidden, hidden, rtol=1e-5, atol=1e-6)


def test_parameters_are_one_kernel_and_one_bias():
  core = LSTM(64)
  carry = core.initialize_carry(jax.random.key(0), (2, 192))
  variables = jax.jit(core.init)(jax.random.key(1), carry, jnp.zeros((2, 192)))
  assert variables.keys() == {'params'}
  assert jax.tree.map(jnp.shape, variables['params']) == {
    'kernel': (256, 256),
    'bias': (256,),
  }
  np.testing.assert_array_equal(variables['params']['bias'], 0.0)
  kernel = variables['params']['kernel']
  np.testing.assert_allclose(kernel.std(), 256**-0.5, rtol=0.03)
  np.testing.assert_allclose(kernel.mean(), 0.0, atol=2e-3)
  # Neither orthogonal nor made by a factorisation.
  assert np.abs(kernel @ kernel.T - np.eye(256)).max() > 0.1
  program = str(
    jax.make_jaxpr(core.init)(jax.random.key(1), carry, jnp.zeros((2, 192)))
  )
  assert not re.search(r'\b(qr|geqrf|householder_product)\b', program)


@pytest.mark.parametrize('scale', [0.0, 1e4])
def test_extreme_weights_and_inputs_stay_finite(inputs, scale):
  variables = in_single(random_parameters(scale))

  def total(variables, inputs):
    state, outputs = scan(variables, inputs)
    return (outputs**2).sum() + (state.cell**2).sum(), outputs

  gradients, outputs = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(
    variables, jnp.asarray(1e4 * inputs, jnp.float32)
  )
  assert np.all(np.abs(outputs) <= 1)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))
