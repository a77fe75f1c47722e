"""How the digit networks' convolutions are computed; the one place that knows.

All take and give `[..., H, W, C]` with any number of leading axes.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

Array = jax.Array

_KERNEL_INITIALIZER = nn.initializers.lecun_normal()
_DIMENSIONS = ('NHWC', 'HWIO', 'NHWC')


def convolve(frames: Array, kernel: Array, stride: int = 1) -> Array:
  """Same-padded convolution.

  Args:
    frames: [..., H, W, C].
    kernel: [K, K, C, D].
    stride: step between outputs in rows and columns.

  Returns:
    [..., H / stride, W / stride, D].
  """
  flat = frames.reshape(-1, *frames.shape[-3:])
  kernel = kernel.astype(frames.dtype)
  # XLA's own gradients of these take up to three times as long on a CPU.
  is_slow = kernel.shape[0] == 1 or kernel.shape[2] == 1 or stride > 1
  if is_slow and jax.default_backend() == 'cpu':
    out = _unfolded(flat, kernel, stride)
  else:
    reach = kernel.shape[0] // 2
    out = jax.lax.conv_general_dilated(
      flat,
      kernel,
      window_strides=(stride, stride),
      padding=((reach, reach), (reach, reach)),
      dimension_numbers=_DIMENSIONS,
    )
  return out.reshape(*frames.shape[:-3], *out.shape[1:])


@functools.partial(jax.checkpoint, static_argnums=2)
def _unfolded(frames: Array, kernel: Array, stride: int) -> Array:
  """The convolution of [B, H, W, C] as one product with all its windows.

  Gradients cut the windows out again: they are many times the frames.
  """
  side, (height, width) = kernel.shape[0], frames.shape[1:3]
  reach = side // 2
  padded = jnp.pad(frames, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
  windows = [
    padded[:, row : row + height : stride, column : column + width : stride]
    for row in range(side)
    for column in range(side)
  ]
  matrix = kernel.reshape(-1, kernel.shape[-1])
  return jnp.concatenate(windows, axis=-1) @ matrix


def double(frames: Array, kernel: Array) -> Array:
  """Transposed 3x3 convolution that doubles rows and columns.

  Each input pixel (i, j) adds frames[i, j] @ kernel[a, b] to the output pixel
  (2 i + a - 1, 2 j + b - 1); what falls outside is dropped. Computed as one
  matrix product, then added up in the four interleaved phases: XLA's own
  transposed convolution multiplies mostly zeros.

  Args:
    frames: [..., H, W, C].
    kernel: [3, 3, C, D].

  Returns:
    [..., 2 H, 2 W, D].
  """
  *batch, height, width, channels = frames.shape
  size = kernel.shape[-1]
  matrix = kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
  taps = frames @ matrix.astype(frames.dtype)
  taps = taps.reshape(-1, height, width, 3, 3, size)
  rows = _interleave(taps[:, :, :, 0], taps[:, :, :, 1], taps[:, :, :, 2], 1)
  out = _interleave(rows[..., 0, :], rows[..., 1, :], rows[..., 2, :], 2)
  return out.reshape(*batch, 2 * height, 2 * width, size)


def _interleave(before: Array, at: Array, after: Array, axis: int) -> Array:
  """Even outputs are `at`; odd ones lie after one input, before the next."""
  length = before.shape[axis]
  following = jax.lax.slice_in_dim(before, 1, length, axis=axis)
  padding = [(0, 0)] * before.ndim
  padding[axis] = (0, 1)
  between = after + jnp.pad(following, padding)
  stacked = jnp.stack([at, between], axis=axis + 1)
  shape = list(before.shape)
  shape[axis] = 2 * length
  return stacked.reshape(shape)


class ParallelStreams(nn.Module):
  """Parallel dimension-preserving convolutions of several sizes, concatenated.

  Gemici et al. 2017, appendix B: four streams of 8 kernels, of sizes 1, 3, 5
  and 7. No bias: batch normalisation follows.

  Attributes:
    features: kernels in each stream.
    sizes: odd kernel sizes.
  """

  features: int = 8
  sizes: Sequence[int] = (1, 3, 5, 7)

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """[..., H, W, C] -> [..., H, W, len(sizes) * features]."""
    kernels = [
      self.param(
        f'kernel_{size}',
        _KERNEL_INITIALIZER,
        (size, size, frames.shape[-1], self.features),
        jnp.float32,
      )
      for size in self.sizes
    ]
    if frames.shape[-1] > 1:
      return jnp.concatenate([convolve(frames, k) for k in kernels], axis=-1)
    # Of one channel they are one convolution, with kernels padded by zeros.
    largest = max(self.sizes)
    padded = []
    for kernel, size in zip(kernels, self.sizes, strict=True):
      margin = (largest - size) // 2
      padded.append(
        jnp.pad(kernel, ((margin, margin), (margin, margin), (0, 0), (0, 0)))
      )
    return convolve(frames, jnp.concatenate(padded, axis=-1))


class Halve(nn.Module):
  """Dimension-halving 3x3 convolution, [..., H, W, C] -> [..., H/2, W/2, D].

  Attributes:
    features: D.
    use_bias: off where batch normalisation follows.
  """

  features: int
  use_bias: bool

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Convolves with stride 2."""
    shape = (3, 3, frames.shape[-1], self.features)
    kernel = self.param('kernel', _KERNEL_INITIALIZER, shape, jnp.float32)
    out = convolve(frames, kernel, stride=2)
    return _add_bias(self, out)


