"""The differentiable neural computer.

Graves et al. 2016, Methods, as the memory of Gemici et al. 2017, section 3.2.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import contract, interface
from gtmm_jax.memory.dnc_access import (
  DNCGates,
  DNCInterface,
  DNCState,
  access,
)
from gtmm_jax.memory.lstm import LSTM

Array = jax.Array

# The paper leaves biases open, and they decide whether a memory is used at all:
# from the first step on, words are written, and to free slots.
_WRITE_BIAS = 3.0


class DNC(nn.RNNCellBase):
  """An LSTM with a memory that finds free slots and recalls their order.

  h_t = LSTM(h_{t-1}, [inputs_t, reads_{t-1}]); one linear map of h_t gives the
  interface; `access` writes and reads; the context is [reads_t, h_t].

  Attributes:
    slots: N.
    word_size: W.
    read_heads: R.
    write_heads: H; the paper has one.
    controller_size: units of the LSTM.
    latent_size: Z. Where it is above 0, the words are [z_{t-1}, tag_{t-1}] with
      z_{t-1} the first Z inputs (see `interface.Interface`); else write vectors
      and keys are linear in h_t, as in the DNC's paper.
    reads: 'after' or 'before' the write (see `access`).
    strength: of keys, 'oneplus' (the paper's) or 'softplus' (DeepMind's).
    initial_strength: of keys at the start, above 1.
    key_activation: of keys and write vectors that are linear in h_t: 'identity'
      (the paper's) or 'tanh'.
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
  key_activation: contract.Activation = 'identity'
  usage_gradient: bool = True
  initial_memory: contract.InitialMemory = 'constant'

  @nn.compact
  def __call__(self, carry: DNCState, inputs: Array) -> tuple[DNCState, Array]:
    """Advances: `inputs [..., I]` -> context `[..., R W + controller_size]`."""
    step = functools.partial(
      access, reads=self.reads, usage_gradient=self.usage_gradient
    )
    return interface.advance(self, carry, inputs, self._ask, step)

  def _ask(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[DNCInterface, Array | None]:
    """The interface of this step, and its tag."""
    r, w = self.read_heads, self.write_heads
    strength = interface.strength_bias(self.initial_strength, self.strength)
    words = (w, self.word_size)
    asked = interface.Interface(
      word_size=self.word_size,
      read_heads=r,
      write_heads=w,
      parts={
        'read_strengths': interface.Part((r,), strength),
        'write_keys': interface.Part(words),
        'write_strengths': interface.Part((w,), strength),
        'erase': interface.Part(words),
        'free': interface.Part((r,)),
        'allocation': interface.Part((w,), _WRITE_BIAS),
        'write': interface.Part((w,), _WRITE_BIAS),
        'read_modes': interface.Part((r, w + 1 + w)),
      },
      latent_size=self.latent_size,
      activation=self.key_activation,
      name='interface',
    )(h, inputs, tag_tm1)
    raw = asked.parts
    return DNCInterface(
      read_keys=asked.read_keys,
      read_strengths=interface.strengthen(raw['read_strengths'], self.strength),
      write_keys=interface.activate(raw['write_keys'], self.key_activation),
      write_strengths=interface.strengthen(
        raw['write_strengths'], self.strength
      ),
      erase=nn.sigmoid(raw['erase']),
      write_vectors=asked.write_vectors,
      gates=DNCGates(
        free=nn.sigmoid(raw['free']),
        allocation=nn.sigmoid(raw['allocation']),
        write=nn.sigmoid(raw['write']),
        read_modes=nn.softmax(raw['read_modes']),
      ),
    ), asked.tag

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> DNCState:
    """An empty memory with the leading axes of `input_shape`."""
    contract.require_settings(self)
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
        free=contract.zeros(*batch, r),
        allocation=contract.zeros(*batch, w),
        write=contract.zeros(*batch, w),
        read_modes=contract.zeros(*batch, r, w + 1 + w),
      ),
      tag=interface.initial_tag(batch, self.word_size, self.latent_size),
      calls=jnp.zeros(batch, jnp.int32),
    )

  @property
  def num_feature_axes(self) -> int:
    """One: inputs are vectors."""
    return 1
