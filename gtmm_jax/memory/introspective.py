"""The introspection network: a first-in-first-out store read by position.

Gemici et al. 2017, section 3.1, https://arxiv.org/abs/1702.04649.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, positions, scan
from gtmm_jax.memory.lstm import LSTM, LSTMState
from gtmm_jax.memory.positions import Positions

Array = jax.Array
Attention = Literal['linear', 'softmax', 'gaussian']
Order = Literal['age', 'arrival']


class IntrospectiveState(NamedTuple):
  """State of the introspection network.

  Attributes:
    controller: the LSTM's state.
    memory: M, stored latents [..., N, Z].
    calls: how many inputs the core has seen, int32 [...].
    read_weights: w_t, [..., R, N]; each head's sum to one, or are all zero
      before anything is stored.
    gates: sigmoid(g_t), of the reads, [..., R, Z].
  """

  controller: LSTMState
  memory: Array
  calls: Array
  read_weights: Array
  gates: Array


class Introspective(nn.RNNCellBase):
  """A store of latents as they come, which learns only where to read.

  At step t it stores z_{t-1}, updates its controller and reads:

    h_t = LSTM(h_{t-1}, [z_{t-1}, c_t])
    w^r_t = k^r(h_t) / sum(k^r(h_t)),  k a two-layer softplus network
    phi^r_t = w^r_t . M,  M holding z_1 .. z_{t-1}
    context = [phi^1_t * sigmoid(g^1_t), ..., phi^R_t * sigmoid(g^R_t)]

  with g_t a linear map of h_t. The paper writes g_{t-1} in its formula and
  leaves open what it depends on; here it is the state that chose the weights.

  Attributes:
    latent_size: Z, the first Z features of the input are stored.
    slots: N; when full, the oldest latent is overwritten.
    read_heads: R.
    controller_size: units of the LSTM.
    attention_size: hidden units of the attention network.
    attention: 'linear' (the paper's), 'softmax' or 'gaussian'.
    order: of the slots: by 'age', slot n holds the latent of n + 1 steps ago;
      by 'arrival', the n-th latent to arrive (a ring buffer of N).
    stores_first_input: whether the first input of a sequence is a latent.
      In the temporal VAE it is z_0 = 0, a placeholder, and not stored.
    positions: form of k: 'table', the paper's, has an output for each slot;
      'fourier' is a function of the age or of the number of arrival, and has
      parameters for any number of slots (`memory.positions`).
  """

  latent_size: int
  slots: int
  read_heads: int = 5
  controller_size: int = 128
  attention_size: int = 128
  attention: Attention = 'linear'
  order: Order = 'age'
  stores_first_input: bool = False
  positions: Positions = 'table'

  num_feature_axes = 1

  @nn.compact
  def __call__(
    self, carry: IntrospectiveState, inputs: Array
  ) -> tuple[IntrospectiveState, Array]:
    """Advances one step: `inputs [..., Z + A]` -> context `[..., R Z]`."""
    inputs = contract.check_call(self, carry, inputs)
    stored = carry.calls + int(self.stores_first_input)
    memory = self._store(carry.memory, inputs[..., : self.latent_size], stored)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, inputs
    )
    read_weights = self._attend(h, stored)
    gates = nn.sigmoid(self._heads(h, self.latent_size, 'gates'))
    retrieved = jnp.einsum('...rn,...nz->...rz', read_weights, memory)
    context = contract.flatten_heads(retrieved * gates)
    state = IntrospectiveState(
      controller, memory, carry.calls + 1, read_weights, gates
    )
    return state, context

  def _store(self, memory: Array, latent: Array, stored: Array) -> Array:
    """Stores a latent as number `stored`, from 1; number 0 is a placeholder."""
    if self.order == 'arrival':
      return contract.write_to_ring(memory, latent, stored)
    # A placeholder is masked, and overwritten before it would be read.
    return jnp.concatenate([latent[..., None, :], memory[..., :-1, :]], axis=-2)

  def _attend(self, h: Array, stored: Array) -> Array:
    """Returns read weights [..., R, N] over the slots that hold a latent."""
    number = stored[..., None]
    holds = addressing.counting(self.slots, number) < number
    mask = jnp.broadcast_to(
      holds[..., None, :], (*h.shape[:-1], self.read_heads, self.slots)
    )
    hidden = nn.relu(
      scan.dense(self.attention_size, dtype=h.dtype, name='attention_hidden')(h)
    )
    if self.attention == 'gaussian':
      raw = self._heads(hidden, 2, 'attention')
      center = self.slots * nn.sigmoid(raw[..., 0])
      return addressing.gaussian_attention(
        center, nn.softplus(raw[..., 1]), mask
      )
    form = self.positions, self.slots
    query = self._heads(hidden, positions.query_size(*form), 'attention')
    if self.order == 'age':
      logits = positions.by_age(*form, query)
    else:
      logits = positions.by_arrival(*form, query, stored)
    if self.attention == 'softmax':
      return addressing.masked_softmax(logits, mask)
    return addressing.linear_attention(logits, mask)

  def _heads(self, h: Array, size: int, name: str) -> Array:
    """Maps `h` linearly to each read head's values, [..., R, size]."""
    flat = scan.dense(self.read_heads * size, dtype=h.dtype, name=name)(h)
    return flat.reshape(*h.shape[:-1], self.read_heads, size)

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> IntrospectiveState:
    """Makes an empty store for inputs of `input_shape`."""
    _check_settings(self)
    batch = input_shape[:-1]
    heads = (*batch, self.read_heads)
    return IntrospectiveState(
      controller=LSTM(self.controller_size, parent=None).initialize_carry(
        rng, input_shape
      ),
      memory=contract.zeros(*batch, self.slots, self.latent_size),
      calls=jnp.zeros(batch, jnp.int32),
      read_weights=contract.zeros(*heads, self.slots),
      gates=contract.zeros(*heads, self.latent_size),
    )


def _check_settings(core: Introspective) -> None:
  """Checks a core's settings, as its `initialize_carry` does.

  Raises:
    ValueError: a setting is wrong; tells what is allowed.
  """
  contract.check_settings(core)
  if core.positions != 'table' and core.attention == 'gaussian':
    raise ValueError(
      f'positions is {core.positions!r}, a form of logits, and attention is '
      f"'gaussian', which has none; set attention to linear or softmax, or "
      f'leave positions out.'
    )
