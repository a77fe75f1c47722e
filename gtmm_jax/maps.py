"""The maps of the temporal VAE: posterior, observation and prior.

Gemici et al. 2017, section 3 and appendix B. A map's network runs on any number
of leading axes at once. Frames `[..., H, W, C]` are in [0, 1].
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax import convolutions
from gtmm_jax.distributions import Bernoulli, DiagonalGaussian

Array = jax.Array

# Log-scales of latents stay within +-4, nearly linear around zero. A KL between
# any two is then finite, and the loop from a latent through the memory to the
# scale of the next can't run away: with +-8 it did, for a step, early in
# training.
_LOG_SCALE_BOUND = 4.0
# The smallest standard deviation of a colour channel, a grey level of 256.
_FRAME_SCALE_FLOOR = 1.0 / 256.0


def _gaussian(raw: Array) -> DiagonalGaussian:
  """Splits [..., 2 Z] into a mean and a bounded log-scale."""
  mean, log_scale = jnp.split(raw, 2, axis=-1)
  log_scale = _LOG_SCALE_BOUND * jnp.tanh(log_scale / _LOG_SCALE_BOUND)
  return DiagonalGaussian(mean, log_scale)


def _normalise(x: Array, train: bool, name: str) -> Array:
  """Batch normalisation over all leading axes, then rectification."""
  return nn.relu(nn.BatchNorm(use_running_average=not train, name=name)(x))


class DenseEncoder(nn.Module):
  """Frames to features by dense layers: the small preset's network.

  Attributes:
    hidden: units of each hidden layer.
    features: F, width of what it hands on.
  """

  hidden: Sequence[int]
  features: int

  @nn.compact
  def __call__(self, frames: Array, train: bool) -> Array:
    """[..., H, W, C] in (-1, 1) -> [..., F]; `train` changes nothing."""
    del train
    x = frames.reshape(*frames.shape[:-3], -1)
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    return nn.Dense(self.features)(x)


class DenseDecoder(nn.Module):
  """Codes to frame parameters by dense layers: the small preset's network.

  Attributes:
    hidden: units of each hidden layer.
    frame_shape: (H, W, C).
  """

  hidden: Sequence[int]
  frame_shape: tuple[int, int, int]

  @nn.compact
  def __call__(self, code: Array, train: bool) -> Array:
    """[..., D] -> [..., H, W, C]; `train` changes nothing."""
    del train
    height, width, channels = self.frame_shape
    x = code
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    x = nn.Dense(height * width * channels)(x)
    return x.reshape(*code.shape[:-1], height, width, channels)


class DigitEncoder(nn.Module):
  """The paper's network for 28x28 digits and characters (appendix B).

  Two blocks of four parallel streams and a dimension-halving convolution, then
  a linear layer.

  Attributes:
    features: F, width of what it hands on.
  """

  features: int

  @nn.compact
  def __call__(self, frames: Array, train: bool) -> Array:
    """[..., 28, 28, C] in (-1, 1) -> [..., F]."""
    x = convolutions.ParallelStreams(name='streams_1')(frames)
    x = _normalise(x, train, 'norm_1')
    x = convolutions.Halve(32, use_bias=False, name='halve_1')(x)
    x = _normalise(x, train, 'norm_2')
    x = convolutions.ParallelStreams(name='streams_2')(x)
    x = _normalise(x, train, 'norm_3')
    x = convolutions.Halve(64, use_bias=True, name='halve_2')(x)
    x = x.reshape(*x.shape[:-3], -1)
    return nn.Dense(self.features, name='linear')(x)


class DigitDecoder(nn.Module):
  """The digit encoder with deconvolutions (appendix B).

  A linear layer to a quarter of the height and width with 64 channels, then
  twice a block of parallel streams and a dimension-doubling deconvolution.

  Attributes:
    frame_shape: (H, W, C), H and W multiples of 4.
  """

  frame_shape: tuple[int, int, int]

  @nn.compact
  def __call__(self, code: Array, train: bool) -> Array:
    """[..., D] -> [..., H, W, C]."""
    height, width, channels = self.frame_shape
    height, width = height // 4, width // 4
    x = nn.Dense(height * width * 64, name='linear')(code)
    x = x.reshape(*code.shape[:-1], height, width, 64)
    streams = convolutions.ParallelStreams
    x = streams(fused=False, name='streams_1')(x)
    x = _normalise(x, train, 'norm_1')
    x = convolutions.Double(32, use_bias=False, name='double_1')(x)
    x = _normalise(x, train, 'norm_2')
    x = streams(fused=False, name='streams_2')(x)
    x = _normalise(x, train, 'norm_3')
    return convolutions.Double(channels, use_bias=True, name='double_2')(x)


class PriorMap(nn.Module):
  """f_z: the prior of z_t from the context alone (section 3).

  Attributes:
    latent_size: Z.
    hidden: units of each hidden layer.
  """

  latent_size: int
  hidden: Sequence[int]

  @nn.compact
  def __call__(self, context: Array) -> DiagonalGaussian:
    """Context [..., P] -> Gaussian over z [..., Z]."""
    x = context
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    return _gaussian(nn.Dense(2 * self.latent_size)(x))


class PosteriorMap(nn.Module):
  """f_q: the posterior of z_t from the frame and the context (section 3).

  The encoder's last linear layer is the one "to a vector of length 64" of
  appendix B. The context enters there: its own linear image is added, so that
  frames can be encoded all at once, before any context is known.

  Attributes:
    encoder: network from frames to features [..., 2 Z].
    latent_size: Z.
  """

  encoder: nn.Module
  latent_size: int

  def setup(self) -> None:
    """Makes the layer through which the context enters."""
    self.from_context = nn.Dense(2 * self.latent_size, use_bias=False)

  def encode(self, frames: Array, train: bool) -> Array:
    """Frames [..., H, W, C] in [0, 1] -> features [..., F]."""
    return self.encoder(2.0 * frames - 1.0, train)

  def __call__(self, features: Array, context: Array) -> DiagonalGaussian:
    """Features [..., F] and context [..., P] -> Gaussian over z [..., Z]."""
    return _gaussian(features + self.from_context(context))


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
    self, z: Array, context: Array, train: bool
  ) -> Bernoulli | DiagonalGaussian:
    """z [..., Z] and context [..., P] -> distribution of [..., H, W, C].

    Raises:
      ValueError: if there is no such likelihood.
    """
    out = self.decoder(jnp.concatenate([z, context], axis=-1), train)
    if self.likelihood == 'bernoulli':
      return Bernoulli(out)
    if self.likelihood != 'gaussian':
      raise ValueError(
        f'likelihood is {self.likelihood!r}; it must be bernoulli or gaussian.'
      )
    # Softplus: a scale at the floor still feels a gradient away from it.
    raw = self.param('log_scale', nn.initializers.zeros, out.shape[-1:])
    floor = jnp.log(_FRAME_SCALE_FLOOR)
    log_scale = floor + nn.softplus(raw - floor)
    return DiagonalGaussian(out, log_scale.astype(out.dtype))
