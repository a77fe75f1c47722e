"""Navigation: a random walk on a map of images."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.sources.dataset import Images

# Up, down, left, right, as (row, column); row 0 is the upper one.
ACTIONS = ('up', 'down', 'left', 'right')
# Their first letters, as `one_hot` reads them.
LETTERS = ''.join(action[0] for action in ACTIONS)
_MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)


@dataclasses.dataclass(frozen=True)
class Navigation:
  """A random walk on a grid of random digits, one frame a step.

  The first cell is uniform over the grid; each step goes to a uniformly chosen
  neighbour inside the grid. The condition at t is the action that led to frame
  t, one-hot in the order of `ACTIONS`; at the start it is all zeros. A frame
  repeats the last visit to its cell. Gemici et al. 2017, section 5.6.

  Attributes:
    rows: of the grid, 4 in the paper.
    columns: of the grid, 4 in the paper; a grid has at least two cells.
    length: T >= 3, frames of an episode, 25 in the paper; the shortest way back
      to a cell takes two steps.
    binarize: sample pixels from Bernoullis with their grey values as means,
      once for the grid of an episode.
    asks: see the contract of a task.
  """

  rows: int
  columns: int
  length: int
  binarize: bool = False
  asks: ClassVar[episode.Asks] = 'frame'

  def __post_init__(self) -> None:
    """Raises `ValueError` for a grid below two cells, or below three frames."""
    if min(self.rows, self.columns) < 1 or self.rows * self.columns < 2:
      raise ValueError(
        f'navigation: rows is {self.rows} and columns {self.columns}; both '
        f'must be at least 1 and one of them at least 2, since every step goes '
        f'to a neighbouring cell.'
      )
    if self.length < 3:
      raise ValueError(
        f'navigation: length is {self.length}; it must be at least 3, since no '
        f'cell is seen again before the third frame.'
      )

  @property
  def prefix(self) -> int:
    """Three fifths of the frames, rounded down: 15 of 25."""
    return 3 * self.length // 5

  @property
  def condition_size(self) -> int:
    """4: an action, one-hot."""
    return len(ACTIONS)

  def sample(
    self, key: jax.Array, images: Images | episode.Sampler
  ) -> episode.Episode:
    """Draws one episode of T frames; revisits are predictable."""
    walk_key = jax.random.split(key, 3)[2]
    cells, actions = self._walk(self.start(key), walk_key)
    one_hot = jax.nn.one_hot(actions, len(ACTIONS), dtype=jnp.float32)
    condition = jnp.pad(one_hot, ((1, 0), (0, 0)))
    return self._episode(key, images, cells, condition)

  def follow(
    self, key: jax.Array, images: Images | episode.Sampler, condition: jax.Array
  ) -> episode.Episode:
    """Returns the episode that other actions make of the one of `sample`.

    Its grid and its first cell are those that `sample` draws with the same key.

    Args:
      key: random key.
      images: as of `sample`.
      condition: float32 [T', 4], which must not leave the grid; T' may differ
        from T.
    """
    moves = jnp.round(condition).astype(jnp.int32) @ jnp.asarray(_MOVES)
    places = self.start(key) + jnp.cumsum(moves, axis=0, dtype=jnp.int32)
    cells = places[:, 0] * self.columns + places[:, 1]
    return self._episode(key, images, cells, condition)

  def _episode(
    self,
    key: jax.Array,
    images: Images | episode.Sampler,
    cells: jax.Array,
    condition: jax.Array,
  ) -> episode.Episode:
    """Returns the episode of a walk over the grid of a key."""
    image_key = jax.random.split(key, 3)[0]
    grid, _ = episode.draw_images(
      image_key, images, self.rows * self.columns, self.binarize
    )
    source = _last_visits(cells)
    return episode.make_episode(
      grid[cells], source >= 0, condition=condition, source=source
    )

  def start(self, key: jax.Array) -> jax.Array:
    """Draws the row and column of the first cell, int [2].

    It is the first cell of the episode that `sample` draws with the same key;
    `positions` gives the cells of the walk relative to it.
    """
    start_key = jax.random.split(key, 3)[1]
    count = self.rows * self.columns
    start = jax.random.randint(start_key, (), 0, count, jnp.int32)
    return jnp.stack(jnp.divmod(start, self.columns))

  def _walk(
    self, start: jax.Array, walk_key: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the cells, numbered row by row, [T], and the actions, [T - 1]."""
    size = jnp.array([[self.rows, self.columns]], jnp.int32)
    # The walk takes the action with the largest number of those that stay in
    # the grid.
    shape = self.length - 1, len(ACTIONS)
    numbers = jax.random.uniform(walk_key, shape, jnp.float32)

    def step(position, numbers):
      neighbours = position[None, :] + _MOVES
      inside = jnp.all((neighbours >= 0) & (neighbours < size), axis=-1)
      action = jnp.argmax(jnp.where(inside, numbers, -1.0))
      return neighbours[action], (neighbours[action], action)

    _, (later, actions) = jax.lax.scan(step, start, numbers)
    positions = jnp.concatenate([start[None], later])
    return positions[:, 0] * self.columns + positions[:, 1], actions


def _last_visits(cells: jax.Array) -> jax.Array:
  """Returns when each cell was last visited before, int32 [T], -1 if never."""
  steps = jnp.arange(len(cells), dtype=jnp.int32)
  earlier = steps[None, :] < steps[:, None]
  same = cells[None, :] == cells[:, None]
  return jnp.max(jnp.where(same & earlier, steps, -1), axis=1)


def one_hot(letters: str) -> np.ndarray:
  """Converts letters of actions, such as 'rrdl', to conditions.

  Args:
    letters: u, d, l or r, the first letters of `ACTIONS`; one or more.

  Returns:
    float32 [A, 4], a row for each letter.

  Raises:
    ValueError: there is no letter, or another one.
  """
  if not letters or not set(letters) <= set(LETTERS):
    names = ', '.join(f'{action[0]} ({action})' for action in ACTIONS)
    raise ValueError(
      f'The actions {letters!r} are no walk; write one letter for each step: '
      f'{names}.'
    )
  numbers = [LETTERS.index(letter) for letter in letters]
  return np.eye(len(ACTIONS), dtype=np.float32)[numbers]


def positions(condition: np.ndarray) -> np.ndarray:
  """Returns the cells of a walk relative to its first cell.

  Args:
    condition: [T, 4], of one episode of `Navigation`.

  Returns:
    Rows (downwards) and columns from the first frame's cell, int [T, 2].

  Raises:
    ValueError: `condition` is not [T, 4].
  """
  condition = np.asarray(condition)
  if condition.ndim != 2 or condition.shape[1] != len(ACTIONS):
    raise ValueError(
      f'The condition is of shape {condition.shape}; it must be [T, '
      f'{len(ACTIONS)}], the actions of one episode of navigation.'
    )
  return np.cumsum(np.rint(condition).astype(int) @ _MOVES, axis=0)


def visits(condition: np.ndarray) -> np.ndarray:
  """Returns how often each frame's cell was seen before that frame.

  The paper overlays the first three frames of a cell in red, green and blue.

  Args:
    condition: [T, 4], of one episode of `Navigation`.

  Returns:
    int [T], 0 at the first visit.

  Raises:
    ValueError: `condition` is not [T, 4].
  """
  cells = positions(condition)
  same = np.all(cells[:, None] == cells[None, :], axis=-1)
  return np.tril(same, -1).sum(axis=1)
