"""The mixture of Gaussians: its samples, and the bound of the KL to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.model.distributions import (
  DiagonalGaussian,
  Mixture,
  kl_bound,
  kl_divergence,
)

_DEAD = (-np.inf, -1e30, -200.0)


def _mixture(log_weights, mean, log_scale) -> Mixture:
  return Mixture(log_weights, DiagonalGaussian(mean, log_scale))


def _random(seed: int, count: int, size: int, distance: float) -> tuple:
  """Draws q and a mixture whose components are `distance` apart or more."""
  rng = np.random.default_rng(seed)
  weights = rng.dirichlet(np.ones(count))
  mean = rng.normal(size=(count, size)) + distance * np.arange(count)[:, None]
  log_scale = rng.normal(0.0, 0.4, (count, size))
  # Near one component, or between two.
  place = mean[0] if seed % 2 else mean[:2].mean(0)
  q = DiagonalGaussian(place + rng.normal(0.0, 0.3, size), log_scale[-1] - 0.3)
  return q, _mixture(np.log(weights), mean, log_scale)


def _log_densities(q: DiagonalGaussian, p: Mixture, z: np.ndarray) -> tuple:
  """Returns log q [N] and log w_k p_k [N, K] at points z [N, Z]."""

  def log_normal(mean, log_scale):
    squares = np.square((z - mean) * np.exp(-log_scale))
    return (-0.5 * squares - log_scale - 0.5 * np.log(2 * np.pi)).sum(-1)

  parts = [
    log_weight + log_normal(mean, log_scale)
    for log_weight, mean, log_scale in zip(
      p.log_weights, *p.components, strict=True
    )
  ]
  return log_normal(*q), np.stack(parts, -1)


def _grid(q: DiagonalGaussian, points: int) -> tuple[np.ndarray, float]:
  """Returns points [N, Z] within 9 scales of q, and the volume of each."""
  axes = [
    np.linspace(mean - 9 * scale, mean + 9 * scale, points)
    for mean, scale in zip(q.mean, np.exp(q.log_scale), strict=True)
  ]
  z = np.stack(np.meshgrid(*axes, indexing='ij'), -1).reshape(-1, len(axes))
  return z, float(np.prod([axis[1] - axis[0] for axis in axes]))


def _integrals(q: DiagonalGaussian, p: Mixture) -> tuple[float, float]:
  """Integrates KL[q || p], and E_q KL[phi || r(z)], by which it is exceeded."""
  z, volume = _grid(q, 4_001 if len(q.mean) == 1 else 601)
  log_q, parts = _log_densities(q, p, z)
  log_p = np.logaddexp.reduce(parts, -1)
  mass = np.exp(log_q) * volume
  np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-9)
  expected = mass @ parts
  log_phi = expected - np.logaddexp.reduce(expected)
  log_r = parts - log_p[:, None]
  excess = mass @ ((log_phi - log_r) @ np.exp(log_phi))
  return mass @ (log_q - log_p), excess


@pytest.fixture(scope='module')
def bound():
  """Returns the compiled bound in float64."""

  def compute(q, p):
    with jax.enable_x64(True):
      return np.asarray(jax.jit(kl_bound)(q, p))

  return compute


@pytest.mark.parametrize('size', [1, 2])
@pytest.mark.parametrize('count', [2, 4])
@pytest.mark.parametrize('distance', [0.0, 1.5, 4.0])
@pytest.mark.parametrize('seed', range(2))
def test_bound_exceeds_the_integral_by_what_it_should(
  bound, size, count, distance, seed
):
  q, p = _random(seed, count, size, distance)
  exact, excess = _integrals(q, p)
  assert excess >= -1e-9
  np.testing.assert_allclose(bound(q, p), exact + excess, rtol=1e-6)


@pytest.mark.parametrize('size', [1, 2])
def test_bound_is_tight_for_components_that_are_apart(bound, size):
  for seed in (1, 3, 5):
    q, p = _random(seed, 3, size, 20.0)
    exact, _ = _integrals(q, p)
    assert 0 <= bound(q, p) - exact + 1e-9 < 1e-6


def test_bound_of_one_component_or_equal_ones_is_the_divergence(bound):
  q, p = _random(0, 3, 2, 1.0)
  with jax.enable_x64(True):
    for part in range(3):
      only = DiagonalGaussian(*(each[part] for each in p.components))
      expected = np.asarray(kl_divergence(q, only))
      np.testing.assert_array_equal(kl_bound(q, only), expected)
      for count in (1, 3):
        copies = (np.tile(each, (count, 1)) for each in only)
        weights = np.log(np.arange(1.0, count + 1) / np.arange(count + 2).sum())
        weights -= np.logaddexp.reduce(weights)
        value = bound(q, _mixture(weights, *copies))
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_bound_keeps_leading_axes_and_needs_no_scale_inside_floats():
  rng = np.random.default_rng(4)
  q = DiagonalGaussian(*rng.normal(size=(2, 2, 3, 5)))
  p = _mixture(
    np.log(rng.dirichlet(np.ones(4), (2, 3))), *rng.normal(size=(2, 2, 3, 4, 5))
  )
  with jax.enable_x64(True):
    whole = np.asarray(kl_bound(q, p, bounded=True))
    assert whole.shape == (2, 3)
    for index in np.ndindex(2, 3):
      each = jax.tree.map(lambda leaf, at=index: leaf[at], (q, p))
      np.testing.assert_allclose(whole[index], kl_bound(*each), rtol=1e-12)


@pytest.mark.parametrize('dead', _DEAD)
def test_a_component_without_weight_changes_nothing(dead):
  """Its parameters get no gradient, however far away it is."""
  q, p = jax.tree.map(np.float32, _random(1, 3, 4, 2.0))
  for place in (0.0, 1e6):
    log_weights = np.float32([*p.log_weights, dead])
    mean, log_scale = (
      np.float32([*each, np.full(4, value)])
      for each, value in zip(p.components, (place, -4.0), strict=True)
    )
    larger = _mixture(jax.nn.log_softmax(log_weights), mean, log_scale)
    np.testing.assert_allclose(kl_bound(q, larger), kl_bound(q, p), rtol=1e-5)

    def total(q, logits, mean, log_scale):
      return kl_bound(q, _mixture(jax.nn.log_softmax(logits), mean, log_scale))

    by_q, *by_p = jax.jit(jax.grad(total, (0, 1, 2, 3)))(
      q, log_weights, mean, log_scale
    )
    expected = jax.grad(kl_bound, (0, 1))(q, p)
    gradients = *by_q, *(each[:3] for each in by_p[1:])
    for larger_one, smaller_one in zip(
      gradients, (*expected[0], *expected[1].components), strict=True
    ):
      np.testing.assert_allclose(larger_one, smaller_one, rtol=1e-4, atol=1e-5)
    for gradient in by_p:
      np.testing.assert_array_equal(gradient[3], 0.0)


def test_equal_components_share_the_gradient_by_their_weights():
  weights = np.float32([0.2, 0.5, 0.3])
  q = DiagonalGaussian(np.float32([1.0, -1.0]), np.float32([-0.5, 0.2]))
  p = _mixture(np.log(weights), *np.zeros((2, 3, 2), np.float32))
  gradients = jax.grad(kl_bound, 1)(q, p)
  alone = jax.grad(kl_divergence, 1)(
    q, DiagonalGaussian(*np.zeros((2, 2), np.float32))
  )
  jax.tree.map(
    lambda each, whole: np.testing.assert_allclose(
      each, weights[:, None] * whole, rtol=1e-5
    ),
    gradients.components,
    alone,
  )


def test_gradients_are_those_of_differences():
  q, p = _random(2, 3, 2, 1.0)
  with jax.enable_x64(True):
    leaves, tree = jax.tree.flatten((q, p))
    gradients = jax.grad(
      lambda *leaves: kl_bound(*tree.unflatten(leaves)), (*range(len(leaves)),)
    )(*leaves)
    for number, gradient in enumerate(gradients):
      for index in np.ndindex(leaves[number].shape):
        ends = []
        for step in (-1e-6, 1e-6):
          moved = [np.array(leaf) for leaf in leaves]
          moved[number][index] += step
          ends.append(float(kl_bound(*tree.unflatten(moved))))
        np.testing.assert_allclose(
          gradient[index], (ends[1] - ends[0]) / 2e-6, rtol=1e-5, atol=1e-8
        )


# Densities.


@pytest.mark.parametrize('size', [1, 2])
def test_density_is_the_sum_over_components_and_integrates_to_one(size):
  q, p = _random(0, 3, size, 1.5)
  # Of the widest Gaussian, so that its grid holds all of the mixture.
  wide = q._replace(log_scale=np.full(size, 1.0))
  z, volume = _grid(wide, 2_001 if size == 1 else 301)
  _, parts = _log_densities(q, p, z)
  with jax.enable_x64(True):
    found = np.asarray(jax.jit(Mixture.log_density)(p, z))
  np.testing.assert_allclose(found, np.logaddexp.reduce(parts, -1), rtol=1e-9)
  np.testing.assert_allclose(np.exp(found).sum() * volume, 1.0, rtol=1e-6)


def test_density_keeps_leading_axes_and_ignores_dead_components():
  rng = np.random.default_rng(5)
  weights = rng.dirichlet(np.ones(3), (2, 4))
  mean, log_scale, z = (
    rng.normal(size=(2, 4, *shape)).astype(np.float32)
    for shape in ((3, 5), (3, 5), (5,))
  )
  p = _mixture(np.log(weights).astype(np.float32), mean, log_scale)
  found = p.log_density(z)
  assert found.shape == (2, 4)
  for index in np.ndindex(2, 4):
    part = jax.tree.map(lambda leaf, at=index: leaf[at], p)
    _, parts = _log_densities(part.components, part, z[index])
    expected = np.logaddexp.reduce(np.ravel(parts))
    np.testing.assert_allclose(found[index], expected, rtol=1e-5)
  for dead in _DEAD:
    larger = _mixture(
      np.pad(p.log_weights, ((0, 0), (0, 0), (0, 1)), constant_values=dead),
      *(
        np.pad(leaf, ((0, 0), (0, 0), (0, 1), (0, 0))) for leaf in p.components
      ),
    )
    np.testing.assert_allclose(larger.log_density(z), found, rtol=1e-6)


# Samples.


def _quantiles(count: int) -> np.ndarray:
  """Returns normal numbers whose ranks are evenly spread, float32 [count]."""
  ranks = (jnp.arange(count) + 0.5) / count
  return np.asarray(jax.scipy.special.ndtri(ranks), np.float32)


def _repeated(p: Mixture, count: int) -> Mixture:
  """Returns a mixture with `count` times the same on a leading axis."""
  return jax.tree.map(lambda leaf: np.tile(leaf, (count, *[1] * leaf.ndim)), p)


def test_samples_come_from_components_as_often_as_weights_say():
  log_weights = np.float32([np.log(0.5), -np.inf, np.log(0.2), np.log(0.3)])
  mean = np.float32([[0.0, 1.0], [9.0, 9.0], [-5.0, 2.0], [7.0, -3.0]])
  log_scale = np.float32([[-3.0, 0.0], [0, 0], [-1.0, -2.0], [1.0, -4.0]])
  count = 1_000
  noise = np.float32(np.random.default_rng(0).normal(size=(count, 3)))
  noise[:, 2] = _quantiles(count)
  # The larger the last number, the later the component.
  index = np.repeat([0, 2, 3], [500, 200, 300])
  p = _repeated(_mixture(log_weights, mean, log_scale), count)
  z = p.sample(jnp.asarray(noise))
  expected = mean[index] + np.exp(log_scale[index]) * noise[:, :2]
  np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)


def test_samples_have_the_moments_of_the_mixture():
  _, p = jax.tree.map(np.float32, _random(3, 4, 2, 1.5))
  noise = jax.random.normal(jax.random.key(0), (200_000, 3))
  z = np.float64(_repeated(p, len(noise)).sample(noise))
  weights = np.exp(np.float64(p.log_weights))
  mean = weights @ p.components.mean
  second = weights @ (
    np.square(p.components.mean) + np.exp(2 * p.components.log_scale)
  )
  error = np.sqrt((second - np.square(mean)) / len(z))
  assert (np.abs(z.mean(0) - mean) < 5 * error).all()
  np.testing.assert_allclose(np.square(z).mean(0), second, rtol=0.02)


@pytest.mark.parametrize('last', [-np.inf, -40.0, 0.0, 8.0, 40.0, np.inf])
@pytest.mark.parametrize('dead', [0, 1, 2, 3])
def test_no_component_without_weight_is_drawn(dead, last):
  rng = np.random.default_rng(dead)
  logits = np.float32(rng.normal(size=(50, 4)))
  logits[:, dead] = -np.inf
  mean = np.zeros((50, 4, 1), np.float32)
  mean[:, dead] = np.nan
  p = _mixture(jax.nn.log_softmax(logits), mean, np.zeros_like(mean))
  noise = jnp.full((50, 2), last, jnp.float32).at[:, 0].set(0.5)
  np.testing.assert_array_equal(p.sample(noise), 0.5)
