"""Doubts about data that can be read but are probably wrong.

A doubt is a sentence for the user: an observation, and what to do if the data
were meant to be different. Functions return a tuple of doubts, often empty.
Data that cannot be right raise a `DataError`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gtmm_jax.tasks.sources.dataset import DataError

# Images whose bytes, 0 to 255, are all below this are nearly black.
_DIM = 64
# Limits of a condition's numbers, which should be about one.
_LARGE, _TOO_LARGE = 1e2, 1e6


def of_bytes(what: str, least: int, greatest: int) -> tuple[str, ...]:
  """Checks the range of bytes that are pixels, 0 to 255.

  Args:
    what: name of the bytes, for messages.
    least: minimum.
    greatest: maximum.

  Raises:
    DataError: all bytes are equal, or none is above 1.
  """
  if least == greatest:
    raise DataError(
      f'{what} are {least} in every pixel, so there is nothing to learn; save '
      f'pixels from 0 to 255.'
    )
  if greatest <= 1:
    raise DataError(
      f'{what} have no values but 0 and 1, which are nearly black, since white '
      f'is 255; multiply them by 255.'
    )
  if greatest >= _DIM:
    return ()
  return (
    f'{what} have values from {least} to {greatest}, which are dark, since '
    f'white is 255; if white is {greatest} there, multiply them by '
    f'{255 // greatest}.',
  )


def of_axes(count: int, length: int) -> tuple[str, ...]:
  """Checks that time is not the first axis: episodes are not fewer than steps.

  Args:
    count: N, number of episodes by the first axis.
    length: T, frames of each by the second axis.
  """
  if count >= length:
    return ()
  return (
    f'frames are taken as {count:,} episodes of {length:,} frames each; if '
    f'their first axis is time, as in Moving MNIST as published, save '
    f'frames.swapaxes(0, 1).',
  )


def to_five_axes(shape: Sequence[int]) -> str:
  """Tells how to reshape frames with four axes to [N, T, H, W, C].

  Args:
    shape: of the frames.
  """
  count, length, _, channels = shape
  if channels in (1, 3):
    return (
      'frames.reshape(N, T, H, W, C) if they are one recording, which this '
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
  """Checks the magnitude of a condition's numbers.

  Args:
    what: name of the condition, for messages.
    condition: [N, T, A], finite.

  Raises:
    DataError: the greatest magnitude is above 1,000,000.
  """
  greatest = float(np.abs(condition).max(initial=0))
  if greatest <= _LARGE:
    return ()
  doubt = (
    f'{what} has numbers of magnitudes up to {greatest:,.4g}, but about one is '
    f'expected; divide them by their standard deviation.'
  )
  if greatest > _TOO_LARGE:
    raise DataError(doubt)
  return (doubt,)


def of_marks(what: str, marks: np.ndarray) -> tuple[str, ...]:
  """Checks that marks [N, T] are neither all true nor all false.

  Args:
    what: name of the marks, for messages.
    marks: bool, true if a frame is predictable.
  """
  if marks.any() and not marks.all():
    return ()
  which = 'every frame' if marks.any() else 'no frame'
  return (
    f'{what} marks {which}, so the KL of predictable frames cannot be compared '
    f'with that of new ones; leave it out if this is not intended.',
  )


def of_held_out(validation: int, test: int) -> tuple[str, ...]:
  """Checks that validation and test have more than one episode each.

  Args:
    validation: number of episodes for validation.
    test: number of episodes for the test.
  """
  counts = {'validation': validation, 'test': test}
  few = [name for name, count in counts.items() if count == 1]
  if not few:
    return ()
  return (
    f'{" and ".join(few)} {"has" if len(few) == 1 else "have"} a single '
    f'episode, on which everything is measured; of twenty episodes there would '
    f'be two.',
  )


def of_draws(images: Any, count: int) -> tuple[str, ...]:
  """Checks that there are at least as many images as an episode draws.

  Args:
    images: a `Dataset` whose parts have `labels`.
    count: number of images that an episode draws.
  """
  return tuple(
    f'an episode draws {count:,} of {len(part.labels):,} {name} digits, so '
    f'some of them repeat that should be new; use more digits.'
    for name, part in images.parts.items()
    if len(part.labels) < count
  )


def require_classes(images: Any, classes: Sequence[int], why: str) -> None:
  """Checks that all three parts have images of all classes.

  Args:
    images: a `Dataset` whose parts have `labels`.
    classes: whose images are drawn.
    why: the task that draws them, for messages.

  Raises:
    DataError: a class is missing; names the class and the part.
  """
  for name, part in images.parts.items():
    missing = sorted(set(classes) - set(np.unique(part.labels).tolist()))
    if missing:
      raise DataError(
        f'{images.source}: the {name} digits have no '
        f'{" and no ".join(map(str, missing))}, which {why} shows; use data '
        f'that have {" and ".join(map(str, classes))} in all parts, such as '
        f'--data=bundled.'
      )
