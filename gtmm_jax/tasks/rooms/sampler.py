"""Rooms for training, for validation and for the test.

A room is a scene drawn from a number, when it is used: 2^24 numbers are for
training, the next 2^24 for the test and the 2^24 after these for validation.
"""

import dataclasses
import functools

import jax
import numpy as np

from gtmm_jax.tasks.rooms import mazes
from gtmm_jax.tasks.rooms.scenes import Scene
from gtmm_jax.tasks.sources.dataset import Dataset, checksum_of_version

Array = jax.Array

_COUNT = 2**24


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=('first', 'count'),
  meta_fields=('size',),
)
@dataclasses.dataclass(frozen=True)
class Rooms:
  """A range of rooms; a pytree, so that compiled programs can take it.

  Attributes:
    first: uint32, number of the first room.
    count: int32, number of rooms.
    size: height and width of frames in pixels; static, not a leaf.
  """

  first: Array | np.uint32
  count: Array | np.int32
  size: int

  @property
  def shape(self) -> tuple[int, int, int]:
    """Shape of a frame, [H, W, C]."""
    return self.size, self.size, 3

  def draw(self, key: Array) -> Scene:
    """Draws one of the rooms uniformly."""
    number = jax.random.randint(key, (), 0, self.count, np.int32)
    return make_room(self.first + number.astype(np.uint32))


def load(size: int) -> Dataset[Rooms]:
  """Returns all three sets of rooms, seen in `size` x `size` pixels.

  Raises:
    ValueError: `size` is below 1.
  """
  return Dataset(
    *split(size),
    f'random rooms, drawn: {_COUNT:,} for training, {_COUNT:,} others for '
    f'validation and {_COUNT:,} others for the test',
    checksum_of_version(f'rooms, version {mazes.VERSION}'),
  )


def make_room(number: Array | int) -> Scene:
  """Draws the room of a number from 0 to 2^32 - 1."""
  # The room must not depend on jax's default generator.
  key = jax.random.key(0, impl='threefry2x32')
  return mazes.make_scene(jax.random.fold_in(key, number))


def split(size: int = 32) -> tuple[Rooms, Rooms, Rooms]:
  """Returns rooms for training, validation and test in `size` x `size` pixels.

  Raises:
    ValueError: `size` is below 1.
  """
  if size < 1:
    raise ValueError(
      f'rooms: size is {size}; it must be at least 1, the height and width of '
      f'frames in pixels.'
    )
  training, validation, test = (
    Rooms(np.uint32(first), np.int32(_COUNT), size)
    for first in (0, 2 * _COUNT, _COUNT)
  )
  return training, validation, test
