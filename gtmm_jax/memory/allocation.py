"""Allocation: pure functions that find free slots, and recall their order.

Usage, allocation and temporal links of the differentiable neural computer
(Graves et al. 2016, Methods, https://doi.org/10.1038/nature20101), and least
recently used slots (Santoro et al. 2016, https://arxiv.org/abs/1605.06065).
Arrays end in `[..., N]` for N slots, `[..., H, N]` for H write heads and
`[..., R, N]` for R read heads. Only the link is N x N.
"""

import functools

import jax
import jax.numpy as jnp

from gtmm_jax.memory import addressing, derivatives, gradients

Array = jax.Array

# Least usage of a sorted slot, so that no product along the free list vanishes.
_LEAST_USAGE = 1e-6


def update_usage(
  usage_tm1: Array,
  write_weights_tm1: Array,
  free_gates: Array,
  read_weights_tm1: Array,
) -> Array:
  """Computes the DNC's usage u_t ("Dynamic memory allocation").

  u_t = (u_{t-1} + w^w_{t-1} - u_{t-1} w^w_{t-1}) psi_t, with w^w = 1 - prod_h
  (1 - w^w_h) for several write heads, and the retention psi_t = prod_r
  (1 - f^r w^r_{t-1}) of what was just read.

  Args:
    usage_tm1: u_{t-1} in [0, 1], [..., N].
    write_weights_tm1: w^w_{t-1}, [..., H, N].
    free_gates: f in [0, 1], 1 frees what was just read, [..., R].
    read_weights_tm1: w^r_{t-1}, [..., R, N].

  Returns:
    Usage [..., N].
  """
  usage = usage_tm1
  for head in range(write_weights_tm1.shape[-2]):
    usage = usage + (1.0 - usage) * write_weights_tm1[..., head, :]
  return free_slots(usage, free_gates, read_weights_tm1)


@derivatives.with_backward(gradients.free_slots)
def free_slots(usage: Array, free_gates: Array, read_weights: Array) -> Array:
  """Frees slots that were just read: usage prod_r (1 - f_r w_r).

  Args:
    usage: in [0, 1], [..., N].
    free_gates: f in [0, 1], [..., R].
    read_weights: [..., R, N].

  Returns:
    Usage [..., N].
  """
  for head in range(read_weights.shape[-2]):
    usage = usage * (
      1.0 - free_gates[..., head, None] * read_weights[..., head, :]
    )
  return usage


def allocation_weights(usage: Array) -> Array:
  """Computes the DNC's allocation a_t ("Dynamic memory allocation").

  a[phi_j] = (1 - u[phi_j]) prod_{i < j} u[phi_i], with phi the slots in order
  of usage, ties to the lowest index, and u raised to at least 1e-6. The order
  has no gradient.

  Args:
    usage: in [0, 1], [..., N].

  Returns:
    Weights [..., N] in [0, 1] whose sum is at most one.
  """
  usage = _LEAST_USAGE + (1.0 - _LEAST_USAGE) * usage
  # 1 - u is what is sorted: usages closer than its resolution are ties.
  order = jnp.argsort(jax.lax.stop_gradient(usage) - 1.0, axis=-1, stable=True)
  order = derivatives.saved(order)
  return allocate(usage, order, _rank(order))


@functools.partial(jnp.vectorize, signature='(n)->(n)')
def _rank(order: Array) -> Array:
  """Inverts a permutation; on CPUs a second sort takes ten times as long."""
  slots = jnp.arange(order.shape[-1], dtype=order.dtype)
  return jnp.zeros_like(order).at[order].set(slots)


@derivatives.with_backward(gradients.allocate)
def allocate(usage: Array, order: Array, rank: Array) -> Array:
  """Computes the allocation of slots in a given order.

  Args:
    usage: above 0, [..., N].
    order: phi, the slots from the least used on, int [..., N].
    rank: the place of each slot in that order, int [..., N].

  Returns:
    Weights [..., N].
  """
  ordered = jnp.take_along_axis(usage, order, axis=-1)
  one = jnp.ones_like(ordered[..., :1])
  freer = jnp.cumprod(
    jnp.concatenate([one, ordered[..., :-1]], axis=-1), axis=-1
  )
  return jnp.take_along_axis((1.0 - ordered) * freer, rank, axis=-1)


