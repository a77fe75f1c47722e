"""Images that carry their number, by which tests recognise them in frames."""

from typing import NamedTuple

import jax
import numpy as np

from gtmm_jax.tasks.sources.dataset import Images

_BITS = 8


def make(
  count: int = 40,
  labels: np.ndarray | list[int] | None = None,
  first: int = 0,
  seed: int = 0,
) -> Images:
  """Draws grey images 4 x 5, of random classes unless `labels` are given.

  Their first eight pixels are black or white: the number in binary, which
  sampling pixels from grey values does not change.
  """
  rng = np.random.default_rng(seed)
  pixels = rng.integers(0, 256, (count, 20), dtype=np.uint8)
  number = np.arange(first, first + count)
  pixels[:, :_BITS] = 255 * (number[:, None] >> np.arange(_BITS) & 1)
  if labels is None:
    labels = rng.integers(0, 10, count)
  return Images(pixels.reshape(count, 4, 5, 1), np.asarray(labels, np.int32))


def numbers(frames: jax.Array) -> np.ndarray:
  """Reads the numbers, int [...], of the images in frames [..., 4, 5, 1]."""
  frames = np.asarray(frames)
  bits = frames.reshape(*frames.shape[:-3], -1)[..., :_BITS] > 0.5
  return bits @ (1 << np.arange(_BITS))


class InOrder(NamedTuple):
  """A source that draws its images in their order, always from the first."""

  pixels: np.ndarray
  labels: np.ndarray

  def draw(self, key, count):
    del key
    return self.pixels[:count], self.labels[:count]


def assert_even(counts: np.ndarray) -> None:
  """Fails if counts are so uneven as chance makes them once in a million."""
  counts = np.asarray(counts, np.float64)
  # Pearson's statistic, and Wilson and Hilferty's approximation of its tail.
  statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
  spread = 2 / (9 * (counts.size - 1))
  limit = (counts.size - 1) * (1 - spread + 4.75 * np.sqrt(spread)) ** 3
  assert statistic < limit, f'{counts}: {statistic:.1f} of at most {limit:.1f}'


def assert_frequency(count: int, total: int, probability: float) -> None:
  """Fails if a frequency is five standard errors from its probability."""
  error = np.sqrt(max(probability * (1 - probability), 0) / total)
  off = abs(count / total - probability)
  assert off <= 5 * error + 1e-12, (
    f'{count} of {total}, expected {probability:.4f} +- {error:.4f}'
  )
