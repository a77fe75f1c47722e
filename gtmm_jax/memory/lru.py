"""Memory with least recently used access (LRU).

Santoro et al. 2016, section 3.2, https://arxiv.org/abs/1605.06065, as the
memory of Gemici et al. 2017, section 3.2. Equation numbers are those of the
former. It is not the Linear Recurrent Unit of the same initials.
"""

import functools
import numbers
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, allocation, contract, interface, scan
from gtmm_jax.memory.interface import Part
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array
WriteVector = Literal['key', 'separate']
KeyStrength = Literal['none', 'softplus', 'oneplus']

# The paper leaves biases open, and they decide whether a memory is used at all:
# at first, writes go to the least used slots.
_GATE_BIAS = -3.0
_FIRST_MEMORY = 1e-6


class LRUInterface(NamedTuple):
  """All that the controller asks of the memory in one step, activated.

  Attributes:
    keys: k_t of the n read heads, [..., n, W].
    write_vectors: what the n write heads write, [..., n, W]; the paper's are
      the keys.
    gates: sigmoid(alpha); 1 writes to the slots read last, 0 to the least used
      ones (eq. 7), [..., n].
    strengths: of the keys, >= 0, [..., n]; the paper's are all one.
  """

  keys: Array
  write_vectors: Array
  gates: Array
  strengths: Array


class LRUState(NamedTuple):
  """State of a memory of N slots of W words with n heads of each kind.

  Attributes:
    controller: the LSTM's state.
    memory: M_t, [..., N, W].
    usage: w^u_t >= 0 (eq. 5), [..., N].
    read_weights: w^r_t, [..., n, N]; each head's sum to one.
    write_weights: w^w_t, [..., n, N]; they sum to sigmoid(alpha) sum_i
      w^r_{t-1}[i] + (1 - sigmoid(alpha)) n.
    reads: r_t (eq. 4), [..., n, W].
    gates: sigmoid(alpha) of this step, [..., n].
    tag: tag_t (see `interface.Interface`), [..., W - Z]; None unless latents
      are stored.
    calls: how many inputs the core has seen, int32 [...].
  """

  controller: LSTMState
  memory: Array
  usage: Array
  read_weights: Array
  write_weights: Array
  reads: Array
  gates: Array
  tag: Array | None
  calls: Array


def access(
  state: LRUState,
  request: LRUInterface,
  *,
  reads: contract.Reads = 'after',
  decay: float = 0.95,
) -> LRUState:
  """Writes to the slots read last or least used, and reads (eqs. 2-8).

  Exactly n slots, the number of heads, count as least used, one vector for all
  write heads; the least used of them is set to zero before the write, one slot
  whatever n. The write uses the read weights of the step before.

  Args:
    state: after the step before; controller, tag and calls are passed on.
    request: of this step.
    reads: 'after' the write, from M_t (the paper's), or 'before' it, from
      M_{t-1} (Gemici et al. 2017, section 3.2).
    decay: of the usage, the paper's gamma.

  Returns:
    The state after the step.
  """
  least_used = allocation.least_used(state.usage, request.gates.shape[-1])
  write_weights = addressing.interpolate(
    request.gates, state.read_weights, least_used.sum(-2, keepdims=True)
  )
  erased = state.memory * (1.0 - least_used[..., 0, :, None])
  memory = erased + jnp.einsum(
    '...hn,...hw->...nw', write_weights, request.write_vectors
  )
  source = memory if reads == 'after' else state.memory
  read_weights = addressing.content_weights(
    request.keys, source, request.strengths
  )
  return state._replace(
    memory=memory,
    usage=allocation.decayed_usage(
      state.usage, read_weights, write_weights, decay
    ),
    read_weights=read_weights,
    write_weights=write_weights,
    reads=addressing.read(source, read_weights),
    gates=request.gates,
  )


