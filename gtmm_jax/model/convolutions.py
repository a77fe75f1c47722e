"""Convolutions of the digit and the colour networks.

All map `[..., H, W, C]` to `[..., H', W', D]` with any number of leading axes.
`StridedConv` and `TransposedConv` leave the computation to XLA. The others
compute the small convolutions of the digit networks as matrix products where
XLA's own gradients are slow on CPUs.
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
  """Convolves with padding, so that stride 1 keeps height and width.

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
  """Convolves frames [B, H, W, C] by one matrix product with all windows.

  The backward pass rematerialises the windows, which are many times as large as
  the frames.
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


def convolve_transposed(frames: Array, kernel: Array) -> Array:
  """Applies a transposed 3x3 convolution that doubles height and width.

  Each input pixel (i, j) adds frames[i, j] @ kernel[a, b] to the output pixel
  (2 i + a - 1, 2 j + b - 1), if that is inside the frame. One matrix product
  gives all the summands, which are then added in four interleaved phases; XLA's
  own transposed convolution multiplies mostly zeros.

  Args:
    frames: [..., H, W, C].
    kernel: [3, 3, C, D].

  Returns:
    [..., 2 H, 2 W, D].
  """
  *batch, height, width, channels = frames.shape
  size = kernel.shape[-1]
  matrix = kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
  summands = frames @ matrix.astype(frames.dtype)
  summands = summands.reshape(-1, height, width, 3, 3, size)
  rows = _interleave(
    summands[:, :, :, 0], summands[:, :, :, 1], summands[:, :, :, 2], 1
  )
  out = _interleave(rows[..., 0, :], rows[..., 1, :], rows[..., 2, :], 2)
  return out.reshape(*batch, 2 * height, 2 * width, size)


def _interleave(before: Array, at: Array, after: Array, axis: int) -> Array:
  """Interleaves at[i] with after[i] + before[i + 1] along an axis.

  Row i of the input reaches three rows of the output: 2 i - 1, by `before`;
  2 i, by `at`; and 2 i + 1, by `after`.
  """
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
  """Convolutions of several kernel sizes, whose outputs are concatenated.

  Gemici et al. 2017, appendix B: four parallel streams of 8 kernels, of sizes
  1, 3, 5 and 7. There is no bias, because batch normalisation follows.

  Attributes:
    features: kernels in each stream.
    sizes: odd kernel sizes.
  """

  features: int = 8
  sizes: Sequence[int] = (1, 3, 5, 7)

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H, W, C] to [..., H, W, len(sizes) * features]."""
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
    # On one channel, one convolution with zero-padded kernels is faster.
    largest = max(self.sizes)
    padded = []
    for kernel, size in zip(kernels, self.sizes, strict=True):
      margin = (largest - size) // 2
      padded.append(
        jnp.pad(kernel, ((margin, margin), (margin, margin), (0, 0), (0, 0)))
      )
    return convolve(frames, jnp.concatenate(padded, axis=-1))


class HalvingConv(nn.Module):
  """3x3 convolution of stride 2 by `convolve`, which is fast on CPUs.

  Attributes:
    features: D.
    use_bias: whether to add a bias; not where batch normalisation follows.
  """

  features: int
  use_bias: bool

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H, W, C] to [..., H / 2, W / 2, D]."""
    shape = (3, 3, frames.shape[-1], self.features)
    kernel = self.param('kernel', _KERNEL_INITIALIZER, shape, jnp.float32)
    out = convolve(frames, kernel, stride=2)
    return _add_bias(self, out)


class DoublingConv(nn.Module):
  """Transposed 3x3 convolution of stride 2 by `convolve_transposed`.

  Attributes:
    features: D.
    use_bias: whether to add a bias; not where batch normalisation follows.
  """

  features: int
  use_bias: bool

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H, W, C] to [..., 2 H, 2 W, D]."""
    shape = (3, 3, frames.shape[-1], self.features)
    kernel = self.param('kernel', _KERNEL_INITIALIZER, shape, jnp.float32)
    out = convolve_transposed(frames, kernel)
    return _add_bias(self, out)


class StridedConv(nn.Module):
  """Convolution of any kernel size, stride and padding, by XLA.

  Attributes:
    channels: D.
    side: K, height and width of the kernel.
    stride: step between outputs in rows and columns.
    padding: zeros on each side of rows and columns.
  """

  channels: int
  side: int
  stride: int
  padding: int

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H, W, C] to [..., H', W', D].

    H' is (H + 2 padding - K) // stride + 1, and W' the same with W.
    """
    return nn.Conv(
      self.channels,
      (self.side, self.side),
      (self.stride, self.stride),
      padding=((self.padding, self.padding),) * 2,
      name='convolution',
    )(frames)


class TransposedConv(nn.Module):
  """Transpose of a `StridedConv` on frames of a given shape, by XLA.

  Attributes:
    shape: (H, W, D), shape of the output.
    side: K, height and width of the kernel.
    stride: stride of the convolution that this transposes.
    padding: padding of the convolution that this transposes.
  """

  shape: tuple[int, int, int]
  side: int
  stride: int
  padding: int

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H', W', C] to [..., H, W, D]."""
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


def _add_bias(module: HalvingConv | DoublingConv, out: Array) -> Array:
  if not module.use_bias:
    return out
  bias = module.param(
    'bias', nn.initializers.zeros, (module.features,), jnp.float32
  ).astype(out.dtype)
  return out + bias.reshape((1,) * (out.ndim - 1) + bias.shape)
