"""Convolutions against plain loops over pixels and taps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.model import convolutions


def slow_convolve(frame: np.ndarray, kernel: np.ndarray, stride: int):
  """Convolves one frame [H, W, C], padded with zeros."""
  height, width = frame.shape[:2]
  size = kernel.shape[0]
  out = np.zeros((-(-height // stride), -(-width // stride), kernel.shape[-1]))
  for i, j, a, b in np.ndindex(*out.shape[:2], size, size):
    row, column = stride * i + a - size // 2, stride * j + b - size // 2
    if 0 <= row < height and 0 <= column < width:
      out[i, j] += frame[row, column] @ kernel[a, b]
  return out


def slow_double(frame: np.ndarray, kernel: np.ndarray):
  """Adds each pixel of one frame [H, W, C] to 3 x 3 pixels of the output."""
  height, width = frame.shape[:2]
  out = np.zeros((2 * height, 2 * width, kernel.shape[-1]))
  for i, j, a, b in np.ndindex(height, width, 3, 3):
    row, column = 2 * i + a - 1, 2 * j + b - 1
    if 0 <= row < 2 * height and 0 <= column < 2 * width:
      out[row, column] += frame[i, j] @ kernel[a, b]
  return out


def each_frame(function, frames: np.ndarray, *arguments) -> np.ndarray:
  flat = frames.reshape(-1, *frames.shape[-3:])
  out = np.stack([function(frame, *arguments) for frame in flat])
  return out.reshape(*frames.shape[:-3], *out.shape[1:])


def in_double(function, *arguments):
  """Returns what a function computes in float64, as NumPy arrays."""
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


def normal(seed: int, *shape: int) -> np.ndarray:
  return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(
  ('shape', 'size'),
  [
    ((6, 8, 2), 3),
    ((5, 7, 3), 3),
    ((2, 3, 4, 5, 1), 5),
    ((1, 7, 4, 2), 1),
    ((2, 3, 2, 1), 7),  # A kernel larger than the frame.
    ((1, 1, 2), 3),
  ],
)
def test_convolve_equals_plain_loops(monkeypatch, shape, size):
  frames, kernel = normal(0, *shape), normal(1, size, size, shape[-1], 3)

  def on_every_backend(x, k):
    outputs = []
    for backend in ('cpu', 'gpu'):
      monkeypatch.setattr(jax, 'default_backend', lambda name=backend: name)
      outputs.append([convolutions.convolve(x, k, stride) for stride in (1, 2)])
    return outputs

  for by_stride in in_double(on_every_backend, frames, kernel):
    for stride, found in zip((1, 2), by_stride, strict=True):
      expected = each_frame(slow_convolve, frames, kernel, stride)
      assert found.shape == expected.shape
      np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
  'shape', [(4, 6, 2), (3, 5, 3), (2, 2, 3, 4, 1), (1, 1, 2), (2, 1, 4, 3)]
)
def test_double_equals_plain_loops(shape):
  frames, kernel = normal(0, *shape), normal(1, 3, 3, shape[-1], 4)
  found = in_double(convolutions.convolve_transposed, frames, kernel)
  expected = each_frame(slow_double, frames, kernel)
  assert found.shape == expected.shape
  np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_gradients_equal_those_of_plain_loops():
  """Takes one slow product a derivative, since all is linear."""
  frames, kernel = normal(0, 3, 4, 2), normal(1, 3, 3, 2, 2)
  for fast, slow, shape in (
    (
      lambda x, k: convolutions.convolve(x, k, 2),
      lambda x, k: slow_convolve(x, k, 2),
      (2, 2, 2),
    ),
    (convolutions.convolve_transposed, slow_double, (6, 8, 2)),
  ):
    cotangent = normal(2, *shape)
    by_frames, by_kernel = in_double(
      jax.grad(
        lambda x, k, fast=fast, c=cotangent: (fast(x, k) * c).sum(), (0, 1)
      ),
      frames,
      kernel,
    )
    for found, size, run in (
      (by_frames, frames.shape, lambda unit, slow=slow: slow(unit, kernel)),
      (by_kernel, kernel.shape, lambda unit, slow=slow: slow(frames, unit)),
    ):
      for index in np.ndindex(size):
        unit = np.zeros(size)
        unit[index] = 1.0
        expected = (run(unit) * cotangent).sum()
        np.testing.assert_allclose(found[index], expected, atol=1e-11)


def test_double_is_the_transpose_of_halving():
  frames, other = normal(0, 2, 5, 4, 3), normal(1, 2, 10, 8, 2)
  kernel = normal(2, 3, 3, 3, 2)
  doubled, halved = in_double(
    lambda x, y, k: (
      convolutions.convolve_transposed(x, k),
      convolutions.convolve(y, k.swapaxes(2, 3), 2),
    ),
    frames,
    other,
    kernel,
  )
  assert halved.shape == frames.shape
  np.testing.assert_allclose(
    (doubled * other).sum(), (halved * frames).sum(), rtol=1e-10
  )


@pytest.mark.parametrize(
  'function', [convolutions.convolve, convolutions.convolve_transposed]
)
def test_a_batch_of_kernels_equals_one_at_a_time(function):
  frames, kernels = normal(0, 3, 2, 4, 5, 2), normal(1, 3, 3, 3, 2, 2)
  found = in_double(jax.vmap(function), frames, kernels)
  for i in range(3):
    expected = in_double(function, frames[i], kernels[i])
    np.testing.assert_allclose(found[i], expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
  'function', [convolutions.convolve, convolutions.convolve_transposed]
)
def test_the_type_of_the_frames_is_kept(function):
  kernel = jnp.asarray(normal(0, 3, 3, 1, 2), jnp.float32)
  for kept in (jnp.bfloat16, jnp.float32):
    assert (
      jax.eval_shape(function, jnp.ones((4, 4, 1), kept), kernel).dtype == kept
    )


# Parallel streams.


def stream_parameters(sizes, channels: int, features: int) -> dict:
  return {
    'params': {
      f'kernel_{size}': normal(size, size, size, channels, features)
      for size in sizes
    }
  }


@pytest.mark.parametrize(
  ('shape', 'sizes'),
  [
    ((2, 6, 6, 1), (1, 3, 5, 7)),
    ((2, 2, 5, 3, 4), (1, 3, 5, 7)),
    ((3, 4, 2), (5, 1, 3)),
    ((2, 2, 2), (3,)),
  ],
)
def test_streams_equal_convolutions_and_plain_loops(shape, sizes):
  frames = normal(0, *shape)
  variables = stream_parameters(sizes, shape[-1], 2)
  cotangent = normal(3, *shape[:-1], 2 * len(sizes))
  streams = convolutions.ParallelStreams(2, sizes)

  def apart(variables, frames):
    kernels = [variables['params'][f'kernel_{n}'] for n in sizes]
    return jnp.concatenate(
      [convolutions.convolve(frames, kernel) for kernel in kernels], axis=-1
    )

  def with_gradients(function):
    def total(variables, frames):
      out = function(variables, frames)
      return (out * cotangent).sum(), out

    return in_double(
      jax.grad(total, argnums=(0, 1), has_aux=True), variables, frames
    )

  together, found = with_gradients(streams.apply)
  expected = np.concatenate(
    [
      each_frame(slow_convolve, frames, variables['params'][f'kernel_{n}'], 1)
      for n in sizes
    ],
    axis=-1,
  )
  np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
  for one, other in zip(
    jax.tree.leaves(together),
    jax.tree.leaves(with_gradients(apart)[0]),
    strict=True,
  ):
    assert np.any(one)
    np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_streams_are_those_of_the_paper():
  made = jax.eval_shape(
    convolutions.ParallelStreams().init, jax.random.key(0), jnp.ones((4, 4, 3))
  )
  assert jax.tree.map(lambda x: x.shape, made) == {
    'params': {f'kernel_{n}': (n, n, 3, 8) for n in (1, 3, 5, 7)}
  }


# Halving and doubling.


@pytest.mark.parametrize('use_bias', [False, True])
@pytest.mark.parametrize('kind', ['HalvingConv', 'DoublingConv'])
def test_layers_equal_plain_loops(kind, use_bias):
  frames = normal(0, 2, 5, 6, 3)
  parameters = {'kernel': normal(1, 3, 3, 3, 4)}
  if use_bias:
    parameters['bias'] = normal(2, 4)
  layer = getattr(convolutions, kind)(features=4, use_bias=use_bias)
  made = jax.eval_shape(layer.init, jax.random.key(0), frames)
  assert jax.tree.map(lambda x: x.shape, made['params']) == jax.tree.map(
    np.shape, parameters
  )
  found = in_double(layer.apply, {'params': parameters}, frames)
  if kind == 'HalvingConv':
    expected = each_frame(slow_convolve, frames, parameters['kernel'], 2)
    assert found.shape == (2, 3, 3, 4)
  else:
    expected = each_frame(slow_double, frames, parameters['kernel'])
    assert found.shape == (2, 10, 12, 4)
  expected = expected + parameters.get('bias', 0.0)
  np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


# Strides without padding, and with.


def slow_shrink(frame, kernel, stride, padding):
  frame = np.pad(frame, ((padding, padding), (padding, padding), (0, 0)))
  side = kernel.shape[0]
  rows = (frame.shape[0] - side) // stride + 1
  columns = (frame.shape[1] - side) // stride + 1
  out = np.zeros((rows, columns, kernel.shape[-1]))
  for i in range(rows):
    for j in range(columns):
      window = frame[
        i * stride : i * stride + side, j * stride : j * stride + side
      ]
      out[i, j] = np.einsum('abc,abcd->d', window, kernel)
  return out


_CASES = [
  (shape, *layer)
  for shape in ((8, 11), (12, 9))
  for layer in ((5, 3, 0), (4, 2, 0), (4, 1, 0), (4, 2, 1), (3, 2, 1))
]


def _apply_all(make, kernels, biases, inputs):
  """Applies a layer of each case, all in one program."""

  def run(kernels, biases, inputs):
    return [
      make(*case).apply(
        {'params': {'convolution': {'kernel': kernel, 'bias': bias}}}, x
      )
      for case, kernel, bias, x in zip(
        _CASES, kernels, biases, inputs, strict=True
      )
    ]

  return in_double(run, kernels, biases, inputs)


def test_strided_layers_equal_loops_and_are_transposed():
  frames = [normal(0, 2, *shape, 3) for shape, *_ in _CASES]
  kernels = [normal(1, side, side, 3, 4) for _, side, *_ in _CASES]
  biases = [normal(2, 4) for _ in _CASES]
  small = _apply_all(
    lambda _, *layer: convolutions.StridedConv(4, *layer),
    kernels,
    biases,
    frames,
  )
  others = [normal(3, *x.shape) for x in small]
  # A kernel turned by half a circle, from 4 channels to 3.
  turned = [kernel[::-1, ::-1].swapaxes(2, 3) for kernel in kernels]
  large = _apply_all(
    lambda shape, *layer: convolutions.TransposedConv((*shape, 3), *layer),
    turned,
    [np.zeros(3) for _ in _CASES],
    others,
  )
  for i, (_, _, stride, padding) in enumerate(_CASES):
    expected = each_frame(slow_shrink, frames[i], kernels[i], stride, padding)
    np.testing.assert_allclose(
      small[i], expected + biases[i], rtol=1e-11, atol=1e-12
    )
    assert large[i].shape == frames[i].shape
    np.testing.assert_allclose(
      (expected * others[i]).sum(), (frames[i] * large[i]).sum(), rtol=1e-10
    )
