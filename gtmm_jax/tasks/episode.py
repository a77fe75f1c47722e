"""Episodes, and the contract of a task.

A task is a frozen dataclass of the paper's parameters with

  length            T, frames of an episode
  prefix            frames that a generated continuation is given
  condition_size    A, width of the condition; 0 if there is none
  asks              what a predictable frame must be: 'frame', an earlier frame
                    again; 'class', any image of a class; 'view', similar to
                    what was seen, but no repeat
  classes           the classes that are drawn, if `asks` is 'class'
  channels          of frames, where they are not grey
  steps             updates, where no preset has the task
  parts             of a mixture, its tasks by name, in the order in which
                    `Episode.part` counts them
  sample(key, images) -> Episode    one episode; pure, runs inside `jax.jit`

Its constructor raises `ValueError` for wrong parameters.
`jax.vmap` over keys makes batches. Images are an argument: `Images`, stored on
the device as uint8, or a `Sampler`, which makes them there.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.sources.dataset import Images

Array = jax.Array
Asks = Literal['frame', 'class', 'view']


class Episode(NamedTuple):
  """One episode; under `vmap` every field has a leading batch axis.

  Attributes:
    frames: [T, H, W, C] in [0, 1].
    condition: the paper's c_t, [T, A]; A = 0 if there is none.
    source: int32 [T], the earlier step (from 0) that this frame repeats; -1 if
      it repeats none.
    predictable: bool [T], true if a perfect memory could predict the frame or
      its class.
    label: int32 [T], the class of the frame, if any image of that class would
      be right; else -1.
    mask: bool [T], false for the padding after an episode that is shorter than
      T, which counts nowhere; None if there is no padding.
    part: int32 [T], the same number at every step: which of the parts of a
      mixture the episode is of, from 0; None where the task is no mixture.
    in_prefix: bool [T], true for the first frames, which a generated
      continuation is given; None where all episodes have the task's prefix.
  """

  frames: Array
  condition: Array
  source: Array
  predictable: Array
  label: Array
  mask: Array | None = None
  part: Array | None = None
  in_prefix: Array | None = None


class Sampler(Protocol):
  """Images that are made when they are drawn; a pytree."""

  def draw(self, key: Array, count: int) -> tuple[Array, Array]:
    """Draws `count` images independently and uniformly, inside `jax.jit`.

    Returns:
      Frames [count, H, W, C], uint8 or in [0, 1], and labels int32 [count].
    """


def make_episode(
  frames: Array,
  predictable: Array,
  condition: Array | None = None,
  source: Array | None = None,
  label: Array | None = None,
) -> Episode:
  """Returns an episode whose fields are empty where they are None.

  Args:
    frames: [T, H, W, C].
    predictable: bool [T].
    condition: [T, A]; None stands for A = 0.
    source: int32 [T]; None stands for -1 everywhere.
    label: int32 [T]; None stands for -1 everywhere.
  """
  length = len(frames)
  none = jnp.full((length,), -1, jnp.int32)
  return Episode(
    frames=frames,
    condition=(
      jnp.zeros((length, 0), jnp.float32) if condition is None else condition
    ),
    source=none if source is None else source,
    predictable=predictable,
    label=none if label is None else label,
  )


def draw_images(
  key: Array, images: Images | Sampler, count: int, binarize: bool
) -> tuple[Array, Array]:
  """Draws images independently and uniformly, the pseudocode's generator().

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C] and labels [N], or a sampler.
    count: number of images.
    binarize: sample each pixel from a Bernoulli whose mean is its grey value.

  Returns:
    Frames [count, H, W, C] in [0, 1] and labels [count].
  """
  index_key, pixel_key = jax.random.split(key)
  if hasattr(images, 'draw'):
    frames, labels = images.draw(index_key, count)
  else:
    total = images.pixels.shape[0]
    index = jax.random.randint(index_key, (count,), 0, total, jnp.int32)
    frames = jnp.asarray(images.pixels)[index]
    labels = jnp.asarray(images.labels)[index]
  return grey_values(pixel_key, frames, binarize), labels


def draw_of_classes(
  key: Array, images: Images, classes: Array, count: int, binarize: bool
) -> Array:
  """Draws one image of each given class, the pseudocode's generator(label).

  The images of a class are equally likely. Each call counts the classes of all
  N images, under `vmap` once for the whole batch.

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C], labels [N].
    classes: int32 [K], from 0 to `count` - 1.
    count: number of classes; the work grows with it.
    binarize: as in `draw_images`.

  Returns:
    Frames [K, H, W, C] in [0, 1], NaN if there is no image of the class.
  """
  index_key, pixel_key = jax.random.split(key)
  labels = jnp.asarray(images.labels)
  numbers = jnp.arange(count, dtype=labels.dtype)
  is_class = labels[None, :] == numbers[:, None]
  # One more than the rank of an image within its class, [count, N].
  ranks = jnp.cumsum(is_class, axis=1, dtype=jnp.int32)
  available = ranks[:, -1][classes]
  rank = jax.random.randint(index_key, classes.shape, 0, available, jnp.int32)
  # One search per class: one per draw would copy `ranks`.
  indices = jax.vmap(lambda row: jnp.searchsorted(row, rank, side='right'))(
    ranks
  )
  index = jnp.take_along_axis(indices, classes[None], axis=0)[0]
  frames = grey_values(pixel_key, jnp.asarray(images.pixels)[index], binarize)
  exists = (available > 0).reshape(-1, *[1] * (frames.ndim - 1))
  return jnp.where(exists, frames, jnp.nan)


def lengths(episode: Episode) -> np.ndarray:
  """Returns the frames of episodes without padding, int [...].

  Args:
    episode: arrays [T, ...], not traced.
  """
  if episode.mask is None:
    length, *axes = episode.predictable.shape
    return np.full(axes, length)
  return np.asarray(episode.mask).sum(axis=0)


def grey_values(key: Array, frames: Array, binarize: bool) -> Array:
  """Returns images as float32 in [0, 1], binarized by sampling if asked for.

  Args:
    key: random key of the samples.
    frames: any shape, uint8 or in [0, 1].
    binarize: sample each pixel from a Bernoulli whose mean is its grey value.
  """
  if jnp.issubdtype(frames.dtype, jnp.integer):
    frames = frames.astype(jnp.float32) / 255.0
  frames = frames.astype(jnp.float32)
  if binarize:
    frames = jax.random.bernoulli(key, frames).astype(jnp.float32)
  return frames


def recall_episode(frames: Array, recalled: Array) -> Episode:
  """Returns an episode that shows `frames`, then repeats those at `recalled`.

  Args:
    frames: [L, H, W, C], the pre-recall interval.
    recalled: int32 [K], steps (from 0) of the frames that are repeated.

  Returns:
    An episode of L + K frames, whose last K are predictable.
  """
  length = frames.shape[0]
  recalled = recalled.astype(jnp.int32)
  order = jnp.concatenate([jnp.arange(length, dtype=jnp.int32), recalled])
  new = jnp.full((length,), -1, jnp.int32)
  source = jnp.concatenate([new, recalled])
  return make_episode(frames[order], source >= 0, source=source)


@dataclasses.dataclass(frozen=True)
class Intervals:
  """The sizes of a recall task: l frames to remember, then k answers.

  Attributes:
    pre_recall: l, frames before the recall interval.
    recall: k, frames of the recall interval, 1 <= k <= l.
    binarize: sample pixels from Bernoullis with their grey values as means.
    name: of the task, in its error messages.
    asks: see the contract above.
  """

  pre_recall: int
  recall: int
  binarize: bool = False
  name: ClassVar[str]
  asks: ClassVar[Asks] = 'frame'

  def __post_init__(self) -> None:
    """Raises `ValueError` unless 1 <= k <= l."""
    if self.recall < 1:
      raise ValueError(
        f'{self.name}: recall is {self.recall}; it must be at least 1.'
      )
    if self.recall > self.pre_recall:
      raise ValueError(
        f'{self.name}: recall is {self.recall} and pre_recall '
        f'{self.pre_recall}; recall must not be larger, since only frames '
        f'shown before can come back.'
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
    """0: there is no condition."""
    return 0
