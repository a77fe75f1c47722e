"""Networks from frames to features, and from codes to frames.

Those of Gemici et al. 2017, appendix B, and small dense ones. All take any
number of leading axes; frames given to them are in (-1, 1).
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.model import convolutions

Array = jax.Array
# (channels, side, stride, padding).
_Layer = tuple[int, int, int, int]

# Layers of the colour networks' two pathways, from a frame of 32x32 on. Large
# strides without padding see what fills a frame, small kernels its textures.
_PATHWAYS: Mapping[str, Sequence[_Layer]] = MappingProxyType(
  {
    'global': ((128, 5, 3, 0), (256, 4, 2, 0), (256, 4, 1, 0)),
    'local': ((16, 4, 2, 1), (8, 4, 2, 1)),
  }
)


def _normalise(
  network: nn.Module, x: Array, train: bool, mask: Array | None, name: str
) -> Array:
  """Applies batch normalisation over all leading axes, then a ReLU.

  Statistics leave out frames where the mask [...] is false. The backward pass
  rematerialises both, which halves the memory of residuals.
  """
  if mask is not None:
    mask = mask[..., None, None, None]

  def normalise(network: nn.Module, x: Array) -> Array:
    norm = nn.BatchNorm(
      use_running_average=not train, name=name, parent=network
    )
    return nn.relu(norm(x, mask=mask))

  return nn.remat(normalise)(network, x)


def _merge_leading(x: Array, axes: int) -> Array:
  """Merges all axes but the last `axes` into one.

  With more leading axes the gradient of a dense layer copies its operands.
  """
  return x.reshape(-1, *x.shape[-axes:])


def _cut(frames: Array, side: int) -> Array:
  """Cuts frames into patches, [..., H / side, W / side, side^2 C]."""
  *batch, height, width, channels = frames.shape
  height, width = height // side, width // side
  x = frames.reshape(*batch, height, side, width, side, channels)
  return jnp.moveaxis(x, -4, -3).reshape(*batch, height, width, -1)


def _join(patches: Array, side: int) -> Array:
  """Joins patches to frames, the inverse of `_cut`."""
  *batch, height, width, size = patches.shape
  x = patches.reshape(*batch, height, width, side, side, size // side**2)
  shape = height * side, width * side, size // side**2
  return jnp.moveaxis(x, -3, -4).reshape(*batch, *shape)


class DenseEncoder(nn.Module):
  """Dense network from frames to features, of the small preset.

  Attributes:
    hidden: units of each hidden layer.
    features: F, width of the output.
    patches: (side, channels) of each layer before the hidden ones; it cuts its
      input into patches of side x side and maps each by the same weights.
  """

  hidden: Sequence[int]
  features: int
  patches: Sequence[tuple[int, int]] = ()

  @nn.compact
  def __call__(
    self, frames: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps frames [..., H, W, C] in (-1, 1) to [..., F]; ignores the rest."""
    del train, mask
    x = _merge_leading(frames, 3)
    for index, (side, channels) in enumerate(self.patches, 1):
      layer = nn.Dense(channels, name=f'patches_{index}')
      x = nn.relu(layer(_cut(x, side)))
    x = x.reshape(*x.shape[:-3], -1)
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    x = nn.Dense(self.features)(x)
    return x.reshape(*frames.shape[:-3], self.features)


