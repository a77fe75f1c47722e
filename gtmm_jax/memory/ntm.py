"""The neural Turing machine (NTM).

Graves et al. 2014, https://arxiv.org/abs/1410.5401, as the memory of Gemici et
al. 2017, section 3.2. Equation numbers are those of the former.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, interface, scan
from gtmm_jax.memory.interface import Part
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array

# The paper leaves biases open, and they decide whether a memory is used at all:
# at first a write goes to the slot after the last one, and a read follows.
_WRITE_GATE_BIAS = -3.0
_WRITE_SHIFT_BIAS = 3.0
_READ_SHIFT_BIAS = 2.0
_FIRST_MEMORY = 1e-6


class NTMHead(NamedTuple):
  """Parameters that address the memory for H heads, with S shifts.

  Attributes:
    strengths: beta >= 0, of the keys (eq. 5), [..., H].
    gates: g in [0, 1], 1 takes the weights by content, 0 the last ones (eq. 7),
      [..., H].
    shifts: s, a distribution over shifts around 0 (eq. 8), [..., H, S].
    powers: gamma >= 1, sharpens the weights (eq. 9), [..., H].
    keys: k, compared with the slots (eq. 5), [..., H, W].
  """

  strengths: Array
  gates: Array
  shifts: Array
  powers: Array
  keys: Array


class NTMInterface(NamedTuple):
  """All that the controller asks of the memory in one step, activated.

  Attributes:
    read: the R read heads.
    write: the H write heads.
    erase: e in [0, 1] (eq. 3), [..., H, W].
    add: a (eq. 4), [..., H, W].
  """

  read: NTMHead
  write: NTMHead
  erase: Array
  add: Array


class NTMState(NamedTuple):
  """State of an NTM of N slots of W words, R read heads and H write heads.

  Attributes:
    controller: the LSTM's state.
    memory: M_t, [..., N, W].
    read_weights: w_t of the read heads, [..., R, N]; each head's sum to one.
    write_weights: w_t of the write heads, [..., H, N]; each head's sum to one.
    reads: r_t (eq. 2), [..., R, W].
    read_gates: g_t of the read heads, [..., R].
    write_gates: g_t of the write heads, [..., H].
    tag: tag_t (see `interface.Interface`), [..., W - Z]; None unless latents
      are stored.
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
  """Computes weights by content and by place (eqs. 5-9).

  Args:
    memory: [..., N, W].
    weights_tm1: of the same heads, [..., H, N].
    head: the heads' parameters.

  Returns:
    Weights [..., H, N]; each head's sum to one.
  """
  by_content = addressing.content_weights(head.keys, memory, head.strengths)
  gated = addressing.interpolate(head.gates, by_content, weights_tm1)
  return addressing.sharpen(addressing.shift(gated, head.shifts), head.powers)


def _address_together(
  state: NTMState, request: NTMInterface
) -> tuple[Array, Array]:
  """Returns read and write weights on one memory, in half the time."""
  axes = NTMHead(strengths=-1, gates=-1, shifts=-2, powers=-1, keys=-2)
  heads = jax.tree.map(
    lambda read, write, axis: jnp.concatenate([read, write], axis=axis),
    request.read,
    request.write,
    axes,
  )
  weights_tm1 = jnp.concatenate(
    [state.read_weights, state.write_weights], axis=-2
  )
  weights = address(state.memory, weights_tm1, heads)
  read_weights, write_weights = jnp.split(
    weights, [request.read.gates.shape[-1]], axis=-2
  )
  return read_weights, write_weights


def access(
  state: NTMState, request: NTMInterface, *, reads: contract.Reads = 'before'
) -> NTMState:
  """Reads and writes: one step of the memory (eqs. 2-9).

  Args:
    state: after the step before; controller, tag and calls are passed on.
    request: of this step.
    reads: 'before' the write, from M_{t-1}, or 'after' it, from M_t; the paper
      leaves it open. Writes are addressed on M_{t-1} either way.

  Returns:
    The state after the step.
  """
  if reads == 'before':
    read_weights, write_weights = _address_together(state, request)
  else:
    write_weights = address(state.memory, state.write_weights, request.write)
  memory = addressing.erase_and_add(
    state.memory, write_weights, request.erase, request.add
  )
  source = state.memory
  if reads == 'after':
    source = memory
    read_weights = address(source, state.read_weights, request.read)
  return state._replace(
    memory=memory,
    read_weights=read_weights,
    write_weights=write_weights,
    reads=addressing.read(source, read_weights),
    read_gates=request.read.gates,
    write_gates=request.write.gates,
  )


