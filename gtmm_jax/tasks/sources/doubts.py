"""What is likely to be wrong with data that can be read.

A doubt is a sentence for people: what was seen, and what to do if it is not as
it was meant. Functions return those that there are, in a tuple. What cannot be
right is refused with a `DataError`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gtmm_jax.tasks.sources.dataset import DataError

# Of bytes from 0 to 255: where none is larger, images are nearly black.
_DIM = 64
# Of a condition, whose numbers should be of about one.
_LARGE, _TOO_LARGE = 1e2, 1e6


def of_bytes(what: str, least: int, greatest: int) -> tuple[str, ...]:
  """Doubts the range of bytes that are to be pixels, 0 to 255.

  Args:
    what: what they are, for people.
    least: the least of all.
    greatest: the greatest of all.

  Raises:
    DataError: if all are equal, or none is above 1.
  """
  if least == greatest:
    raise DataError(
      f'{what} are {least} in every pixel, so that there is nothing to learn; '
      f'save what they show, from 0 to 255.'
    )
  if greatest <= 1:
    raise DataError(
      f'{what} have no other values than 0 and 1, which are nearly black where '
      f'white is 255; multiply them by 255.'
    )
  if greatest >= _DIM:
    return ()
  return (
    f'{what} have values from {least} to {greatest}, which are dark where '
    f'white is 255; if white is {greatest} there, multiply them by '
    f'{255 // greatest}.',
  )


def of_axes(count: int, length: int) -> tuple[str, ...]:
  """Doubts which axis of frames is time, where episodes are fewer than steps.

  Args:
    count: what was taken for N, episodes.
    length: what was taken for T, frames of each.
  """
  if count >= length:
    return ()
  return (
    f'frames are taken for {count:,} episodes of {length:,} frames each; if '
    f'time comes first in them, as in Moving MNIST as published, save '
    f'frames.swapaxes(0, 1).',
  )


def to_five_axes(shape: Sequence[int]) -> str:
  """Tells how frames of four axes become [N, T, H, W, C].

  Args:
    shape: of the frames.
  """
  count, length, _, channels = shape
  if channels in (1, 3):
    return (
      'frames.reshape(N, T, H, W, C) if these are of one recording, which it '
      'cuts into N episodes of T frames'
    )
  ways = [
    f'frames[..., None] if the first axis is episodes ({count:,} episodes of '
    f'{length:,} frames)',
    f'frames.swapaxes(0, 1)[..., None] if the first axis is time, as in Moving '
    f'MNIST as published ({length:,} episodes of {count:,} frames)',
  ]
  # The likelier one first.
  return ', or '.join(ways[::-1] if count < length else ways)


def of_condition(what: str, condition: np.ndarray) -> tuple[str, ...]:
  """Doubts the size of a condition's numbers.

  Args:
    what: what they are, for people.
    condition: [N, T, A], finite.

  Raises:
    DataError: if the greatest is above 1,000,000 in size.
  """
  greatest = float(np.abs(condition).max(initial=0))
  if greatest <= _LARGE:
    return ()
  told = (
    f'{what} has numbers of up to {greatest:,.4g} in size, where about one is '
    f'expected; divide them by their standard deviation.'
  )
  if greatest > _TOO_LARGE:
    raise DataError(told)
  return (told,)


def of_marks(what: str, marks: np.ndarray) -> tuple[str, ...]:
  """Doubts marks [N, T] that tell nothing apart.

  Args:
    what: what they are, for people.
    marks: bool, true where a frame is predictable.
  """
  if marks.any() and not marks.all():
    return ()
  which = 'every frame' if marks.any() else 'no frame'
  return (
    f'{what} marks {which}, so that there is no KL of predictable frames '
    f'beside that of new ones; leave it out if that is not meant.',
  )


def of_held_out(count: int) -> tuple[str, ...]:
  """Doubts results that a single held-out episode gives.

  Args:
    count: of held-out episodes.
  """
  if count > 1:
    return ()
  return (
    'a single episode is held out, by which all is measured; of twenty '
    'episodes two are.',
  )


def of_draws(images: Any, count: int) -> tuple[str, ...]:
  """Doubts that an episode shows different images, where there are too few.

  Args:
    images: `training` and `held_out`, each with `labels`.
    count: how many an episode draws.
  """
  parts = {'training': images.training, 'held-out': images.held_out}
  return tuple(
    f'an episode draws {count:,} of {len(own.labels):,} {part} digits, so that '
    f'some come twice where they should be new; take more of them.'
    for part, own in parts.items()
    if len(own.labels) < count
  )


def require_classes(images: Any, classes: Sequence[int], why: str) -> None:
  """Checks that images of each class are there, to train on and held out.

  Args:
    images: `training` and `held_out`, each with `labels`, and `source`.
    classes: of which images are drawn.
    why: what draws them, for people.

  Raises:
    DataError: names the class and the part that lacks it.
  """
  parts = {'training': images.training, 'held-out': images.held_out}
  for part, own in parts.items():
    lacking = sorted(set(classes) - set(np.unique(own.labels).tolist()))
    if lacking:
      raise DataError(
        f'{images.source}: among the {part} ones there is no '
        f'{" and no ".join(map(str, lacking))}, which {why} shows; take data '
        f'that have both {" and ".join(map(str, classes))} in both parts, such '
        f'as --data=bundled.'
      )