class Double(nn.Module):
  """Dimension-doubling 3x3 deconvolution, [..., H, W, C] -> [..., 2H, 2W, D].

  Attributes:
    features: D.
    use_bias: off where batch normalisation follows.
  """

  features: int
  use_bias: bool

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Deconvolves with stride 2."""
    shape = (3, 3, frames.shape[-1], self.features)
    kernel = self.param('kernel', _KERNEL_INITIALIZER, shape, jnp.float32)
    out = double(frames, kernel)
    return _add_bias(self, out)


class Shrink(nn.Module):
  """Convolution with a stride, and zeros around the frame.

  Attributes:
    channels: D.
    side: K, of the kernel.
    stride: step between outputs.
    padding: zeros on each side of rows and columns.
  """

  channels: int
  side: int
  stride: int
  padding: int

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """[..., H, W, C] -> [..., (H + 2 padding - K) // stride + 1, ..., D]."""
    return nn.Conv(
      self.channels,
      (self.side, self.side),
      (self.stride, self.stride),
      padding=((self.padding, self.padding),) * 2,
      name='convolution',
    )(frames)


class Grow(nn.Module):
  """The transpose of `Shrink`: to the shape that it would have shrunk.

  Attributes:
    shape: (H, W, D) of what it gives.
    side: K, of the kernel.
    stride: of the convolution that it is the transpose of.
    padding: likewise.
  """

  shape: tuple[int, int, int]
  side: int
  stride: int
  padding: int

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """[..., H', W', C] -> [..., H, W, D]."""
    before = self.side - 1 - self.padding
    padding = tuple(
      (before, size - 1 - (count - 1) * self.stride - before + self.side - 1)
      for size, count in zip(self.shape[:2], frames.shape[-3:-1], strict=True)
    )
    return nn.Conv(
      self.shape[2],
      (self.side, self.side),
      input_dilation=(self.stride, self.stride),
      padding=padding,
      name='convolution',
    )(frames)


def _add_bias(module: Halve | Double, out: Array) -> Array:
  if not module.use_bias:
    return out
  bias = module.param(
    'bias', nn.initializers.zeros, (module.features,), jnp.float32
  ).astype(out.dtype)
  return out + bias.reshape((1,) * (out.ndim - 1) + bias.shape)
