"""The maps against plain NumPy: shapes, normalisation, bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from gtmm_jax.model import convolutions, maps, networks
from gtmm_jax.model.distributions import (
  Bernoulli,
  DiagonalGaussian,
  kl_divergence,
)

# Of a batch normalisation, so that a variance of zero divides nothing by zero.
EPSILON = 1e-5
# A number that is tuned; the tests hold for any.
BOUND = maps._LOG_SCALE_BOUND


class Probe(nn.Module):
  """Hands on what it is given, flat or as a frame of one row."""

  as_frame: bool = False

  def __call__(self, x, train, mask=None):
    if self.as_frame:
      return x[..., None, :, None]
    return x.reshape(*x.shape[:-3], -1)


class Painter(nn.Module):
  """Hands on a frame [..., 2, 2, 3] whatever it is given."""

  def __call__(self, code, train, mask=None):
    return jnp.ones((*code.shape[:-1], 2, 2, 3))


def random_variables(shapes, seed: int = 0):
  """Draws float64 values; variances and scales are positive."""
  generator = np.random.default_rng(seed)

  def draw(path, leaf):
    if path[-1].key in ('var', 'scale'):
      return generator.uniform(0.5, 2.0, leaf.shape)
    return 0.4 * generator.normal(size=leaf.shape)

  return jax.tree_util.tree_map_with_path(draw, shapes)


def variables_of(module: nn.Module, *arguments):
  with jax.enable_x64(True):
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *arguments))
  return random_variables(shapes)


_jit = functools.cache(jax.jit)


def in_double(function, *arguments):
  """Returns what a function computes in float64, as NumPy arrays."""
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, _jit(function)(*arguments))


def normal(seed: int, *shape: int) -> np.ndarray:
  return np.random.default_rng(seed).normal(size=shape)


ENCODERS = {
  'dense': networks.DenseEncoder((7, 5), 6),
  'digit': networks.DigitEncoder(6),
}


def decoder(kind: str, frame_shape):
  if kind == 'dense':
    return networks.DenseDecoder((5, 7), frame_shape)
  return networks.DigitDecoder(frame_shape)


# Shapes.


@pytest.mark.parametrize('batch', [(), (1,), (5,), (3, 2)])
@pytest.mark.parametrize('kind', ENCODERS)
def test_shapes_with_any_leading_axes(kind, batch):
  for frame_shape in ((28, 28, 1), (8, 12, 3)):
    for module, given, shape in (
      (ENCODERS[kind], frame_shape, (6,)),
      (decoder(kind, frame_shape), (9,), frame_shape),
    ):
      out, _ = jax.eval_shape(
        lambda x, module=module: module.init_with_output(
          jax.random.key(0), x, True
        ),
        jnp.ones((*batch, *given)),
      )
      assert out.shape == (*batch, *shape)


# The dense networks.


def slow_dense(parameters, x: np.ndarray, others: int = 0) -> np.ndarray:
  """Applies dense layers to x [B, D], all but the last with ReLU."""
  for i in range(len(parameters) - others):
    layer = parameters[f'Dense_{i}']
    if i:
      x = np.maximum(x, 0)
    x = x @ layer['kernel'] + layer['bias']
  return x


def test_dense_networks_equal_plain_products():
  frames, code = normal(0, 3, 2, 4, 5, 2), normal(1, 3, 2, 9)
  painter = networks.DenseDecoder((5, 7), (4, 5, 2))
  for module, given, shape in (
    (ENCODERS['dense'], frames, (6,)),
    (painter, code, (4, 5, 2)),
  ):
    variables = variables_of(module, given, False)
    expected = slow_dense(variables['params'], given.reshape(6, -1))
    for train in (False, True):
      found = in_double(
        lambda v, x, module=module, train=train: module.apply(v, x, train),
        variables,
        given,
      )
      np.testing.assert_allclose(
        found, expected.reshape(3, 2, *shape), rtol=1e-10, atol=1e-12
      )


def slow_patches(parameters, patches, x: np.ndarray) -> np.ndarray:
  """Applies an encoder's patch layers to x [B, H, W, C], patch by patch."""
  for i, (side, channels) in enumerate(patches, 1):
    layer = parameters[f'patches_{i}']
    count, height, width, _ = x.shape
    out = np.empty((count, height // side, width // side, channels))
    for b, row, column in np.ndindex(out.shape[:3]):
      rows = slice(row * side, row * side + side)
      columns = slice(column * side, column * side + side)
      values = x[b, rows, columns].ravel() @ layer['kernel'] + layer['bias']
      out[b, row, column] = np.maximum(values, 0)
    x = out
  return x


def slow_unpatches(parameters, patches, x: np.ndarray, channels: int):
  """Applies a decoder's patch layers to x [B, H', W', C'], before a ReLU."""
  given = [channels, *(size for _, size in patches)]
  for i in reversed(range(len(patches))):
    layer = parameters[f'patches_{i + 1}']
    side = patches[i][0]
    count, height, width, _ = x.shape
    out = np.empty((count, height * side, width * side, given[i]))
    for b, row, column in np.ndindex(x.shape[:3]):
      values = np.maximum(x[b, row, column], 0) @ layer['kernel']
      rows = slice(row * side, row * side + side)
      columns = slice(column * side, column * side + side)
      values = (values + layer['bias']).reshape(side, side, given[i])
      out[b, rows, columns] = values
    x = out
  return x


@pytest.mark.parametrize('patches', [((4, 5),), ((2, 3), (2, 5))])
def test_networks_of_patches_equal_loops_over_them(patches):
  frames, code = normal(0, 2, 3, 8, 12, 3), normal(1, 2, 3, 9)
  encoder = networks.DenseEncoder((7,), 6, patches)
  variables = variables_of(encoder, frames, False)
  parameters = variables['params']
  cut = slow_patches(parameters, patches, frames.reshape(6, 8, 12, 3))
  expected = slow_dense(parameters, cut.reshape(6, -1), len(patches))
  found = in_double(lambda v, x: encoder.apply(v, x, True), variables, frames)
  np.testing.assert_allclose(found, expected.reshape(2, 3, 6), rtol=1e-10)
  decoder = networks.DenseDecoder((7,), (8, 12, 3), patches)
  variables = variables_of(decoder, code, False)
  parameters = variables['params']
  small = slow_dense(parameters, code.reshape(6, 9), len(patches))
  small = small.reshape(6, 2, 3, patches[-1][1])
  expected = slow_unpatches(parameters, patches, small, 3)
  found = in_double(lambda v, x: decoder.apply(v, x, True), variables, code)
  np.testing.assert_allclose(
    found, expected.reshape(2, 3, 8, 12, 3), rtol=1e-10, atol=1e-12
  )


# The digit networks.


def slow_norm(variables, name: str, x: np.ndarray, train: bool) -> np.ndarray:
  """Normalises and rectifies channel after channel."""
  out = np.empty_like(x)
  parameters = variables['params'][name]
  for c in range(x.shape[-1]):
    if train:
      mean, variance = x[..., c].mean(), x[..., c].var()
    else:
      mean = variables['batch_stats'][name]['mean'][c]
      variance = variables['batch_stats'][name]['var'][c]
    standardised = (x[..., c] - mean) / np.sqrt(variance + EPSILON)
    scale, bias = parameters['scale'][c], parameters['bias'][c]
    out[..., c] = np.maximum(standardised * scale + bias, 0)
  return out


def convolve_all(x, kernels):
  return jnp.concatenate([convolutions.convolve(x, k) for k in kernels], -1)


def halve(x, kernel):
  return convolutions.convolve(x, kernel, 2)


def streams(variables, name: str, x: np.ndarray) -> np.ndarray:
  kernels = [variables['params'][name][f'kernel_{n}'] for n in (1, 3, 5, 7)]
  return in_double(convolve_all, x, kernels)


def slow_encoder(variables, x: np.ndarray, train: bool) -> np.ndarray:
  """Applies the digit encoder layer by layer to frames [B, H, W, C]."""
  parameters = variables['params']
  x = slow_norm(variables, 'norm_1', streams(variables, 'streams_1', x), train)
  x = in_double(halve, x, parameters['halve_1']['kernel'])
  x = slow_norm(variables, 'norm_2', x, train)
  x = slow_norm(variables, 'norm_3', streams(variables, 'streams_2', x), train)
  x = (
    in_double(halve, x, parameters['halve_2']['kernel'])
    + parameters['halve_2']['bias']
  )
  linear = parameters['linear']
  return x.reshape(len(x), -1) @ linear['kernel'] + linear['bias']


def slow_decoder(variables, code: np.ndarray, train: bool) -> np.ndarray:
  """Applies the digit decoder layer by layer, to frames [B, 8, 8, C]."""
  parameters = variables['params']
  double = convolutions.convolve_transposed
  linear = parameters['linear']
  x = (code @ linear['kernel'] + linear['bias']).reshape(len(code), 2, 2, 64)
  x = slow_norm(variables, 'norm_1', streams(variables, 'streams_1', x), train)
  x = in_double(double, x, parameters['double_1']['kernel'])
  x = slow_norm(variables, 'norm_2', x, train)
  x = slow_norm(variables, 'norm_3', streams(variables, 'streams_2', x), train)
  x = in_double(double, x, parameters['double_2']['kernel'])
  return x + parameters['double_2']['bias']


# With two leading axes, over which training normalises at once.
DIGIT_NETWORKS = {
  'encoder': (networks.DigitEncoder(3), slow_encoder, (3, 2, 8, 8, 1)),
  'decoder': (networks.DigitDecoder((8, 8, 1)), slow_decoder, (3, 2, 6)),
}


@pytest.mark.parametrize('name', DIGIT_NETWORKS)
def test_digit_networks_equal_their_layers_one_by_one(name):
  module, slow, shape = DIGIT_NETWORKS[name]
  given = normal(0, *shape)
  flat = given.reshape(6, *shape[2:])
  variables = variables_of(module, given, False)
  before = variables['batch_stats']
  assert before.keys() == {'norm_1', 'norm_2', 'norm_3'}

  @functools.partial(jax.jit, static_argnums=1)
  def run(variables, train):
    out, moved = module.apply(variables, given, train, mutable=['batch_stats'])
    return out.reshape(6, *out.shape[2:]), moved['batch_stats']

  with jax.enable_x64(True):
    found, after = jax.tree.map(np.asarray, run(variables, False))
  np.testing.assert_allclose(
    found, slow(variables, flat, False), rtol=1e-8, atol=1e-9
  )
  jax.tree.map(np.testing.assert_array_equal, after, before)

  with jax.enable_x64(True):
    found, after = jax.tree.map(np.asarray, run(variables, True))
  np.testing.assert_allclose(
    found, slow(variables, flat, True), rtol=1e-6, atol=1e-7
  )
  # Averages that have become this batch's own give what training gave.
  batch = jax.tree.map(lambda x, y: (x - 0.99 * y) / 0.01, after, before)
  with jax.enable_x64(True):
    again, _ = jax.tree.map(
      np.asarray, run({**variables, 'batch_stats': batch}, False)
    )
  np.testing.assert_allclose(again, found, rtol=1e-6, atol=1e-7)


# The prior map.


def test_prior_map_equals_plain_products():
  prior_map = maps.PriorMap(latent_size=4, hidden=(6, 5))
  context = normal(0, 3, 7)
  variables = variables_of(prior_map, context)
  found = in_double(prior_map.apply, variables, context)
  raw = slow_dense(variables['params'], context)
  np.testing.assert_allclose(found.mean, raw[:, :4], rtol=1e-10)
  expected = BOUND * np.tanh(raw[:, 4:] / BOUND)
  np.testing.assert_allclose(found.log_scale, expected, rtol=1e-10)
  nested = in_double(prior_map.apply, variables, context.reshape(3, 1, 7))
  np.testing.assert_allclose(nested.mean[:, 0], found.mean, rtol=1e-12)
  assert found.mean.shape == found.log_scale.shape == (3, 4)


def test_prior_map_without_hidden_layers_is_linear():
  prior_map = maps.PriorMap(latent_size=2, hidden=())
  variables = variables_of(prior_map, np.ones(3))
  found = in_double(prior_map.apply, variables, np.zeros(3))
  np.testing.assert_allclose(
    found.mean, variables['params']['Dense_0']['bias'][:2], rtol=1e-12
  )


# The posterior map.


def test_posterior_is_features_plus_the_image_of_the_context():
  posterior_map = maps.PosteriorMap(Probe(), latent_size=3)
  features, context = normal(0, 2, 4, 6), normal(1, 2, 4, 5)
  variables = variables_of(posterior_map, features, context)
  assert jax.tree.map(np.shape, variables) == {
    'params': {'from_context': {'kernel': (5, 6)}}
  }
  found = in_double(posterior_map.apply, variables, features, context)
  kernel = variables['params']['from_context']['kernel']
  raw = features + context @ kernel
  np.testing.assert_allclose(found.mean, raw[..., :3], rtol=1e-11)
  np.testing.assert_allclose(
    found.log_scale, BOUND * np.tanh(raw[..., 3:] / BOUND), rtol=1e-11
  )


def test_encoder_sees_frames_between_minus_one_and_one():
  posterior_map = maps.PosteriorMap(Probe(), latent_size=3)
  frames = np.random.default_rng(0).uniform(size=(2, 3, 2, 2, 1))
  frames[0, 0], frames[0, 1] = 0.0, 1.0
  found = in_double(
    lambda x: posterior_map.apply({}, x, False, method='encode'), frames
  )
  np.testing.assert_allclose(
    found, 2 * frames.reshape(2, 3, 4) - 1, rtol=1e-12, atol=1e-15
  )
  assert found.min() == -1
  assert found.max() == 1


def test_log_scales_are_bounded_and_nearly_linear_around_zero():
  posterior_map = maps.PosteriorMap(Probe(), latent_size=1)
  variables = {'params': {'from_context': {'kernel': jnp.zeros((1, 2))}}}
  raw = np.float32([-1e30, -1e4, -9.0, -0.5, 0.0, 0.5, 9.0, 1e4, 1e30])

  def posterior(raw):
    features = jnp.stack([jnp.zeros_like(raw), raw], axis=-1)
    context = jnp.zeros((len(raw), 1))
    return posterior_map.apply(variables, features, context)

  log_scale = np.asarray(posterior(jnp.asarray(raw)).log_scale[:, 0])
  assert np.all(np.abs(log_scale) <= BOUND)
  assert np.all(np.diff(log_scale) >= 0)
  np.testing.assert_allclose(
    log_scale[[0, 1, 7, 8]], [-BOUND, -BOUND, BOUND, BOUND]
  )
  np.testing.assert_allclose(log_scale[3:6], [-0.5, 0, 0.5], rtol=2e-2)

  def divergence(raw):
    q = posterior(raw)
    pairs = [
      DiagonalGaussian(*(jnp.expand_dims(x, axis) for x in q))
      for axis in (0, 1)
    ]
    return kl_divergence(*pairs).sum()

  value, gradient = jax.jit(jax.value_and_grad(divergence))(raw)
  assert np.isfinite(value)
  assert np.all(np.isfinite(gradient))


# The observation map.


def test_grey_frames_are_bernoulli_with_the_decoder_s_logits():
  observation_map = maps.ObservationMap(Probe(as_frame=True))
  z, context = normal(0, 2, 3, 2), normal(1, 2, 3, 4)
  found = in_double(
    lambda z, context: observation_map.apply({}, z, context, False), z, context
  )
  assert isinstance(found, Bernoulli)
  # The latent first, then the context.
  np.testing.assert_array_equal(
    found.logits[..., 0, :, 0], np.concatenate([z, context], axis=-1)
  )


def test_colour_frames_are_gaussian_with_a_floor_under_each_scale():
  observation_map = maps.ObservationMap(Painter(), 'gaussian')
  z, context = jnp.zeros((4, 2)), jnp.zeros((4, 3))
  made = observation_map.init(jax.random.key(0), z, context, False)
  np.testing.assert_array_equal(made['params']['log_scale'], np.full(3, -2.0))
  raw = np.array([-1e4, -6.0, 3.0])
  variables = {'params': {'log_scale': jnp.asarray(raw, jnp.float32)}}

  def total(variables, x):
    found = observation_map.apply(variables, z, context, False)
    return found.log_likelihood(x).sum(), found

  gradient, found = jax.jit(jax.grad(total, has_aux=True))(
    variables, jnp.zeros((4, 2, 2, 3))
  )
  assert isinstance(found, DiagonalGaussian)
  assert found.mean.shape == (4, 2, 2, 3)
  floor = np.log(1 / 256)
  log_scale = floor + np.logaddexp(0.0, raw - floor)
  np.testing.assert_allclose(
    jnp.broadcast_to(found.log_scale, (4, 2, 2, 3))[0, 1, 1],
    log_scale,
    rtol=1e-6,
  )
  # Of -(x - mean)^2 / (2 s^2) - log s at sixteen places, a unit from the mean;
  # a scale below the floor still feels it.
  by_log_scale = gradient['params']['log_scale']
  slope = 1 / (1 + np.exp(floor - raw[1:]))
  np.testing.assert_allclose(
    by_log_scale[1:],
    16 * (np.exp(-2 * log_scale[1:]) - 1) * slope,
    rtol=1e-4,
  )
  assert np.isfinite(by_log_scale[0]) and by_log_scale[1] > 1.0


def test_another_likelihood_is_an_error():
  observation_map = maps.ObservationMap(Painter(), 'poisson')
  with pytest.raises(ValueError, match='bernoulli or gaussian'):
    observation_map.init(
      jax.random.key(0), jnp.zeros((4, 2)), jnp.zeros((4, 3)), False
    )


@pytest.mark.parametrize('kind', ENCODERS)
def test_whole_maps_fit_together(kind):
  posterior_map = maps.PosteriorMap(ENCODERS[kind], latent_size=3)
  observation_map = maps.ObservationMap(decoder(kind, (8, 8, 1)))

  def run(frames, context):
    def through(module):
      features = module.encode(frames, True)
      return module(features, context)

    posterior, _ = nn.init_with_output(through, posterior_map)(
      jax.random.key(0)
    )
    return observation_map.init_with_output(
      jax.random.key(1), posterior.mean, context, True
    )[0]

  frames, context = jnp.ones((3, 2, 8, 8, 1)), jnp.ones((3, 2, 4))
  assert jax.eval_shape(run, frames, context).logits.shape == frames.shape


def _sizes_of(module, *arguments):
  made = jax.eval_shape(lambda: module.init(jax.random.key(0), *arguments))
  return jax.tree.map(lambda leaf: leaf.shape, made['params'])


def test_colour_networks_are_those_of_the_paper():
  encoder = _sizes_of(
    networks.ColourEncoder(512), jnp.zeros((2, 32, 32, 3)), False
  )
  kernels = {
    name: layer['convolution']['kernel']
    for name, layer in encoder.items()
    if name != 'linear'
  }
  assert kernels == {
    'global_1': (5, 5, 3, 128),
    'global_2': (4, 4, 128, 256),
    'global_3': (4, 4, 256, 256),
    'local_1': (4, 4, 3, 16),
    'local_2': (4, 4, 16, 8),
  }
  # 256 super-pixels of one pixel, and 8 x 8 x 8 of local texture.
  assert encoder['linear']['kernel'] == (256 + 512, 512)
  decoder = _sizes_of(
    networks.ColourDecoder((32, 32, 3)), jnp.zeros((2, 300)), False
  )
  assert decoder['linear']['kernel'] == (300, 256 + 512)
  for name, kernel in kernels.items():
    *sides, less, more = kernel
    assert decoder[name]['convolution']['kernel'] == (*sides, more, less)


@pytest.mark.parametrize('shape', [(32, 32, 3), (32, 36, 3), (40, 32, 1)])
def test_colour_frames_keep_their_shape(shape):
  decoder = networks.ColourDecoder(shape)
  code = jax.ShapeDtypeStruct((4, 2, 30), jnp.float32)
  found, _ = jax.eval_shape(
    lambda code: decoder.init_with_output(jax.random.key(0), code, False), code
  )
  assert found.shape == (4, 2, *shape)
  frames = jax.ShapeDtypeStruct((4, 2, *shape), jnp.float32)
  features, _ = jax.eval_shape(
    lambda frames: networks.ColourEncoder(7).init_with_output(
      jax.random.key(0), frames, False
    ),
    frames,
  )
  assert features.shape == (4, 2, 7)


def test_both_pathways_reach_the_code_and_the_frame():
  encoder, decoder = (
    networks.ColourEncoder(6),
    networks.ColourDecoder((32, 32, 3)),
  )
  frames = jnp.asarray(np.random.default_rng(0).uniform(size=(1, 32, 32, 3)))
  for module, argument in ((encoder, frames), (decoder, jnp.ones((1, 5)))):
    variables = module.init(jax.random.key(0), argument, False)

    def total(variables, module=module, argument=argument):
      return jnp.square(module.apply(variables, argument, False)).sum()

    gradient = jax.jit(jax.grad(total))(variables)
    for name, layer in gradient['params'].items():
      assert all(np.any(leaf) for leaf in jax.tree.leaves(layer)), name
