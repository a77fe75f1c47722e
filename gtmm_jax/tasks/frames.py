"""The user's own episodes, and windows on files too large for a device."""

import dataclasses
import hashlib
import pathlib
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import folds
from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources import doubts, frame_files
from gtmm_jax.tasks.sources.dataset import DataError, Dataset, by_tenths

Array = jax.Array

# Fewer episodes have one for validation and one for the test.
_FEW = 10
_MEGABYTE = 10**6


class Frames(NamedTuple):
  """Episodes to draw from, a pytree.

  Attributes:
    frames: uint8 [N, T, H, W, C].
    condition: float32 [N, T, A]; A = 0 if there is none.
    predictable: bool [N, T].
  """

  frames: Array | np.ndarray
  condition: Array | np.ndarray
  predictable: Array | np.ndarray

  @property
  def shape(self) -> tuple[int, int, int]:
    """(H, W, C) of a frame."""
    return self.frames.shape[2:]

  @property
  def length(self) -> int:
    """T, frames of an episode."""
    return self.frames.shape[1]


@dataclasses.dataclass(frozen=True)
class Windows:
  """Random parts of the training episodes, each small enough for a device.

  Attributes:
    episodes: all episodes of the file.
    training: int [M], numbers of the training episodes.
    size: episodes of a window, at most M.
    seed: of the run.
  """

  episodes: frame_files.Episodes
  training: np.ndarray
  size: int
  seed: int

  @property
  def shape(self) -> tuple[int, int, int]:
    """(H, W, C) of a frame."""
    return self.episodes.frames.shape[2:]

  @property
  def length(self) -> int:
    """T, frames of an episode."""
    return self.episodes.frames.shape[1]

  def at(self, index: int) -> Frames:
    """Reads a window into the host's memory.

    Its episodes are drawn uniformly without replacement, by a random key that
    depends on the seed and `index` alone.

    Args:
      index: number of the window, at least 0.

    Raises:
      DataError: the file was changed since it was opened.
    """
    # The same windows for every setting of jax's random generator.
    key = jax.random.key(self.seed, impl='threefry2x32')
    key = jax.random.fold_in(key, np.uint32(folds.WINDOWS))
    order = jax.random.permutation(
      jax.random.fold_in(key, index), len(self.training)
    )
    # Sorted, to read the file in order.
    chosen = np.sort(self.training[np.asarray(order)[: self.size]])
    return _take(self.episodes, chosen)