class NTM(nn.RNNCellBase):
  """An LSTM with a memory that is addressed by content and by moving on.

  With * a circular convolution, for each read and write head:

    h_t = LSTM(h_{t-1}, [x_t, r_{t-1}])
    k, beta, g, s, gamma, e, a = linear(h_t), activated
    w^c_t = softmax_n(beta cos(k, M_{t-1}[n]))                      (eqs. 5, 6)
    w^g_t = g w^c_t + (1 - g) w_{t-1}                               (eq. 7)
    w_t proportional to (w^g_t * s)^gamma                           (eqs. 8, 9)
    r_t = w_t . M_{t-1}                                             (eq. 2)
    M_t = M_{t-1} (1 - w_t e) + w_t a                               (eqs. 3, 4)
    context = [r_t, h_t]

  Attributes:
    slots: N.
    word_size: W.
    read_heads: R.
    write_heads: H.
    controller_size: C, units of the LSTM.
    latent_size: Z. Above 0, words hold the first Z inputs, z_{t-1} (see
      `interface.Interface`); at 0 they are linear in h_t, as in the paper.
    shift_range: how far a head moves in one step, in slots, either way.
    reads: 'before' or 'after' the write (see `access`).
    strength: of keys, 'softplus' or 'oneplus'.
    initial_strength: of keys at the start, above 1.
    controller_weight: of h_t in the tags of words that hold latents, above 0.
    key_activation: of words linear in h_t, 'identity' or 'tanh'.
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
  controller_weight: float = interface.CONTROLLER_WEIGHT
  key_activation: contract.Activation = 'identity'
  initial_memory: contract.InitialMemory = 'constant'

  num_feature_axes = 1

  @nn.compact
  def __call__(self, carry: NTMState, inputs: Array) -> tuple[NTMState, Array]:
    """Advances one step: `inputs [..., I]` -> context `[..., R W + C]`."""
    inputs = contract.check_call(self, carry, inputs)
    carry = contract.with_initial_memory(self, carry)
    reads_tm1 = contract.flatten_heads(carry.reads)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, jnp.concatenate([inputs, reads_tm1], axis=-1)
    )
    request, tag = self._request(h, inputs, carry.tag)
    step = functools.partial(access, reads=self.reads)
    state = scan.rematerialised(step)(carry, request)
    context = jnp.concatenate([contract.flatten_heads(state.reads), h], axis=-1)
    calls = carry.calls + 1
    return state._replace(controller=controller, tag=tag, calls=calls), context

  def _request(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[NTMInterface, Array | None]:
    """Computes the interface of this step, and its tag."""
    r, w, size = self.read_heads, self.write_heads, self.word_size
    write = self._head(w, _WRITE_GATE_BIAS, _WRITE_SHIFT_BIAS)
    parts = NTMInterface(
      read=self._head(r, 0.0, _READ_SHIFT_BIAS),
      write=write._replace(keys=Part((w, size))),
      erase=Part((w, size)),
      add=None,
    )
    to_memory = interface.of_core(self, w, parts)
    words, raw, tag = to_memory(h, inputs, tag_tm1)
    write_keys = interface.activate(raw.write.keys, self.key_activation)
    request = NTMInterface(
      read=self._activate(raw.read, words.read_keys),
      write=self._activate(raw.write, write_keys),
      erase=nn.sigmoid(raw.erase),
      add=words.write_vectors,
    )
    return request, tag

  def _head(self, heads: int, gate_bias: float, shift_bias: float) -> NTMHead:
    """Describes the parts that `heads` heads need, without keys."""
    count = 2 * self.shift_range + 1
    # At the start the shift by one slot is preferred, where there is one.
    preferred = min(self.shift_range + 1, count - 1)
    shift = tuple(shift_bias * (s == preferred) for s in range(count))
    strength = interface.strength_bias(self.initial_strength, self.strength)
    return NTMHead(
      strengths=Part((heads,), strength),
      gates=Part((heads,), gate_bias),
      shifts=Part((heads, count), shift),
      powers=Part((heads,)),
      keys=None,
    )

  def _activate(self, raw: NTMHead, keys: Array) -> NTMHead:
    """Activates the parameters of heads, all but the keys."""
    return NTMHead(
      strengths=interface.strengthen(raw.strengths, self.strength),
      gates=nn.sigmoid(raw.gates),
      shifts=nn.softmax(raw.shifts),
      powers=addressing.oneplus(raw.powers),
      keys=keys,
    )

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> NTMState:
    """Makes a blank memory, heads on slot 0, for inputs of `input_shape`."""
    contract.check_settings(self, 'latent_size', 'shift_range')
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
