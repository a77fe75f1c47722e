"""Parts of the cores whose gradients are written out, for speed alone.

Going back through the DNC's allocation and links, what JAX derives takes
several times as many small operations, and keeps more arrays of every time
step; `allocation` says what they compute. Each `_backward` returns the
cotangents of its function's arguments. There is no forward-mode derivative.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from gtmm_jax.memory import addressing

Array = jax.Array

# Names of what `sparing` keeps: the slots from the freest on, and the weights
# along links.
_ORDER = 'order_of_slots'
_FOLLOWED = 'followed_links'


def sparing(access: Callable[..., Any]) -> Callable[..., Any]:
  """A function of a core's step of which less is kept for going back.

  What JAX keeps of a step is several times a core's state: more than half of
  the memory that going back takes. To write and read it takes no less time than
  to compute it again. Kept are the arguments, and the small arrays whose making
  is long: sorted slots, and weights by content and along links.
  """
  kept = jax.checkpoint_policies.save_only_these_names(
    *addressing.KEPT, _ORDER, _FOLLOWED
  )
  # Nothing hides what is done again from XLA: in a scan it cannot be merged.
  return jax.checkpoint(access, prevent_cse=False, policy=kept)


@jax.custom_vjp
def free_slots(usage: Array, gates: Array, weights: Array) -> Array:
  """Usage after reads freed some: usage prod_r (1 - f_r w_r), [..., N]."""
  for head in range(weights.shape[-2]):
    usage = usage * (1.0 - gates[..., head, None] * weights[..., head, :])
  return usage


def _free_forward(usage, gates, weights):
  return free_slots(usage, gates, weights), (usage, gates, weights)


def _free_backward(saved, cotangent):
  usage, gates, weights = saved
  kept = 1.0 - gates[..., None] * weights
  heads = [kept[..., head, :] for head in range(kept.shape[-2])]
  lost = -cotangent * usage
  # Each head's factor left out of the product: a quotient would be 0/0 where
  # a slot was freed.
  others = [
    math.prod((*heads[:head], *heads[head + 1 :]), start=lost)
    for head in range(len(heads))
  ]
  others = jnp.stack(others, axis=-2)
  return (
    math.prod(heads, start=cotangent),
    (others * weights).sum(-1),
    others * gates[..., None],
  )


free_slots.defvjp(_free_forward, _free_backward)


@jax.custom_vjp
def allocate(usage: Array) -> Array:
  """`allocation.allocation_weights` of a usage above 0, [..., N]."""
  return _allocate_forward(usage)[0]


def _allocate_forward(usage):
  # 1 - u is what is sorted: usages closer than its resolution are ties.
  order = jnp.argsort(usage - 1.0, axis=-1, stable=True)
  order = checkpoint_name(order, _ORDER)
  rank = _inverse(order)
  ordered = jnp.take_along_axis(usage, order, axis=-1)
  one = jnp.ones_like(ordered[..., :1])
  freer = jnp.cumprod(
    jnp.concatenate([one, ordered[..., :-1]], axis=-1), axis=-1
  )
  weights = jnp.take_along_axis((1.0 - ordered) * freer, rank, axis=-1)
  return weights, (ordered, freer, order, rank)


@functools.partial(jnp.vectorize, signature='(n)->(n)')
def _inverse(order: Array) -> Array:
  """Inverts a permutation; on a CPU a second sort takes ten times as long."""
  slots = jnp.arange(order.shape[-1], dtype=order.dtype)
  return jnp.zeros_like(order).at[order].set(slots)


def _allocate_backward(saved, cotangent):
  ordered, freer, order, rank = saved
  given = freer * jnp.take_along_axis(cotangent, order, axis=-1)
  # Slot j has a factor u_j in the weights of all slots that are less free.
  later = jax.lax.cumsum(
    given * (1.0 - ordered), axis=given.ndim - 1, reverse=True
  )
  none = jnp.zeros_like(later[..., :1])
  later = jnp.concatenate([later[..., 1:], none], axis=-1)
  return (jnp.take_along_axis(later / ordered - given, rank, axis=-1),)


allocate.defvjp(_allocate_forward, _allocate_backward)


@jax.custom_vjp
def link_slots(link: Array, weights: Array, precedence: Array) -> Array:
  """`allocation.update_link`."""
  to, since = weights[..., :, None], weights[..., None, :]
  return _without_diagonal(
    (1.0 - to - since) * link + to * precedence[..., None, :]
  )


def _without_diagonal(link: Array) -> Array:
  diagonal = jnp.eye(link.shape[-1], dtype=bool)
  return jnp.where(addressing.aligned(diagonal, link), 0.0, link)


def _link_forward(link, weights, precedence):
  return link_slots(link, weights, precedence), (link, weights, precedence)


def _link_backward(saved, cotangent):
  link, weights, precedence = saved
  cotangent = _without_diagonal(cotangent)
  # Sums over rows and columns as products, which CPUs are far faster at; as
  # exact as sums, where an accelerator would round what it multiplies.
  multiply = functools.partial(jnp.einsum, precision='highest')
  rows = functools.partial(multiply, '...ij,...j->...i')
  columns = functools.partial(multiply, '...ij,...i->...j')
  lost, one = cotangent * link, jnp.ones_like(weights)
  to, since = weights[..., :, None], weights[..., None, :]
  return (
    (1.0 - to - since) * cotangent,
    rows(cotangent, precedence) - rows(lost, one) - columns(lost, one),
    columns(cotangent, weights),
  )


link_slots.defvjp(_link_forward, _link_backward)


@jax.custom_vjp
def follow_links(link: Array, weights: Array) -> tuple[Array, Array]:
  """`allocation.follow_links`: forward and backward weights."""
  forward = jnp.einsum('...hij,...rj->...rhi', link, weights)
  backward = jnp.einsum('...hij,...ri->...rhj', link, weights)
  return forward, backward


def _follow_forward(link, weights):
  followed = checkpoint_name(follow_links(link, weights), _FOLLOWED)
  return followed, (link, weights)


def _follow_backward(saved, cotangents):
  link, weights = saved
  forward, backward = cotangents
  weights = jnp.broadcast_to(weights[..., None, :], forward.shape)
  # The link's gradient in one product, since it is the largest array.
  to = jnp.concatenate([forward, weights], axis=-3)
  since = jnp.concatenate([weights, backward], axis=-3)
  # So written, the small array is transposed, and not the link.
  along_rows = jnp.einsum(
    '...hij,...hjr->...ir', link, jnp.moveaxis(backward, -3, -1)
  ).swapaxes(-1, -2)
  return (
    jnp.einsum('...rhi,...rhj->...hij', to, since),
    jnp.einsum('...hij,...rhi->...rj', link, forward) + along_rows,
  )


follow_links.defvjp(_follow_forward, _follow_backward)