class DenseDecoder(nn.Module):
  """Dense network from codes to frames, of the small preset.

  Attributes:
    hidden: units of each hidden layer.
    frame_shape: (H, W, C).
    patches: as of the encoder; they are joined in reverse order.
  """

  hidden: Sequence[int]
  frame_shape: tuple[int, int, int]
  patches: Sequence[tuple[int, int]] = ()

  @nn.compact
  def __call__(
    self, code: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps codes [..., D] to [..., H, W, C]; ignores the rest."""
    del train, mask
    x = _merge_leading(code, 1)
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
    features: F, width of the output.
  """

  features: int

  @nn.compact
  def __call__(
    self, frames: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps frames [..., 28, 28, C] in (-1, 1) to [..., F]."""
    x = convolutions.ParallelStreams(name='streams_1')(frames)
    x = _normalise(self, x, train, mask, 'norm_1')
    x = convolutions.HalvingConv(32, use_bias=False, name='halve_1')(x)
    x = _normalise(self, x, train, mask, 'norm_2')
    x = convolutions.ParallelStreams(name='streams_2')(x)
    x = _normalise(self, x, train, mask, 'norm_3')
    x = convolutions.HalvingConv(64, use_bias=True, name='halve_2')(x)
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
  def __call__(
    self, code: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps codes [..., D] to [..., H, W, C]."""
    height, width, channels = self.frame_shape
    height, width = height // 4, width // 4
    x = nn.Dense(height * width * 64, name='linear')(code)
    x = x.reshape(*code.shape[:-1], height, width, 64)
    streams = convolutions.ParallelStreams
    x = streams(name='streams_1')(x)
    x = _normalise(self, x, train, mask, 'norm_1')
    x = convolutions.DoublingConv(32, use_bias=False, name='double_1')(x)
    x = _normalise(self, x, train, mask, 'norm_2')
    x = streams(name='streams_2')(x)
    x = _normalise(self, x, train, mask, 'norm_3')
    return convolutions.DoublingConv(channels, use_bias=True, name='double_2')(
      x
    )


def _pathway_shapes(
  frame_shape: tuple[int, int, int], layers: Sequence[_Layer]
) -> list[tuple[int, int, int]]:
  """Returns (H, W, C) before the first layer of a pathway and after each."""
  shapes = [frame_shape]
  for channels, side, stride, padding in layers:
    height, width = (
      (length + 2 * padding - side) // stride + 1 for length in shapes[-1][:2]
    )
    shapes.append((height, width, channels))
  return shapes


class ColourEncoder(nn.Module):
  """The paper's network for frames of 3D environments (appendix B).

  Two pathways of convolutions, joined by a linear layer; no normalisation.

  Attributes:
    features: F, width of the output.
  """

  features: int

  @nn.compact
  def __call__(
    self, frames: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps frames [..., H, W, C] in (-1, 1), H and W >= 32, to [..., F]."""
    del train, mask
    outputs = []
    for name, layers in _PATHWAYS.items():
      x = frames
      for index, (channels, side, stride, padding) in enumerate(layers, 1):
        x = nn.relu(
          convolutions.StridedConv(
            channels, side, stride, padding, name=f'{name}_{index}'
          )(x)
        )
      outputs.append(x.reshape(*frames.shape[:-3], -1))
    return nn.Dense(self.features, name='linear')(jnp.concatenate(outputs, -1))


class ColourDecoder(nn.Module):
  """The colour encoder transposed (appendix B); its two pathways are summed.

  Attributes:
    frame_shape: (H, W, C), H and W at least 32.
  """

  frame_shape: tuple[int, int, int]

  @nn.compact
  def __call__(
    self, code: Array, train: bool, mask: Array | None = None
  ) -> Array:
    """Maps codes [..., D] to [..., H, W, C]; ignores the rest."""
    del train, mask
    shapes = {
      name: _pathway_shapes(self.frame_shape, layers)
      for name, layers in _PATHWAYS.items()
    }
    widths = [math.prod(each[-1]) for each in shapes.values()]
    x = nn.relu(nn.Dense(sum(widths), name='linear')(code))
    whole, textures = (
      self._expand(name, shapes[name], part)
      for name, part in zip(
        _PATHWAYS, jnp.split(x, widths[:1], axis=-1), strict=True
      )
    )
    return whole + textures

  def _expand(
    self, name: str, shapes: Sequence[tuple[int, int, int]], x: Array
  ) -> Array:
    """Runs a pathway backwards, from its last shape to a frame."""
    x = x.reshape(*x.shape[:-1], *shapes[-1])
    for index, (_, side, stride, padding) in reversed(
      list(enumerate(_PATHWAYS[name]))
    ):
      x = convolutions.TransposedConv(
        shapes[index], side, stride, padding, name=f'{name}_{index + 1}'
      )(x)
      x = nn.relu(x) if index else x
    return x
