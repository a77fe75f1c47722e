"""How close generated frames come to true ones, where nothing is repeated.

Views of a second turn lie between those of the first: none of them is a repeat,
so what was generated is measured against what came, beside the best that a copy
of a frame already seen could do.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# Wang et al. 2004: a Gaussian window, cut at three and a half of its widths,
# and constants for a range of 1.
_WIDTH, _REACH = 1.5, 5
_MEAN_FLOOR, _VARIANCE_FLOOR = 0.01**2, 0.03**2


class Closeness(NamedTuple):
  """Sums over frames, float32; add them leaf by leaf.

  Attributes:
    asked: predictable frames after the prefix.
    error: squared error of generated frames, mean over pixels.
    similarity: structural similarity of generated frames.
    copy_error: squared error of the nearest frame of the prefix.
    copy_similarity: structural similarity of that frame.
  """

  asked: Array
  error: Array
  similarity: Array
  copy_error: Array
  copy_similarity: Array


def zeros() -> Closeness:
  """Sums over nothing."""
  return Closeness(*(jnp.float32(0) for _ in Closeness._fields))


def squared_error(one: Array, other: Array) -> Array:
  """Mean over pixels and channels, [...] of frames [..., H, W, C]."""
  return jnp.square(one - other).mean((-3, -2, -1))


def structural_similarity(one: Array, other: Array) -> Array:
  """Structural similarity, mean over windows and channels.

  Z. Wang et al., "Image quality assessment: from error visibility to structural
  similarity", IEEE Transactions on Image Processing 13 (4), 2004: a Gaussian
  window of standard deviation 1.5 on 11 x 11 pixels, wholly inside the frame.
  Smaller frames take the largest odd window that fits.

  Args:
    one: frames in [0, 1], [..., H, W, C].
    other: likewise.

  Returns:
    [...], from -1 to 1, 1 for equal frames.
  """
  blur = _blur(*one.shape[-3:-1])
  mean, other_mean = blur(one), blur(other)
  variance = blur(one * one) - mean * mean
  other_variance = blur(other * other) - other_mean * other_mean
  covariance = blur(one * other) - mean * other_mean
  means = 2 * mean * other_mean + _MEAN_FLOOR
  squares = mean * mean + other_mean * other_mean + _MEAN_FLOOR
  spread = variance + other_variance + _VARIANCE_FLOOR
  index = means * (2 * covariance + _VARIANCE_FLOOR) / (squares * spread)
  return index.mean((-3, -2, -1))


def _blur(height: int, width: int) -> Any:
  """Means under a window at every place where it fits in a frame."""
  reach = min(_REACH, (min(height, width) - 1) // 2)
  weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / _WIDTH) ** 2)
  weights /= weights.sum()

  def bands(size: int) -> np.ndarray:
    rows = np.zeros((size - 2 * reach, size), np.float32)
    for row in range(len(rows)):
      rows[row, row : row + len(weights)] = weights
    return rows

  down, across = bands(height), bands(width)

  def blur(frames: Array) -> Array:
    return jnp.einsum(
      'ih,...hwc,jw->...ijc', down, frames, across, precision='highest'
    )

  return blur


def measure(
  frames: Array, free: Array, predictable: Array, prefix: int
) -> Closeness:
  """Sums over a batch of episodes.

  Args:
    frames: the true ones, [T, B, H, W, C].
    free: the first `prefix` frames as they are, and what was generated from
      there on, likewise.
    predictable: bool [T, B].
    prefix: frames that generation was given.

  Returns:
    The sums, over predictable frames after the prefix.
  """
  seen, true = frames[:prefix], frames[prefix:]
  # The nearest in squared error: better than any rule that could be followed.
  errors = jax.vmap(lambda frame: squared_error(true, frame[None]))(seen)
  nearest = jnp.argmin(errors, axis=0)
  copies = jax.vmap(lambda own, index: own[index], (1, 1), 1)(seen, nearest)
  asked = predictable[prefix:].astype(frames.dtype)
  return Closeness(
    *(
      (value * asked).sum()
      for value in (
        jnp.ones_like(asked),
        squared_error(true, free[prefix:]),
        structural_similarity(true, free[prefix:]),
        squared_error(true, copies),
        structural_similarity(true, copies),
      )
    )
  )


def means(total: Closeness, has_failed: np.ndarray) -> dict[str, np.ndarray]:
  """Means over frames of R replicas, under the names that the records use.

  Args:
    total: of every replica, leaves [R], on the host.
    has_failed: bool [R]; a replica that has is not measured.

  Returns:
    `dream_error`, `dream_similarity`, `copy_error` and `copy_similarity`, each
    [R], not a number where nothing was asked.
  """
  asked = np.where(has_failed | (total.asked == 0), np.nan, total.asked)
  return {
    'dream_error': total.error / asked,
    'dream_similarity': total.similarity / asked,
    'copy_error': total.copy_error / asked,
    'copy_similarity': total.copy_similarity / asked,
  }
