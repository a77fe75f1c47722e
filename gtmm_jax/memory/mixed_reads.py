"""Reads by several addressings at once: of all slots, or of the strongest few.

Pure functions. Logits are `[..., R, N]` for R heads and N slots.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import addressing

Array = jax.Array
Nearest = Literal['exact', 'approximate']


class Lookup(NamedTuple):
  """All that a memory is asked for in one step, by A addressings.

  Attributes:
    positions: logits of each addressing by position, each [..., R, N].
    queries: of the addressing by content, [..., R, K]; None without it.
    strengths: beta, factors of the cosines of queries and keys, [..., R].
    following: w_{t-1}, each weight moved on to the next slot, [..., R, N].
    successions: gamma, factors of `following` in the logits by content,
      [..., R]; None where it does not count.
    shares: of each addressing in the read, content last, [..., R, A].
  """

  positions: Sequence[Array]
  queries: Array | None
  strengths: Array | None
  following: Array
  successions: Array | None
  shares: Array


def check_count(count: int, nearest: Nearest, slots: int) -> None:
  """Checks how many slots each head reads by each addressing.

  Args:
    count: `top_k` of a core, at least 0; 0 reads all.
    nearest: as `strongest` has it.
    slots: N.

  Raises:
    ValueError: one of them makes no sense; tells what is allowed.
  """
  if count > slots:
    raise ValueError(
      f'top_k is {count}; it must be 0, for all slots, or at most their '
      f'number, {slots}.'
    )
  if count == 1 < slots:
    raise ValueError(
      'top_k is 1; one slot always has weight one, so that keys, queries and '
      'positions would get no gradient. Take 2 or more, or 0 for all slots.'
    )
  if nearest != 'exact' and not count:
    raise ValueError(f'nearest is {nearest!r}, which needs top_k.')


def read_all(
  memory: Array, keys: Array, lookup: Lookup, holds: Array
) -> tuple[Array, Array]:
  """Reads all slots.

  Args:
    memory: [..., N, Z].
    keys: of length one, [..., N, K].
    lookup: what to read; queries of length one.
    holds: bool [..., N]; slots that may be read.

  Returns:
    What each head reads, [..., R, Z], and its weights, [..., R, N], which sum
    to one, or are all zero where no slot may be read.
  """
  logits = list(lookup.positions)
  if lookup.queries is not None:
    cosines = jnp.einsum('...rk,...nk->...rn', lookup.queries, keys)
    logits.append(_by_content(lookup, cosines, lookup.following))
  each = addressing.masked_softmax(
    jnp.stack(logits, axis=-2), holds[..., None, None, :]
  )
  weights = jnp.einsum('...ra,...ran->...rn', lookup.shares, each)
  return addressing.read(memory, weights), weights


def read_some(
  memory: Array,
  keys: Array,
  lookup: Lookup,
  holds: Array,
  count: int,
  nearest: Nearest = 'exact',
) -> tuple[Array, Array]:
  """Reads only the slots with the largest logits of each addressing and head.

  The same as `read_all` if `count` is N. The choice has no gradient; what is
  read has. The backward pass saves R A k slots of each step, not all N.

  Args:
    memory: [..., N, Z].
    keys: of length one, [..., N, K].
    lookup: what to read; queries of length one.
    holds: bool [..., N]; slots that may be read.
    count: k, 1 <= k <= N.
    nearest: as `strongest` has it.

  Returns:
    As `read_all`.
  """
  holds = holds[..., None, :]
  indices, logits, valid = [], [], []
  for position in lookup.positions:
    index, is_valid = strongest(position, holds, count, nearest)
    indices.append(index)
    logits.append(jnp.take_along_axis(position, index, axis=-1))
    valid.append(is_valid)
  if lookup.queries is not None:
    index, is_valid, by_content = _strongest_by_content(
      keys, lookup, holds, count, nearest
    )
    indices.append(index)
    logits.append(by_content)
    valid.append(is_valid)
  index = jnp.stack(indices, axis=-2)
  each = addressing.masked_softmax(
    jnp.stack(logits, axis=-2), jnp.stack(valid, axis=-2)
  )
  weights = lookup.shares[..., None] * each
  reads = jnp.einsum('...raj,...rajz->...rz', weights, rows(memory, index))
  return reads, _scatter(weights, index, memory.shape[-2])


def _by_content(lookup: Lookup, cosines: Array, following: Array) -> Array:
  """Returns beta cosine + gamma w_{t-1}: the logits by content."""
  logits = lookup.strengths[..., None] * cosines
  if lookup.successions is None:
    return logits
  return logits + lookup.successions[..., None] * following


def _strongest_by_content(
  keys: Array, lookup: Lookup, holds: Array, count: int, nearest: Nearest
) -> tuple[Array, Array, Array]:
  """Returns the strongest by content: indices, mask and logits [..., R, k]."""
  constant, constant_keys = jax.lax.stop_gradient((lookup, keys))
  cosines = jnp.einsum('...rk,...nk->...rn', constant.queries, constant_keys)
  logits = _by_content(constant, cosines, constant.following)
  index, is_valid = strongest(logits, holds, count, nearest)
  of_chosen = jnp.einsum(
    '...rk,...rjk->...rj', lookup.queries, rows(keys, index)
  )
  following = jnp.take_along_axis(lookup.following, index, axis=-1)
  return index, is_valid, _by_content(lookup, of_chosen, following)


def strongest(
  logits: Array, mask: Array, count: int, nearest: Nearest = 'exact'
) -> tuple[Array, Array]:
  """Finds the slots with the largest logits.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; slots that may be read.
    count: k, how many to choose, 1 <= k <= N.
    nearest: 'exact', or 'approximate', by `jax.lax.approx_max_k`, which finds
      95 of 100 and is faster on TPUs.

  Returns:
    Their indices, int32 [..., k], and whether each may be read, bool [..., k]:
    if fewer than k slots may, the last are false.
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
  """Gathers rows of [..., N, W] at indices [..., *I] -> [..., *I, W]."""
  batch = memory.shape[:-2]
  shape = index.shape[len(batch) :]
  flat = index.reshape(*batch, math.prod(shape))
  gathered = jnp.take_along_axis(memory, flat[..., None], axis=-2)
  return gathered.reshape(*index.shape, memory.shape[-1])


def _scatter(weights: Array, index: Array, slots: int) -> Array:
  """Adds weights [..., R, A, k] of chosen slots up over all, [..., R, N]."""

  def scatter(weights, index):
    none = jnp.zeros(slots, weights.dtype)
    return none.at[index.reshape(-1)].add(weights.reshape(-1))

  return jnp.vectorize(scatter, signature='(a,k),(a,k)->(n)')(weights, index)
