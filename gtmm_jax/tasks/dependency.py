"""Tasks in which the content of a frame decides which frame comes next."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources.dataset import Images

# Labels address the first ten frames.
_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class DynamicDependency(episode.Intervals):
  """l random digits, then k frames, each picked by the digit before it.

  From the last digit of the pre-recall interval on, each digit is the position
  (from 0) of the frame that comes next. A recalled frame has the label of its
  source. The time of a frame says only that it is one of the first ten. A digit
  may point to itself, and then comes again at once. Gemici et al. 2017, section
  5.4 and appendix D.

  l >= 10, so that every label is a position.
  """

  name: ClassVar[str] = 'dynamic_dependency'

  def __post_init__(self) -> None:
    """Raises `ValueError` unless l >= 10 and 1 <= k <= l."""
    super().__post_init__()
    if self.pre_recall < _CLASSES:
      raise ValueError(
        f'dynamic_dependency: pre_recall is {self.pre_recall}; it must be at '
        f'least {_CLASSES}, since each of the labels 0 to 9 is a position in '
        f'the pre-recall interval.'
      )

  def sample(self, key: jax.Array, images: Images) -> episode.Episode:
    """Draws one episode of l + k frames; its last k are predictable.

    Labels of `images` are 0 to 9.
    """
    frames, labels = episode.draw_images(
      key, images, self.pre_recall, self.binarize
    )

    def follow(label, _):
      return labels[label], label

    _, recalled = jax.lax.scan(follow, labels[-1], None, length=self.recall)
    return episode.recall_episode(frames, jnp.asarray(recalled))


@dataclasses.dataclass(frozen=True)
class SimilarityCuedRecall(episode.Intervals):
  """l random digits, then k successive ones of them again.

  The start of the repeated frames is uniform over the l - k + 1 places at which
  k frames fit. The first of them is the cue: it repeats a frame, but nothing
  says which. The frames after it are those that followed it before; their time
  says nothing about them. Gemici et al. 2017, section 5.5 and appendix D.

  k includes the cue, 2 <= k <= l.
  """

  name: ClassVar[str] = 'similarity_cued_recall'

  def __post_init__(self) -> None:
    """Raises `ValueError` unless 2 <= k <= l."""
    if self.recall < 2:
      raise ValueError(
        f'similarity_cued_recall: recall is {self.recall}; it must be at least '
        f'2, since its first frame is the cue, which nothing predicts.'
      )
    super().__post_init__()

  @property
  def prefix(self) -> int:
    """l + 1: the cue belongs to the prefix."""
    return self.pre_recall + 1

  def sample(
    self, key: jax.Array, images: Images | episode.Sampler
  ) -> episode.Episode:
    """Draws one episode of l + k frames; its last k - 1 are predictable.

    The cue counts as unpredictable for k = l, too, though it then has only one
    possible place.
    """
    image_key, start_key = jax.random.split(key)
    frames, _ = episode.draw_images(
      image_key, images, self.pre_recall, self.binarize
    )
    places = self.pre_recall - self.recall + 1
    start = jax.random.randint(start_key, (), 0, places, jnp.int32)
    recalled = start + jnp.arange(self.recall, dtype=jnp.int32)
    after_cue = jnp.arange(self.length) >= self.prefix
    return episode.recall_episode(frames, recalled)._replace(
      predictable=after_cue
    )
