"""Episodes, and the contract that every task keeps.

A task is a frozen dataclass of the paper's parameters with

  length            number of frames T of an episode
  prefix            frames that a generated continuation is given
  condition_size    A, width of the condition; 0 where there is none
  asks              what a predictable frame has to be: 'frame', an earlier one
                    again; 'class', any image of a class; 'view', something that
                    is like what was seen, though no repeat
  classes           of which images are drawn, where a class is asked for
  sample(key, images) -> Episode    one sequence; pure, runs inside `jax.jit`

and raises `ValueError` when it is made with parameters that make no sense.
`jax.vmap` makes batches. Images are an argument: `Images`, kept on the device
as uint8, or a `Sampler`, which makes them there.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from gtmm_jax.tasks.sources.digit_images import Images

Array = jax.Array
Asks = Literal['frame', 'class', 'view']


class Episode(NamedTuple):
  """One sequence; under `vmap` every field has a leading batch axis.

  Attributes:
    frames: [T, H, W, C] in [0, 1].
    condition: the paper's c_t, [T, A]; A = 0 where there is none.
    source: int32 [T], the earlier step (from 0) that this frame repeats, -1
      where it is new.
    predictable: bool [T], true where a perfect memory could predict the frame,
      or its class.
    label: int32 [T], the class that answers, by whichever of its images; -1
      where the frame itself is the answer, or nothing is asked.
  """

  frames: Array
  condition: Array
  source: Array
  predictable: Array
  label: Array


class Sampler(Protocol):
  """Images that are made when they are drawn; a pytree, to be an argument."""

  def draw(self, key: Array, count: int) -> tuple[Array, Array]:
    """Draws `count` images independently and uniformly, inside `jax.jit`.

    Returns:
      Frames [count, H, W, C], uint8 or in [0, 1], and labels int32 [count].
    """


def draw_images(
  key: Array, images: Images | Sampler, count: int, binarize: bool
) -> tuple[Array, Array]:
  """Draws images independently and uniformly, the pseudocode's generator().

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C] and labels [N], or what draws them.
    count: how many.
    binarize: sample each pixel, on with its grey value's probability.

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
  """Draws an image of each given class, the pseudocode's generator(label).

  Every image of the class is as likely as any other. The classes of all N
  images are counted in every call, once for a whole batch under `vmap`.

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C], labels [N].
    classes: int32 [K], which classes, from 0 to `count` - 1.
    count: how many classes are asked of; the work grows with it.
    binarize: as in `draw_images`.

  Returns:
    Frames [K, H, W, C] in [0, 1], NaN where there is no image of the class.
  """
  index_key, pixel_key = jax.random.split(key)
  labels = jnp.asarray(images.labels)
  numbers = jnp.arange(count, dtype=labels.dtype)
  is_class = labels[None, :] == numbers[:, None]
  # One more than the rank of an image among those of its class.
  ranks = jnp.cumsum(is_class, axis=1, dtype=jnp.int32)
  available = ranks[:, -1][classes]
  wanted = jax.random.randint(index_key, classes.shape, 0, available, jnp.int32)
  # Searched once a class rather than once a draw, which would copy `ranks`.
  found = jax.vmap(lambda ranks: jnp.searchsorted(ranks, wanted, side='right'))(
    ranks
  )
  index = jnp.take_along_axis(found, classes[None], axis=0)[0]
  frames = grey_values(pixel_key, jnp.asarray(images.pixels)[index], binarize)
  there = (available > 0).reshape(-1, *[1] * (frames.ndim - 1))
  return jnp.where(there, frames, jnp.nan)


def grey_values(key: Array, frames: Array, binarize: bool) -> Array:
  """Images, uint8 or in [0, 1], as float32 in [0, 1], or drawn from that."""
  if jnp.issubdtype(frames.dtype, jnp.integer):
    frames = frames.astype(jnp.float32) / 255.0
  frames = frames.astype(jnp.float32)
  if binarize:
    frames = jax.random.bernoulli(key, frames).astype(jnp.float32)
  return frames


def recall_episode(frames: Array, recalled: Array) -> Episode:
  """An episode that shows `frames`, then again those at `recalled`.

  Args:
    frames: [L, H, W, C], the pre-recall interval.
    recalled: int32 [K], steps from 0 of the frames of the recall interval.

  Returns:
    An episode of L + K frames, whose last K are predictable.
  """
  length = frames.shape[0]
  recalled = recalled.astype(jnp.int32)
  order = jnp.concatenate([jnp.arange(length, dtype=jnp.int32), recalled])
  new = jnp.full((length,), -1, jnp.int32)
  source = jnp.concatenate([new, recalled])
  total = length + recalled.shape[0]
  return Episode(
    frames=frames[order],
    condition=jnp.zeros((total, 0), jnp.float32),
    source=source,
    predictable=source >= 0,
    label=jnp.full((total,), -1, jnp.int32),
  )


@dataclasses.dataclass(frozen=True)
class Intervals:
  """What recall tasks have in common: l frames, then k that answer to them.

  Attributes:
    pre_recall: l, frames before the recall interval.
    recall: k, frames of the recall interval, 1 <= k <= l.
    binarize: sample pixels from their grey values.
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
    """0: nothing is conditioned on."""
    return 0
