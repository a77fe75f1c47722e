"""Recall tasks: the first frames are asked for in the order they came in."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources.dataset import Images

# Answers of the parity task: even and odd.
_PARITIES = 2


@dataclasses.dataclass(frozen=True)
class PerfectRecall(episode.Intervals):
  """l random digits, then the first k of them again.

  The time of a frame says nothing about it; a perfect memory predicts it all.
  Gemici et al. 2017, section 5.1 and appendix D.
  """

  name: ClassVar[str] = 'perfect_recall'

  def sample(
    self, key: jax.Array, images: Images | episode.Sampler
  ) -> episode.Episode:
    """Draws one episode of l + k frames; its last k are predictable."""
    frames, _ = episode.draw_images(key, images, self.pre_recall, self.binarize)
    return episode.recall_episode(frames, jnp.arange(self.recall))


@dataclasses.dataclass(frozen=True)
class OneShotRecall(PerfectRecall):
  """l random characters, then the first k of them again.

  The same as perfect recall but for its images: validation and test show
  characters that no training episode shows. Gemici et al. 2017, section 5.3 and
  appendix D.
  """

  name: ClassVar[str] = 'one_shot_recall'


@dataclasses.dataclass(frozen=True)
class ParityRecall(episode.Intervals):
  """l random digits, then the parities of the first k of them.

  The answer to an even digit is a random image of a 0, to an odd digit a random
  image of a 1: its class is predictable, its strokes are not. If all ten digits
  are equally frequent, knowing the time of an answer gains ln 5 nats, since two
  classes are left, and the parity gains ln 2 more. Gemici et al. 2017, section
  5.2 and appendix D.
  """

  name: ClassVar[str] = 'parity_recall'
  asks: ClassVar[episode.Asks] = 'class'
  classes: ClassVar[tuple[int, ...]] = tuple(range(_PARITIES))

  def sample(self, key: jax.Array, images: Images) -> episode.Episode:
    """Draws one episode of l + k frames; its last k are predictable.

    Answers repeat no frame (`source` is -1); `label` holds their classes. They
    are NaN if `images` has no image of the class.
    """
    digit_key, answer_key = jax.random.split(key)
    digits, labels = episode.draw_images(
      digit_key, images, self.pre_recall, self.binarize
    )
    parity = labels[: self.recall].astype(jnp.int32) % _PARITIES
    answers = episode.draw_of_classes(
      answer_key, images, parity, _PARITIES, self.binarize
    )
    unasked = jnp.full((self.pre_recall,), -1, jnp.int32)
    label = jnp.concatenate([unasked, parity])
    frames = jnp.concatenate([digits, answers])
    return episode.make_episode(frames, label >= 0, label=label)
