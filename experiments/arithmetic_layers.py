"""What the layers of the models and their frame networks cost, by hand.

Plain numbers, no jax; `arithmetic` adds them up and says what is counted.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from gtmm_jax import presets
from gtmm_jax.model import pathways

Shape = tuple[int, int, int]

# Forward, for the gradient of the weights, and for that of the input.
ALL_PASSES = 3
# The input is data, which needs no gradient.
_FIRST_LAYER = 2
_STREAM_SIDES = (1, 3, 5, 7)
_STREAM_CHANNELS = 8


class Layer(NamedTuple):
  """What one layer costs.

  Attributes:
    operations: of one example, forward.
    parameters: how many it has.
    moved: numbers that each example writes and reads in a whole step, such as
      twice those that are kept for the backward pass.
    passes: how often all operations are done, and how often all parameters are
      read or their gradients written.
  """

  operations: int = 0
  parameters: int = 0
  moved: int = 0
  passes: int = ALL_PASSES


def dense(
  inputs: int, outputs: int, *, bias: bool = True, passes: int = ALL_PASSES
) -> Layer:
  """A dense layer whose outputs are kept for the backward pass."""
  return Layer(
    operations=2 * inputs * outputs,
    parameters=(inputs + bias) * outputs,
    moved=2 * outputs,
    passes=passes,
  )


def perceptron(sizes: Sequence[int]) -> list[Layer]:
  """Dense layers between the widths of `sizes`."""
  return [dense(*pair) for pair in itertools.pairwise(sizes)]


def encoder(preset: presets.Preset, frame_shape: Shape) -> list[Layer]:
  """The network from frames to features [2 Z], which are handed on.

  Args:
    preset: which networks, and their sizes.
    frame_shape: (H, W, C).
  """
  features = 2 * preset.latent_size
  # Read forward, and again for the gradient of the first layer's weights.
  frames = Layer(moved=2 * math.prod(frame_shape))
  if preset.networks == 'dense':
    cut, shape = _patches(preset, frame_shape, joined=False)
    sizes = (math.prod(shape), *preset.dense_hidden, features)
    first, *layers = [*cut, *perceptron(sizes)]
    return [frames, first._replace(passes=_FIRST_LAYER), *layers]
  if preset.networks == 'digit':
    height, width, _ = frame_shape
    half, quarter = _halved(frame_shape)
    return [
      frames,
      *_streams(frame_shape, _FIRST_LAYER),
      *_halving((height, width, 32), 32),
      *_streams(half),
      convolution(half, 64, 3, 2, 1, bias=True),
      dense(math.prod(quarter), features),
    ]
  layers, flat = [frames], 0
  for pathway in pathways.PATHWAYS.values():
    shapes = pathways.shapes(frame_shape, pathway)
    for number, (shape, sizes) in enumerate(zip(shapes, pathway, strict=False)):
      layer = convolution(shape, *sizes, bias=True)
      passes = ALL_PASSES if number else _FIRST_LAYER
      layers.append(layer._replace(passes=passes))
    flat += math.prod(shapes[-1])
  return [*layers, dense(flat, features)]


def decoder(
  preset: presets.Preset, frame_shape: Shape, code_size: int
) -> list[Layer]:
  """The network from latent and context [Z + P] to what a frame is drawn from.

  Args:
    preset: which networks, and their sizes.
    frame_shape: (H, W, C).
    code_size: Z + P.
  """
  if preset.networks == 'dense':
    hidden = reversed(preset.dense_hidden)
    cut, shape = _patches(preset, frame_shape, joined=True)
    return [*perceptron((code_size, *hidden, math.prod(shape))), *cut[::-1]]
  if preset.networks == 'digit':
    height, width, channels = frame_shape
    half, quarter = _halved(frame_shape)
    return [
      dense(code_size, math.prod(quarter)),
      *_streams(quarter),
      transposed(half, 32, 3, 2, 1, bias=False),
      _normalisation(32),
      *_streams(half),
      transposed((height, width, channels), 32, 3, 2, 1, bias=True),
    ]
  layers, flat = [], 0
  for pathway in pathways.PATHWAYS.values():
    shapes = pathways.shapes(frame_shape, pathway)
    layers += [
      transposed(shape, *sizes, bias=True)
      for shape, sizes in zip(shapes, pathway, strict=False)
    ]
    flat += math.prod(shapes[-1])
  return [dense(code_size, flat), *layers]


def convolution(
  shape: Shape,
  channels: int,
  side: int,
  stride: int,
  padding: int,
  *,
  bias: bool,
) -> Layer:
  """A convolution whose outputs are kept for the backward pass.

  Args:
    shape: (H, W, C) of what it is given.
    channels: D of what it makes.
    side: K, of the kernel.
    stride: step between outputs.
    padding: zeros on each side of rows and columns; no product with them
      counts.
    bias: whether there is one.
  """
  height, width, inputs = shape
  taps = math.prod(_taps(n, side, stride, padding) for n in (height, width))
  outputs = [_outputs(n, side, stride, padding) for n in (height, width)]
  return Layer(
    operations=2 * taps * inputs * channels,
    parameters=(side**2 * inputs + bias) * channels,
    moved=2 * math.prod(outputs) * channels,
  )


def transposed(
  shape: Shape,
  channels: int,
  side: int,
  stride: int,
  padding: int,
  *,
  bias: bool,
) -> Layer:
  """The transpose of a convolution, whose outputs are kept.

  Args:
    shape: (H, W, C) of what it makes.
    channels: D of what it is given, as a `convolution` of `shape` makes it.
    side: K, of the kernel.
    stride: of the convolution that it is the transpose of.
    padding: likewise.
    bias: whether there is one.
  """
  forward = convolution(shape, channels, side, stride, padding, bias=False)
  return forward._replace(
    parameters=forward.parameters + bias * shape[-1],
    moved=2 * math.prod(shape),
  )


def _halved(frame_shape: Shape) -> tuple[Shape, Shape]:
  """Of what the digit networks make of a frame by halving once and twice."""
  height, width, _ = frame_shape
  return (height // 2, width // 2, 32), (height // 4, width // 4, 64)


def _patches(
  preset: presets.Preset, frame_shape: Shape, *, joined: bool
) -> tuple[list[Layer], Shape]:
  """Layers that map patches alike, or join them, and the smallest shape."""
  layers, shape = [], frame_shape
  for side, channels in presets.patches(preset, frame_shape):
    if joined:
      layer = transposed(shape, channels, side, side, 0, bias=False)
      # Each number of a patch has a bias of its own.
      biases = side**2 * shape[-1]
      layer = layer._replace(parameters=layer.parameters + biases)
    else:
      layer = convolution(shape, channels, side, side, 0, bias=True)
    layers.append(layer)
    shape = (shape[0] // side, shape[1] // side, channels)
  return layers, shape


def _streams(shape: Shape, passes: int = ALL_PASSES) -> list[Layer]:
  """Four parallel streams, each of its own side, and a normalisation."""
  layers = [
    convolution(shape, _STREAM_CHANNELS, side, 1, side // 2, bias=False)
    for side in _STREAM_SIDES
  ]
  layers = [layer._replace(passes=passes) for layer in layers]
  return [*layers, _normalisation(_STREAM_CHANNELS * len(_STREAM_SIDES))]


def _halving(shape: Shape, channels: int) -> list[Layer]:
  """A dimension-halving convolution and a normalisation."""
  halving = convolution(shape, channels, 3, 2, 1, bias=False)
  return [halving, _normalisation(channels)]


def _normalisation(channels: int) -> Layer:
  """Batch normalisation: a scale and an offset for each channel."""
  return Layer(parameters=2 * channels)


def _outputs(length: int, side: int, stride: int, padding: int) -> int:
  """How many outputs a row of `length` has."""
  return (length + 2 * padding - side) // stride + 1


def _taps(length: int, side: int, stride: int, padding: int) -> int:
  """How many products a row of `length` takes: none with the zeros around."""
  starts = range(
    -padding,
    stride * _outputs(length, side, stride, padding) - padding,
    stride,
  )
  return sum(min(start + side, length) - max(start, 0) for start in starts)
