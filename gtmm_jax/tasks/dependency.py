"""Tasks in which what a frame shows decides what comes next."""

import dataclasses

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.images import Images

# Labels address the first ten frames.
_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class DynamicDependency:
  """l random digits, then k that an index-and-recall game picks.

  The value of each digit, from the last of the pre-recall interval on, is the
  position (from 0) of the frame that comes next. A recalled frame carries its
  source's label. Gemici et al. 2017, section 5.4 and appendix D.

  Attributes:
    pre_recall: l >= 10, frames before the recall interval, so that every label
      is a position.
    recall: k, frames of the recall interval, 1 <= k <= l.
    binarize: sample pixels from their grey values.
  """

  pre_recall: int
  recall: int
  binarize: bool = False

  def __post_init__(self) -> None:
    """Raises `ValueError` unless l >= 10 and 1 <= k <= l."""
    episode.require_intervals(
      'dynamic_dependency', self.pre_recall, self.recall
    )
    if self.pre_recall < _CLASSES:
      raise ValueError(
        f'dynamic_dependency: pre_recall is {self.pre_recall}; it must be at '
        f'least {_CLASSES}, since each of the labels 0 to 9 is a position in '
        f'the pre-recall interval.'
      )

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
    frames, labels = episode.draw_images(
      key, images, self.pre_recall, self.binarize
    )

    def follow(label, _):
      return labels[label], label

    _, recalled = jax.lax.scan(follow, labels[-1], None, length=self.recall)
    return episode.recall_episode(frames, jnp.asarray(recalled))
