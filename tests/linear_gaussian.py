"""Linear-Gaussian state-space models, whose bounds are known exactly."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from gtmm_jax.model.distributions import DiagonalGaussian
from gtmm_jax.model.temporal_vae import TemporalVAE


class _Inputs(nn.RNNCellBase):
  """A core that remembers nothing but z_{t-1}: its context is its input."""

  def __call__(self, carry, inputs):
    return carry + 1, inputs

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    return jnp.zeros(input_shape[:-1], jnp.int32)

  @property
  def num_feature_axes(self):
    return 1


def _affine(matrix, x, offset):
  return jnp.einsum('...ij,...j->...i', jnp.asarray(matrix), x) + offset


class _Dynamics(nn.Module):
  """z_1 ~ N(m0, p0), z_t ~ N(A z_{t-1} + b, q): the prior map."""

  matrix: tuple
  offset: tuple
  variance: tuple
  first_mean: tuple
  first_variance: tuple

  def __call__(self, context):
    size = len(self.offset)
    z_tm1, is_first = context[..., :size], context[..., size : size + 1] > 0.5
    mean = _affine(self.matrix, z_tm1, jnp.asarray(self.offset))
    mean = jnp.where(is_first, jnp.asarray(self.first_mean), mean)
    variance = jnp.where(
      is_first, jnp.asarray(self.first_variance), jnp.asarray(self.variance)
    )
    return DiagonalGaussian(mean, 0.5 * jnp.log(variance))


class _Proposal(nn.Module):
  """q(z_t | z_{t-1}, x) = N(F_t z_{t-1} + c_t, S_t): the posterior map."""

  size: int

  def encode(self, frames, train, mask=None):
    return frames.reshape(*frames.shape[:-3], -1)

  def __call__(self, features, context):
    size = self.size
    z_tm1, _, matrix, offset, variance = jnp.split(
      context, np.cumsum([size, 1, size * size, size]), axis=-1
    )
    matrix = matrix.reshape(*matrix.shape[:-1], size, size)
    return DiagonalGaussian(
      _affine(matrix, z_tm1, offset), 0.5 * jnp.log(variance)
    )


class _Emission(nn.Module):
  """x_t ~ N(C z_t + d, r): the observation map."""

  matrix: tuple
  offset: tuple
  variance: tuple

  def __call__(self, z, context, train, mask=None):
    mean = _affine(self.matrix, z, jnp.asarray(self.offset))
    log_scale = 0.5 * jnp.log(jnp.asarray(self.variance))
    return DiagonalGaussian(mean[..., None, None, :], log_scale)


def _nested(array):
  return tuple(map(_nested, array)) if np.ndim(array) else float(array)


def model(data):
  """Makes the state-space model of the reference data a temporal VAE."""
  size = data['b'].shape[0]
  return TemporalVAE(
    core=_Inputs(),
    prior_map=_Dynamics(
      *(_nested(data[key]) for key in ('A', 'b', 'q_var', 'm0', 'p0_var'))
    ),
    posterior_map=_Proposal(size),
    observation_map=_Emission(
      *(_nested(data[key]) for key in ('C', 'd', 'r_var'))
    ),
    latent_size=size,
  )


def _proposal(data, kind):
  """Makes conditions [T, sequences, A]: whether t is 1, F_t, c_t, diag S_t."""
  matrix, offset = data[f'{kind}_F'], data[f'{kind}_c'].swapaxes(0, 1)
  length, sequences, size = offset.shape
  covariance = data[f'{kind}_S']
  variance = np.diagonal(covariance, axis1=1, axis2=2)
  np.testing.assert_allclose(
    covariance, variance[:, :, None] * np.eye(size), atol=1e-12
  )
  is_first = np.arange(length) == 0
  parts = (is_first[:, None], matrix.reshape(length, -1), None, variance)
  return np.concatenate(
    [
      offset
      if part is None
      else np.broadcast_to(part[:, None], (length, sequences, part.shape[-1]))
      for part in parts
    ],
    axis=-1,
  ).astype(np.float32)


def inputs(data, kind, copies):
  """Makes frames and conditions of each sequence, [T, copies * sequences, ...].

  Args:
    data: the reference data.
    kind: of the proposal.
    copies: how often the sequences are repeated.
  """
  frames = data['x'].swapaxes(0, 1)[:, :, None, None, :].astype(np.float32)
  return tuple(
    np.tile(x, (1, copies, *[1] * (x.ndim - 2)))
    for x in (frames, _proposal(data, kind))
  )
