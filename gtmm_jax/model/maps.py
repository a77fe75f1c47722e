"""The maps of the temporal VAE: posterior, observation and prior.

Gemici et al. 2017, section 3 and appendix B (https://arxiv.org/abs/1702.04649).
Their networks are in `networks.py`. Frames `[..., H, W, C]` are in [0, 1].
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, scan
from gtmm_jax.model.distributions import Bernoulli, DiagonalGaussian, Mixture

Array = jax.Array

# Log-scales of latents stay within +-4, nearly linear around zero, so that
# every KL is finite. With +-8, the loop from a latent through the memory to the
# scale of the next diverged for a step early in training.
_LOG_SCALE_BOUND = 4.0
# The standard deviation of the biases of the components' means. Without them,
# components would be equal, and stay so, wherever the context is zero.
_SPREAD = 0.5
# A residual posterior starts with gates of 0.95, so nearly additive.
_GATE_BIAS = 3.0
# The smallest standard deviation of a colour channel: one of 256 levels.
_FRAME_SCALE_FLOOR = 1.0 / 256.0
# The standard deviation starts at 0.14, near that of the pixels, because Adam
# moves it by no more than its rate a step.
_FRAME_LOG_SCALE = -2.0


def _gaussian(raw: Array) -> DiagonalGaussian:
  """Splits an array [..., 2 Z] into a mean and a bounded log-scale."""
  mean, log_scale = jnp.split(raw, 2, axis=-1)
  log_scale = _LOG_SCALE_BOUND * jnp.tanh(log_scale / _LOG_SCALE_BOUND)
  return DiagonalGaussian(mean, log_scale)


class PriorMap(nn.Module):
  """f_z: the prior of z_t from the context alone (section 3).

  Section 7 names priors that are richer than one Gaussian: with more than one
  component, the prior is a mixture, whose weights depend on the context, too.

  Attributes:
    latent_size: Z.
    hidden: units of each hidden layer.
    components: K, Gaussians of the prior.
    in_scan: whether steps of `scan.scan` call it, too.
  """

  latent_size: int
  hidden: Sequence[int]
  components: int = 1
  in_scan: bool = False

  @nn.compact
  def __call__(self, context: Array) -> DiagonalGaussian | Mixture:
    """Maps a context [..., P] to a Gaussian over z [..., Z], or to a mixture.

    Raises:
      ValueError: there is no component.
    """
    count = self.components
    if count < 1:
      raise ValueError(f'prior_components is {count}; it must be at least 1.')
    dense = scan.dense if self.in_scan else nn.Dense
    x = context
    for size in self.hidden:
      x = nn.relu(dense(size)(x))
    if count == 1:
      return _gaussian(dense(2 * self.latent_size)(x))
    numbers = 2 * self.latent_size + 1
    raw = dense(count * numbers, bias_init=self._spread)(x)
    raw = raw.reshape(*x.shape[:-1], count, numbers)
    return Mixture(nn.log_softmax(raw[..., -1]), _gaussian(raw[..., :-1]))

  def _spread(self, key: Array, shape: Sequence[int], dtype: Any) -> Array:
    """Returns biases [K (2 Z + 1)] that keep the components' means apart."""
    means = jax.random.normal(key, (self.components, self.latent_size), dtype)
    rest = (0, 0), (0, self.latent_size + 1)
    return jnp.pad(_SPREAD * means, rest).reshape(shape)


class PosteriorMap(nn.Module):
  """f_q: the posterior of z_t from the frame and the context (section 3).

  The context enters at the encoder's last layer, the one "to a vector of length
  64" of appendix B: a linear map C of the context Psi is added to its output E.
  All frames can then be encoded before any context is known. The sum is a
  Gaussian with mean m and scale s, which is the posterior, if it is additive:

    [m, log s] = E(x_t) + C Psi_{t-1}

  Its mean depends on the frame as much where the memory knows the frame as
  where it does not. A residual posterior starts from the prior N(m_p, s_p^2),
  and a gate g in (0, 1) of each dimension says how far it goes:

    g      = sigmoid(G Psi_{t-1} + b),  at the start G = 0 and b = 3
    q(z_t) = N(m_p + g (m - m_p), (s_p^(1 - g) s^g)^2)

  With g = 1 it is additive; with g = 0 it is the prior, whatever the frame, and
  its KL is 0.

  Attributes:
    encoder: network from frames to features [..., 2 Z].
    latent_size: Z.
    is_residual: whether it starts from the prior.
  """

  encoder: nn.Module
  latent_size: int
  is_residual: bool = False

  def setup(self) -> None:
    """Makes the layers through which the context enters."""
    self.from_context = scan.dense(2 * self.latent_size, use_bias=False)
    if self.is_residual:
      self.gate = scan.dense(
        self.latent_size,
        kernel_init=nn.initializers.zeros,
        bias_init=nn.initializers.constant(_GATE_BIAS),
      )

  def encode(
    self, frames: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps frames [..., H, W, C] in [0, 1] to features [..., F]."""
    return self.encoder(2.0 * frames - 1.0, train, mask)

  def __call__(
    self,
    features: Array,
    context: Array,
    prior: DiagonalGaussian | None = None,
  ) -> DiagonalGaussian:
    """Maps features [..., F] and a context [..., P] to a Gaussian [..., Z].

    Args:
      features: of x_t.
      context: Psi_{t-1}.
      prior: p(z_t | Psi_{t-1}), where it is residual.
    """
    additive = _gaussian(features + self.from_context(context))
    if not self.is_residual:
      return additive
    gate = nn.sigmoid(self.gate(context))
    return DiagonalGaussian(
      prior.mean + gate * (additive.mean - prior.mean),
      prior.log_scale + gate * (additive.log_scale - prior.log_scale),
    )


class ObservationMap(nn.Module):
  """f_x: the likelihood of a frame from z_t and the context (section 3).

  Grey frames are Bernoulli, their grey values soft targets; colour frames are
  Gaussian with one learned log-scale for each channel.

  Attributes:
    decoder: network from [z, context] to [..., H, W, C].
    likelihood: 'bernoulli' or 'gaussian'.
  """

  decoder: nn.Module
  likelihood: str = 'bernoulli'

  @nn.compact
  def __call__(
    self, z: Array, context: Array, train: bool, mask: Array | None = None
  ) -> Bernoulli | DiagonalGaussian:
    """Maps z [..., Z] and a context [..., P] to p(x), over [..., H, W, C].

    Raises:
      ValueError: there is no such likelihood.
    """
    out = self.decoder(jnp.concatenate([z, context], axis=-1), train, mask)
    if self.likelihood == 'bernoulli':
      return Bernoulli(out)
    if self.likelihood != 'gaussian':
      raise ValueError(
        f'likelihood is {self.likelihood!r}; it must be bernoulli or gaussian.'
      )
    # With softplus, the gradient at the floor is not zero.
    start = nn.initializers.constant(_FRAME_LOG_SCALE)
    raw = self.param('log_scale', start, out.shape[-1:], jnp.float32)
    floor = jnp.log(jnp.asarray(_FRAME_SCALE_FLOOR, raw.dtype))
    log_scale = floor + nn.softplus(raw - floor)
    log_scale = addressing.aligned(log_scale.astype(out.dtype), out)
    return DiagonalGaussian(out, log_scale)
