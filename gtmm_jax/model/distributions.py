"""Gaussians, their mixtures and Bernoulli distributions; their KL in nats."""

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
    """Returns mean + scale * noise, for standard normal `noise` [...]."""
    return self.mean + jnp.exp(self._log_scale) * noise

  def log_likelihood(self, x: Array) -> Array:
    """Returns log N(x | mean, scale) elementwise, [...]."""
    standardised = _in_scales(x - self.mean, self._log_scale)
    return -0.5 * jnp.square(standardised) - self._log_scale - _HALF_LOG_TWO_PI

  def log_density(self, x: Array) -> Array:
    """Returns log N(x | mean, scale), summed over the last axis, nats [...]."""
    return self.log_likelihood(x).sum(-1)

  @property
  def _log_scale(self) -> Array:
    """Returns the log-scale with as many axes as the mean."""
    missing = jnp.ndim(self.mean) - jnp.ndim(self.log_scale)
    return jnp.expand_dims(self.log_scale, tuple(range(missing)))


class Mixture(NamedTuple):
  """A mixture of K Gaussians, each with independent dimensions.

  Attributes:
    log_weights: logarithms of weights that sum to one, [..., K].
    components: the Gaussians, over [..., K, Z].
  """

  log_weights: Array
  components: DiagonalGaussian

  def sample(self, noise: Array) -> Array:
    """Draws a component, then a latent [..., Z] from it.

    Args:
      noise: standard normal, [..., Z + 1]. The last number chooses the
        component, by the inverse of the cumulative weights.
    """
    cumulative = jnp.cumsum(jnp.exp(self.log_weights), axis=-1)
    # Below the last cumulative weight, so that no component of weight 0 is
    # drawn, whatever was rounded.
    quantile = jax.scipy.special.ndtr(noise[..., -1:])
    quantile *= cumulative[..., -1:] * (1 - jnp.finfo(noise.dtype).eps)
    index = (quantile >= cumulative).sum(-1)[..., None, None]
    mean, log_scale = (
      jnp.take_along_axis(each, index, axis=-2)[..., 0, :]
      for each in self.components
    )
    return DiagonalGaussian(mean, log_scale).sample(noise[..., :-1])

  def log_density(self, x: Array) -> Array:
    """Returns log sum_k w_k N(x | mean_k, scale_k), x [..., Z], nats [...]."""
    parts = self.components.log_density(x[..., None, :])
    return jax.nn.logsumexp(self.log_weights + parts, axis=-1)


class Bernoulli(NamedTuple):
  """Independent Bernoulli variables.

  Attributes:
    logits: log p / (1 - p), [...].
  """

  logits: Array

  @property
  def mean(self) -> Array:
    """Returns p in [0, 1], [...]."""
    return jax.nn.sigmoid(self.logits)

  def sample(self, noise: Array) -> Array:
    """Returns 1 where `noise`, uniform in [0, 1), is below p, else 0."""
    return (noise < self.mean).astype(self.logits.dtype)

  def log_likelihood(self, x: Array) -> Array:
    """Returns x log p + (1 - x) log(1 - p) elementwise, [...].

    `x` may be any value in [0, 1]. A grey value is a soft target; the maximum
    over p is then minus its entropy.
    """
    return x * self.logits - _softplus(self.logits)


def frame_sum(x: Array) -> Array:
  """Sums over the axes of a frame: [..., H, W, C] -> [...].

  The sum is a product with ones: fused into a sum, XLA computes logarithms one
  by one on CPUs, which takes ten times as long.
  """
  x = x.reshape(*x.shape[:-3], -1)
  ones = jnp.ones(x.shape[-1], x.dtype)
  # Accelerators would round the terms of the bound at default precision.
  return jnp.dot(x, ones, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def _softplus(x: Array) -> Array:
  """Returns log(1 + e^x); its derivative needs no logarithm."""
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
    p: Gaussian over [..., Z].
    bounded: whether p's log-scales are known to stay within +-40, as those of
      the temporal VAE do, so that exp(-log_scale) is finite.

  Returns:
    [...]; infinite only where the dtype cannot hold the value.
  """
  shift = q.mean - p.mean
  if bounded:
    shift = shift * jnp.exp(-p.log_scale)
  else:
    shift = _in_scales(shift, p.log_scale)
  log_ratio = q.log_scale - p.log_scale
  # With expm1, rounding does not take a small KL below zero.
  elementwise = (
    0.5 * (jnp.expm1(2.0 * log_ratio) + jnp.square(shift)) - log_ratio
  )
  return elementwise.sum(axis=-1)


def kl_bound(
  q: DiagonalGaussian, p: DiagonalGaussian | Mixture, *, bounded: bool = False
) -> Array:
  """Computes KL[q || p] if p is a Gaussian, an upper bound if p is a mixture.

  The KL to a mixture has no closed form. Its variational approximation (Hershey
  and Olsen 2007, https://doi.org/10.1109/ICASSP.2007.366913), which is an upper
  bound where q is one Gaussian, is

    KL[q || sum_k w_k p_k] <= -log sum_k w_k exp(-KL[q || p_k])

  By Jensen's inequality, it exceeds the KL by E_q KL[phi || r(z)]: r_k(z) = w_k
  p_k(z) / p(z) are the responsibilities of the components for z, and phi_k is
  in proportion to w_k exp(-KL[q || p_k]). So it is exact if K is 1, if all
  components are equal, and in the limit where one of them is responsible for
  all of q. F, computed with it, remains a lower bound of log p(x).

  Args:
    q: Gaussian over [..., Z].
    p: Gaussian over [..., Z], or mixture of such.
    bounded: as of `kl_divergence`, of all components.

  Returns:
    [...], summed over the last axis of q; at least zero, but for rounding.
  """
  if isinstance(p, DiagonalGaussian):
    return kl_divergence(q, p, bounded=bounded)
  q = DiagonalGaussian(*(jnp.expand_dims(each, -2) for each in q))
  apart = kl_divergence(q, p.components, bounded=bounded)
  return -jax.nn.logsumexp(p.log_weights - apart, axis=-1)


def _in_scales(difference: Array, log_scale: Array) -> Array:
  """Computes difference * exp(-log_scale) without overflow on the way.

  In float32 exp(-log_scale) is infinite below -89, so that 0 times it would be
  NaN, and 0 above 88.
  """
  limit = -math.log(float(jnp.finfo(jnp.result_type(difference)).tiny)) - 1.0
  # Beyond half of the limit, products in the gradient would underflow.
  is_far = jnp.abs(log_scale) > limit / 2
  near = difference * jnp.exp(-jnp.where(is_far, 0.0, log_scale))
  # One factor after the other: XLA would rewrite exp(a) * exp(a) as exp(2 a).
  half = jnp.exp(jnp.clip(-0.5 * log_scale, -limit, limit))
  return jnp.where(is_far, (difference * half) * half, near)


def bernoulli_entropy(p: Array) -> Array:
  """Computes -p log p - (1 - p) log(1 - p) elementwise, nats.

  It is 0 at p <= 0 and p >= 1.
  """
  # Where bytes become p in the same program, XLA computes 1 - p unrounded: 1 -
  # 255 / 255 is then -6e-8, whose logarithm is NaN.
  p = jnp.clip(p, 0.0, 1.0)
  return -jax.scipy.special.xlogy(p, p) - jax.scipy.special.xlog1py(1 - p, -p)
