"""Addressing: pure functions from logits to read weights.

Weights are `[..., R, N]` for R read heads and N slots. Every function is finite
and has a finite, bounded gradient for logits of any float32 size, and gives
weights that are all zero where no slot may be read.
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def log_softplus(x: Array) -> Array:
  """log(log(1 + e^x)) without underflow; elementwise, any shape.

  For x far below zero softplus(x) is e^x, whose logarithm is x; there the
  direct form would be log(0). Its slope is in (0, 1].
  """
  is_small = x < -15.0
  safe = jnp.where(is_small, 0.0, x)
  return jnp.where(is_small, x, jnp.log(jax.nn.softplus(safe)))


def masked_softmax(logits: Array, mask: Array) -> Array:
  """Softmax over the slots that hold something.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; true where a slot may be read.

  Returns:
    Weights [..., N]: zero where the mask is false, and summing to one where any
    slot may be read; all zero where none may.
  """
  floor = jnp.finfo(logits.dtype).min
  masked = jnp.where(mask, logits, floor)
  largest = jax.lax.stop_gradient(masked.max(axis=-1, keepdims=True))
  shifted = jnp.where(mask, logits - largest, 0.0)
  powers = jnp.where(mask, jnp.exp(shifted), 0.0)
  total = powers.sum(axis=-1, keepdims=True)
  return powers / jnp.where(total > 0.0, total, 1.0)


def linear_attention(logits: Array, mask: Array) -> Array:
  """k / sum(k) with k = softplus(logits) (Gemici et al. 2017, section 3.1).

  Computed from log k, so that logits of -1e4 everywhere still sum to one.

  Args:
    logits: [..., N].
    mask: bool, broadcastable to [..., N]; slots that hold something.

  Returns:
    Weights [..., N], as `masked_softmax` has them.
  """
  return masked_softmax(log_softplus(logits), mask)


def gaussian_attention(center: Array, width: Array, mask: Array) -> Array:
  """Weights that fall off as a Gaussian around a real-valued position.

  w[n] is proportional to exp(-(n - center)^2 / (2 width^2)) over the slots that
  the mask leaves (Gemici et al. 2017, section 3.1, names it without a formula).

  Args:
    center: positions in slots, [...].
    width: standard deviation in slots, > 0, [...]; floored at 1e-2.
    mask: bool, [..., N]; slots that hold something.

  Returns:
    Weights [..., N], as `masked_softmax` has them.
  """
  slots = jnp.arange(mask.shape[-1], dtype=center.dtype)
  distance = slots - center[..., None]
  scaled = distance / jnp.maximum(width, 1e-2)[..., None]
  return masked_softmax(-0.5 * jnp.square(scaled), mask)
