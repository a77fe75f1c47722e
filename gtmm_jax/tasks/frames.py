"""The user's own episodes, and windows on files too large for a device."""

import dataclasses
import pathlib
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import folds
from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources import doubts, frame_files
from gtmm_jax.tasks.sources.dataset import DataError, Dataset

Array = jax.Array

# One in so many episodes is held out.
_TENTH = 10
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
    asks: see the contract of a task.
  """

  length: int
  condition_size: int = 0
  binarize: bool = False
  asks: ClassVar[episode.Asks] = 'view'

  def __post_init__(self) -> None:
    """Raises `ValueError` for a length below 2, or a condition below 0."""
    if self.length < 2:
      raise ValueError(
        f'frames: length is {self.length}; it must be at least 2, one frame to '
        f'see and one to generate.'
      )
    if self.condition_size < 0:
      raise ValueError(
        f'frames: condition_size is {self.condition_size}; it must be at least '
        f'0, which stands for no condition.'
      )

  @property
  def prefix(self) -> int:
    """Half of the frames, rounded down."""
    return self.length // 2

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
  """Loads episodes; holds out every tenth, or the last of fewer than ten.

  Args:
    file: an .npz file as `frame_files` describes it.
    budget: bytes that training episodes may take on a device. If they take
      more, they come in windows, and no more episodes are held out than fit
      into a window.
    seed: of the windows.

  Returns:
    The episodes; held-out ones are always `Frames`.

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
  training, held_out = split(len(episodes.frames))
  is_one = len(held_out) == 1
  which = f'episode {held_out[0] + 1}' if is_one else 'every tenth'
  source = (
    f'{file}: episodes of {episodes.frames.shape[1]:,} frames, '
    f'{len(training):,} training and {len(held_out):,} held-out episodes, '
    f'{which} held out'
  )
  size = int(budget // each)
  if size >= len(training):
    trained = _take(episodes, training)
  else:
    trained = Windows(episodes, training, size, seed)
    source += f'; trained on {size:,} at a time, others after each report'
    if size < len(held_out):
      source += f', evaluated on the first {size:,} of those held out'
  sentences = episodes.doubts + doubts.of_held_out(len(held_out))
  held_out = _take(episodes, held_out[:size])
  return Dataset(trained, held_out, source, episodes.checksum, sentences)


def split(count: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the numbers (from 0) of training and of held-out episodes.

  Args:
    count: N >= 2, number of episodes.
  """
  is_held_out = np.arange(count) % _TENTH == _TENTH - 1
  if count < _TENTH:
    is_held_out[-1] = True
  return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def _take(episodes: frame_files.Episodes, chosen: np.ndarray) -> Frames:
  """Reads some episodes into memory."""
  return Frames(
    *(
      leaf[chosen]
      for leaf in (episodes.frames, episodes.condition, episodes.predictable)
    )
  )
