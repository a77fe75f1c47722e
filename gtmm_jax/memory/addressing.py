"""Addressing: pure functions from logits and keys to weights, and their use.

Weights are `[..., R, N]` for R heads and N slots of W words. Every function is
finite and has a finite, bounded gradient for logits of +-1e4, zero memory and
zero keys. Weights are all zero if no slot may be read. The papers:

* Graves et al. 2014, NTM, https://arxiv.org/abs/1410.5401
* Graves et al. 2016, DNC, Methods, https://doi.org/10.1038/nature20101
* Gemici et al. 2017, https://arxiv.org/abs/1702.04649
"""

import functools

import jax
import jax.numpy as jnp

from gtmm_jax.memory import derivatives, gradients

Array = jax.Array

# Added inside the root of a norm, and to the product of two norms.
_EPSILON = 1e-6
# A weight below it counts as zero; its logarithm's slope is still a float32.
_TINY = 1e-30


def aligned(x: Array, like: Array) -> Array:
  """Adds leading axes of size one to `x`, up to the rank of `like`.

  NumPy's broadcasting does so by itself, unless `jax_numpy_rank_promotion` is
  set to 'raise'.
  """
  return jnp.expand_dims(x, tuple(range(like.ndim - x.ndim)))


def counting(number: int, like: Array) -> Array:
  """Counts 0 .. `number` - 1 along the last axis.

  Args:
    number: how many.
    like: [..., 1] or [..., number], whose rank and dtype the result takes.

  Returns:
    [1, ..., 1, number].
  """
  return aligned(jnp.arange(number, dtype=like.dtype), like)


def at_least_single(dtype: jnp.dtype) -> jnp.dtype:
  """Returns float32 for a narrower floating-point dtype, else the dtype."""
  is_narrow = jnp.finfo(dtype).bits < jnp.finfo(jnp.float32).bits
  return jnp.dtype(jnp.float32) if is_narrow else dtype


def normalised(x: Array) -> Array:
  """Divides features [..., C] by their root mean square.

  Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467. Narrow dtypes are
  squared in float32.
  """
  wide = x.astype(at_least_single(x.dtype))
  square = (wide**2).mean(axis=-1, keepdims=True)
  return (wide * jax.lax.rsqrt(square + _EPSILON)).astype(x.dtype)


def log_softplus(x: Array) -> Array:
  """Computes log(log(1 + e^x)) without underflow; elementwise, any shape.

  For x far below zero softplus(x) is e^x, whose logarithm is x; there the
  direct form would be log(0). Its slope is in (0, 1].
  """
  is_small = x < -15.0
  safe = jnp.where(is_small, 0.0, x)
  return jnp.where(is_small, x, jnp.log(jax.nn.softplus(safe)))


def masked_softmax(logits: Array, mask: Array) -> Array:
  """Computes a softmax over the slots that may be read.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; true for slots that may be read.

  Returns:
    Weights [..., N]: zero where the mask is false, and summing to one; all zero
    if no slot may be read.
  """
  mask = aligned(mask, logits)
  floor = jnp.finfo(logits.dtype).min
  masked = jnp.where(mask, logits, floor)
  largest = jax.lax.stop_gradient(masked.max(axis=-1, keepdims=True))
  shifted = jnp.where(mask, logits - largest, 0.0)
  powers = jnp.where(mask, jnp.exp(shifted), 0.0)
  total = powers.sum(axis=-1, keepdims=True)
  return powers / jnp.where(total > 0.0, total, 1.0)


def linear_attention(logits: Array, mask: Array) -> Array:
  """Normalises softplus(logits) to weights (Gemici et al. 2017, section 3.1).

  k / sum(k) with k = softplus(logits), computed from log k, so that weights sum
  to one even if all logits are -1e4.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; slots that hold something.

  Returns:
    Weights [..., N], as `masked_softmax` has them.
  """
  return masked_softmax(log_softplus(logits), mask)


def gaussian_attention(center: Array, width: Array, mask: Array) -> Array:
  """Computes weights that fall off as a Gaussian around a real position.

  w[n] is proportional to exp(-(n - center)^2 / (2 width^2)) over the slots that
  the mask leaves (Gemici et al. 2017, section 3.1, names it without a formula).

  Args:
    center: positions in slots, [...].
    width: standard deviation in slots, > 0, [...]; floored at 1e-2.
    mask: bool, [..., N]; slots that hold something.

  Returns:
    Weights [..., N], as `masked_softmax` has them.
  """
  center = center[..., None]
  distance = counting(mask.shape[-1], center) - center
  scaled = distance / jnp.maximum(width, 1e-2)[..., None]
  return masked_softmax(-0.5 * jnp.square(scaled), mask)


def oneplus(x: Array) -> Array:
  """Computes 1 + softplus(x), in [1, inf) (Graves et al. 2016, Methods)."""
  return 1.0 + jax.nn.softplus(x)


