"""Backward passes of the cores' equations, written out for speed alone.

Through the DNC's allocation and links, for instance, JAX's own backward pass
has several times as many small operations, and saves more arrays at every time
step. Each function takes the arguments of the equation of its name and the
cotangent of its value, and returns the cotangents of the arguments.
`derivatives.with_backward` joins the two; without it and this file all values
stay the same.
"""

import functools
import math

import jax
import jax.numpy as jnp

Array = jax.Array


def product(
  arguments: tuple[Array, Array], cotangent: Array, transposed: Array
) -> tuple[Array, Array]:
  """Differentiates `scan.product`, given the transposed kernel."""
  x, _ = arguments
  rows, back = (each.reshape(-1, each.shape[-1]) for each in (x, cotangent))
  return cotangent @ transposed, rows.T @ back


def cosine_similarity(
  arguments: tuple[Array, Array],
  cotangent: Array,
  similarity: Array,
  *,
  epsilon: float,
) -> tuple[Array, Array]:
  """Differentiates `addressing.cosine_similarity`, given its value."""
  keys, memory = arguments
  key_norms, slot_norms = (
    jnp.sqrt(jnp.square(vectors).sum(-1) + epsilon) for vectors in arguments
  )
  key_norms, slot_norms = key_norms[..., None], slot_norms[..., None, :]
  # Cotangents of the products of keys and slots, then of their norms.
  of_products = cotangent / (key_norms * slot_norms + epsilon)
  shrinking = of_products * similarity
  of_key_norms = (shrinking * slot_norms).sum(-1)[..., None] / key_norms
  of_slot_norms = (shrinking * key_norms).sum(-2) / slot_norms[..., 0, :]
  return (
    jnp.einsum('...rn,...nw->...rw', of_products, memory) - of_key_norms * keys,
    jnp.einsum('...rn,...rw->...nw', of_products, keys)
    - of_slot_norms[..., None] * memory,
  )


def softmax(
  arguments: tuple[Array], cotangent: Array, weights: Array
) -> tuple[Array]:
  """Differentiates a softmax over the last axis, given its value."""
  del arguments
  mean = (weights * cotangent).sum(-1, keepdims=True)
  return (weights * (cotangent - mean),)


def take_by_age(
  arguments: tuple[Array, Array], cotangent: Array
) -> tuple[Array, None]:
  """Differentiates `positions.by_slot`, which is its own inverse."""
  _, age = arguments
  return jnp.take_along_axis(cotangent, age, axis=-1), None


def free_slots(
  arguments: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array, Array, Array]:
  """Differentiates `allocation.free_slots`."""
  usage, gates, weights = arguments
  retained = 1.0 - gates[..., None] * weights
  heads = [retained[..., head, :] for head in range(retained.shape[-2])]
  start = -cotangent * usage
  # The product of all other heads' factors: a quotient would be 0/0 where a
  # slot was freed.
  others = [
    math.prod((*heads[:head], *heads[head + 1 :]), start=start)
    for head in range(len(heads))
  ]
  others = jnp.stack(others, axis=-2)
  return (
    math.prod(heads, start=cotangent),
    (others * weights).sum(-1),
    others * gates[..., None],
  )


def allocate(
  arguments: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array, None, None]:
  """Differentiates `allocation.allocate`."""
  usage, order, rank = arguments
  ordered = jnp.take_along_axis(usage, order, axis=-1)
  one = jnp.ones_like(ordered[..., :1])
  freer = jnp.cumprod(
    jnp.concatenate([one, ordered[..., :-1]], axis=-1), axis=-1
  )
  of_ordered = freer * jnp.take_along_axis(cotangent, order, axis=-1)
  # The weights of all slots that are less free than slot j have a factor u_j.
  later = jax.lax.cumsum(
    of_ordered * (1.0 - ordered), axis=of_ordered.ndim - 1, reverse=True
  )
  none = jnp.zeros_like(later[..., :1])
  later = jnp.concatenate([later[..., 1:], none], axis=-1)
  of_usage = jnp.take_along_axis(later / ordered - of_ordered, rank, axis=-1)
  return of_usage, None, None


def update_link(
  arguments: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array, Array, Array]:
  """Differentiates `allocation.update_link`."""
  link, weights, precedence = arguments
  diagonal = jnp.eye(link.shape[-1], dtype=bool)
  diagonal = jnp.broadcast_to(diagonal, link.shape)
  cotangent = jnp.where(diagonal, 0.0, cotangent)
  # Sums over rows and columns are written as products, which are far faster on
  # CPUs, and in the highest precision, so that accelerators do not round them.
  multiply = functools.partial(jnp.einsum, precision='highest')
  rows = functools.partial(multiply, '...ij,...j->...i')
  columns = functools.partial(multiply, '...ij,...i->...j')
  of_factor, one = cotangent * link, jnp.ones_like(weights)
  to, since = weights[..., :, None], weights[..., None, :]
  return (
    (1.0 - to - since) * cotangent,
    rows(cotangent, precedence)
    - rows(of_factor, one)
    - columns(of_factor, one),
    columns(cotangent, weights),
  )


def follow_links(
  arguments: tuple[Array, Array], cotangents: tuple[Array, Array]
) -> tuple[Array, Array]:
  """Differentiates `allocation.follow_links`."""
  link, weights = arguments
  forward, backward = cotangents
  weights = jnp.broadcast_to(weights[..., None, :], forward.shape)
  # The link is the largest array, so its gradient is one product.
  to = jnp.concatenate([forward, weights], axis=-3)
  since = jnp.concatenate([weights, backward], axis=-3)
  # Written so that the small array is transposed, not the link.
  along_rows = jnp.einsum(
    '...hij,...hjr->...ir', link, jnp.moveaxis(backward, -3, -1)
  ).swapaxes(-1, -2)
  return (
    jnp.einsum('...rhi,...rhj->...hij', to, since),
    jnp.einsum('...hij,...rhi->...rj', link, forward) + along_rows,
  )
