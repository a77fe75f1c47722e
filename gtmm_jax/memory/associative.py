"""The associative memory: latents as they come, read by position and content.

Ours. Gemici et al. 2017, section 7, expect that a memory "combining the direct
storage of latent variables" of section 3.1 with the content-based addressing of
section 3.2 could do well at every task. This is one.
"""

from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import (
  addressing,
  contract,
  interface,
  mixed_reads,
  products,
)
from gtmm_jax.memory.lstm import LSTM, LSTMState

Array = jax.Array

ADDRESSINGS = ('age', 'arrival', 'content')
# What can be left out, to see what it is good for.
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
    read_weights: the last weights, [..., R, N]; each head's sum to one, or are
      all zero where nothing was stored yet.
    shares: of `ADDRESSINGS` in those weights, [..., R, 3], summing to one.
    gates: the last gates of the reads in (0, 1), [..., R, Z].
  """

  controller: LSTMState
  memory: Array
  keys: Array
  key: Array
  calls: Array
  read_weights: Array
  shares: Array
  gates: Array


class Associative(nn.RNNCellBase):
  """Stores latents as they come, and finds them by age, arrival and situation.

  From section 3.1 it has the store, a queue of latents about which nothing is
  to be learned, and attention by position. From section 3.2 it has attention by
  content, that is to say softmax over slots of strength times cosine of query
  and key. What to compare is the question: a query that resembled the latent
  that is sought would have to know the answer. So each latent z_t is stored
  beside a key that was made before it was known, of what was then seen, and the
  query comes from the same map: a situation that was met before finds what came
  of it, the successor of a frame as well as what was seen at a place.

    h_t = LSTM(h_{t-1}, [z_{t-1}, c_t])
    s_t = [z_{t-1}, c_t, h_t]
    a_t = A [z_{t-1}, c_t, 4 h_t]
    key_t = a_t / |a_t|,          stored with z_t at t + 1
    query^r_t = a_t + B^r s_t + b^r, of length one; B^r and b^r are zero at
      the start
    w^{r,content}_t = softmax_n(
      beta^r_t query^r_t . key_n + gamma^r_t w^r_{t-1,n-1})
    w^{r,age}_t, w^{r,arrival}_t = k(s_t) / sum(k(s_t)), k as in section 3.1,
      over slots by the age of what they hold, and by its order of arrival
    w^r_t = sum_a share^{r,a}_t w^{r,a}_t,   share_t = softmax(linear(h_t))
    context = [w^1_t . M * sigmoid(g^1_t), ..., w^R_t . M * sigmoid(g^R_t), h_t]

  with beta_t = softplus(linear(h_t)), near `initial_strength` at the start, and
  g_t linear in h_t. Counted four times h_t makes as much of a key at the start
  as latents of variance one, so that keys tell places apart, too, which only
  the controller knows. Where more than N latents arrive, the oldest goes.

  Slots n - 1 and n hold latents that arrived one after the other. So, where two
  keys resemble a query alike, what followed the last read is taken: gamma_t =
  softplus(linear(h_t)), near `INITIAL_SUCCESSION` at the start.

  Attributes:
    latent_size: Z, the first Z features of the input are stored.
    slots: N.
    key_size: K.
    read_heads: R.
    controller_size: units of the LSTM.
    attention_size: hidden units of the attention by position.
    initial_strength: beta at the start, above 1.
    top_k: k, how many slots each head reads by each addressing, the softmax
      being over these alone, 2 or more: over one it would be 1 whatever is
      sought, and keys, queries and positions without a gradient; 0 reads all.
    nearest: how these are found, as `reading.strongest` has it.
    stores_first_input: whether the first input of a sequence is a latent. In
      the temporal VAE it is z_0 = 0, a placeholder, and is not stored.
    without: parts to leave out, of `PARTS`; 'shared_keys' makes queries by a
      map of their own, 'controller_keys' makes keys of [z_{t-1}, c_t] alone,
      'succession' leaves gamma at zero.
  """

  latent_size: int
  slots: int
  key_size: int = 64
  read_heads: int = 5
  controller_size: int = 128
  attention_size: int = 128
  initial_strength: float = 8.0
  top_k: int = 0
  nearest: mixed_reads.Nearest = 'exact'
  stores_first_input: bool = False
  without: tuple[str, ...] = ()

  @nn.compact
  def __call__(
    self, carry: AssociativeState, inputs: Array
  ) -> tuple[AssociativeState, Array]:
    """One step: `inputs [..., Z + A]` -> context `[..., R Z + H]`."""
    inputs = contract.require_sense(self, carry, inputs)
    stored = carry.calls + int(self.stores_first_input)
    memory = contract.put_in_turn(
      carry.memory, inputs[..., : self.latent_size], stored
    )
    keys = contract.put_in_turn(carry.keys, carry.key, stored)
    controller, h = LSTM(self.controller_size, name='controller')(
      carry.controller, inputs
    )
    asked = self._ask(inputs, h)
    shares = addressing.masked_softmax(
      asked['shares'],
      jnp.array([name not in self.without for name in ADDRESSINGS]),
    )
    key, queries = self._question(asked)
    sought = mixed_reads.Sought(
      positions=self._positions(asked, stored),
      queries=queries,
      strengths=_positive(asked, 'strengths'),
      # A ring: what arrived after slot N - 1 is in slot 0.
      following=jnp.roll(carry.read_weights, 1, axis=-1),
      successions=_positive(asked, 'successions'),
      shares=shares[..., [ADDRESSINGS.index(n) for n in self._addressings]],
    )
    number = stored[..., None]
    holds = addressing.counting(self.slots, number) < number
    if self.top_k:
      reads, read_weights = mixed_reads.read_some(
        memory, keys, sought, holds, self.top_k, self.nearest
      )
    else:
      reads, read_weights = mixed_reads.read_all(memory, keys, sought, holds)
    gates = nn.sigmoid(asked['gates'])
    gated = contract.beside_one_another(reads * gates)
    calls = carry.calls + 1
    state = AssociativeState(
      controller, memory, keys, key, calls, read_weights, shares, gates
    )
    return state, jnp.concatenate([gated, h], axis=-1)

  @property
  def _addressings(self) -> list[str]:
    return [name for name in ADDRESSINGS if name not in self.without]

  @property
  def _positional(self) -> list[str]:
    return [name for name in self._addressings if name != 'content']

  def _ask(self, inputs: Array, h: Array) -> dict[str, Array]:
    """All that is linear in h_t or in s_t, not yet activated."""
    heads = self.read_heads
    of_h = {
      'gates': interface.Part((heads, self.latent_size)),
      'shares': interface.Part((heads, len(ADDRESSINGS))),
    }
    of_s = {}
    if self._positional:
      of_s['hidden'] = interface.Part((self.attention_size,))
    if 'content' not in self.without:
      bias = interface.strength_bias(self.initial_strength, 'softplus')
      of_h['strengths'] = interface.Part((heads,), bias)
      if 'succession' not in self.without:
        bias = interface.strength_bias(INITIAL_SUCCESSION, 'softplus')
        of_h['successions'] = interface.Part((heads,), bias)
      of_s['queries'] = interface.Part(
        (heads, self.key_size),
        starts_at_zero='shared_keys' not in self.without,
      )
    s = jnp.concatenate([inputs, h], axis=-1)
    asked = interface.linear(h, of_h, 'linear')
    asked |= interface.linear(s, of_s, 'situation')
    if 'content' not in self.without:
      known = inputs
      if 'controller_keys' not in self.without:
        weighed = interface.CONTROLLER_WEIGHT * h
        known = jnp.concatenate([inputs, weighed], axis=-1)
      asked['key'] = nn.Dense(
        self.key_size,
        use_bias=False,
        dtype=h.dtype,
        dot_general=products.dot_general,
        name='key',
      )(known)
    return asked

  def _question(self, asked: dict[str, Array]) -> tuple[Array, Array | None]:
    """The key of the latent to come, and this step's queries."""
    if 'content' in self.without:
      shape = (*asked['shares'].shape[:-2], self.key_size)
      return jnp.zeros(shape, asked['shares'].dtype), None
    key, queries = asked['key'], asked['queries']
    if 'shared_keys' not in self.without:
      queries = key[..., None, :] + queries
    return addressing.of_length_one(key), addressing.of_length_one(queries)

  def _positions(self, asked: dict[str, Array], stored: Array) -> list[Array]:
    """Logits by age and by arrival, each [..., R, N] over slots."""
    if not self._positional:
      return []
    part = interface.Part((self.read_heads, self.slots))
    found = interface.linear(
      nn.relu(asked['hidden']),
      dict.fromkeys(self._positional, part),
      'attention',
    )
    found = {name: addressing.log_softplus(raw) for name, raw in found.items()}
    if 'age' in found:
      found['age'] = mixed_reads.by_slot(found['age'], stored)
    return list(found.values())

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> AssociativeState:
    """An empty store with the leading axes of `input_shape`."""
    require_settings(self)
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

  @property
  def num_feature_axes(self) -> int:
    """One: inputs are vectors."""
    return 1


