"""KL that a perfect read of the memory would still cost.

A memory stores latents; where noise of the posterior is stored with them, even
a memory that always reads the right one cannot bring the KL of a predictable
frame to 0. The floor of a perfect read is the mean KL of the posteriors of
predictable frames to the best prior of a simple form, given s, what the memory
was given of the frame that comes back:

  p(z_d | s_d) = N(a_d s_d + b_d, c_d^2)    for each dimension d of Z

with a, b and c common to all frames. The mean KL is least for

  a, b   least squares of the posterior means m_d on s_d
  c^2    mean of the squared residuals, plus mean of the posterior variances

since for any c it grows with the squared residuals, and its derivative with
respect to c^2, 1 / (2 c^2) - (v + r) / (2 c^4) for mean variance v and mean
squared residual r, is 0 at c^2 = v + r. Both the fit and the mean KL follow
from sums over frames, so that no latent has to be kept.

It is a floor of this form of prior, not of all: the prior of a model, which
sees all dimensions of s and of other reads, may fall below it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.model.distributions import DiagonalGaussian

Array = jax.Array


class Moments(NamedTuple):
  """Sums over frames, [..., Z], of posteriors N(m, v) and of what was stored.

  Attributes:
    count: number of frames, [...].
    stored: sum of s.
    stored_squared: sum of s^2.
    mean: sum of m.
    mean_squared: sum of m^2.
    product: sum of m s.
    variance: sum of v.
    log_scale: sum of log v / 2.
  """

  count: Array
  stored: Array
  stored_squared: Array
  mean: Array
  mean_squared: Array
  product: Array
  variance: Array
  log_scale: Array


class LinearPrior(NamedTuple):
  """Parameters of p(z_d | s_d) = N(a_d s_d + b_d, c_d^2), each [..., Z].

  Attributes:
    slope: a.
    offset: b.
    variance: c^2.
  """

  slope: np.ndarray
  offset: np.ndarray
  variance: np.ndarray


def zeros(batches: int, latent_size: int) -> Moments:
  """Returns room for the moments of `batches` batches, leaves [P, Z]."""
  sums = (
    jnp.zeros((batches, latent_size), jnp.float32) for _ in Moments._fields[1:]
  )
  return Moments(jnp.zeros(batches, jnp.float32), *sums)


def moments(
  posterior: DiagonalGaussian, stored: Array, source: Array, asked: Array
) -> Moments:
  """Sums over the frames of a batch that a read could predict.

  Args:
    posterior: q(z_t), over [T, B, Z].
    stored: what the memory was given of z_t, [T, B, Z].
    source: int32 [T, B], the earlier step that a frame repeats, -1 if it is
      new.
    asked: whether the frame is predictable, bool [T, B]; of these, frames
      without a source are left out.

  Returns:
    The sums, [Z].
  """
  counted = (asked & (source >= 0)).astype(posterior.mean.dtype)
  index = jnp.maximum(source, 0)[..., None]
  s = jnp.take_along_axis(stored, index, axis=0)
  m, log_scale = posterior.mean, posterior.log_scale
  # Where nothing is counted, 0 times a value that is not finite is left out.
  parts = (s, s * s, m, m * m, m * s, jnp.exp(2.0 * log_scale), log_scale)
  sums = (
    jnp.where(counted[..., None] > 0, part, 0.0).sum((0, 1)) for part in parts
  )
  return Moments(counted.sum(), *sums)


def total(sums: Moments) -> Moments:
  """Adds moments [R, P, ...] of P batches, float64 [R, ...] on the host."""
  return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).sum(1), sums)


def fit(sums: Moments) -> LinearPrior:
  """Returns the prior of least mean KL; NaN where no frame was counted.

  Args:
    sums: over the frames that it is fitted to, [..., Z], on the host.
  """
  means = _means(sums)
  spread = means.stored_squared - means.stored**2
  covariance = means.product - means.mean * means.stored
  # Sums in float32 leave a constant s with a spread of about this share.
  varies = spread > 1e-6 * means.stored_squared
  slope = np.where(varies, covariance, 0.0) / np.where(varies, spread, 1.0)
  offset = means.mean - slope * means.stored
  residual = means.mean_squared - means.mean**2 - slope * covariance
  return LinearPrior(slope, offset, np.maximum(residual, 0.0) + means.variance)


def mean_kl(sums: Moments, prior: LinearPrior) -> np.ndarray:
  """Returns the mean KL of posteriors to a prior given s, nats a frame, [...].

  Args:
    sums: over the frames, [..., Z], on the host.
    prior: from `fit`, of the same or of other frames.

  Returns:
    The mean over frames of the sum over dimensions; NaN without a frame.
  """
  means = _means(sums)
  slope, offset, variance = prior
  squares = (
    means.mean_squared
    + slope**2 * means.stored_squared
    + offset**2
    - 2 * slope * means.product
    - 2 * offset * means.mean
    + 2 * slope * offset * means.stored
  )
  scaled = (means.variance + np.maximum(squares, 0.0)) / variance
  elementwise = 0.5 * (np.log(variance) + scaled - 1) - means.log_scale
  return elementwise.sum(-1)


def _means(sums: Moments) -> Moments:
  """Returns means over frames, NaN where there is none."""
  count = np.where(sums.count > 0, sums.count, np.nan)[..., None]
  return Moments(count, *(np.asarray(each) / count for each in sums[1:]))


def halves(sums: Moments) -> tuple[Moments, Moments]:
  """Splits moments of batches, [R, P, ...], into every other batch, and rest.

  Returns:
    The sums over either half, float64 [R, ...].
  """
  one, other = (
    jax.tree.map(lambda leaf, first=first: leaf[:, first::2], sums)
    for first in (0, 1)
  )
  return total(one), total(other)