@derivatives.with_backward(
  functools.partial(gradients.cosine_similarity, epsilon=_EPSILON),
  lambda similarity, *_: (similarity,),
)
def cosine_similarity(keys: Array, memory: Array) -> Array:
  """Computes the cosine of each key with each slot, in [-1, 1].

  k . m / (|k| |m| + e) with |v| = sqrt(v . v + e), e = 1e-6 (the papers have no
  e): zero for a zero key or slot, and the gradient there is at most 1e3.

  Args:
    keys: [..., R, W].
    memory: [..., N, W].

  Returns:
    Similarities [..., R, N].
  """
  products = jnp.einsum('...rw,...nw->...rn', keys, memory)
  norms = _norms(keys)[..., :, None] * _norms(memory)[..., None, :]
  return derivatives.saved(products / (norms + _EPSILON))


def of_length_one(vectors: Array) -> Array:
  """Computes v / sqrt(v . v + e), e = 1e-6, [..., W]; zero for zero."""
  return vectors / _norms(vectors)[..., None]


def _norms(vectors: Array) -> Array:
  return jnp.sqrt(jnp.square(vectors).sum(-1) + _EPSILON)


def content_weights(keys: Array, memory: Array, strengths: Array) -> Array:
  """Computes weights by content: softmax_n(beta cos(k, M[n])).

  Graves et al. 2014, eqs. 5-6; Graves et al. 2016, "Content-based addressing".

  Args:
    keys: [..., R, W].
    memory: [..., N, W], the leading axes those of the keys.
    strengths: beta >= 0, [..., R].

  Returns:
    Weights [..., R, N]; each head's sum to one.
  """
  return _softmax(strengths[..., None] * cosine_similarity(keys, memory))


@derivatives.with_backward(gradients.softmax, lambda weights, *_: (weights,))
def _softmax(logits: Array) -> Array:
  return derivatives.saved(jax.nn.softmax(logits, axis=-1))


def interpolate(gate: Array, new: Array, old: Array) -> Array:
  """Computes g new + (1 - g) old (Graves et al. 2014, eq. 7).

  Args:
    gate: g in [0, 1], [..., R].
    new: [..., R, N], or what broadcasts to it.
    old: [..., R, N], or what broadcasts to it.

  Returns:
    [..., R, N].
  """
  gate = gate[..., None]
  return gate * aligned(new, gate) + (1.0 - gate) * aligned(old, gate)


def shift(weights: Array, distribution: Array) -> Array:
  """Convolves weights circularly with shifts (Graves et al. 2014, eq. 8).

  With S shifts, distribution[..., s] moves weight from slot i to slot
  (i + s - (S - 1) / 2) mod N: for S = 3 the shifts are -1, 0, +1.

  Args:
    weights: [..., R, N].
    distribution: s, each head's sum to one, [..., R, S], S odd.

  Returns:
    Weights [..., R, N], with the sum of the given ones.

  Raises:
    ValueError: S is even.
  """
  count = distribution.shape[-1]
  if count % 2 == 0:
    raise ValueError(
      f'There are {count} shifts; their number must be odd, so that they lie '
      f'evenly around zero.'
    )
  shifted = [
    distribution[..., s, None] * jnp.roll(weights, s - count // 2, axis=-1)
    for s in range(count)
  ]
  return sum(shifted[1:], start=shifted[0])


def sharpen(weights: Array, power: Array) -> Array:
  """Computes w^gamma, normalised (Graves et al. 2014, eq. 9).

  Computed from log w, so that powers of 1e4 leave a sum of one; its gradient is
  at most N power. A weight below 1e-30 counts as zero and stays zero.

  Args:
    weights: >= 0, [..., R, N].
    power: gamma >= 1, [..., R].

  Returns:
    Weights [..., R, N]; each head's sum to one, or are all zero as before.
  """
  positive = weights > _TINY
  logarithm = jnp.log(jnp.where(positive, weights, 1.0))
  return masked_softmax(power[..., None] * logarithm, positive)


def erase_and_add(
  memory: Array, weights: Array, erase: Array, add: Array
) -> Array:
  """Computes M prod_h (1 - w_h e_h) + sum_h w_h a_h: erases, then adds.

  Graves et al. 2014, eqs. 3-4; with one head also Graves et al. 2016, Methods.

  Args:
    memory: M, [..., N, W].
    weights: w of each of H write heads, in [0, 1], [..., H, N].
    erase: e in [0, 1], [..., H, W].
    add: a, or the DNC's v, [..., H, W].

  Returns:
    Memory [..., N, W].
  """
  for head in range(weights.shape[-2]):
    erased = weights[..., head, :, None] * erase[..., head, None, :]
    memory = memory * (1.0 - erased)
  return memory + jnp.einsum('...hn,...hw->...nw', weights, add)


def read(memory: Array, weights: Array) -> Array:
  """Sums slots by weight: [..., N, W] and [..., R, N] -> [..., R, W]."""
  return jnp.einsum('...rn,...nw->...rw', weights, memory)