def require_settings(cell: Associative) -> None:
  """Checks the settings of a cell; raises `ValueError` in one sentence."""
  contract.require_sizes(cell, 'latent_size')
  contract.require_strength(cell.initial_strength)
  if isinstance(cell.without, str):
    raise ValueError(
      f'without is {cell.without!r}; it must be a tuple of names, such as '
      f"('age',)."
    )
  for part in cell.without:
    contract.require_one_of('without', part, PARTS)
  if set(ADDRESSINGS) <= set(cell.without):
    raise ValueError(
      'without leaves no addressing; keep age, arrival or content.'
    )
  if not 0 <= cell.top_k <= cell.slots:
    raise ValueError(
      f'top_k is {cell.top_k}; it must be 0, which reads all slots, or at most '
      f'their number, {cell.slots}.'
    )
  if cell.top_k == 1 < cell.slots:
    raise ValueError(
      'top_k is 1; one slot always has weight one, so that keys, queries and '
      'positions would get no gradient. Take 2 or more, or 0 for all slots.'
    )
  contract.require_one_of(
    'nearest', cell.nearest, get_args(mixed_reads.Nearest)
  )
  if cell.nearest != 'exact' and not cell.top_k:
    raise ValueError(f'nearest is {cell.nearest!r}, which needs top_k.')


def _positive(asked: dict[str, Array], name: str) -> Array | None:
  return nn.softplus(asked[name]) if name in asked else None
