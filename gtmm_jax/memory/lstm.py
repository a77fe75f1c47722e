"""The LSTM: the state of the VRNN and the controller of every memory core.

Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, scan

Array = jax.Array


class LSTMState(NamedTuple):
  """State of an LSTM of H units.

  Attributes:
    cell: the cell c_t, [..., H].
    hidden: the output h_t in (-1, 1), [..., H].
  """

  cell: Array
  hidden: Array


def _update(gates: Array, cell_tm1: Array) -> LSTMState:
  """Computes the state from [i, f, g, o], not yet activated, and c_{t-1}."""
  i, f, g, o = jnp.split(gates, 4, axis=-1)
  cell = jax.nn.sigmoid(f) * cell_tm1 + jax.nn.sigmoid(i) * jnp.tanh(g)
  return LSTMState(cell, jax.nn.sigmoid(o) * jnp.tanh(cell))


class LSTM(nn.RNNCellBase):
  """Long short-term memory with one fused product a step.

  With i, f, g, o the four parts of [x_t, h_{t-1}] W + b:

    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),    h_t = sigmoid(o) tanh(c_t)

  The context is h_t (Gemici et al. 2017, section 2: the transition map f_h).
  One kernel [I + H, 4 H] and one bias [4 H], zero at the start, are all its
  parameters. The kernel starts Gaussian, not orthogonal: a QR factorisation
  batched over replicas can block XLA's CPU threads for ever.

  Attributes:
    size: number of units H.
  """

  size: int

  num_feature_axes = 1

  @nn.compact
  def __call__(
    self, carry: LSTMState, inputs: Array
  ) -> tuple[LSTMState, Array]:
    """Advances by one step: `inputs [..., I]` -> (state, h_t `[..., H]`)."""
    inputs = contract.check_call(self, carry, inputs)
    fused = jnp.concatenate([inputs, carry.hidden], axis=-1)
    kernel = self.param(
      'kernel',
      nn.initializers.lecun_normal(),
      (fused.shape[-1], 4 * self.size),
      jnp.float32,
    )
    bias = self.param(
      'bias', nn.initializers.zeros, (4 * self.size,), jnp.float32
    )
    gates = scan.product(fused, kernel.astype(fused.dtype))
    bias = addressing.aligned(bias.astype(fused.dtype), gates)
    # The backward pass then saves the gates as one array.
    state = scan.rematerialised(_update)(gates + bias, carry.cell)
    return state, state.hidden

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> LSTMState:
    """Makes zeros with the leading axes of `input_shape`; ignores `rng`."""
    del rng
    contract.check_settings(self)
    shape = (*input_shape[:-1], self.size)
    return LSTMState(contract.zeros(*shape), contract.zeros(*shape))
