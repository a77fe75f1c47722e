"""Navigation against a slow walk, and against what walks must do on average."""

import functools

import jax
import numpy as np
import pytest

from gtmm_jax.tasks import navigation
from gtmm_jax.tasks.navigation import Navigation
from numbered_images import (
  InOrder,
  assert_even,
  assert_frequency,
  make,
  numbers,
)

# rows, columns, steps; the last with corners, borders and an inside, for
# averages over many walks.
_GRID = (3, 4, 12)
_SIZES = [(4, 4, 25), (1, 2, 3), (1, 5, 8), (6, 1, 9), _GRID]
_MANY, _FEW = 4_000, 200
_STEPS = {'up': (-1, 0), 'down': (1, 0), 'left': (0, -1), 'right': (0, 1)}


@functools.cache
def _compiled(task):
  return jax.jit(jax.vmap(task.sample, in_axes=(0, None)))


@functools.cache
def _episodes(sizes):
  """Draws episodes of grids of numbered cells, and returns the numbers."""
  count = _MANY if sizes == _GRID else _FEW
  keys = jax.random.split(jax.random.key(sum(sizes)), count)
  batch = _compiled(Navigation(*sizes))(keys, InOrder(*make(40)))
  batch = jax.device_get(batch)
  return batch, numbers(batch.frames)


def _neighbours(rows, columns, cell):
  """Returns the cell that each action inside the grid leads to."""
  row, column = divmod(cell, columns)
  return {
    action: (row + down) * columns + column + right
    for action, (down, right) in _STEPS.items()
    if 0 <= row + down < rows and 0 <= column + right < columns
  }


@pytest.mark.parametrize('sizes', _SIZES)
def test_episode_is_a_walk(sizes):
  rows, columns, steps = sizes
  task = Navigation(*sizes)
  assert (task.length, task.condition_size) == (steps, 4)
  batch, cells = _episodes(sizes)
  for b in range(_FEW):
    np.testing.assert_array_equal(batch.condition[b, 0], np.zeros(4))
    last = {}
    for t, cell in enumerate(cells[b]):
      if t:
        action = batch.condition[b, t]
        assert sorted(action) == [0, 0, 0, 1]
        name = navigation.ACTIONS[action.argmax()]
        # Walls: an action that leads out is never taken.
        allowed = _neighbours(rows, columns, cells[b, t - 1])
        assert cell == allowed[name]
      assert batch.source[b, t] == last.get(cell, -1)
      assert batch.predictable[b, t] == (cell in last)
      last[cell] = t
  np.testing.assert_array_equal(batch.label, np.full(cells.shape, -1))


@pytest.mark.parametrize('sizes', _SIZES)
def test_walk_is_recovered_from_its_condition(sizes):
  batch, cells = _episodes(sizes)
  for b in range(_FEW):
    place = np.stack(np.divmod(cells[b], sizes[1]), axis=1)
    found = navigation.positions(batch.condition[b])
    np.testing.assert_array_equal(found, place - place[0])
    # They are what figures take for places.
    assert found.dtype.kind == 'i'
    seen = [list(cells[b, :t]).count(cells[b, t]) for t in range(sizes[2])]
    np.testing.assert_array_equal(navigation.visits(batch.condition[b]), seen)


@pytest.mark.parametrize('sizes', _SIZES)
def test_walk_begins_where_start_says(sizes):
  task = Navigation(*sizes)
  batch, cells = _episodes(sizes)
  keys = jax.random.split(jax.random.key(sum(sizes)), len(cells))
  starts = np.asarray(jax.jit(jax.vmap(task.start))(keys))
  for start, condition, cell in zip(
    starts, batch.condition, cells, strict=False
  ):
    rows, columns = (start + navigation.positions(condition)).T
    np.testing.assert_array_equal(rows * task.columns + columns, cell)


def test_other_actions_lead_over_the_same_grid():
  sizes = (1, 5, 8)
  task, (batch, cells) = Navigation(*sizes), _episodes(sizes)
  keys = jax.random.split(jax.random.key(sum(sizes)), len(cells))
  follow = jax.jit(jax.vmap(task.follow, in_axes=(0, None, 0)))
  images = InOrder(*make(40))
  jax.tree.map(
    np.testing.assert_array_equal, follow(keys, images, batch.condition), batch
  )
  # To and fro: from the first cell to the right, else to the left.
  words = [
    'rl' * 3 + 'r' if cell == 0 else 'lr' * 3 + 'l' for cell in cells[:, 0]
  ]
  own = np.stack(
    [np.eye(8, 8, -1)[:, :7] @ navigation.one_hot(w) for w in words]
  )
  other = follow(keys, images, own.astype(np.float32))
  first, second = cells[:, :1], np.where(cells[:, :1], cells[:, :1] - 1, 1)
  expected = np.tile(np.concatenate([first, second], axis=1), 4)
  np.testing.assert_array_equal(numbers(other.frames), expected)
  source = [-1, -1, *range(6)]
  np.testing.assert_array_equal(other.source, [source] * len(cells))
  np.testing.assert_array_equal(other.predictable, other.source >= 0)


def test_letters_are_actions():
  moves = navigation.positions(navigation.one_hot('udlrr'))
  expected = [[-1, 0], [0, 0], [0, -1], [0, 0], [0, 1]]
  np.testing.assert_array_equal(moves, expected)
  for letters in ('', 'x', 'rR', 'r r'):
    with pytest.raises(ValueError, match=r'u \(up\), d \(down\), l \(left\)'):
      navigation.one_hot(letters)


