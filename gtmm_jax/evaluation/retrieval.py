"""Retrieval accuracy: how often a generated frame shows the right image.

A generated frame is right if the nearest of its episode's earlier frames shows
the image that the true frame repeats; if a class is asked for, if a classifier
finds that class. Frames of an episode are generated twice: one step ahead, from
the prior given the true past, and free-running, from a prefix and the frames
generated after it. Free-running, an image that first appears in the prefix is
compared with that true frame; one that first appears later, with the frame that
was generated then.
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
    frames: predictable frames.
    ahead: predictable frames that were right one step ahead.
    frames_free: predictable frames after the prefix.
    free: predictable frames after the prefix that were right free-running.
    chance: probability that a uniformly drawn earlier frame is right, summed
      over `frames`; 0 where a class is asked for.
    chance_free: the same, summed over `frames_free`.
  """

  frames: Array
  ahead: Array
  frames_free: Array
  free: Array
  chance: Array
  chance_free: Array


class Verdicts(NamedTuple):
  """Verdicts on generated frames, [T, B].

  Attributes:
    ahead: int8, 1 if the frame is right one step ahead, 0 if it is wrong, -1
      where no image is asked for.
    free: the same, free-running; nothing is asked in the prefix.
    chance: probability that a uniformly drawn earlier frame is right, float32;
      0 where nothing or a class is asked for.
    chance_free: the same, for `free`.
  """

  ahead: Array
  free: Array
  chance: Array
  chance_free: Array


def none_asked(shape: tuple[int, int]) -> Verdicts:
  """Returns verdicts on T x B frames of which no image is asked for."""
  return Verdicts(
    jnp.full(shape, -1, jnp.int8),
    jnp.full(shape, -1, jnp.int8),
    jnp.zeros(shape, jnp.float32),
    jnp.zeros(shape, jnp.float32),
  )


def zeros() -> Tally:
  """Returns counts of no frame."""
  return Tally(*(jnp.float32(0) for _ in Tally._fields))


def origins(source: Array) -> Array:
  """Returns the first frame that shows the image of frame t, int32 [T].

  Args:
    source: int32 [T], the earlier frame that each frame repeats, -1 where it is
      new.
  """
  steps = jnp.arange(source.shape[0], dtype=jnp.int32)
  first = jnp.where(source < 0, steps, source)
  # Each round doubles the number of repeats that are followed.
  for _ in range(source.shape[0].bit_length()):
    first = first[first]
  return first


def same_image(source: Array, prefix: int) -> tuple[Array, Array]:
  """Finds the earlier frames that show the same image, and another image.

  Args:
    source: as in `origins`.
    prefix: number of true frames; later repeats of a true frame count as
      neither, because generation may have got them wrong.

  Returns:
    Two bool [T, T], for frame t (row) and an earlier frame (column); false for
    t itself and for later frames.
  """
  origin, steps = origins(source), jnp.arange(len(source), dtype=jnp.int32)
  is_sure = (steps < prefix) | (origin >= prefix)
  earlier = (steps[None, :] < steps[:, None]) & is_sure[None, :]
  same = origin[None, :] == origin[:, None]
  return earlier & same, earlier & ~same


def finds_source(
  generated: Array, seen: Array, source: Array, prefix: int
) -> Array:
  """Tells whether the nearest earlier frame shows the right image.

  Nearest means the least Euclidean distance over pixels. Of equally near frames
  a right one wins.

  Args:
    generated: [T, ...], one frame for each step.
    seen: [T, ...], the episode's frames, true or generated.
    source: int32 [T], as in `origins`.
    prefix: number of true frames in `seen`, as in `same_image`.

  Returns:
    bool [T]; false where frame t repeats nothing.
  """
  generated, seen = (x.reshape(x.shape[0], -1) for x in (generated, seen))
  # |g - s|^2 without |g|^2, which is the same for all frames.
  products = jnp.matmul(generated, seen.T, precision='highest')
  distances = jnp.square(seen).sum(1)[None, :] - 2 * products
  right, wrong = (
    jnp.where(where, distances, jnp.inf).min(1)
    for where in same_image(source, prefix)
  )
  return (right <= wrong) & (source >= 0)


