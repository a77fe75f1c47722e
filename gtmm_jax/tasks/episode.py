"""Episodes, and the contract that every task keeps.

A task is a frozen dataclass of the paper's parameters with

  length            number of frames T of an episode
  prefix            frames that a generated continuation is given
  condition_size    A, width of the condition; 0 where there is none
  sample(key, images) -> Episode    one sequence; pure, runs inside `jax.jit`

and raises `ValueError` when it is made with parameters that make no sense.
`jax.vmap` makes batches. Images are an argument, kept on the device as uint8.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.tasks.images import Images

Array = jax.Array


class Episode(NamedTuple):
  """One sequence; under `vmap` every field has a leading batch axis.

  Attributes:
    frames: [T, H, W, C] in [0, 1].
    condition: the paper's c_t, [T, A]; A = 0 where there is none.
    source: int32 [T], the earlier step (from 0) that this frame repeats, -1
      where it is new.
    predictable: bool [T], true where a perfect memory could predict the frame.
  """

  frames: Array
  condition: Array
  source: Array
  predictable: Array


def draw_images(
  key: Array, images: Images, count: int, binarize: bool
) -> tuple[Array, Array]:
  """Draws images independently and uniformly, the pseudocode's generator().

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C], labels [N].
    count: how many.
    binarize: sample each pixel, on with its grey value's probability.

  Returns:
    Frames [count, H, W, C] in [0, 1] and labels [count].
  """
  index_key, pixel_key = jax.random.split(key)
  index = jax.random.randint(index_key, (count,), 0, images.pixels.shape[0])
  frames = jnp.asarray(images.pixels)[index].astype(jnp.float32) / 255.0
  if binarize:
    frames = jax.random.bernoulli(pixel_key, frames).astype(jnp.float32)
  return frames, jnp.asarray(images.labels)[index]


def recall_episode(frames: Array, recalled: Array) -> Episode:
  """An episode that shows `frames`, then again those at `recalled`.

  Args:
    frames: [L, H, W, C], the pre-recall interval.
    recalled: int32 [K], steps from 0 of the frames of the recall interval.

  Returns:
    An episode of L + K frames, whose last K are predictable.
  """
  length = frames.shape[0]
  order = jnp.concatenate([jnp.arange(length), recalled])
  new = jnp.full((length,), -1, jnp.int32)
  source = jnp.concatenate([new, recalled.astype(jnp.int32)])
  total = length + recalled.shape[0]
  return Episode(
    frames=frames[order],
    condition=jnp.zeros((total, 0)),
    source=source,
    predictable=source >= 0,
  )


def require_intervals(task: str, pre_recall: int, recall: int) -> None:
  """Checks 1 <= recall <= pre_recall.

  Raises:
    ValueError: if that does not hold.
  """
  if recall < 1:
    raise ValueError(f'{task}: recall is {recall}; it must be at least 1.')
  if recall > pre_recall:
    raise ValueError(
      f'{task}: recall is {recall} and pre_recall {pre_recall}; recall must '
      f'not be larger, since only frames shown before can come back.'
    )
