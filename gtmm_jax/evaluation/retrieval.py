"""Retrieval accuracy: does a generated frame show what memory should hold?

A generated frame is right where the nearest of its episode's earlier frames
shows the image that the true frame repeats; where a class is asked for, where a
classifier finds that class. Frames of an episode are generated twice: one step
ahead, from the prior given the true past, and free-running, from a prefix and
whatever was generated after it. In the second, what was first seen in the
prefix has to look as it did there; what was first generated, as it did then.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Tally(NamedTuple):
  """Counts of frames, or sums over them, float32; add tallies leaf by leaf.

  Attributes:
    asked: predictable frames.
    ahead: those of them that were right one step ahead.
    asked_free: predictable frames after the prefix.
    free: those of them that were right free-running.
    chance: probability that any frame it could be, drawn alike, would be
      right, summed over `asked`; 0 where a class is asked for.
    chance_free: likewise, summed over `asked_free`.
  """

  asked: Array
  ahead: Array
  asked_free: Array
  free: Array
  chance: Array
  chance_free: Array


def zeros() -> Tally:
  """Counts of nothing."""
  return Tally(*(jnp.float32(0) for _ in Tally._fields))


def origins(source: Array) -> Array:
  """The first frame that shows the same image, int32 [T].

  Args:
    source: int32 [T], the earlier frame that each frame repeats, -1 where it is
      new.
  """
  steps = jnp.arange(source.shape[0], dtype=jnp.int32)
  first = jnp.where(source < 0, steps, source)
  # Each round doubles how many repeats are followed.
  for _ in range(source.shape[0].bit_length()):
    first = first[first]
  return first


def same_image(source: Array, prefix: int) -> tuple[Array, Array]:
  """Which earlier frames show what frame t shows, and which another image.

  Args:
    source: as in `origins`.
    prefix: true frames; of those after it that repeat one of them, which are
      themselves in question, none counts.

  Returns:
    Two bool [T, T], for frame t (row) and an earlier frame (column); false for
    t itself and for later ones.
  """
  origin, steps = origins(source), jnp.arange(source.shape[0])
  is_sure = (steps < prefix) | (origin >= prefix)
  earlier = (steps[None, :] < steps[:, None]) & is_sure[None, :]
  same = origin[None, :] == origin[:, None]
  return earlier & same, earlier & ~same


def finds_source(
  generated: Array, seen: Array, source: Array, prefix: int
) -> Array:
  """Whether the nearest earlier frame shows the right image, bool [T].

  Nearest in Euclidean distance over pixels; of frames equally near, one that is
  right counts.

  Args:
    generated: [T, ...], one frame for each step.
    seen: [T, ...], the episode's frames, true or generated.
    source: int32 [T], as in `origins`.
    prefix: how many frames of `seen` are true, as in `same_image`.

  Returns:
    bool [T]; false where frame t repeats nothing.
  """
  generated, seen = (x.reshape(x.shape[0], -1) for x in (generated, seen))
  # |g - s|^2 but for |g|^2, which all frames share.
  products = jnp.matmul(generated, seen.T, precision='highest')
  distances = jnp.square(seen).sum(1)[None, :] - 2 * products
  right, wrong = (
    jnp.where(where, distances, jnp.inf).min(1)
    for where in same_image(source, prefix)
  )
  return (right <= wrong) & (source >= 0)


def tally(
  episode: Any,
  ahead: Array,
  free: Array,
  prefix: int,
  classify: Callable[[Array], Array] | None = None,
) -> Tally:
  """Counts over a batch of episodes.

  Args:
    episode: `frames [T, B, ...]`, and `predictable`, `source` and `label`, each
      [T, B].
    ahead: generated one step ahead, [T, B, ...].
    free: the first `prefix` frames as they are, and what was generated from
      there on, [T, B, ...].
    prefix: frames that free-running generation was given.
    classify: from frames [..., H, W, C] to classes int32 [...]; None where no
      class is asked for.

  Returns:
    The counts.
  """
  length = episode.source.shape[0]
  if classify is None:
    is_right, chance = _judge(ahead, episode.frames, episode.source, length)
    is_right_free, chance_free = _judge(free, free, episode.source, prefix)
  else:
    is_right, is_right_free = (
      classify(frames) == episode.label for frames in (ahead, free)
    )
    chance = chance_free = jnp.zeros(episode.label.shape, jnp.float32)
  asked = episode.predictable & ((episode.source >= 0) | (episode.label >= 0))
  after = asked & (jnp.arange(length) >= prefix)[:, None]
  counted = (
    asked,
    asked & is_right,
    after,
    after & is_right_free,
    jnp.where(asked, chance, 0.0),
    jnp.where(after, chance_free, 0.0),
  )
  return Tally(*(each.sum(dtype=jnp.float32) for each in counted))


def _judge(
  generated: Array, seen: Array, source: Array, prefix: int
) -> tuple[Array, Array]:
  """Whether each frame finds its source, and by chance would; [T, B] both."""

  def judge(generated, seen, source):
    same, other = (each.sum(1) for each in same_image(source, prefix))
    is_right = finds_source(generated, seen, source, prefix)
    others = jnp.maximum(same + other, 1)
    return is_right, same.astype(jnp.float32) / others.astype(jnp.float32)

  return jax.vmap(judge, in_axes=1, out_axes=1)(generated, seen, source)


def accuracies(total: Tally, has_failed: np.ndarray) -> dict[str, np.ndarray]:
  """Accuracies of R replicas, under the names that the records use.

  Args:
    total: of every replica, leaves [R], on the host.
    has_failed: bool [R]; a replica that has has no accuracy.

  Returns:
    `retrieval_ahead [R]` and `retrieval_free [R]`, in [0, 1], and the chance of
    each, `retrieval_ahead_chance [R]` and `retrieval_free_chance [R]`. Not a
    number where nothing was asked; chance neither where a class was.
  """

  def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    is_missing = has_failed | (whole == 0)
    return part / np.where(is_missing, np.nan, whole)

  def chance(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return share(part, np.where(part > 0, whole, 0))

  return {
    'retrieval_ahead': share(total.ahead, total.asked),
    'retrieval_ahead_chance': chance(total.chance, total.asked),
    'retrieval_free': share(total.free, total.asked_free),
    'retrieval_free_chance': chance(total.chance_free, total.asked_free),
  }
