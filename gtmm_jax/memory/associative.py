"""The associative memory: latents as they come, read by position and content.

Ours. Gemici et al. 2017, section 7, expect that a memory "combining the direct
storage of latent variables" of section 3.1 with the content-based addressing of
section 3.2 could do well at every task. This is one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import (
  addressing,
  contract,
  interface,
  mixed_reads,
  positions,
  scan,
)
from gtmm_jax.memory.interface import Part
from gtmm_jax.memory.lstm import LSTM, LSTMState
from gtmm_jax.memory.positions import Positions

Array = jax.Array

ADDRESSINGS = ('age', 'arrival', 'content')
# The parts that an ablation can leave out.
PARTS = (*ADDRESSINGS, 'shared_keys', 'controller_keys', 'succession')
# gamma_t at the start: e^4 = 55 to one for what follows the last read.
INITIAL_SUCCESSION = 4.0


class AssociativeState(NamedTuple):
  """State of the associative memory.

  Attributes:
    controller: the LSTM's state.
    memory: stored latents in order of arrival, [..., N, Z].
    keys: of the stored latents, of length one, [..., N, K].
    key: of the latent that comes next, [..., K].
    calls: how many inputs the core has seen, int32 [...].
    read_weights: w_t, [..., R, N]; each head's sum to one, or are all zero
      before anything is stored.
    shares: of `ADDRESSINGS` in those weights, [..., R, 3], summing to one.
    gates: sigmoid(g_t), of the reads, [..., R, Z].
  """

  controller: LSTMState
  memory: Array
  keys: Array
  key: Array
  calls: Array
  read_weights: Array
  shares: Array
  gates: Array


class _FromController(NamedTuple):
  """Parts that are linear in h_t; None where left out."""

  gates: Array
  shares: Array
  strengths: Array | None
  successions: Array | None


class _FromSituation(NamedTuple):
  """Parts that are linear in s_t; None where left out."""

  hidden: Array | None
  queries: Array | None


class Associative(nn.RNNCellBase):
  """A store of latents as they come, read by age, arrival and situation.

  From section 3.1 it has the store, in which nothing is learned, and attention
  by position; from section 3.2 attention by content, a softmax over slots of
  strength times cosine of query and key. A query that resembled the latent it
  seeks would have to know the answer. So each latent z_t is stored beside a key
  that was made before z_t was known, from what was seen until then, and queries
  come from the same map: a situation that was met before finds what came of it,
  the successor of a frame as well as what was seen at a place.

    h_t = LSTM(h_{t-1}, [z_{t-1}, c_t])
    s_t = [z_{t-1}, c_t, h_t]
    a_t = A [z_{t-1}, c_t, u h_t]
    key_t = a_t / |a_t|,          stored with z_t at t + 1
    query^r_t = a_t + B^r s_t + b^r, of length one; B^r and b^r are zero at
      the start
    w^{r,content}_t = softmax_n(
      beta^r_t query^r_t . key_n + gamma^r_t w^r_{t-1,n-1})
    w^{r,age}_t, w^{r,arrival}_t = k(s_t) / sum(k(s_t)), k as in section 3.1,
      over slots by the age of what they hold, and by its order of arrival
    w^r_t = sum_a share^{r,a}_t w^{r,a}_t,   share_t = softmax(linear(h_t))
    context = [w^1_t . M * sigmoid(g^1_t), ..., w^R_t . M * sigmoid(g^R_t), h_t]

  with g_t linear in h_t; beta_t and gamma_t are softplus(linear(h_t)), near
  `initial_strength` and `INITIAL_SUCCESSION` at the start. u is the
  controller's weight: with four, h_t makes up as much of a key at the start as
  latents of variance one, so that keys tell places apart, too, which only the
  controller knows. The store is a ring buffer of N latents, so slots n - 1 and
  n hold successive ones: if two keys resemble a query alike, gamma prefers the
  one after the last read.

  Attributes:
    latent_size: Z, the first Z features of the input are stored.
    slots: N.
    key_size: K.
    read_heads: R.
    controller_size: units of the LSTM.
    attention_size: hidden units of the attention by position.
    initial_strength: beta at the start, above 1.
    controller_weight: u, of h_t in keys, above 0.
    top_k: k, 2 or more, how many slots each head reads by each addressing, the
      softmax being over these alone; 0 reads all.
    nearest: how these are found, as `mixed_reads.strongest` has it.
    stores_first_input: whether a sequence's first input is a latent, not z_0.
    without: parts of `PARTS` to leave out: 'shared_keys' gives queries a map of
      their own, 'controller_keys' leaves h_t out of keys, 'succession' gamma.
    positions: form of k, 'table' or, for any N, 'fourier' (`memory.positions`).
  """

  latent_size: int
  slots: int
  key_size: int = 64
  read_heads: int = 5
  controller_size: int = 128
  attention_size: int = 128
  initial_strength: float = 8.0
  controller_weight: float = interface.CONTROLLER_WEIGHT
  top_k: int = 0
  nearest: mixed_reads.Nearest = 'exact'
  stores_first_input: bool = False
  without: tuple[str, ...] = ()
  positions: Positions = 'table'

  num_feature_axes = 1

  @nn.compact
  def __call__(
    self, carry: AssociativeState, inputs: Array
  ) -> tuple[AssociativeState, Array]:
    """Advances one step: `inputs [..., Z + A]` -> context `[..., R Z + H]`."""
    inputs = contract.check_call(self, carry, inputs)
    stored = carry.calls + int(self.stores_first_input)
    memory = contract.write_to_ring(
      carry.memory, inputs[..., : self.latent_size], stored
    )
    keys = contract.write_to_ring(carry.keys, carry.key, stored)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, inputs
    )
    key, lookup, shares, gates = self._lookup(inputs, h, carry, stored)
    number = stored[..., None]
    holds = addressing.counting(self.slots, number) < number
    if self.top_k:
      reads, read_weights = mixed_reads.read_some(
        memory, keys, lookup, holds, self.top_k, self.nearest
      )
    else:
      reads, read_weights = mixed_reads.read_all(memory, keys, lookup, holds)
    gated = contract.flatten_heads(reads * gates)
    calls = carry.calls + 1
    state = AssociativeState(
      controller, memory, keys, key, calls, read_weights, shares, gates
    )
    return state, jnp.concatenate([gated, h], axis=-1)

  def _has(self, part: str) -> bool:
    return part not in self.without

  def _lookup(
    self, inputs: Array, h: Array, carry: AssociativeState, stored: Array
  ) -> tuple[Array, mixed_reads.Lookup, Array, Array]:
    """Returns the next latent's key, the lookup, all shares, and gates."""
    situation = jnp.concatenate([inputs, h], axis=-1)
    from_h, from_s = self._parts()
    from_h = interface.linear(h, from_h, 'linear')
    from_s = interface.linear(situation, from_s, 'situation')
    key, queries = self._question(inputs, h, from_s.queries)
    is_used = jnp.array([self._has(name) for name in ADDRESSINGS])
    shares = addressing.masked_softmax(from_h.shares, is_used)
    used = [n for n, name in enumerate(ADDRESSINGS) if self._has(name)]
    lookup = mixed_reads.Lookup(
      positions=self._positions(from_s.hidden, stored),
      queries=queries,
      strengths=jax.tree.map(nn.softplus, from_h.strengths),
      # In a ring buffer slot 0 comes after slot N - 1.
      following=jnp.roll(carry.read_weights, 1, axis=-1),
      successions=jax.tree.map(nn.softplus, from_h.successions),
      shares=shares[..., used],
    )
    return key, lookup, shares, nn.sigmoid(from_h.gates)

  def _parts(self) -> tuple[_FromController, _FromSituation]:
    """Describes all that is linear in h_t and in s_t."""
    heads, has_content = self.read_heads, self._has('content')
    has_succession = has_content and self._has('succession')
    has_position = self._has('age') or self._has('arrival')
    bias, succession_bias = (
      interface.strength_bias(initial, 'softplus')
      for initial in (self.initial_strength, INITIAL_SUCCESSION)
    )
    queries = Part(
      (heads, self.key_size), starts_at_zero=self._has('shared_keys')
    )
    return _FromController(
      gates=Part((heads, self.latent_size)),
      shares=Part((heads, len(ADDRESSINGS))),
      strengths=Part((heads,), bias) if has_content else None,
      successions=Part((heads,), succession_bias) if has_succession else None,
    ), _FromSituation(
      hidden=Part((self.attention_size,)) if has_position else None,
      queries=queries if has_content else None,
    )

  def _question(
    self, inputs: Array, h: Array, queries: Array | None
  ) -> tuple[Array, Array | None]:
    """Returns the next latent's key [..., K] and queries [..., R, K]."""
    if queries is None:
      return jnp.zeros((*h.shape[:-1], self.key_size), h.dtype), None
    known = inputs
    if self._has('controller_keys'):
      weighted = self.controller_weight * h
      known = jnp.concatenate([inputs, weighted], axis=-1)
    to_key = scan.dense(
      self.key_size, use_bias=False, dtype=h.dtype, name='key'
    )
    a = to_key(known)
    if self._has('shared_keys'):
      queries = a[..., None, :] + queries
    return addressing.of_length_one(a), addressing.of_length_one(queries)

  def _positions(self, hidden: Array | None, stored: Array) -> list[Array]:
    """Returns the logits by age and by arrival, each [..., R, N] over slots."""
    if hidden is None:
      return []
    form = self.positions, self.slots
    part = Part((self.read_heads, positions.query_size(*form)))
    parts = [part if self._has(name) else None for name in ADDRESSINGS[:2]]
    age, arrival = interface.linear(nn.relu(hidden), parts, 'attention')
    if age is not None:
      age = addressing.log_softplus(positions.by_age(*form, age))
      age = positions.by_slot(age, stored)
    if arrival is not None:
      arrival = positions.by_arrival(*form, arrival, stored)
      arrival = addressing.log_softplus(arrival)
    return [x for x in (age, arrival) if x is not None]

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> AssociativeState:
    """Makes an empty store for inputs of `input_shape`."""
    _check_settings(self)
    batch = input_shape[:-1]
    heads = (*batch, self.read_heads)
    return AssociativeState(
      controller=LSTM(self.controller_size, parent=None).initialize_carry(
        rng, input_shape
      ),
      memory=contract.zeros(*batch, self.slots, self.latent_size),
      keys=contract.zeros(*batch, self.slots, self.key_size),
      key=contract.zeros(*batch, self.key_size),
      calls=jnp.zeros(batch, jnp.int32),
      read_weights=contract.zeros(*heads, self.slots),
      shares=contract.zeros(*heads, len(ADDRESSINGS)),
      gates=contract.zeros(*heads, self.latent_size),
    )


def _check_settings(core: Associative) -> None:
  """Checks a core's settings, as its `initialize_carry` does.

  Raises:
    ValueError: a setting is wrong; tells what is allowed.
  """
  contract.check_settings(core, 'top_k')
  if isinstance(core.without, str):
    raise ValueError(
      f'without is {core.without!r}; it must be a tuple of names, such as '
      f"('age',)."
    )
  for part in core.without:
    contract.check_word('without', part, PARTS)
  if set(ADDRESSINGS) <= set(core.without):
    raise ValueError(
      'without leaves no addressing; keep age, arrival or content.'
    )
  mixed_reads.check_count(core.top_k, core.nearest, core.slots)
  if core.positions != 'table' and {'age', 'arrival'} <= set(core.without):
    raise ValueError(
      f'positions is {core.positions!r}; without must keep age or arrival.'
    )
