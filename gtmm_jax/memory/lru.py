"""Memory with least-recently-used access.

Santoro et al. 2016, section 3.2, as the memory of Gemici et al. 2017, section
3.2.
"""

import functools
import numbers
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, allocation, contract, interface
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array
WriteVector = Literal['key', 'separate']
KeyStrength = Literal['none', 'softplus', 'oneplus']

# The paper leaves biases open, and they decide whether a memory is used at all:
# at first, writes go to the least used slots.
_GATE_BIAS = -3.0
_FIRST_MEMORY = 1e-6


class LRUInterface(NamedTuple):
  """What the controller asks of the memory in one step, activated.

  Attributes:
    keys: of the n read heads, [..., n, W].
    strengths: of the keys, >= 0, [..., n]; the paper's are all one.
    write_vectors: what the n write heads write, [..., n, W]; the paper's are
      the keys.
    gates: sigmoid(alpha), 1 writes where was read, 0 to the least used slots,
      [..., n].
  """

  keys: Array
  strengths: Array
  write_vectors: Array
  gates: Array


class LRUState(NamedTuple):
  """State of a memory of N slots of W words with n heads of each kind.

  Attributes:
    controller: the LSTM's state.
    memory: [..., N, W].
    usage: >= 0, [..., N].
    read_weights: [..., n, N]; each head's sum to one.
    write_weights: [..., n, N]; they sum to sigmoid(alpha) sum_i w^r_{t-1}[i] +
      (1 - sigmoid(alpha)) n.
    reads: what was read last, [..., n, W].
    gates: sigmoid(alpha) of the last step, [..., n].
    tag: of the last step, [..., W - Z]; None unless latents are stored.
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
  asked: LRUInterface,
  *,
  reads: contract.Reads = 'after',
  decay: float = 0.95,
) -> LRUState:
  """One step of the memory: writes to what was read or least used, and reads.

  Exactly n slots, the number of heads, count as least used, one vector for all
  write heads; the least used of them is set to zero before the write, one slot
  whatever n. The write uses the read weights of the step before.

  Args:
    state: of the step before; controller, tag and calls are passed on.
    asked: of this step.
    reads: 'after' the write, from M_t (Santoro et al. 2016, eqs. 2-4), or
      'before' it, from M_{t-1} (Gemici et al. 2017, section 3.2).
    decay: of the usage, the paper's gamma.

  Returns:
    The state after the step.
  """
  slots = allocation.least_used(state.usage, asked.gates.shape[-1])
  write_weights = addressing.interpolate(
    asked.gates, state.read_weights, slots.sum(-2, keepdims=True)
  )
  kept = state.memory * (1.0 - slots[..., 0, :, None])
  memory = kept + jnp.einsum(
    '...hn,...hw->...nw', write_weights, asked.write_vectors
  )
  source = memory if reads == 'after' else state.memory
  read_weights = addressing.content_weights(asked.keys, source, asked.strengths)
  return state._replace(
    memory=memory,
    usage=allocation.decayed_usage(
      state.usage, read_weights, write_weights, decay
    ),
    read_weights=read_weights,
    write_weights=write_weights,
    reads=addressing.read(source, read_weights),
    gates=asked.gates,
  )


class LRU(nn.RNNCellBase):
  """An LSTM with a memory that overwrites what was not used for longest.

  h_t = LSTM(h_{t-1}, [inputs_t, reads_{t-1}]); one linear map of h_t gives the
  interface; `access` writes and reads; the context is [reads_t, h_t]. Each read
  head has a write head.

  Attributes:
    slots: N, at least n.
    word_size: W.
    read_heads: n.
    controller_size: units of the LSTM.
    latent_size: Z. Where it is above 0, the words are [z_{t-1}, tag_{t-1}] with
      z_{t-1} the first Z inputs (see `interface.Interface`); else keys and
      write vectors are linear in h_t, as in the paper.
    write_vector: 'key', each head writes its read key (the paper's), or
      'separate'. Words of latents are always separate.
    reads: 'after' or 'before' the write (see `access`).
    strength: of keys, 'none', all one (the paper's), or learned, 'softplus' or
      'oneplus'.
    initial_strength: of learned ones at the start, above 1.
    key_activation: of keys and write vectors that are linear in h_t: 'identity'
      or 'tanh'.
    decay: of the usage.
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
  key_activation: contract.Activation = 'identity'
  decay: float = 0.95
  initial_memory: contract.InitialMemory = 'constant'

  @nn.compact
  def __call__(self, carry: LRUState, inputs: Array) -> tuple[LRUState, Array]:
    """Advances: `inputs [..., I]` -> context `[..., n W + controller_size]`."""
    self._check()
    step = functools.partial(access, reads=self.reads, decay=self.decay)
    return interface.advance(self, carry, inputs, self._ask, step)

  def _check(self) -> None:
    """Raises where settings that are the LRU's own make no sense."""
    contract.require_one_of(
      'write_vector', self.write_vector, get_args(WriteVector)
    )
    contract.require_one_of('strength', self.strength, get_args(KeyStrength))
    if self.read_heads > self.slots:
      raise ValueError(
        f'read_heads is {self.read_heads} and slots {self.slots}; each head '
        f'writes to a slot of its own, so there must be as many slots.'
      )

  def _ask(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[LRUInterface, Array | None]:
    """The interface of this step, and its tag."""
    heads = self.read_heads
    is_learned = self.strength != 'none'
    writes_key = self.write_vector == 'key' and not self.latent_size
    parts = {'gates': interface.Part((heads,), _GATE_BIAS)}
    if is_learned:
      bias = interface.strength_bias(self.initial_strength, self.strength)
      parts['strengths'] = interface.Part((heads,), bias)
    asked = interface.Interface(
      word_size=self.word_size,
      read_heads=heads,
      write_heads=0 if writes_key else heads,
      parts=parts,
      latent_size=self.latent_size,
      activation=self.key_activation,
      name='interface',
    )(h, inputs, tag_tm1)
    gates = nn.sigmoid(asked.parts['gates'])
    strengths = jnp.ones_like(gates)
    if is_learned:
      strengths = interface.strengthen(asked.parts['strengths'], self.strength)
    write_vectors = asked.read_keys if writes_key else asked.write_vectors
    if self.latent_size:
      # All heads write the same word to the same slots: a share each, so that
      # what is stored is one word.
      write_vectors = write_vectors / heads
    return LRUInterface(
      keys=asked.read_keys,
      strengths=strengths,
      write_vectors=write_vectors,
      gates=gates,
    ), asked.tag

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> LRUState:
    """A blank memory with the leading axes of `input_shape`."""
    contract.require_settings(self)
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

  @property
  def num_feature_axes(self) -> int:
    """One: inputs are vectors."""
    return 1
