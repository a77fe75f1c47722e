"""The neural Turing machine.

Graves et al. 2014, as the memory of Gemici et al. 2017, section 3.2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, interface
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array

# The paper leaves biases open, and they decide whether a memory is used at all:
# at first a write goes to the slot after the last one, and a read follows.
_WRITE_GATE_BIAS = -3.0
_WRITE_SHIFT_BIAS = 3.0
_READ_SHIFT_BIAS = 2.0
_FIRST_MEMORY = 1e-6


class NTMHead(NamedTuple):
  """Where heads are asked to point, activated; H heads, S shifts.

  Attributes:
    keys: [..., H, W].
    strengths: beta >= 0, [..., H].
    gates: g in [0, 1], 1 takes the content's weights, 0 the last, [..., H].
    shifts: distribution over shifts around 0, [..., H, S].
    powers: gamma >= 1, [..., H].
  """

  keys: Array
  strengths: Array
  gates: Array
  shifts: Array
  powers: Array


class NTMInterface(NamedTuple):
  """What the controller asks of the memory in one step, activated.

  Attributes:
    read: the read heads.
    write: the write heads.
    erase: in [0, 1], [..., H, W].
    add: [..., H, W].
  """

  read: NTMHead
  write: NTMHead
  erase: Array
  add: Array


class NTMState(NamedTuple):
  """State of an NTM of N slots of W words, R read heads and H write heads.

  Attributes:
    controller: the LSTM's state.
    memory: [..., N, W].
    read_weights: [..., R, N]; each head's sum to one.
    write_weights: [..., H, N]; each head's sum to one.
    reads: what was read last, [..., R, W].
    read_gates: g of the last step, [..., R].
    write_gates: g of the last step, [..., H].
    tag: of the last step, [..., W - Z]; None unless latents are stored.
    calls: how many inputs the core has seen, int32 [...].
  """

  controller: LSTMState
  memory: Array
  read_weights: Array
  write_weights: Array
  reads: Array
  read_gates: Array
  write_gates: Array
  tag: Array | None
  calls: Array


def address(memory: Array, weights_tm1: Array, head: NTMHead) -> Array:
  """Weights by content and by place (Graves et al. 2014, eqs. 5-9).

  Args:
    memory: [..., N, W].
    weights_tm1: of the same heads, [..., H, N].
    head: where they are asked to point.

  Returns:
    Weights [..., H, N]; each head's sum to one.
  """
  by_content = addressing.content_weights(head.keys, memory, head.strengths)
  gated = addressing.interpolate(head.gates, by_content, weights_tm1)
  return addressing.sharpen(addressing.shift(gated, head.shifts), head.powers)


def _join(first: NTMHead, second: NTMHead) -> NTMHead:
  """All heads of both, the first ones first."""
  axes = NTMHead(keys=-2, strengths=-1, gates=-1, shifts=-2, powers=-1)
  joined = map(
    lambda pair, axis: jnp.concatenate(pair, axis=axis),
    zip(first, second, strict=True),
    axes,
  )
  return NTMHead(*joined)


def access(
  state: NTMState, asked: NTMInterface, *, reads: contract.Reads = 'before'
) -> NTMState:
  """One step of the memory: reads and writes.

  Args:
    state: of the step before; controller, tag and calls are passed on.
    asked: of this step.
    reads: 'before' the write, from M_{t-1}, or 'after' it, from M_t; the paper
      leaves it open. Writes are addressed on M_{t-1} either way.

  Returns:
    The state after the step.
  """
  if reads == 'before':
    # All heads look at one memory: together they take half the time.
    heads, count = _join(asked.read, asked.write), asked.read.gates.shape[-1]
    weights_tm1 = jnp.concatenate(
      [state.read_weights, state.write_weights], axis=-2
    )
    weights = address(state.memory, weights_tm1, heads)
    read_weights, write_weights = jnp.split(weights, [count], axis=-2)
  else:
    write_weights = address(state.memory, state.write_weights, asked.write)
  memory = addressing.erase_and_add(
    state.memory, write_weights, asked.erase, asked.add
  )
  source = state.memory
  if reads == 'after':
    source = memory
    read_weights = address(source, state.read_weights, asked.read)
  return state._replace(
    memory=memory,
    read_weights=read_weights,
    write_weights=write_weights,
    reads=addressing.read(source, read_weights),
    read_gates=asked.read.gates,
    write_gates=asked.write.gates,
  )


class NTM(nn.RNNCellBase):
  """An LSTM with a memory that is addressed by content and by moving on.

  h_t = LSTM(h_{t-1}, [inputs_t, reads_{t-1}]); one linear map of h_t gives the
  interface; `access` reads and writes; the context is [reads_t, h_t].

  Attributes:
    slots: N.
    word_size: W.
    read_heads: R.
    write_heads: H.
    controller_size: units of the LSTM.
    latent_size: Z. Where it is above 0, the words are [z_{t-1}, tag_{t-1}] with
      z_{t-1} the first Z inputs (see `interface.Interface`); else add vectors
      and keys are linear in h_t, as in the NTM's paper.
    shift_range: how far a head moves in one step, in slots, either way.
    reads: 'before' or 'after' the write (see `access`).
    strength: of keys, 'softplus' (in all programs) or 'oneplus'.
    initial_strength: of keys at the start, above 1.
    key_activation: of keys and add vectors that are linear in h_t: 'identity'
      or 'tanh'; the paper leaves it open.
    initial_memory: 'constant', 1e-6, or 'learned'.
  """

  slots: int
  word_size: int
  read_heads: int = 1
  write_heads: int = 1
  controller_size: int = 128
  latent_size: int = 0
  shift_range: int = 1
  reads: contract.Reads = 'before'
  strength: contract.Strength = 'softplus'
  initial_strength: float = 5.0
  key_activation: contract.Activation = 'identity'
  initial_memory: contract.InitialMemory = 'constant'

  @nn.compact
  def __call__(self, carry: NTMState, inputs: Array) -> tuple[NTMState, Array]:
    """Advances: `inputs [..., I]` -> context `[..., R W + controller_size]`."""
    step = functools.partial(access, reads=self.reads)
    return interface.advance(self, carry, inputs, self._ask, step)

  def _ask(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[NTMInterface, Array | None]:
    """The interface of this step, and its tag."""
    r, w = self.read_heads, self.write_heads
    words = (w, self.word_size)
    parts = {
      **self._head('read', r, 0.0, _READ_SHIFT_BIAS),
      **self._head('write', w, _WRITE_GATE_BIAS, _WRITE_SHIFT_BIAS),
      'write_keys': interface.Part(words),
      'erase': interface.Part(words),
    }
    asked = interface.Interface(
      word_size=self.word_size,
      read_heads=r,
      write_heads=w,
      parts=parts,
      latent_size=self.latent_size,
      activation=self.key_activation,
      name='interface',
    )(h, inputs, tag_tm1)
    raw = asked.parts
    write_keys = interface.activate(raw['write_keys'], self.key_activation)
    return NTMInterface(
      read=self._activate(raw, 'read', asked.read_keys),
      write=self._activate(raw, 'write', write_keys),
      erase=nn.sigmoid(raw['erase']),
      add=asked.write_vectors,
    ), asked.tag

  def _head(
    self, name: str, heads: int, gate_bias: float, shift_bias: float
  ) -> dict[str, interface.Part]:
    """The parts of an interface that point `heads` heads."""
    count = 2 * self.shift_range + 1
    # The shift by one slot is the first choice, where there is one.
    favoured = min(self.shift_range + 1, count - 1)
    shift = tuple(shift_bias * (s == favoured) for s in range(count))
    strength = interface.strength_bias(self.initial_strength, self.strength)
    return {
      f'{name}_strengths': interface.Part((heads,), strength),
      f'{name}_gates': interface.Part((heads,), gate_bias),
      f'{name}_shifts': interface.Part((heads, count), shift),
      f'{name}_powers': interface.Part((heads,)),
    }

  def _activate(self, raw: dict[str, Array], name: str, keys: Array) -> NTMHead:
    """Heads from raw parts; sharpening is 1 + softplus, so at least one."""
    return NTMHead(
      keys=keys,
      strengths=interface.strengthen(raw[f'{name}_strengths'], self.strength),
      gates=nn.sigmoid(raw[f'{name}_gates']),
      shifts=nn.softmax(raw[f'{name}_shifts']),
      powers=addressing.oneplus(raw[f'{name}_powers']),
    )

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> NTMState:
    """A blank memory, all heads on slot 0; leading axes of `input_shape`."""
    contract.require_settings(self)
    if self.shift_range < 0:
      raise ValueError(f'shift_range is {self.shift_range}; it must be >= 0.')
    batch, r, w = input_shape[:-1], self.read_heads, self.write_heads
    first = contract.zeros(self.slots).at[0].set(1.0)
    return NTMState(
      controller=LSTM(self.controller_size, parent=None).initialize_carry(
        rng, input_shape
      ),
      memory=contract.zeros(*batch, self.slots, self.word_size) + _FIRST_MEMORY,
      read_weights=jnp.broadcast_to(first, (*batch, r, self.slots)),
      write_weights=jnp.broadcast_to(first, (*batch, w, self.slots)),
      reads=contract.zeros(*batch, r, self.word_size),
      read_gates=contract.zeros(*batch, r),
      write_gates=contract.zeros(*batch, w),
      tag=interface.initial_tag(batch, self.word_size, self.latent_size),
      calls=jnp.zeros(batch, jnp.int32),
    )

  @property
  def num_feature_axes(self) -> int:
    """One: inputs are vectors."""
    return 1