def write_allocation_weights(usage: Array, write_gates: Array) -> Array:
  """Computes the allocation of several write heads, one after the other.

  Each head's slots count as used for the next head. The paper has one write
  head, whose weights are `allocation_weights`; like DeepMind's program, this
  generalises to several.

  Args:
    usage: in [0, 1], [..., N].
    write_gates: g^w g^a, the share of its allocation that each head writes to,
      in [0, 1], [..., H].

  Returns:
    Weights [..., H, N].
  """
  weights = []
  for head in range(write_gates.shape[-1]):
    weights.append(allocation_weights(usage))
    taken = write_gates[..., head, None] * weights[-1]
    usage = usage + (1.0 - usage) * taken
  return jnp.stack(weights, axis=-2)


@derivatives.with_backward(gradients.update_link)
def update_link(
  link_tm1: Array, write_weights: Array, precedence_tm1: Array
) -> Array:
  """Computes the DNC's link matrix L_t ("Temporal memory linkage").

  L_t[i, j] = (1 - w^w_t[i] - w^w_t[j]) L_{t-1}[i, j] + w^w_t[i] p_{t-1}[j],
  L_t[i, i] = 0: near one if slot i was written just after slot j.

  Args:
    link_tm1: L_{t-1}, [..., H, N, N].
    write_weights: w^w_t, [..., H, N].
    precedence_tm1: p_{t-1}, [..., H, N].

  Returns:
    Link [..., H, N, N] in [0, 1]; rows and columns sum to at most one.
  """
  to, since = write_weights[..., :, None], write_weights[..., None, :]
  link = (1.0 - to - since) * link_tm1 + to * precedence_tm1[..., None, :]
  diagonal = jnp.eye(link.shape[-1], dtype=bool)
  return jnp.where(addressing.aligned(diagonal, link), 0.0, link)


def update_precedence(precedence_tm1: Array, write_weights: Array) -> Array:
  """Computes the DNC's precedence p_t ("Temporal memory linkage").

  p_t = (1 - sum_i w^w_t[i]) p_{t-1} + w^w_t: how much each slot was the last
  one written.

  Args:
    precedence_tm1: p_{t-1}, [..., H, N].
    write_weights: w^w_t, [..., H, N].

  Returns:
    Precedence [..., H, N] whose sum is at most one.
  """
  written = write_weights.sum(axis=-1, keepdims=True)
  return (1.0 - written) * precedence_tm1 + write_weights


@derivatives.with_backward(gradients.follow_links)
def follow_links(link: Array, read_weights_tm1: Array) -> tuple[Array, Array]:
  """Computes the DNC's forward and backward weights f_t and b_t.

  Args:
    link: L_t, [..., H, N, N].
    read_weights_tm1: w^r_{t-1}, [..., R, N].

  Returns:
    f_t = L_t w^r_{t-1}, on what was written after the last read, and b_t =
    L_t^T w^r_{t-1}, on what was written before it, each [..., R, H, N].
  """
  forward = jnp.einsum('...hij,...rj->...rhi', link, read_weights_tm1)
  backward = jnp.einsum('...hij,...ri->...rhj', link, read_weights_tm1)
  return derivatives.saved((forward, backward))


def decayed_usage(
  usage_tm1: Array, read_weights: Array, write_weights: Array, decay: float
) -> Array:
  """Computes the LRU's usage w^u_t (Santoro et al. 2016, eq. 5).

  Args:
    usage_tm1: w^u_{t-1} >= 0, [..., N].
    read_weights: w^r_t, [..., R, N].
    write_weights: w^w_t, [..., H, N].
    decay: the paper's gamma, in [0, 1).

  Returns:
    gamma w^u_{t-1} + sum_r w^r_t + sum_h w^w_t, [..., N].
  """
  return decay * usage_tm1 + read_weights.sum(-2) + write_weights.sum(-2)


def least_used(usage: Array, count: int) -> Array:
  """Makes one-hot vectors of exactly `count` least used slots.

  Santoro et al. 2016, eq. 6, whose `<=` also marks ties; here the lowest index
  comes first, as in `jax.lax.top_k`.

  Args:
    usage: [..., N].
    count: number of slots, 1 to N.

  Returns:
    [..., count, N], the least used slot first; the sum over axis -2 is w^lu.
  """
  _, slots = jax.lax.top_k(-jax.lax.stop_gradient(usage), count)
  return jax.nn.one_hot(slots, usage.shape[-1], dtype=usage.dtype)
