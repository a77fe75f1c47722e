"""Episodes of one's own, and windows on more of them than a device holds."""

import dataclasses
import pathlib
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import folds
from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources import doubts, frame_files
from gtmm_jax.tasks.sources.dataset import DataError

Array = jax.Array

# One in so many is held out.
_TENTH = 10
_MEGABYTE = 10**6


class Frames(NamedTuple):
  """Episodes to draw from, a pytree.

  Attributes:
    frames: uint8 [N, T, H, W, C].
    condition: float32 [N, T, A]; A = 0 where there is none.
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
  """Parts of the training episodes, each of which a device has room for.

  Attributes:
    episodes: all of the file.
    training: which of them are trained on, [M].
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
    """The window of a number from 0 on, on the host.

    Its episodes are drawn without replacement, in a way that only the seed and
    `index` decide, each as likely as any other.

    Raises:
      DataError: if the file that they are in was changed since it was opened.
    """
    # Windows are the same whatever generator jax is told to take.
    key = jax.random.key(self.seed, impl='threefry2x32')
    key = jax.random.fold_in(key, np.uint32(folds.WINDOWS))
    order = jax.random.permutation(
      jax.random.fold_in(key, index), len(self.training)
    )
    # Sorted, so that the file is read from its beginning to its end.
    chosen = np.sort(self.training[np.asarray(order)[: self.size]])
    return _take(self.episodes, chosen)


class Sets(NamedTuple):
  """Episodes to train on, and episodes that are never trained on.

  Attributes:
    training: training episodes, or windows on them.
    held_out: held-out episodes.
    source: one line for people.
    checksum: of `frame_files.Episodes`: the file's arrays settle the split.
    doubts: what may be wrong with the file, in sentences.
  """

  training: Frames | Windows
  held_out: Frames
  source: str
  checksum: str
  doubts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OwnFrames:
  """Episodes that were given, each as likely.

  Attributes:
    length: T >= 2, frames of an episode.
    condition_size: A, width of the condition, 0 where there is none.
    binarize: sample pixels from their grey values; not of colour frames.
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
    """Draws one episode of T frames, with its condition and its marks.

    Raises:
      ValueError: if `images` are not of this length and condition, or colour
        frames are to be binarized.
    """
    given = images.length, images.condition.shape[-1]
    if given != (self.length, self.condition_size):
      raise ValueError(
        f'frames: length is {self.length} and condition_size '
        f'{self.condition_size}, and the episodes have {given[0]} and '
        f'{given[1]}; make the task of the sizes that they have.'
      )
    if self.binarize and images.shape[-1] != 1:
      raise ValueError(
        'frames: binarize means nothing to frames in colour; leave it out.'
      )
    index_key, pixel_key = jax.random.split(key)
    count = images.frames.shape[0]
    index = jax.random.randint(index_key, (), 0, count, jnp.int32)
    none = jnp.full((self.length,), -1, jnp.int32)
    return episode.Episode(
      frames=episode.grey_values(
        pixel_key, jnp.asarray(images.frames)[index], self.binarize
      ),
      condition=jnp.asarray(images.condition, jnp.float32)[index],
      source=none,
      predictable=jnp.asarray(images.predictable)[index],
      label=none,
    )


def load(file: pathlib.Path, budget: float, seed: int = 0) -> Sets:
  """Loads episodes, one of every ten held out.

  Args:
    file: as `frame_files` has it.
    budget: bytes that training episodes may take on a device; where they take
      more, they are trained on in windows, and no more are held out than a
      window has.
    seed: of the windows.

  Returns:
    The tenth, twentieth, ... episode held out, or the last of fewer than ten.

  Raises:
    DataError: as `frame_files.read`, or if the budget is below one episode.
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
  told = episodes.doubts + doubts.of_held_out(len(held_out))
  held_out = _take(episodes, held_out[:size])
  return Sets(trained, held_out, source, episodes.checksum, told)


def split(count: int) -> tuple[np.ndarray, np.ndarray]:
  """Numbers from 0 of the training episodes and of those held out.

  Args:
    count: N >= 2.
  """
  is_held_out = np.arange(count) % _TENTH == _TENTH - 1
  if count < _TENTH:
    is_held_out[-1] = True
  return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def _take(episodes: frame_files.Episodes, chosen: np.ndarray) -> Frames:
  """A copy of some episodes, in memory."""
  return Frames(
    *(
      leaf[chosen]
      for leaf in (episodes.frames, episodes.condition, episodes.predictable)
    )
  )