def judge(
  episode: Any,
  ahead: Array,
  free: Array,
  prefix: int | Array,
  classify: Callable[[Array], Array] | None = None,
) -> Verdicts:
  """Judges every frame of a batch of episodes.

  Args:
    episode: `frames [T, B, ...]`, and `predictable`, `source` and `label`, each
      [T, B].
    ahead: generated one step ahead, [T, B, ...].
    free: the true prefix, and the frames generated after it, [T, B, ...].
    prefix: number of true frames that free-running generation was given; int32
      [B] where episodes differ in it.
    classify: function from frames [..., H, W, C] to classes int32 [...]; None
      where no class is asked for.

  Returns:
    The verdicts, [T, B].
  """
  length, count = episode.source.shape
  prefixes = jnp.broadcast_to(jnp.asarray(prefix, jnp.int32), (count,))
  if classify is None:
    source, lengths = episode.source, jnp.full(count, length, jnp.int32)
    is_right, chance = _find(ahead, episode.frames, source, lengths)
    is_right_free, chance_free = _find(free, free, source, prefixes)
  else:
    is_right, is_right_free = (
      classify(frames) == episode.label for frames in (ahead, free)
    )
    chance = chance_free = jnp.zeros(episode.label.shape, jnp.float32)
  is_asked = episode.predictable & (
    (episode.source >= 0) | (episode.label >= 0)
  )
  after = is_asked & (
    jnp.arange(length, dtype=jnp.int32)[:, None] >= prefixes[None]
  )
  return Verdicts(
    _verdict(is_asked, is_right),
    _verdict(after, is_right_free),
    jnp.where(is_asked, chance, 0.0),
    jnp.where(after, chance_free, 0.0),
  )


def _verdict(is_asked: Array, is_right: Array) -> Array:
  """Returns 1 where right, 0 where wrong, -1 where not asked, int8."""
  return jnp.where(is_asked, is_right.astype(jnp.int8), jnp.int8(-1))


def tally(verdicts: Verdicts, mask: Array | None = None) -> Tally:
  """Counts the verdicts on a batch of episodes.

  Args:
    verdicts: on all frames, [T, B].
    mask: true for the frames that count, bool [T, B]; None if all do.
  """
  counted = (
    verdicts.ahead >= 0,
    verdicts.ahead == 1,
    verdicts.free >= 0,
    verdicts.free == 1,
    verdicts.chance,
    verdicts.chance_free,
  )
  return Tally(*(each.sum(dtype=jnp.float32, where=mask) for each in counted))


def _find(
  generated: Array, seen: Array, source: Array, prefix: Array
) -> tuple[Array, Array]:
  """Returns whether each frame finds its source, and chance's share, [T, B]."""

  def find(generated, seen, source, prefix):
    same, other = (each.sum(1) for each in same_image(source, prefix))
    is_right = finds_source(generated, seen, source, prefix)
    others = jnp.maximum(same + other, 1)
    return is_right, same.astype(jnp.float32) / others.astype(jnp.float32)

  return jax.vmap(find, (1, 1, 1, 0), 1)(generated, seen, source, prefix)


def accuracies(total: Tally, has_failed: np.ndarray) -> dict[str, np.ndarray]:
  """Returns accuracies of R replicas, by the names that records use.

  Args:
    total: of every replica, leaves [R], on the host.
    has_failed: whether a replica failed, bool [R]; it has no accuracy.

  Returns:
    `retrieval_ahead [R]` and `retrieval_free [R]`, in [0, 1], and the chance of
    each, `retrieval_ahead_chance [R]` and `retrieval_free_chance [R]`. All are
    NaN where no frame was asked for, and chance where a class was.
  """

  def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    is_missing = has_failed | (whole == 0)
    return part / np.where(is_missing, np.nan, whole)

  def chance(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return share(part, np.where(part > 0, whole, 0))

  return {
    'retrieval_ahead': share(total.ahead, total.frames),
    'retrieval_ahead_chance': chance(total.chance, total.frames),
    'retrieval_free': share(total.free, total.frames_free),
    'retrieval_free_chance': chance(total.chance_free, total.frames_free),
  }
