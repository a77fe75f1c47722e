"""A transformer over the past, one step at a time.

Causal self-attention (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) in
blocks that normalise before each part (Xiong et al. 2020,
https://arxiv.org/abs/2002.04745) by the root mean square (Zhang and Sennrich
2019, https://arxiv.org/abs/1910.07467), with rotary positions (Su et al. 2021,
https://arxiv.org/abs/2104.09864).
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, scan

Array = jax.Array
Positions = Literal['rotary', 'sinusoidal', 'both', 'none']

# Of the slowest wave of positions (Vaswani et al. 2017, section 3.5).
_LONGEST = 10_000.0


class TransformerState(NamedTuple):
  """State of a transformer of L blocks with A heads of D features.

  Attributes:
    keys: of the last N inputs, [..., L, N, A D]; turned by their positions,
      where these are rotary.
    values: of the same inputs, [..., L, N, A D].
    calls: how many inputs the core has seen, int32 [...].
    read_weights: of each head over the slots, [..., L A, N], the first block's
      first; each head's sum to one after the first input.
  """

  keys: Array
  values: Array
  calls: Array
  read_weights: Array


class Transformer(nn.RNNCellBase):
  """Causal self-attention over the last N inputs.

  The t-th input becomes a vector x of C features. Each of L blocks adds to it
  what A heads read from all inputs so far, the t-th included, and what a layer
  of hidden units makes of the sum:

    q_t, k_t, v_t = linear maps of norm(x_t), A heads of D features
    w_t = softmax over m of q_t . k_m / sqrt(D),  t - N < m <= t
    x_t <- x_t + W_o [sum_m w_t[m] v_m, for each head]
    x_t <- x_t + W_2 gelu(W_1 norm(x_t) + b_1) + b_2

  where norm(x) = g x / sqrt(mean(x^2)), and g is learned. The context is
  norm(x_t) after the last block: without it the generative model, whose latents
  come back as inputs, amplifies them from step to step. With rotary positions
  q_t and k_m are turned by their numbers, so that a logit depends on t - m
  alone. The carry holds the keys and values of the last N inputs, a ring: input
  m is in slot (m - 1) mod N.

  W_o and W_2 start smaller by sqrt(2 L), so that x has about the same variance
  after all blocks (Radford et al. 2019, "Language models are unsupervised
  multitask learners", section 2.3).

    core = Transformer(size=64, slots=20)
    carry = core.initialize_carry(key, (batch, features))
    carry, context = core.apply(variables, carry, inputs)

  Attributes:
    size: C, features of the context.
    slots: N; when full, the oldest input is forgotten.
    layers: L, number of blocks.
    heads: A, of each block.
    head_size: D, even.
    positions: 'rotary'; 'sinusoidal', waves of the number of the input added to
      x before the first block (Vaswani et al. 2017, section 3.5); 'both'; or
      'none', where only causality tells the order.
  """

  size: int
  slots: int
  layers: int = 2
  heads: int = 4
  head_size: int = 32
  positions: Positions = 'rotary'

  num_feature_axes = 1

  @nn.compact
  def __call__(
    self, carry: TransformerState, inputs: Array
  ) -> tuple[TransformerState, Array]:
    """Advances one step: `inputs [..., I]` -> context `[..., C]`."""
    inputs = contract.check_call(self, carry, inputs)
    number = carry.calls + 1
    x = scan.dense(self.size, dtype=inputs.dtype, name='embedding')(inputs)
    if self.positions in ('sinusoidal', 'both'):
      x = x + jnp.concatenate(waves(number, self.size, x.dtype), axis=-1)
    keys, values, weights = [], [], []
    for layer in range(self.layers):
      name = f'block_{layer}'
      query, key, value = self._projections(
        contract.normalise(self, x, f'{name}_norm'), name
      )
      if self.positions in ('rotary', 'both'):
        query, key = turned(query, number), turned(key, number)
      keys.append(self._write(carry.keys[..., layer, :, :], key, number))
      values.append(self._write(carry.values[..., layer, :, :], value, number))
      read, weight = self._attend(query, keys[-1], values[-1], number)
      weights.append(weight)
      x = x + self._output(read, f'{name}_output')
      x = x + self._hidden(
        contract.normalise(self, x, f'{name}_hidden_norm'), name
      )
    state = TransformerState(
      jnp.stack(keys, axis=-3),
      jnp.stack(values, axis=-3),
      number,
      jnp.concatenate(weights, axis=-2),
    )
    return state, contract.normalise(self, x, 'context_norm')

  def _projections(self, x: Array, name: str) -> list[Array]:
    """Returns queries, keys and values, each [..., A, D]."""
    width = 3 * self.heads * self.head_size
    flat = scan.dense(
      width, use_bias=False, dtype=x.dtype, name=f'{name}_projections'
    )(x)
    each = flat.reshape(*x.shape[:-1], 3, self.heads, self.head_size)
    return [each[..., part, :, :] for part in range(3)]

  def _write(self, memory: Array, row: Array, number: Array) -> Array:
    """Writes a row [..., A, D] into its slot of [..., N, A D]."""
    return contract.write_to_ring(memory, contract.flatten_heads(row), number)

  def _attend(
    self, query: Array, keys: Array, values: Array, number: Array
  ) -> tuple[Array, Array]:
    """Returns what heads read, [..., A D], and their weights [..., A, N]."""
    heads = (*keys.shape[:-1], self.heads, self.head_size)
    logits = jnp.einsum('...hd,...nhd->...hn', query, keys.reshape(heads))
    holds = addressing.counting(self.slots, number[..., None])
    weights = addressing.masked_softmax(
      logits / math.sqrt(self.head_size),
      (holds < number[..., None])[..., None, :],
    )
    read = jnp.einsum('...hn,...nhd->...hd', weights, values.reshape(heads))
    return contract.flatten_heads(read), weights

  def _output(self, x: Array, name: str, use_bias: bool = False) -> Array:
    """Maps a part of a block linearly to what it adds to x."""
    start = nn.initializers.variance_scaling(
      0.5 / self.layers, 'fan_in', 'truncated_normal'
    )
    return scan.dense(
      self.size,
      use_bias=use_bias,
      kernel_init=start,
      dtype=x.dtype,
      name=name,
    )(x)

  def _hidden(self, x: Array, name: str) -> Array:
    """Returns what the hidden layer, of 4 C units, adds to x."""
    hidden = scan.dense(4 * self.size, dtype=x.dtype, name=f'{name}_hidden')(x)
    return self._output(nn.gelu(hidden), f'{name}_hidden_output', use_bias=True)

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> TransformerState:
    """Makes an empty past for inputs of `input_shape`; ignores `rng`."""
    del rng
    contract.check_settings(self)
    if self.head_size % 2:
      raise ValueError(
        f'head_size is {self.head_size}; it must be even, since positions turn '
        f'pairs of features.'
      )
    batch = input_shape[:-1]
    shape = (*batch, self.layers, self.slots, self.heads * self.head_size)
    return TransformerState(
      keys=contract.zeros(*shape),
      values=contract.zeros(*shape),
      calls=jnp.zeros(batch, jnp.int32),
      read_weights=contract.zeros(*batch, self.layers * self.heads, self.slots),
    )


def waves(number: Array, size: int, dtype: jnp.dtype) -> tuple[Array, Array]:
  """Computes sines and cosines of a position at several frequencies.

  The frequencies are 10,000^(-2 i / size), i = 0, 1, ... below size / 2
  (Vaswani et al. 2017, section 3.5).

  Args:
    number: of the input, int32 [...].
    size: of both together.
    dtype: of the result.

  Returns:
    Sines [..., ceil(size / 2)] and cosines [..., floor(size / 2)].
  """
  half = (size + 1) // 2
  exponents = jnp.arange(half, dtype=jnp.float32) * (2.0 / size)
  number = number.astype(jnp.float32)[..., None]
  angles = number * addressing.aligned(_LONGEST**-exponents, number)
  sines, cosines = jnp.sin(angles), jnp.cos(angles)
  return sines.astype(dtype), cosines[..., : size // 2].astype(dtype)


def turned(x: Array, number: Array) -> Array:
  """Turns pairs of features by angles that grow with the position.

  The scalar product of two such vectors depends on the difference of their
  positions (Su et al. 2021, section 3.2.2). Feature i of the first half and of
  the second are a pair.

  Args:
    x: [..., A, D], D even.
    number: position, int32 [...].

  Returns:
    [..., A, D], each head of the same length as before.
  """
  sine, cosine = waves(number, x.shape[-1], x.dtype)
  sine, cosine = sine[..., None, :], cosine[..., None, :]
  first, second = jnp.split(x, 2, axis=-1)
  return jnp.concatenate(
    [first * cosine - second * sine, first * sine + second * cosine], axis=-1
  )
