"""Diagonal Gaussian and Bernoulli distributions; everything is in nats."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

_HALF_LOG_TWO_PI = 0.9189385332046727


class DiagonalGaussian(NamedTuple):
  """A Gaussian with independent dimensions.

  Attributes:
    mean: [...].
    log_scale: logarithm of the standard deviation, of the mean's shape or
      broadcastable to it.
  """

  mean: Array
  log_scale: Array

  def sample(self, noise: Array) -> Array:
    """mean + scale * noise, for standard normal `noise` of the mean's shape."""
    return self.mean + jnp.exp(self._log_scale) * noise

  def log_likelihood(self, x: Array) -> Array:
    """log N(x | mean, scale) elementwise, nats, of the mean's shape."""
    standardised = _in_scales(x - self.mean, self._log_scale)
    return -0.5 * jnp.square(standardised) - self._log_scale - _HALF_LOG_TWO_PI

  @property
  def _log_scale(self) -> Array:
    """The log-scale with as many axes as the mean."""
    missing = jnp.ndim(self.mean) - jnp.ndim(self.log_scale)
    return jnp.expand_dims(self.log_scale, tuple(range(missing)))


class Bernoulli(NamedTuple):
  """Independent coin flips.

  Attributes:
    logits: log p / (1 - p), [...].
  """

  logits: Array

  @property
  def mean(self) -> Array:
    """p in [0, 1], [...]."""
    return jax.nn.sigmoid(self.logits)

  def sample(self, noise: Array) -> Array:
    """1 where `noise`, uniform in [0, 1), is below p, else 0."""
    return (noise < self.mean).astype(self.logits.dtype)

  def log_likelihood(self, x: Array) -> Array:
    """x log p + (1 - x) log(1 - p) elementwise, nats.

    `x` in [0, 1] need not be binary: a grey value is then a soft target, and
    the largest value that can be reached is minus its entropy.
    """
    return x * self.logits - _softplus(self.logits)


def frame_sum(x: Array) -> Array:
  """Sums over the axes of a frame: [..., H, W, C] -> [...].

  As a product with ones: inside of a sum, XLA makes logarithms one by one on
  CPUs, which takes ten times as long.
  """
  x = x.reshape(*x.shape[:-3], -1)
  ones = jnp.ones(x.shape[-1], x.dtype)
  # Accelerators would round the terms of the bound otherwise.
  return jnp.dot(x, ones, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def _softplus(x: Array) -> Array:
  """log(1 + e^x), whose derivative takes no logarithm."""
  return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


_softplus.defjvps(lambda tangent, _, x: tangent * jax.nn.sigmoid(x))


def kl_divergence(
  q: DiagonalGaussian, p: DiagonalGaussian, *, bounded: bool = False
) -> Array:
  """Computes KL[q || p], summed over the last axis; nats, >= 0.

  log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2 for each dimension,
  computed from log-scales alone.

  Args:
    q: Gaussian over [..., Z].
    p: likewise.
    bounded: whether p's log-scales are known to stay within +-40, as those of
      the temporal VAE do: the quotient of shift and scale is plainer then.

  Returns:
    [...]; infinite only where a float of this dtype can't hold it.
  """
  shift = q.mean - p.mean
  if bounded:
    shift = shift * jnp.exp(-p.log_scale)
  else:
    shift = _in_scales(shift, p.log_scale)
  log_ratio = q.log_scale - p.log_scale
  # expm1, lest rounding take a small KL below zero.
  elementwise = (
    0.5 * (jnp.expm1(2.0 * log_ratio) + jnp.square(shift)) - log_ratio
  )
  return elementwise.sum(axis=-1)


def _in_scales(difference: Array, log_scale: Array) -> Array:
  """Computes difference * exp(-log_scale) wherever that is a number.

  In float32 exp(-log_scale) alone is infinite from -89 on, so that a difference
  of 0 times it would be no number, and it vanishes from 88 on.
  """
  limit = -math.log(float(jnp.finfo(jnp.result_type(difference)).tiny)) - 1.0
  # From half of it on, products in the gradient would vanish.
  is_far = jnp.abs(log_scale) > limit / 2
  near = difference * jnp.exp(-jnp.where(is_far, 0.0, log_scale))
  # One factor after the other: XLA would make exp(a) * exp(b) exp(a + b) again.
  half = jnp.exp(jnp.clip(-0.5 * log_scale, -limit, limit))
  return jnp.where(is_far, (difference * half) * half, near)


def bernoulli_entropy(p: Array) -> Array:
  """Computes -p log p - (1 - p) log(1 - p) elementwise, nats.

  0 at p = 0 and p = 1, and at what lies outside of them.
  """
  # Where bytes become p in the same program, XLA makes 1 - p of them unrounded:
  # 1 - 255 / 255 is -6e-8 then, whose logarithm is no number.
  p = jnp.clip(p, 0.0, 1.0)
  return -jax.scipy.special.xlogy(p, p) - jax.scipy.special.xlog1py(1 - p, -p)
