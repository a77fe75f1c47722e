"""Networks from frames to features, and from codes to frames.

Those of Gemici et al. 2017, appendix B, and small dense ones. Each runs on any
number of leading axes at once; frames come in (-1, 1).
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.model import convolutions, pathways

Array = jax.Array


def _normalise(network: nn.Module, x: Array, train: bool, name: str) -> Array:
  """Batch normalisation over all leading axes, then rectification.

  Gradients compute it again: its arrays would be half of all that is kept.
  """

  def normalise(network: nn.Module, x: Array) -> Array:
    norm = nn.BatchNorm(
      use_running_average=not train, name=name, parent=network
    )
    return nn.relu(norm(x))

  return nn.remat(normalise)(network, x)


def _rows(x: Array, axes: int) -> Array:
  """Leading axes in one, before the last `axes`.

  Gradients of products with more of them are transposed by a copy.
  """
  return x.reshape(-1, *x.shape[-axes:])


def _cut(frames: Array, side: int) -> Array:
  """[..., H, W, C] -> [..., H / side, W / side, side^2 C], its patches."""
  *batch, height, width, channels = frames.shape
  height, width = height // side, width // side
  x = frames.reshape(*batch, height, side, width, side, channels)
  return jnp.moveaxis(x, -4, -3).reshape(*batch, height, width, -1)


def _join(patches: Array, side: int) -> Array:
  """Puts patches where `_cut` took them from."""
  *batch, height, width, size = patches.shape
  x = patches.reshape(*batch, height, width, side, side, size // side**2)
  shape = height * side, width * side, size // side**2
  return jnp.moveaxis(x, -3, -4).reshape(*batch, *shape)


class DenseEncoder(nn.Module):
  """Frames to features by products: the small preset's network.

  Attributes:
    hidden: units of each hidden layer.
    features: F, width of what it hands on.
    patches: (side, channels) of layers before those: each cuts what it is given
      into patches of so many pixels a side and maps all of them alike.
  """

  hidden: Sequence[int]
  features: int
  patches: Sequence[tuple[int, int]] = ()

  @nn.compact
  def __call__(self, frames: Array, train: bool) -> Array:
    """[..., H, W, C] in (-1, 1) -> [..., F]; `train` changes nothing."""
    del train
    x = _rows(frames, 3)
    for index, (side, channels) in enumerate(self.patches, 1):
      layer = nn.Dense(channels, name=f'patches_{index}')
      x = nn.relu(layer(_cut(x, side)))
    x = x.reshape(*x.shape[:-3], -1)
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    x = nn.Dense(self.features)(x)
    return x.reshape(*frames.shape[:-3], self.features)


class DenseDecoder(nn.Module):
  """Codes to frame parameters by products: the small preset's network.

  Attributes:
    hidden: units of each hidden layer.
    frame_shape: (H, W, C).
    patches: those of the encoder that it is the reverse of.
  """

  hidden: Sequence[int]
  frame_shape: tuple[int, int, int]
  patches: Sequence[tuple[int, int]] = ()

  @nn.compact
  def __call__(self, code: Array, train: bool) -> Array:
    """[..., D] -> [..., H, W, C]; `train` changes nothing."""
    del train
    x = _rows(code, 1)
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    shapes = [self.frame_shape]
    for side, channels in self.patches:
      height, width, _ = shapes[-1]
      shapes.append((height // side, width // side, channels))
    x = nn.Dense(math.prod(shapes[-1]))(x)
    x = x.reshape(-1, *shapes[-1])
    for index in reversed(range(len(self.patches))):
      side = self.patches[index][0]
      size = side**2 * shapes[index][-1]
      layer = nn.Dense(size, name=f'patches_{index + 1}')
      x = _join(layer(nn.relu(x)), side)
    return x.reshape(*code.shape[:-1], *self.frame_shape)


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
    x = _normalise(self, x, train, 'norm_1')
    x = convolutions.Halve(32, use_bias=False, name='halve_1')(x)
    x = _normalise(self, x, train, 'norm_2')
    x = convolutions.ParallelStreams(name='streams_2')(x)
    x = _normalise(self, x, train, 'norm_3')
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
    x = streams(name='streams_1')(x)
    x = _normalise(self, x, train, 'norm_1')
    x = convolutions.Double(32, use_bias=False, name='double_1')(x)
    x = _normalise(self, x, train, 'norm_2')
    x = streams(name='streams_2')(x)
    x = _normalise(self, x, train, 'norm_3')
    return convolutions.Double(channels, use_bias=True, name='double_2')(x)


class ColourEncoder(nn.Module):
  """The paper's network for frames of 3D environments (appendix B).

  Two pathways of convolutions; a linear layer sees both. No normalisation.

  Attributes:
    features: F, width of what it hands on.
  """

  features: int

  @nn.compact
  def __call__(self, frames: Array, train: bool) -> Array:
    """[..., H, W, C] in (-1, 1), H and W >= 32 -> [..., F]."""
    del train
    found = []
    for name, layers in pathways.PATHWAYS.items():
      x = frames
      for index, (channels, side, stride, padding) in enumerate(layers, 1):
        x = nn.relu(
          convolutions.Shrink(
            channels, side, stride, padding, name=f'{name}_{index}'
          )(x)
        )
      found.append(x.reshape(*frames.shape[:-3], -1))
    return nn.Dense(self.features, name='linear')(jnp.concatenate(found, -1))


class ColourDecoder(nn.Module):
  """The colour encoder transposed (appendix B); its two pathways are summed.

  Attributes:
    frame_shape: (H, W, C), H and W at least 32.
  """

  frame_shape: tuple[int, int, int]

  @nn.compact
  def __call__(self, code: Array, train: bool) -> Array:
    """[..., D] -> [..., H, W, C]; `train` changes nothing."""
    del train
    shapes = [
      pathways.shapes(self.frame_shape, layers)
      for layers in pathways.PATHWAYS.values()
    ]
    widths = [math.prod(each[-1]) for each in shapes]
    x = nn.relu(nn.Dense(sum(widths), name='linear')(code))
    parts = jnp.split(x, widths[:1], axis=-1)
    whole, textures = (
      self._expand(name, layers, own, part)
      for (name, layers), own, part in zip(
        pathways.PATHWAYS.items(), shapes, parts, strict=True
      )
    )
    return whole + textures

  def _expand(
    self,
    name: str,
    layers: Sequence[pathways.Layer],
    shapes: Sequence[tuple[int, int, int]],
    x: Array,
  ) -> Array:
    """One pathway backwards, from its last shape to a frame."""
    x = x.reshape(*x.shape[:-1], *shapes[-1])
    for index in reversed(range(len(layers))):
      _, side, stride, padding = layers[index]
      x = convolutions.Grow(
        shapes[index], side, stride, padding, name=f'{name}_{index + 1}'
      )(x)
      x = nn.relu(x) if index else x
    return x
