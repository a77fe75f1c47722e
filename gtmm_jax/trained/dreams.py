"""Dreams after the first frames of episodes, beside what is true there."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax.runs import drawn_episodes
from gtmm_jax.tasks import frames, navigation
from gtmm_jax.tasks.episode import Episode, lengths
from gtmm_jax.tasks.sources.dataset import Split
from gtmm_jax.trained import inputs
from gtmm_jax.trained.trained import Trained

Array = jax.Array


class Dreams(NamedTuple):
  """The dreams of one replica.

  Attributes:
    episode: the true episodes, arrays [N + L, E, ...]; their frames are NaN
      where an episode has ended.
    observed: N, the frames that the model has seen; 0 for dreams from nothing.
    frames: of the dreams, [S, L, E, H, W, C], the frames N + 1 to N + L.
  """

  episode: Episode
  observed: int
  frames: np.ndarray


def draw(
  run: Trained, key: Array, count: int = 1, split: Split | None = None
) -> Episode:
  """Draws episodes that the run was not trained on.

  Args:
    run: the trained run.
    key: random key; more episodes begin with the same ones.
    count: E >= 1; no recorded episode is drawn twice.
    split: 'validation' or 'test'; None for what the run was evaluated on.

  Returns:
    Arrays [T, E, ...].

  Raises:
    ValueError: there are fewer recorded episodes than E, E is below 1, or the
      data of the run cannot be read.
  """
  images = _images(run, count, split)
  sample = jax.jit(functools.partial(_sample, run.task.sample, count))
  return jax.tree.map(np.asarray, sample(key, images))


def walk(
  run: Trained,
  key: Array,
  observed: int,
  actions: str,
  count: int = 1,
  split: Split | None = None,
) -> Episode:
  """Draws episodes of navigation that go on with actions of your own.

  Args:
    run: the trained run, of navigation.
    key: as of `draw`, whose grids and first frames these are.
    observed: N, the frames of `draw` before the actions; 0 is as 1, since no
      action leads to the first cell.
    actions: letters u, d, l, r, such as 'rrdl'.
    count: E.
    split: as of `draw`.

  Returns:
    Arrays [max(N, 1) + A, E, ...] for A actions.

  Raises:
    ValueError: the run is of another task, a letter is another one, an action
      leaves the grid, or N is not within the episode.
  """
  if not isinstance(run.task, navigation.Navigation):
    raise ValueError(
      f'Only navigation has actions, and this run is of {run.settings.task}; '
      f'leave them out.'
    )
  chosen = navigation.one_hot(actions)
  drawn = draw(run, key, count, split)
  _require_observed(drawn, observed)
  before = drawn.condition[: max(observed, 1)]
  keys = _episode_keys(key, count)
  starts = np.asarray(jax.vmap(run.task.start)(keys))
  for index in range(count):
    place = starts[index] + navigation.positions(before[:, index])[-1]
    _require_inside(run.task, place, chosen, f'of episode {index + 1}')
  each = np.repeat(chosen[:, None], count, axis=1)
  follow = jax.jit(jax.vmap(run.task.follow, (0, None, 1), 1))
  images = _images(run, count, split)
  return jax.tree.map(
    np.asarray, follow(keys, images, np.concatenate([before, each]))
  )


def dream(
  run: Trained,
  key: Array,
  episode: Episode,
  observed: int,
  samples: int = 1,
  length: int | None = None,
) -> Dreams:
  """Dreams what follows on the first frames of episodes.

  Args:
    run: the trained run, of one replica.
    key: random key, of the latents of what is observed and of the dreams.
    episode: arrays [T, E, ...], from `draw`, `walk` or `from_file.read`.
    observed: N, from 0 to T; 0 for dreams from nothing, which are given the
      episodes' condition alone.
    samples: S >= 1, dreams of each episode.
    length: L >= 1, frames of a dream; None for the rest of the longest episode.
      It may go beyond the end if there is no condition.

  Raises:
    ValueError: a number is out of range, or all replicas are loaded.
  """
  if run.replica is None:
    raise ValueError(
      'All replicas are loaded; dreams are of one: load(..., replica=0).'
    )
  _require_observed(episode, observed)
  total, longest = len(episode.frames), int(lengths(episode).max())
  if length is None and observed == longest:
    raise ValueError(
      f'All {longest} frames of the episode are observed; give the length of '
      f'the dream, or observe fewer.'
    )
  length = longest - observed if length is None else length
  inputs.at_least_one(length=length, samples=samples)
  if run.task.condition_size and observed + length > total:
    raise ValueError(
      f'length is {length}; after {observed} frames it must be at most '
      f'{total - observed}, since the model is told a condition with every '
      f'frame, and the episode has {total}.'
    )
  episode = _resized(episode, observed + length)
  observe_key, dream_key = jax.random.split(key)
  state = None
  if observed:
    state, _ = run.observe(
      observe_key, episode.frames[:observed], episode.condition[:observed]
    )
  dreamt = run.dream(
    dream_key, state, length, episode.condition[observed:], samples
  )
  return Dreams(episode, observed, np.asarray(dreamt.frames))


def first(dreams: Dreams, count: int) -> Dreams:
  """Returns the dreams of the first episodes."""
  episode = jax.tree.map(lambda leaf: leaf[:, :count], dreams.episode)
  return Dreams(episode, dreams.observed, dreams.frames[:, :, :count])


def _sample(
  sample: Callable[[Array, Any], Episode], count: int, key: Array, images: Any
) -> Episode:
  """Draws episodes [T, E, ...]; takes each recorded one at most once."""
  keys = _episode_keys(key, count)
  if not isinstance(images, frames.Frames):
    return jax.vmap(sample, (0, None), 1)(keys, images)
  order_key = jax.random.split(key)[1]
  return drawn_episodes.draw_each_once(sample, keys, order_key, images)


def _episode_keys(key: Array, count: int) -> Array:
  """Returns the keys with which a task draws the episodes, [E]."""
  return jax.random.split(jax.random.split(key)[0], count)


def _images(run: Trained, count: int, split: Split | None) -> Any:
  """Returns the data of a split; checks that they have as many episodes."""
  inputs.at_least_one(episodes=count)
  split = split or run.settings.evaluate_on
  images = run.data.held_out(split)
  if isinstance(images, frames.Frames) and count > len(images.frames):
    raise ValueError(
      f'episodes is {count}; the file has {len(images.frames)} for {split}.'
    )
  return images


def _require_observed(episode: Episode, observed: int) -> None:
  """Raises `ValueError` unless N is within each episode."""
  for index, length in enumerate(lengths(episode)):
    if not 0 <= observed <= length:
      raise ValueError(
        f'{observed} frames cannot be observed: episode {index + 1} has '
        f'{length}; observe 0 (dream from nothing) to {length}.'
      )


def _require_inside(
  task: navigation.Navigation,
  place: np.ndarray,
  chosen: np.ndarray,
  which: str,
) -> None:
  """Raises `ValueError` for actions that leave the grid.

  Args:
    task: with the size of the grid.
    place: row and column before the first action.
    chosen: [A, 4], one-hot.
    which: names the episode.
  """
  size = task.rows, task.columns
  places = place + navigation.positions(chosen)
  for number, (cell, action) in enumerate(zip(places, chosen, strict=True), 1):
    if (cell < 0).any() or (cell >= size).any():
      row, column = place + 1
      name = navigation.ACTIONS[int(action.argmax())]
      raise ValueError(
        f'Action {number} ({name}) leaves the grid of {task.rows} x '
        f'{task.columns}: the walk {which} is in row {row}, column {column} '
        f'before the first one. Choose others, or another seed.'
      )


def _resized(episode: Episode, length: int) -> Episode:
  """Cuts episodes to a length, or fills them up; NaN where they have ended."""
  after = max(0, length - len(episode.frames))

  def resize(leaf: np.ndarray | None, fill: float | bool) -> Any:
    if leaf is None:
      return None
    widths = [(0, after)] + [(0, 0)] * (leaf.ndim - 1)
    return np.pad(leaf[:length], widths, constant_values=fill)

  shown = np.array(episode.frames)
  if episode.mask is not None:
    shown[~episode.mask] = np.nan
  return Episode(
    frames=resize(shown, np.nan),
    condition=resize(episode.condition, 0.0),
    source=resize(episode.source, -1),
    predictable=resize(episode.predictable, False),
    label=resize(episode.label, -1),
    mask=resize(episode.mask, False),
    # The same number at every step.
    part=resize(episode.part, 0),
    in_prefix=resize(episode.in_prefix, False),
  )
