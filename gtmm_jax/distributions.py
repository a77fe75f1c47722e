"""Diagonal Gaussian and Bernoulli distributions; everything is in nats."""

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
    return self.mean + jnp.exp(self.log_scale) * noise

  def log_likelihood(self, x: Array) -> Array:
    """log N(x | mean, scale) elementwise, nats, of the mean's shape."""
    standardised = (x - self.mean) * jnp.exp(-self.log_scale)
    return -0.5 * jnp.square(standardised) - self.log_scale - _HALF_LOG_TWO_PI


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


def kl_divergence(q: DiagonalGaussian, p: DiagonalGaussian) -> Array:
  """KL[q || p], summed over the last axis; nats, >= 0.

  log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2 for each dimension,
  computed from log-scales alone.
  """
  shift = (q.mean - p.mean) * jnp.exp(-p.log_scale)
  log_ratio = q.log_scale - p.log_scale
  # expm1, lest rounding take a small KL below zero.
  elementwise = (
    0.5 * (jnp.expm1(2.0 * log_ratio) + jnp.square(shift)) - log_ratio
  )
  return elementwise.sum(axis=-1)


def bernoulli_entropy(p: Array) -> Array:
  """Computes -p log p - (1 - p) log(1 - p) elementwise, nats.

  0 at p = 0 and p = 1, and at what lies outside of them.
  """
  # Where bytes become p in the same program, XLA makes 1 - p of them unrounded:
  # 1 - 255 / 255 is -6e-8 then, whose logarithm is no number.
  p = jnp.clip(p, 0.0, 1.0)
  return -jax.scipy.special.xlogy(p, p) - jax.scipy.special.xlog1py(1 - p, -p)
