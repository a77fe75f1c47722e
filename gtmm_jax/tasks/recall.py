"""Recall tasks: what was shown first is asked for in the same order."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources.digit_images import Images

# Answers of the parity task: even and odd.
_PARITIES = 2


@dataclasses.dataclass(frozen=True)
class PerfectRecall(episode.Intervals):
  """l random digits, then the first k of them again.

  To know the time of a frame tells nothing of it; a perfect memory tells all.
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

  Perfect recall in all but its images: held-out episodes are of characters that
  no training episode shows. Gemici et al. 2017, section 5.3 and appendix D.
  """

  name: ClassVar[str] = 'one_shot_recall'


@dataclasses.dataclass(frozen=True)
class ParityRecall(episode.Intervals):
  """l random digits, then the parities of the first k of them.

  The answer to an even digit is a random image of a 0, to an odd one of a 1,
  drawn afresh: its class is predictable, its strokes are not. With all ten
  digits equally frequent, to know the time of an answer is worth ln 5 nats, two
  classes being left, and the parity ln 2 more. Gemici et al. 2017, section 5.2
  and appendix D.
  """

  name: ClassVar[str] = 'parity_recall'
  asks: ClassVar[episode.Asks] = 'class'
  classes: ClassVar[tuple[int, ...]] = tuple(range(_PARITIES))

  def sample(self, key: jax.Array, images: Images) -> episode.Episode:
    """Draws one episode of l + k frames; its last k are predictable.

    Answers repeat no frame (`source` is -1); `label` has their classes. They
    are NaN where `images` has none of the class.
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
    return episode.Episode(
      frames=jnp.concatenate([digits, answers]),
      condition=jnp.zeros((self.length, 0), jnp.float32),
      source=jnp.full((self.length,), -1, jnp.int32),
      predictable=label >= 0,
      label=label,
    )