class LRU(nn.RNNCellBase):
  """An LSTM with a memory that overwrites the least recently used slots.

  For each of n pairs of a read and a write head:

    h_t = LSTM(h_{t-1}, [x_t, r_{t-1}])
    k_t, alpha = linear(h_t)
    w^lu_{t-1} = 1 at the n slots of least w^u_{t-1}, else 0         (eq. 6)
    g = sigmoid(alpha),  w^w_t = g w^r_{t-1} + (1 - g) w^lu_{t-1}    (eq. 7)
    M_t = M_{t-1}, its least used slot erased, + w^w_t k_t           (eq. 8)
    w^r_t = softmax_n(cos(k_t, M_t[n]))                              (eqs. 2, 3)
    r_t = w^r_t . M_t                                                (eq. 4)
    w^u_t = gamma w^u_{t-1} + w^r_t + w^w_t, summed over heads       (eq. 5)
    context = [r_t, h_t]

  Attributes:
    slots: N, at least n.
    word_size: W.
    read_heads: n.
    controller_size: C, units of the LSTM.
    latent_size: Z. Above 0, words hold the first Z inputs, z_{t-1} (see
      `interface.Interface`); at 0 they are linear in h_t, as in the paper.
    write_vector: 'key', each head writes its read key (the paper's), or
      'separate'. Words of latents are always separate.
    reads: 'after' or 'before' the write (see `access`).
    strength: of keys, 'none', all one (the paper's), or learned, 'softplus' or
      'oneplus'.
    initial_strength: of learned ones at the start, above 1.
    controller_weight: of h_t in the tags of words that hold latents, above 0.
    key_activation: of words linear in h_t, 'identity' or 'tanh'.
    decay: gamma, of the usage.
    initial_memory: 'constant', 1e-6, or 'learned'.
  """

  slots: int
  word_size: int
  read_heads: int = 4
  controller_size: int = 128
  latent_size: int = 0
  write_vector: WriteVector = 'key'
  reads: contract.Reads = 'after'
  strength: KeyStrength = 'none'
  initial_strength: float = 10.0
  controller_weight: float = interface.CONTROLLER_WEIGHT
  key_activation: contract.Activation = 'identity'
  decay: float = 0.95
  initial_memory: contract.InitialMemory = 'constant'

  num_feature_axes = 1

  @nn.compact
  def __call__(self, carry: LRUState, inputs: Array) -> tuple[LRUState, Array]:
    """Advances one step: `inputs [..., I]` -> context `[..., n W + C]`."""
    inputs = contract.check_call(self, carry, inputs)
    carry = contract.with_initial_memory(self, carry)
    reads_tm1 = contract.flatten_heads(carry.reads)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, jnp.concatenate([inputs, reads_tm1], axis=-1)
    )
    request, tag = self._request(h, inputs, carry.tag)
    step = functools.partial(access, reads=self.reads, decay=self.decay)
    state = scan.rematerialised(step)(carry, request)
    context = jnp.concatenate([contract.flatten_heads(state.reads), h], axis=-1)
    calls = carry.calls + 1
    return state._replace(controller=controller, tag=tag, calls=calls), context

  def _request(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[LRUInterface, Array | None]:
    """Computes the interface of this step, and its tag."""
    heads = self.read_heads
    is_learned = self.strength != 'none'
    writes_key = self.write_vector == 'key' and not self.latent_size
    strength_part = None
    if is_learned:
      bias = interface.strength_bias(self.initial_strength, self.strength)
      strength_part = Part((heads,), bias)
    parts = LRUInterface(
      keys=None,
      write_vectors=None,
      gates=Part((heads,), _GATE_BIAS),
      strengths=strength_part,
    )
    to_memory = interface.of_core(self, 0 if writes_key else heads, parts)
    words, raw, tag = to_memory(h, inputs, tag_tm1)
    gates = nn.sigmoid(raw.gates)
    strengths = jnp.ones_like(gates)
    if is_learned:
      strengths = interface.strengthen(raw.strengths, self.strength)
    write_vectors = words.read_keys if writes_key else words.write_vectors
    if self.latent_size:
      # All heads write the same word to the same slots: a share each, so that
      # one word is stored.
      write_vectors = write_vectors / heads
    return LRUInterface(words.read_keys, write_vectors, gates, strengths), tag

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> LRUState:
    """Makes a blank memory for inputs of `input_shape`."""
    contract.check_settings(self, 'latent_size')
    if self.read_heads > self.slots:
      raise ValueError(
        f'read_heads is {self.read_heads} and slots {self.slots}; each head '
        f'writes to a slot of its own, so there must be as many slots.'
      )
    if not (isinstance(self.decay, numbers.Real) and 0 <= self.decay < 1):
      raise ValueError(
        f'decay is {self.decay!r}; it must be a number in [0, 1).'
      )
    batch, heads = input_shape[:-1], self.read_heads
    return LRUState(
      controller=LSTM(self.controller_size, parent=None).initialize_carry(
        rng, input_shape
      ),
      memory=contract.zeros(*batch, self.slots, self.word_size) + _FIRST_MEMORY,
      usage=contract.zeros(*batch, self.slots),
      read_weights=contract.zeros(*batch, heads, self.slots),
      write_weights=contract.zeros(*batch, heads, self.slots),
      reads=contract.zeros(*batch, heads, self.word_size),
      gates=contract.zeros(*batch, heads),
      tag=interface.initial_tag(batch, self.word_size, self.latent_size),
      calls=jnp.zeros(batch, jnp.int32),
    )
