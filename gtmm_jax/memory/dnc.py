"""The differentiable neural computer (DNC).

Graves et al. 2016, Methods, https://doi.org/10.1038/nature20101, as the memory
of Gemici et al. 2017, section 3.2. Titles are those of the former's Methods,
whose equations have no numbers. The way to them: `train.train_step`,
`free_energy.infer`, `TemporalVAE.observe`, `DNC`, `allocation.py`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, allocation, contract, interface, scan
from gtmm_jax.memory.interface import Part
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array

# The paper leaves biases open, and they decide whether a memory is used at all:
# from the first step on, words are written, and to free slots.
_WRITE_BIAS = 3.0


class DNCGates(NamedTuple):
  """Gates of one step, all in [0, 1].

  Attributes:
    free: f, whether the slot just read may be overwritten, [..., R].
    allocation: g^a, whether to write to free slots or by content, [..., H].
    write: g^w, whether to write at all, [..., H].
    read_modes: pi, of each read head, summing to one: backward along each write
      head's links, by content, forward along each, [..., R, H + 1 + H].
  """

  free: Array
  allocation: Array
  write: Array
  read_modes: Array


class DNCInterface(NamedTuple):
  """All that the controller asks of the memory in one step, activated.

  Attributes:
    read_keys: k^r, [..., R, W].
    read_strengths: beta^r >= 0, [..., R].
    write_keys: k^w, [..., H, W].
    write_strengths: beta^w >= 0, [..., H].
    erase: e in [0, 1], [..., H, W].
    write_vectors: v, [..., H, W].
    gates: f, g^a, g^w and pi.
  """

  read_keys: Array
  read_strengths: Array
  write_keys: Array
  write_strengths: Array
  erase: Array
  write_vectors: Array
  gates: DNCGates


class DNCState(NamedTuple):
  """State of a DNC of N slots of W words, R read heads and H write heads.

  Attributes:
    controller: the LSTM's state.
    memory: M_t, [..., N, W].
    usage: u_t in [0, 1], [..., N].
    link: L_t, [..., H, N, N].
    precedence: p_t, [..., H, N].
    read_weights: w^r_t, [..., R, N]; each head's sum is at most one.
    write_weights: w^w_t, [..., H, N]; each head's sum is at most one.
    reads: r_t, [..., R, W].
    gates: of this step.
    tag: tag_t (see `interface.Interface`), [..., W - Z]; None unless latents
      are stored.
    calls: how many inputs the core has seen, int32 [...].
  """

  controller: LSTMState
  memory: Array
  usage: Array
  link: Array
  precedence: Array
  read_weights: Array
  write_weights: Array
  reads: Array
  gates: DNCGates
  tag: Array | None
  calls: Array


def access(
  state: DNCState,
  request: DNCInterface,
  *,
  reads: contract.Reads = 'after',
  usage_gradient: bool = True,
) -> DNCState:
  """Advances the memory by one step: writes, links, and reads.

  Args:
    state: after the step before; controller, tag and calls are passed on.
    request: of this step.
    reads: 'after' the write, from M_t and L_t (the DNC's paper), or 'before'
      it, from M_{t-1} and L_{t-1} (Gemici et al. 2017, section 3.2).
    usage_gradient: whether gradients flow from the usage to the write weights
      before it, as in the paper; DeepMind's program stops them.

  Returns:
    The state after the step.
  """
  weights_tm1 = state.read_weights
  if reads == 'before':
    read_weights, words = _read(state, weights_tm1, request)
  state = _write(state, request, usage_gradient)
  if reads == 'after':
    read_weights, words = _read(state, weights_tm1, request)
  return state._replace(read_weights=read_weights, reads=words)


def _write(
  state: DNCState, request: DNCInterface, usage_gradient: bool
) -> DNCState:
  """Writes ("Write weighting"), and updates usage, links and precedence."""
  gates, weights_tm1 = request.gates, state.write_weights
  if not usage_gradient:
    weights_tm1 = jax.lax.stop_gradient(weights_tm1)
  usage = allocation.update_usage(
    state.usage, weights_tm1, gates.free, state.read_weights
  )
  taken = gates.allocation * gates.write
  free = allocation.write_allocation_weights(usage, taken)
  by_content = addressing.content_weights(
    request.write_keys, state.memory, request.write_strengths
  )
  weights = gates.write[..., None] * addressing.interpolate(
    gates.allocation, free, by_content
  )
  return state._replace(
    memory=addressing.erase_and_add(
      state.memory, weights, request.erase, request.write_vectors
    ),
    usage=usage,
    link=allocation.update_link(state.link, weights, state.precedence),
    precedence=allocation.update_precedence(state.precedence, weights),
    write_weights=weights,
    gates=gates,
  )


def _read(
  state: DNCState, weights_tm1: Array, request: DNCInterface
) -> tuple[Array, Array]:
  """Returns read weights and words from a state ("Read weighting")."""
  modes, heads = request.gates.read_modes, state.link.shape[-3]
  by_content = addressing.content_weights(
    request.read_keys, state.memory, request.read_strengths
  )
  forward, backward = allocation.follow_links(state.link, weights_tm1)
  weights = (
    modes[..., heads, None] * by_content
    + jnp.einsum('...rh,...rhn->...rn', modes[..., :heads], backward)
    + jnp.einsum('...rh,...rhn->...rn', modes[..., heads + 1 :], forward)
  )
  return weights, addressing.read(state.memory, weights)


class DNC(nn.RNNCellBase):
  """An LSTM with a memory that finds free slots and recalls their order.

  With c(M, k, beta) = softmax_n(beta cos(k, M[n])), the weights by content:

    h_t = LSTM(h_{t-1}, [x_t, r_{t-1}])
    k, beta, e, v, f, g^a, g^w, pi = linear(h_t), activated
    u_t = (u_{t-1} + w^w_{t-1} - u_{t-1} w^w_{t-1}) prod_r (1 - f^r w^r_{t-1})
    a_t = weights on the slots of least u_t
    w^w_t = g^w (g^a a_t + (1 - g^a) c(M_{t-1}, k^w, beta^w))
    M_t = M_{t-1} (1 - w^w_t e) + w^w_t v
    L_t[i, j] = (1 - w^w_t[i] - w^w_t[j]) L_{t-1}[i, j] + w^w_t[i] p_{t-1}[j]
    p_t = (1 - sum_i w^w_t[i]) p_{t-1} + w^w_t
    w^r_t = pi_1 L_t^T w^r_{t-1} + pi_2 c(M_t, k^r, beta^r) + pi_3 L_t w^r_{t-1}
    r_t = w^r_t . M_t
    context = [r_t, h_t]

  Attributes:
    slots: N.
    word_size: W.
    read_heads: R.
    write_heads: H; the paper has one.
    controller_size: C, units of the LSTM.
    latent_size: Z. Above 0, words hold the first Z inputs, z_{t-1} (see
      `interface.Interface`); at 0 they are linear in h_t, as in the paper.
    reads: 'after' or 'before' the write (see `access`).
    strength: of keys, 'oneplus' (the paper's) or 'softplus' (DeepMind's).
    initial_strength: of keys at the start, above 1.
    controller_weight: of h_t in the tags of words that hold latents, above 0.
    key_activation: of words linear in h_t, 'identity' (the paper's) or 'tanh'.
    usage_gradient: see `access`.
    initial_memory: 'constant', all zero, or 'learned'.
  """

  slots: int
  word_size: int
  read_heads: int = 4
  write_heads: int = 1
  controller_size: int = 128
  latent_size: int = 0
  reads: contract.Reads = 'after'
  strength: contract.Strength = 'oneplus'
  initial_strength: float = 2.0
  controller_weight: float = interface.CONTROLLER_WEIGHT
  key_activation: contract.Activation = 'identity'
  usage_gradient: bool = True
  initial_memory: contract.InitialMemory = 'constant'

  num_feature_axes = 1

  @nn.compact
  def __call__(self, carry: DNCState, inputs: Array) -> tuple[DNCState, Array]:
    """Advances one step: `inputs [..., I]` -> context `[..., R W + C]`."""
    inputs = contract.check_call(self, carry, inputs)
    carry = contract.with_initial_memory(self, carry)
    reads_tm1 = contract.flatten_heads(carry.reads)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, jnp.concatenate([inputs, reads_tm1], axis=-1)
    )
    request, tag = self._request(h, inputs, carry.tag)
    settings = {'reads': self.reads, 'usage_gradient': self.usage_gradient}
    step = functools.partial(access, **settings)
    state = scan.rematerialised(step)(carry, request)
    context = jnp.concatenate([contract.flatten_heads(state.reads), h], axis=-1)
    calls = carry.calls + 1
    return state._replace(controller=controller, tag=tag, calls=calls), context

  def _request(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[DNCInterface, Array | None]:
    """Computes the interface of this step, and its tag."""
    r, w, size = self.read_heads, self.write_heads, self.word_size
    strength = interface.strength_bias(self.initial_strength, self.strength)
    parts = DNCInterface(
      read_keys=None,
      read_strengths=Part((r,), strength),
      write_keys=Part((w, size)),
      write_strengths=Part((w,), strength),
      erase=Part((w, size)),
      write_vectors=None,
      gates=DNCGates(
        free=Part((r,)),
        allocation=Part((w,), _WRITE_BIAS),
        write=Part((w,), _WRITE_BIAS),
        read_modes=Part((r, w + 1 + w)),
      ),
    )
    to_memory = interface.of_core(self, w, parts)
    words, raw, tag = to_memory(h, inputs, tag_tm1)
    request = DNCInterface(
      read_keys=words.read_keys,
      read_strengths=interface.strengthen(raw.read_strengths, self.strength),
      write_keys=interface.activate(raw.write_keys, self.key_activation),
      write_strengths=interface.strengthen(raw.write_strengths, self.strength),
      erase=nn.sigmoid(raw.erase),
      write_vectors=words.write_vectors,
      gates=DNCGates(
        *map(nn.sigmoid, raw.gates[:3]), nn.softmax(raw.gates.read_modes)
      ),
    )
    return request, tag

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> DNCState:
    """Makes an empty memory for inputs of `input_shape`."""
    contract.check_settings(self, 'latent_size')
    batch, n = input_shape[:-1], self.slots
    r, w = self.read_heads, self.write_heads
    return DNCState(
      controller=LSTM(self.controller_size, parent=None).initialize_carry(
        rng, input_shape
      ),
      memory=contract.zeros(*batch, n, self.word_size),
      usage=contract.zeros(*batch, n),
      link=contract.zeros(*batch, w, n, n),
      precedence=contract.zeros(*batch, w, n),
      read_weights=contract.zeros(*batch, r, n),
      write_weights=contract.zeros(*batch, w, n),
      reads=contract.zeros(*batch, r, self.word_size),
      gates=DNCGates(
        *(contract.zeros(*batch, heads) for heads in (r, w, w)),
        contract.zeros(*batch, r, w + 1 + w),
      ),
      tag=interface.initial_tag(batch, self.word_size, self.latent_size),
      calls=jnp.zeros(batch, jnp.int32),
    )