def test_condition_of_a_batch_is_refused():
  for shape in ((25, 10, 4), (25, 5), (4,)):
    for function in (navigation.positions, navigation.visits):
      with pytest.raises(ValueError, match=r'it must be \[T, 4\]'):
        function(np.zeros(shape))


def test_prefix_is_fifteen_of_twenty_five():
  assert Navigation(4, 4, 25).prefix == 15
  for steps in range(3, 60):
    assert 1 <= Navigation(4, 4, steps).prefix < steps


def test_two_cells_leave_no_choice():
  _, cells = _episodes((1, 2, 3))
  np.testing.assert_array_equal(cells[:, 1], 1 - cells[:, 0])
  np.testing.assert_array_equal(cells[:, 2], cells[:, 0])


def test_grid_is_of_random_images():
  images = make(12)
  keys = jax.random.split(jax.random.key(3), 4_000)
  batch = jax.device_get(_compiled(Navigation(2, 2, 6))(keys, images))
  shown = numbers(batch.frames)
  assert_even(np.bincount(shown[:, 0], minlength=12))
  assert_even(np.bincount(shown[:, 1], minlength=12))
  # A cell's neighbour is drawn apart from it, and is another draw.
  assert_even(np.bincount(12 * shown[:, 0] + shown[:, 1], minlength=144))
  # Nor does the way depend on the image.
  action = batch.condition[:, 1].argmax(axis=1)
  for taken in range(4):
    assert_even(np.bincount(shown[action == taken, 0], minlength=12))


# --- Averages.


def test_start_is_uniform():
  _, cells = _episodes(_GRID)
  assert_even(np.bincount(cells[:, 0], minlength=12))


def test_actions_are_uniform_among_those_that_stay_inside():
  batch, cells = _episodes(_GRID)
  actions = batch.condition[:, 1:].argmax(axis=-1)
  names = np.array(navigation.ACTIONS)
  for cell in range(12):
    here = cells[:, :-1] == cell
    allowed = [name in _neighbours(3, 4, cell) for name in names]
    counts = np.bincount(actions[here], minlength=4)
    np.testing.assert_array_equal(counts > 0, allowed)
    assert_even(counts[allowed])


def test_actions_do_not_depend_on_those_before():
  batch, cells = _episodes(_GRID)
  actions = batch.condition[:, 1:].argmax(axis=-1)
  # In the two inner cells all four are possible, whichever led there.
  inside = np.isin(cells[:, 1:-1], [5, 6])
  for before in range(4):
    after = actions[:, 1:][inside & (actions[:, :-1] == before)]
    assert_even(np.bincount(after, minlength=4))
  # Nor on the step, nor on the episode before.
  for t in (0, 10):
    here = np.isin(cells[:, t], [5, 6])
    assert_even(np.bincount(actions[here, t], minlength=4))
  pairs = 12 * cells[1:, 0] + cells[:-1, 0]
  assert_even(np.bincount(pairs, minlength=144))


def _first_visits(rows, columns, steps):
  """Computes the exact probability that frame t shows a new cell, [T].

  For each cell, the walks that have not met it yet are followed.
  """
  count = rows * columns
  transition = np.zeros((count, count))
  for cell in range(count):
    neighbours = _neighbours(rows, columns, cell).values()
    transition[cell, list(neighbours)] = 1 / len(neighbours)
  new = np.zeros(steps)
  for cell in range(count):
    walking = np.full(count, 1 / count)
    for t in range(steps):
      walking = walking @ transition if t else walking
      new[t] += walking[cell]
      walking[cell] = 0
  return new


@pytest.mark.parametrize('sizes', _SIZES)
def test_revisits_are_as_frequent_as_they_must_be(sizes):
  batch, _ = _episodes(sizes)
  new = _first_visits(*sizes)
  for t, seen in enumerate(batch.predictable.T):
    assert_frequency(int(seen.sum()), len(seen), 1 - new[t])


def test_average_walk_is_that_of_a_slow_one():
  _, cells = _episodes(_GRID)
  rng = np.random.default_rng(0)
  walks = np.empty_like(cells)
  for walk in walks:
    walk[0] = rng.integers(12)
    for t in range(1, 12):
      walk[t] = rng.choice(list(_neighbours(3, 4, walk[t - 1]).values()))
  for t in (3, 6, 11):
    ours, slow = (np.bincount(x[:, t], minlength=12) for x in (cells, walks))
    # Pearson's statistic of two samples, 11 degrees of freedom: one in a
    # million.
    assert ((ours - slow) ** 2 / (ours + slow)).sum() < 51
  for measure in (
    lambda walk: len(set(walk)),
    lambda walk: np.mean(walk[2:] == walk[:-2]),
  ):
    ours, slow = (
      np.array([measure(walk) for walk in x]) for x in (cells, walks)
    )
    error = np.sqrt((ours.var() + slow.var()) / _MANY)
    assert abs(ours.mean() - slow.mean()) < 5 * error


@pytest.mark.parametrize(
  ('sizes', 'message'),
  [
    ((1, 1, 25), 'rows is 1 and columns 1; both must be at least 1 and one'),
    ((0, 4, 25), 'rows is 0 and columns 4; both must be at least 1'),
    ((4, 0, 25), 'rows is 4 and columns 0; both must be at least 1'),
    ((-2, -2, 25), 'rows is -2 and columns -2; both must be at least 1'),
    ((4, 4, 2), 'length is 2; it must be at least 3'),
    ((4, 4, 0), 'length is 0; it must be at least 3'),
    ((1, 2, -5), 'length is -5; it must be at least 3'),
  ],
)
def test_parameters_that_make_no_sense_are_refused(sizes, message):
  with pytest.raises(ValueError, match=f'^navigation: {message}'):
    Navigation(*sizes)