@dataclasses.dataclass(frozen=True)
class OwnFrames:
  """The user's own episodes, drawn uniformly.

  Attributes:
    length: T >= 2, frames of an episode.
    condition_size: A, width of the condition; 0 if there is none.
    binarize: sample pixels from Bernoullis with their grey values as means; not
      of colour frames.
    prefix: 1 to T - 1, true frames before those that are generated; 0, the
      default, becomes half of T, rounded down.
    asks: see the contract of a task.
  """

  length: int
  condition_size: int = 0
  binarize: bool = False
  prefix: int = 0
  asks: ClassVar[episode.Asks] = 'view'

  def __post_init__(self) -> None:
    """Sets the default of `prefix`.

    Raises:
      ValueError: the length is below 2, the prefix not within the episode, or
        the size of the condition below 0.
    """
    if self.length < 2:
      raise ValueError(
        f'frames: length is {self.length}; it must be at least 2, one frame to '
        f'see and one to generate.'
      )
    if not 0 <= self.prefix < self.length:
      raise ValueError(
        f'frames: prefix is {self.prefix}; it must be 1 to {self.length - 1}, '
        f'as episodes have {self.length} frames, or 0 for half of them.'
      )
    object.__setattr__(self, 'prefix', self.prefix or self.length // 2)
    if self.condition_size < 0:
      raise ValueError(
        f'frames: condition_size is {self.condition_size}; it must be at least '
        f'0, which stands for no condition.'
      )

  def sample(self, key: Array, images: Frames) -> episode.Episode:
    """Draws one episode of T frames, with its condition and marks.

    Raises:
      ValueError: length or condition size of `images` differ from the
        task's, or colour frames are to be binarized.
    """
    length, condition_size = images.length, images.condition.shape[-1]
    if (length, condition_size) != (self.length, self.condition_size):
      raise ValueError(
        f'frames: length is {self.length} and condition_size '
        f'{self.condition_size}, and the episodes have {length} and '
        f'{condition_size}; make the task of the sizes that they have.'
      )
    if self.binarize and images.shape[-1] != 1:
      raise ValueError(
        'frames: binarize means nothing to frames in colour; leave it out.'
      )
    index_key, pixel_key = jax.random.split(key)
    count = images.frames.shape[0]
    index = jax.random.randint(index_key, (), 0, count, jnp.int32)
    return episode.make_episode(
      episode.grey_values(
        pixel_key, jnp.asarray(images.frames)[index], self.binarize
      ),
      jnp.asarray(images.predictable)[index],
      condition=jnp.asarray(images.condition, jnp.float32)[index],
    )


def load(
  file: pathlib.Path, budget: float, seed: int = 0
) -> Dataset[Frames | Windows]:
  """Loads episodes, and splits them as `split` does.

  Args:
    file: an .npz file as `frame_files` describes it.
    budget: bytes that training episodes may take on a device. If they take
      more, they come in windows, and validation and test have no more episodes
      than fit into a window.
    seed: of the windows.

  Returns:
    The episodes; those for validation and test are always `Frames`.

  Raises:
    DataError: as `frame_files.read`, or the budget is below one episode.
  """
  each = frame_files.inspect(file).episode_bytes
  if budget < each:
    raise DataError(
      f'{file}: an episode takes {each / _MEGABYTE:,.6g} megabytes, and there '
      f'is room for {budget / _MEGABYTE:,.6g} on the device; give a larger '
      f'--device_megabytes, or cut the episodes into shorter ones.'
    )
  episodes = frame_files.read(file)
  training, validation, test = split(len(episodes.frames), episodes.held_out)
  counts = f'{len(training):,} training, {len(validation):,} validation and '
  source = (
    f'{file}: episodes of {episodes.frames.shape[1]:,} frames, {counts}'
    f'{len(test):,} test episodes; {_rule(episodes, validation, test)}'
  )
  size = int(budget // each)
  if size >= len(training):
    trained = _take(episodes, training)
  else:
    trained = Windows(episodes, training, size, seed)
    source += f'; trained on {size:,} at a time, others after each report'
    if size < max(len(validation), len(test)):
      source += f', evaluated on the first {size:,} of validation or test'
  return Dataset(
    trained,
    _take(episodes, validation[:size]),
    _take(episodes, test[:size]),
    source,
    _checksum(episodes),
    episodes.doubts + doubts.of_held_out(len(validation), len(test)),
  )


def split(
  count: int, held_out: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the numbers of episodes for training, validation and test.

  Unless the file says it, the ninth of every ten is for validation, the tenth
  for the test; of fewer than ten the last is for the test and the one before
  for validation. Numbers count from 0.

  Args:
    count: N >= 3, number of episodes.
    held_out: [N], the part of each: 0, 1, 2; None where the file does not say.
  """
  part = _parts(count) if held_out is None else held_out
  training, validation, test = (
    np.flatnonzero(part == number) for number in range(3)
  )
  return training, validation, test


def _parts(count: int) -> np.ndarray:
  """Returns the part of each episode: 0 training, 1 validation, 2 test."""
  if count >= _FEW:
    return by_tenths(count)
  return np.array([0] * (count - 2) + [1, 2])


def _rule(
  episodes: frame_files.Episodes, validation: np.ndarray, test: np.ndarray
) -> str:
  """Describes in words how episodes were split, counted from 1."""
  if episodes.held_out is not None:
    return 'split by its array held_out'
  if len(validation) == len(test) == 1:
    return (
      f'validation is episode {validation[0] + 1:,}, and test episode '
      f'{test[0] + 1:,}'
    )
  return 'validation is the ninth of every ten, and test the tenth'


def _checksum(episodes: frame_files.Episodes) -> str:
  """Returns the SHA-256 of the file's checksum and the part of each episode."""
  parts = episodes.held_out
  if parts is None:
    parts = _parts(len(episodes.frames)).astype(np.uint8)
  return hashlib.sha256(
    episodes.checksum.encode() + parts.tobytes()
  ).hexdigest()


def _take(episodes: frame_files.Episodes, chosen: np.ndarray) -> Frames:
  """Reads some episodes into memory."""
  return Frames(
    *(
      leaf[chosen]
      for leaf in (episodes.frames, episodes.condition, episodes.predictable)
    )
  )
