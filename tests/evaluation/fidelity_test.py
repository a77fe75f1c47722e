"""Closeness of frames against plain loops over pixels and windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.evaluation import fidelity


def _frames(shape, seed=0):
  return np.random.default_rng(seed).uniform(size=shape).astype(np.float32)


def _similarity(one, other):
  """Computes Wang et al. 2004 a window and a channel at a time."""
  height, width, channels = one.shape
  reach = min(5, (min(height, width) - 1) // 2)
  offsets = np.arange(-reach, reach + 1)
  window = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
  window /= window.sum()
  values = []
  for c in range(channels):
    for i in range(reach, height - reach):
      for j in range(reach, width - reach):
        rows = slice(i - reach, i + reach + 1)
        columns = slice(j - reach, j + reach + 1)
        x, y = (np.float64(f[rows, columns, c]) for f in (one, other))
        mx, my = (window * x).sum(), (window * y).sum()
        vx = (window * (x - mx) ** 2).sum()
        vy = (window * (y - my) ** 2).sum()
        vxy = (window * (x - mx) * (y - my)).sum()
        values.append(
          (2 * mx * my + 1e-4)
          * (2 * vxy + 9e-4)
          / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
        )
  return np.mean(values)


@pytest.mark.parametrize(
  'shape', [(12, 14, 3), (11, 11, 1), (8, 12, 3), (1, 1, 1)]
)
def test_similarity_is_that_of_the_loop(shape):
  one, other = _frames(shape), _frames(shape, 1)
  near = np.clip(one + 0.1 * other, 0, 1)
  for second in (other, near, 1 - one, np.zeros_like(one)):
    np.testing.assert_allclose(
      fidelity.structural_similarity(one, second),
      _similarity(one, second),
      atol=2e-5,
    )


def test_equal_frames_are_alike_and_flat_ones_give_no_nan():
  for frame in (
    _frames((16, 16, 3)),
    np.zeros((16, 16, 3)),
    np.ones((9, 9, 1)),
  ):
    similarity = fidelity.structural_similarity(frame, frame)
    np.testing.assert_allclose(similarity, 1.0, atol=1e-6)
    assert fidelity.squared_error(frame, frame) == 0


def test_leading_axes_are_kept():
  one, other = _frames((2, 3, 12, 12, 3)), _frames((2, 3, 12, 12, 3), 1)
  for function in (fidelity.structural_similarity, fidelity.squared_error):
    whole = function(one, other)
    assert whole.shape == (2, 3)
    np.testing.assert_allclose(whole[1, 2], function(one[1, 2], other[1, 2]))


def test_sums_are_those_of_a_loop():
  prefix, length, batch = 3, 6, 2
  frames = _frames((length, batch, 8, 8, 3))
  free = _frames((length, batch, 8, 8, 3), 1)
  # One that is like the last one seen, and repeats another one.
  frames[4, 1] = frames[2, 1]
  frames[5, 0] = frames[1, 0]
  predictable = np.array([[0, 0], [1, 0], [0, 0], [1, 0], [1, 1], [0, 1]], bool)
  got = jax.jit(fidelity.measure, static_argnums=3)(
    frames, free, predictable, prefix
  )
  expected = np.zeros((2, 10))
  for b in range(batch):
    for t in range(prefix, length):
      true = frames[t, b]
      errors = [np.square(frames[s, b] - true).mean() for s in range(prefix)]
      row = [1]
      for other in (free[t, b], frames[2, b], frames[np.argmin(errors), b]):
        error = np.square(other - true).mean()
        psnr = 10 * np.log10(1 / error) if error else 100
        row += [error, psnr, _similarity(other, true)]
      expected[1] += row
      if predictable[t, b]:
        expected[0] += row
  assert got.predictable.frames == 4 and got.every.frames == 6
  for own, row in zip(got, expected, strict=True):
    np.testing.assert_allclose(jax.tree.leaves(own), row, rtol=1e-4)


def test_means_of_replicas():
  def closeness(asked, *sums):
    asked = np.array([asked, asked, 0.0])
    scores = [fidelity.Scores(*(x * asked for x in each)) for each in sums]
    return fidelity.Closeness(asked, *scores)

  total = fidelity.Fidelity(
    closeness(4.0, (0.25, 1.0, 0.5), (9.0, 9.0, 9.0), (0.75, 2.0, 0.25)),
    closeness(6.0, (0.1, 2.0, 0.3), (0.4, 5.0, 0.6), (0.7, 8.0, 0.9)),
  )
  got = fidelity.means(total, np.array([False, True, False]))
  first = {
    'dream_error': 0.25,
    'dream_similarity': 0.5,
    'copy_error': 0.75,
    'copy_similarity': 0.25,
    'dream_error_all': 0.1,
    'dream_psnr_all': 2.0,
    'dream_similarity_all': 0.3,
    'last_error_all': 0.4,
    'last_psnr_all': 5.0,
    'last_similarity_all': 0.6,
    'copy_error_all': 0.7,
    'copy_psnr_all': 8.0,
    'copy_similarity_all': 0.9,
  }
  assert got.keys() == first.keys()
  for name, value in first.items():
    np.testing.assert_allclose(got[name], [value, np.nan, np.nan])


def test_zeros_add_nothing():
  frames = _frames((4, 1, 8, 8, 3))
  one = fidelity.measure(frames, frames, jnp.zeros((4, 1), bool), 2)
  both = jax.tree.map(jnp.add, fidelity.zeros(), one)
  jax.tree.map(np.testing.assert_array_equal, both, one)
  assert one.predictable == fidelity.zeros().predictable
  dream = one.every.dream
  assert (dream.error, float(dream.psnr)) == (0, pytest.approx(200))
  assert float(dream.similarity) == pytest.approx(2, abs=1e-5)
