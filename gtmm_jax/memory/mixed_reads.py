"""Reads by several addressings at once: of all slots, or of the strongest few.

Pure functions. Logits are `[..., R, N]` for R heads and N slots.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import addressing, derivatives, gradients

Array = jax.Array
Nearest = Literal['exact', 'approximate']


class Sought(NamedTuple):
  """What is asked of a memory in one step.

  Attributes:
    positions: logits of each addressing that does not look at the content, each
      [..., R, N].
    queries: of the addressing by content, [..., R, K]; None where there is
      none.
    strengths: what its cosines are multiplied by, [..., R].
    following: weights of the last read, each given to the slot that comes after
      it, [..., R, N].
    successions: what these are multiplied by before they are added to what is
      found by content, [..., R]; None where they are not.
    shares: of each addressing in what is read, content last, [..., R, A].
  """

  positions: Sequence[Array]
  queries: Array | None
  strengths: Array | None
  following: Array
  successions: Array | None
  shares: Array


def read_all(
  memory: Array, keys: Array, sought: Sought, holds: Array
) -> tuple[Array, Array]:
  """Reads that all slots take part in.

  Args:
    memory: [..., N, Z].
    keys: of length one, [..., N, K].
    sought: what is asked; queries of length one.
    holds: bool [..., N]; slots that may be read.

  Returns:
    What each head reads, [..., R, Z], and its weights, [..., R, N], which sum
    to one, or are all zero where no slot may be read.
  """
  logits = list(sought.positions)
  if sought.queries is not None:
    cosines = jnp.einsum('...rk,...nk->...rn', sought.queries, keys)
    logits.append(_by_content(sought, cosines, sought.following))
  each = addressing.masked_softmax(
    jnp.stack(logits, axis=-2), holds[..., None, None, :]
  )
  weights = jnp.einsum('...ra,...ran->...rn', sought.shares, each)
  return addressing.read(memory, weights), weights


def read_some(
  memory: Array,
  keys: Array,
  sought: Sought,
  holds: Array,
  count: int,
  nearest: Nearest = 'exact',
) -> tuple[Array, Array]:
  """Reads of the slots that each addressing of a head finds the strongest.

  The same as `read_all` where `count` is N. The choice has no gradient; what is
  made of the chosen slots has. Going back over T steps, R A k slots of each are
  kept, and not all N.

  Args:
    memory: [..., N, Z].
    keys: of length one, [..., N, K].
    sought: what is asked; queries of length one.
    holds: bool [..., N]; slots that may be read.
    count: k, 1 <= k <= N.
    nearest: as `strongest` has it.

  Returns:
    As `read_all`.
  """
  holds = holds[..., None, :]
  found, logits, valid = [], [], []
  for position in sought.positions:
    index, is_valid = strongest(position, holds, count, nearest)
    found.append(index)
    logits.append(jnp.take_along_axis(position, index, axis=-1))
    valid.append(is_valid)
  if sought.queries is not None:
    index, is_valid, by_content = _strongest_by_content(
      keys, sought, holds, count, nearest
    )
    found.append(index)
    logits.append(by_content)
    valid.append(is_valid)
  index = jnp.stack(found, axis=-2)
  each = addressing.masked_softmax(
    jnp.stack(logits, axis=-2), jnp.stack(valid, axis=-2)
  )
  weights = sought.shares[..., None] * each
  reads = jnp.einsum('...raj,...rajz->...rz', weights, rows(memory, index))
  return reads, _scatter(weights, index, memory.shape[-2])


def _by_content(sought: Sought, cosines: Array, following: Array) -> Array:
  """Logits of slots with these cosines, after what was read last by so much."""
  logits = sought.strengths[..., None] * cosines
  if sought.successions is None:
    return logits
  return logits + sought.successions[..., None] * following


def _strongest_by_content(
  keys: Array, sought: Sought, holds: Array, count: int, nearest: Nearest
) -> tuple[Array, Array, Array]:
  """As `strongest`, and the logits of the chosen, [..., R, k]."""
  unseen, unseen_keys = jax.lax.stop_gradient((sought, keys))
  cosines = jnp.einsum('...rk,...nk->...rn', unseen.queries, unseen_keys)
  logits = _by_content(unseen, cosines, unseen.following)
  index, is_valid = strongest(logits, holds, count, nearest)
  of_chosen = jnp.einsum(
    '...rk,...rjk->...rj', sought.queries, rows(keys, index)
  )
  following = jnp.take_along_axis(sought.following, index, axis=-1)
  return index, is_valid, _by_content(sought, of_chosen, following)


def strongest(
  logits: Array, mask: Array, count: int, nearest: Nearest = 'exact'
) -> tuple[Array, Array]:
  """The slots with the largest logits.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; slots that may be read.
    count: k, how many to choose, 1 <= k <= N.
    nearest: 'exact', or 'approximate': by `jax.lax.approx_max_k`, which finds
      95 of 100 and is faster on TPUs.

  Returns:
    Their indices, int32 [..., k], and which of them may be read, bool [..., k]:
    where fewer than k slots may, the rest is false.
  """
  floor = jnp.finfo(logits.dtype).min
  masked = jax.lax.stop_gradient(jnp.where(mask, logits, floor))
  if nearest == 'approximate':
    _, index = jax.lax.approx_max_k(masked, count)
  else:
    _, index = jax.lax.top_k(masked, count)
  mask = jnp.broadcast_to(mask, logits.shape)
  return index, jnp.take_along_axis(mask, index, axis=-1)


def rows(memory: Array, index: Array) -> Array:
  """Rows of [..., N, W] at indices [..., *I] -> [..., *I, W]."""
  batch = memory.shape[:-2]
  shape = index.shape[len(batch) :]
  flat = index.reshape(*batch, math.prod(shape))
  found = jnp.take_along_axis(memory, flat[..., None], axis=-2)
  return found.reshape(*index.shape, memory.shape[-1])


def by_slot(by_age: Array, stored: Array) -> Array:
  """Reorders values by age into values by slot; [..., R, N] both.

  Slot n holds what is (stored - 1 - n) mod N steps old.
  """
  slots, stored = by_age.shape[-1], stored[..., None]
  age = (stored - 1 - addressing.counting(slots, stored)) % slots
  return _turned(by_age, age[..., None, :])


@derivatives.with_backward(gradients.by_slot)
def _turned(by_age: Array, age: Array) -> Array:
  return jnp.take_along_axis(by_age, age, axis=-1)


def _scatter(weights: Array, index: Array, slots: int) -> Array:
  """Weights [..., R, A, k] of chosen slots as weights of all, [..., R, N]."""

  def scatter(weights, index):
    none = jnp.zeros(slots, weights.dtype)
    return none.at[index.reshape(-1)].add(weights.reshape(-1))

  return jnp.vectorize(scatter, signature='(a,k),(a,k)->(n)')(weights, index)
