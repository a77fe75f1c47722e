"""Distances of generated frames from true ones, where no frame is a repeat.

Views of a second turn lie between those of the first, so that retrieval does
not apply. Generated frames are compared with the true frames; so are two simple
predictions, the last frame of the prefix and its nearest frame.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# Wang et al. 2004: a Gaussian window, cut at 3.5 standard deviations, and the
# constants for pixels in [0, 1].
_WIDTH, _REACH = 1.5, 5
_MEAN_FLOOR, _VARIANCE_FLOOR = 0.01**2, 0.03**2

# Keeps the signal-to-noise ratio of equal frames finite.
_LEAST_ERROR = 1e-10


class Scores(NamedTuple):
  """Distances between frames, each or summed, float32.

  Attributes:
    error: squared error, mean over pixels.
    psnr: peak signal-to-noise ratio in dB, 10 log10(1 / error), at most 100.
    similarity: structural similarity.
  """

  error: Array
  psnr: Array
  similarity: Array


class Closeness(NamedTuple):
  """Sums over frames that were generated, float32; add them leaf by leaf.

  Attributes:
    frames: number of frames.
    dream: of the generated frames.
    last: of the last frame of the prefix, repeated.
    copy: of the frame of the prefix that is nearest in squared error.
  """

  frames: Array
  dream: Scores
  last: Scores
  copy: Scores


class Fidelity(NamedTuple):
  """Sums over frames after the prefix; add them leaf by leaf.

  Attributes:
    predictable: over the predictable frames.
    every: over all frames.
  """

  predictable: Closeness
  every: Closeness


def zeros() -> Fidelity:
  """Returns sums over no frame."""
  scores = Scores(*(jnp.float32(0) for _ in Scores._fields))
  closeness = Closeness(jnp.float32(0), scores, scores, scores)
  return Fidelity(closeness, closeness)


def squared_error(one: Array, other: Array) -> Array:
  """Returns the mean over pixels and channels of [..., H, W, C], [...]."""
  return jnp.square(one - other).mean((-3, -2, -1))


def structural_similarity(one: Array, other: Array) -> Array:
  """Returns the structural similarity, mean over windows and channels.

  Z. Wang et al., "Image quality assessment: from error visibility to structural
  similarity", IEEE Transactions on Image Processing 13 (4), 2004: a Gaussian
  window of standard deviation 1.5 on 11 x 11 pixels, inside the frame. Smaller
  frames take the largest odd window that fits.

  Args:
    one: frames in [0, 1], [..., H, W, C].
    other: frames of the same shape.

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
  """Makes the function from frames to means under the window, inside them."""
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


def score(one: Array, other: Array) -> Scores:
  """Compares frames [..., H, W, C] in [0, 1]; scores [...]."""
  error = squared_error(one, other)
  psnr = -10 * jnp.log10(jnp.maximum(error, _LEAST_ERROR))
  return Scores(error, psnr, structural_similarity(one, other))


def measure(
  frames: Array, free: Array, predictable: Array, prefix: int
) -> Fidelity:
  """Sums scores over a batch of episodes.

  Args:
    frames: true frames, [T, B, H, W, C].
    free: the true prefix, and the frames generated after it, [T, B, H, W, C].
    predictable: bool [T, B].
    prefix: number of true frames that generation was given.

  Returns:
    The sums, over frames after the prefix.
  """
  seen, true = frames[:prefix], frames[prefix:]
  # The nearest frame is found with the true one: no copying rule does better.
  errors = jax.vmap(lambda frame: squared_error(true, frame[None]))(seen)
  nearest = jnp.argmin(errors, axis=0)
  copies = jax.vmap(lambda past, index: past[index], (1, 1), 1)(seen, nearest)
  repeated = jnp.broadcast_to(seen[-1:], true.shape)
  scores = [score(true, each) for each in (free[prefix:], repeated, copies)]

  def total(is_counted: Array) -> Closeness:
    counts = is_counted.astype(frames.dtype)
    return jax.tree.map(
      lambda value: (value * counts).sum(),
      Closeness(jnp.ones_like(counts), *scores),
    )

  after = predictable[prefix:]
  return Fidelity(total(after), total(jnp.ones_like(after)))


def means(total: Fidelity, has_failed: np.ndarray) -> dict[str, np.ndarray]:
  """Returns means over frames of R replicas, by the names that records use.

  Args:
    total: of every replica, leaves [R], on the host.
    has_failed: whether a replica failed, bool [R]; its means are NaN.

  Returns:
    `dream_error`, `dream_similarity`, `copy_error` and `copy_similarity`, over
    predictable frames after the prefix; and over all frames after it
    `dream_error_all`, `dream_psnr_all`, `dream_similarity_all`, and likewise
    `last_..._all` and `copy_..._all`. Each [R], NaN where there was no frame.
  """

  def mean(closeness: Closeness, source: str, name: str) -> np.ndarray:
    is_missing = has_failed | (closeness.frames == 0)
    count = np.where(is_missing, np.nan, closeness.frames)
    return getattr(getattr(closeness, source), name) / count

  predictable = {
    f'{source}_{name}': mean(total.predictable, source, name)
    for source in ('dream', 'copy')
    for name in ('error', 'similarity')
  }
  return predictable | {
    f'{source}_{name}_all': mean(total.every, source, name)
    for source in ('dream', 'last', 'copy')
    for name in Scores._fields
  }
