"""Recall tasks: what was shown first comes back in the same order."""

import dataclasses

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.images import Images


@dataclasses.dataclass(frozen=True)
class PerfectRecall:
  """l random digits, then the first k of them again.

  Gemici et al. 2017, section 5.1 and appendix D.

  Attributes:
    pre_recall: l, frames before the recall interval.
    recall: k, frames of the recall interval, 1 <= k <= l.
    binarize: sample pixels from their grey values.
  """

  pre_recall: int
  recall: int
  binarize: bool = False

  def __post_init__(self) -> None:
    """Raises `ValueError` unless 1 <= k <= l."""
    episode.require_intervals('perfect_recall', self.pre_recall, self.recall)

  @property
  def length(self) -> int:
    """T = l + k."""
    return self.pre_recall + self.recall

  @property
  def prefix(self) -> int:
    """l."""
    return self.pre_recall

  @property
  def condition_size(self) -> int:
    """0: nothing is conditioned on."""
    return 0

  def sample(self, key: jax.Array, images: Images) -> episode.Episode:
    """Draws one episode of l + k frames; its last k are predictable."""
    frames, _ = episode.draw_images(key, images, self.pre_recall, self.binarize)
    return episode.recall_episode(frames, jnp.arange(self.recall))
