"""Rooms: what is drawn, and whether the camera shows it as it is."""

import functools

import jax
import numpy as np
import pytest

import slow_cases
import slow_march
from gtmm_jax.tasks import rooms
from gtmm_jax.tasks.rooms import view, walls
from gtmm_jax.tasks.rooms.scenes import BALL, CELLS, CONE, POST, WALL_HEIGHT
from numbered_images import assert_even

_MANY = 150
_EAST, _NORTH, _WEST, _SOUTH = np.arange(4) * np.pi / 2

_make = jax.jit(rooms.make_room)
_place = jax.jit(rooms.draw_place)
_render = jax.jit(rooms.render, static_argnums=(2, 3))


@functools.cache
def _scene(number):
  return jax.device_get(_make(number))


@pytest.fixture(scope='module')
def many():
  """Scenes with a leading axis, and a place in each."""
  scenes = jax.jit(jax.vmap(rooms.make_room))(np.arange(_MANY))
  keys = jax.random.split(jax.random.key(1), _MANY)
  places = jax.jit(jax.vmap(rooms.draw_place))(keys, scenes)
  return jax.device_get((scenes, places))


def _pose(x, y, heading):
  return np.array([x, y, heading], np.float32)


def _hall(walls=(), things=(), plain=True):
  """Makes an empty hall with solid cells (x, y) and things in it.

  A thing is (kind, x, y, radius, height, color). Walls, unless they keep their
  bricks, are white, the floor and the sky black.
  """
  scene = _scene(0)
  solid = np.ones((CELLS, CELLS), bool)
  solid[1:-1, 1:-1] = False
  for x, y in walls:
    solid[y, x] = True
  # Things that are not asked for stand inside the border.
  kinds, positions, radii, heights, colors = [], [], [], [], []
  for kind, x, y, radius, height, color in [
    *things,
    *[(POST, 0.5, 0.5, 0.1, 0.1, (0, 0, 0))] * (6 - len(things)),
  ]:
    kinds.append(kind)
    positions.append((x, y))
    radii.append(radius)
    heights.append(height)
    colors.append(color)
  scene = scene._replace(
    solid=solid,
    painting=np.full_like(scene.painting, -1),
    texture=np.zeros_like(scene.texture),
    things=type(scene.things)(
      np.array(kinds, np.int32),
      *(np.array(x, np.float32) for x in (positions, radii, heights, colors)),
    ),
  )
  if plain:
    scene = scene._replace(
      styles=scene.styles._replace(colors=np.ones_like(scene.styles.colors)),
      floor=np.zeros(3, np.float32),
      sky=jax.tree.map(np.zeros_like, scene.sky),
    )
  return scene


def _frame(scene, pose, size=32):
  return np.asarray(_render(scene, pose, size, size))


# What a camera sees.

_RED, _BLUE = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
_CROWD = [
  (POST, 5.5, 4.6, 0.2, 0.3, (0.9, 0.2, 0.1)),
  (BALL, 6.4, 4.2, 0.3, 0.0, (0.2, 0.3, 0.9)),
  (CONE, 5.3, 3.7, 0.25, 0.6, (0.3, 0.8, 0.3)),
  (POST, 7.5, 4.9, 0.15, 0.7, (0.8, 0.8, 0.1)),
  (CONE, 4.6, 5.5, 0.2, 0.3, (0.5, 0.1, 0.7)),
  (BALL, 4.4, 3.4, 0.15, 0.0, (0.9, 0.6, 0.2)),
]


def _check_against_march(scene, pose):
  height, width = 16, 20
  frame = np.asarray(_render(scene, pose, height, width), np.float64)
  expected, shown = slow_march.march(scene, pose, height, width)
  error = abs(frame - expected).max(-1)
  known = ~np.isnan(error)
  pure, mixed = error[known & (shown >= 0)], error[known & (shown < 0)]
  # Six by eight lines of sight meet an edge to within a twelfth of a pixel.
  assert len(pure) > 100
  assert pure.max() < 0.09
  assert pure.mean() < 0.008
  # Where one thing ends and another begins, a column has two rays.
  assert mixed.max() < 0.3
  assert mixed.mean() < 0.04
  counts = []
  for number, color in enumerate(scene.things.color):
    here = frame[shown == slow_march.THING + number]
    brightness = here @ color / (color @ color)
    # Its own colour, darkened.
    np.testing.assert_allclose(here, np.outer(brightness, color), atol=0.03)
    assert ((brightness > 0.15) & (brightness < 1.3)).all()
    counts.append(len(here))
  return counts


@pytest.mark.parametrize(
  ('number', 'heading'),
  slow_cases.but_for([(5, 40.0)], [(0, 0.0), (2, -1.9), (5, 40.0)]),
)
def test_frames_are_those_of_a_slow_march(number, heading):
  scene = _scene(number)
  place = _place(jax.random.key(number), scene)
  _check_against_march(scene, _pose(*place, heading))


@pytest.mark.parametrize(
  ('x', 'y', 'heading', 'visible'),
  slow_cases.but_for(
    [(6.6, 3.0, 2.4, 3)], [(3.4, 4.45, 0.0, 3), (6.6, 3.0, 2.4, 3)]
  ),
)
def test_things_are_those_of_a_slow_march(x, y, heading, visible):
  scene = _hall([(6, 6), (2, 6)], _CROWD, plain=False)
  counts = _check_against_march(scene, _pose(x, y, heading))
  assert sum(count > 0 for count in counts) >= visible, counts


# The march is of a heading beyond several turns.
@pytest.mark.slow
def test_frames_of_a_whole_turn_more_are_the_same(many):
  scenes, places = many
  headings = np.linspace(0.1, 6.1, 4)
  for n in range(4):
    scene = jax.tree.map(lambda x, n=n: x[n], scenes)
    frame = _frame(scene, _pose(*places[n], headings[n]))
    for turns in (-1, 1):
      other = _pose(*places[n], headings[n] + turns * 2 * np.pi)
      other = _frame(scene, other)
      # A ray in a thousand may pass a corner on the other side.
      assert abs(frame - other).mean() < 1e-4
      assert (abs(frame - other).max(-1) > 1e-3).mean() < 0.005
    np.testing.assert_array_equal(
      frame, _frame(scene, _pose(*places[n], headings[n]))
    )
    assert abs(frame - _frame(scene, _pose(*places[n], 3.0))).mean() > 0.01


@pytest.mark.slow
def test_large_frames_are_small_ones_in_more_detail(many):
  scenes, places = many
  for n in range(4):
    scene = jax.tree.map(lambda x, n=n: x[n], scenes)
    pose = _pose(*places[n], 1.5 * n)
    large = _frame(scene, pose, 64).reshape(32, 2, 32, 2, 3).mean((1, 3))
    error = abs(large - _frame(scene, pose))
    assert error.mean() < 0.006
    assert (error.max(-1) > 0.1).mean() < 0.03


# tests/tasks/rotation_test.py looks at a batch of small ones.
@pytest.mark.slow
def test_frames_are_colours(many):
  count = 40
  scenes, places = jax.tree.map(lambda x: x[:count], many)
  headings = np.linspace(0, 7, count, dtype=np.float32)
  poses = np.concatenate([places, headings[:, None]], 1)
  batch = jax.vmap(functools.partial(rooms.render, height=32, width=32))
  frames = np.asarray(jax.jit(batch)(scenes, poses))
  assert frames.dtype == np.float32
  assert frames.shape == (count, 32, 32, 3)
  assert frames.min() >= 0
  assert frames.max() <= 1
  # A batch equals its singles.
  for n in (0, 7):
    scene = jax.tree.map(lambda x, n=n: x[n], scenes)
    single = _frame(scene, poses[n])
    np.testing.assert_allclose(frames[n], single, atol=1e-4)


@pytest.mark.parametrize(
  ('heading', 'distance'),
  [(_EAST, 3.2), (_NORTH, 3.6), (_WEST, 3.8), (_SOUTH, 3.4)],
)
def test_flat_wall_is_as_high_in_every_column(heading, distance):
  # Of the hall's 7 cells, from (4.8, 4.4).
  frame = _frame(_hall(), _pose(4.8, 4.4, heading))
  light = walls._LIGHT[{_EAST: 0, _NORTH: 2, _WEST: 1, _SOUTH: 3}[heading]]
  focal = 16 / np.tan(view.FIELD_OF_VIEW / 2)
  # The columns that show it and not its neighbours.
  columns = np.arange(32) - 15.5
  columns = abs(columns) / focal * distance < 3
  # Dimming grows towards the sides; heights do not.
  aside = (np.arange(64) / 2 - 15.75).reshape(32, 2) / focal
  dim = view.dim(distance * np.sqrt(1 + aside**2)).mean(1)
  shown = (frame[..., 0].sum(0) / (light * dim))[columns]
  assert len(shown) > 20
  np.testing.assert_allclose(shown, WALL_HEIGHT * focal / distance, rtol=1e-4)


def _redness(frame):
  return (frame[..., 0] - frame[..., 2])[14:, 12:20]


@pytest.mark.parametrize('kind', [POST, BALL, CONE])
def test_nearer_hides_what_is_behind(kind):
  def see(walls, *things):
    return _frame(_hall(walls, things), _pose(2.5, 4.5, _EAST))

  def thing(x, color, size=0.3):
    return kind, x, 4.5, size, 2 * size, color

  # A thing hides the wall,
  red = see((), thing(4.5, _RED))
  assert _redness(red).max() > 0.3
  assert (red[..., 1:].min((-1, -2)) < 0.05).any()
  # a wall hides a thing,
  hidden = see([(4, 4)], thing(5.5, _RED))
  np.testing.assert_array_equal(hidden, see([(4, 4)]))
  # and of two things the nearer is seen, whichever is first in the list.
  for order in (1, -1):
    two = [thing(4.5, _RED), thing(6.5, _BLUE)][::order]
    # The far one is hidden but for what is seen over it.
    np.testing.assert_allclose(see((), *two)[20:], red[20:], atol=1e-5)
    two = [thing(6.5, _RED, 0.4), thing(3.7, _BLUE, 0.15)][::order]
    assert _redness(see((), *two)).min() < -0.3
    assert _redness(see((), *two)).max() > 0.3
  # What is behind the camera is not seen.
  np.testing.assert_array_equal(see((), thing(1.6, _RED)), see(()))


def test_textures_do_not_break_where_cells_meet():
  bricks = _hall(plain=False)
  for space, shift in ((0.25, 0.0), (1 / 3, 0.5), (0.5, 0.5), (2 / 3, 0.5)):
    styles = bricks.styles._replace(
      course=np.full(5, 0.25, np.float32),
      line=np.full(5, 0.1, np.float32),
      space=np.full(5, space, np.float32),
      joint=np.full(5, 0.2, np.float32),
      shift=np.full(5, shift, np.float32),
    )
    scene = bricks._replace(styles=styles, sky=_hall().sky)
    for heading, step in ((_NORTH, (1, 0)), (_EAST, (0, 1))):
      start = np.array([3.3, 3.3]) + 2.2 * np.array(step[::-1])
      # One joint on, the wall looks the same, wherever its cells meet.
      one, other = (
        _frame(scene, _pose(*(start + space * n * np.array(step)), heading))
        for n in range(2)
      )
      np.testing.assert_allclose(one, other, atol=2e-4)
      # And half a joint on it does not.
      half = _pose(*(start + space / 2 * np.array(step)), heading)
      assert abs(one - _frame(scene, half)).max() > 0.05


def test_paintings_hang_where_they_should():
  scene, pose = _hall(), _pose(4.5, 6.6, _NORTH)
  bare = _frame(scene, pose)
  for side in range(4):
    painting = scene.painting.copy()
    painting[side, CELLS - 1, 4] = 3
    painted = _frame(scene._replace(painting=painting), pose)
    changed = abs(painted - bare).max(-1) > 1e-6
    if side != 2:
      assert not changed.any()
      continue
    # Straight ahead, from its bottom to its top.
    canvas = jax.tree.map(lambda x: x[3], scene.canvases)
    focal = 16 / np.tan(view.FIELD_OF_VIEW / 2)
    scale = focal / 1.4
    np.testing.assert_array_equal(changed, changed[:, ::-1])
    rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
    top = 16 - (canvas.top - view.EYE) * scale
    bottom = 16 - (canvas.bottom - view.EYE) * scale
    assert (rows[0], rows[-1]) == (int(top), int(bottom))
    assert columns[-1] == int(16 + canvas.half_width * scale)


# What is drawn.


def test_mazes_hang_together(many):
  solid = many[0].solid
  border = np.ones((CELLS, CELLS), bool)
  border[1:-1, 1:-1] = False
  assert solid[:, border].all()
  assert not solid[:, 1::2, 1::2].any()
  for maze in solid:
    reached, edge = set(), [(1, 1)]
    while edge:
      y, x = edge.pop()
      if (y, x) in reached or maze[y, x]:
        continue
      reached.add((y, x))
      edge += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    assert len(reached) == (~maze).sum()
  # No cell but those of the chambers and the border is always the same.
  free = (~solid).mean(0)[1:-1, 1:-1]
  free[::2, ::2] = 0.5
  assert (free > 0.2).all() and (free < 0.95).all()


def test_things_stand_apart_in_free_cells(many):
  scenes, _ = many
  things = scenes.things
  cells = np.floor(things.position).astype(int)
  for n in range(_MANY):
    assert len({tuple(cell) for cell in cells[n]}) == things.kind.shape[1]
    assert not scenes.solid[n][cells[n, :, 1], cells[n, :, 0]].any()
  inside = things.position - cells
  assert (abs(inside - 0.5).max(-1) + things.radius <= 0.45 + 1e-5).all()
  assert_even(np.bincount(things.kind.ravel(), minlength=3))
  assert (things.height[things.kind != BALL] >= 0.25).all()


def test_scenes_are_of_what_they_should_be(many):
  scenes, _ = many
  for name, colors in (
    ('styles', scenes.styles.colors),
    ('canvases', scenes.canvases.colors),
    ('things', scenes.things.color),
    ('floor', scenes.floor),
    ('sky', scenes.sky.colors),
    ('far', scenes.sky.far_colors),
    ('near', scenes.sky.near_colors),
  ):
    assert colors.shape[-1] == 3, name
    assert ((colors >= 0) & (colors <= 1)).all(), name
  count = scenes.styles.course.shape[1]
  assert scenes.texture.min() == 0
  assert scenes.texture.max() == count - 1
  canvases = scenes.canvases
  assert scenes.painting.min() == -1
  assert scenes.painting.max() == canvases.top.shape[1] - 1
  assert 0.37 < (scenes.painting >= 0).mean() < 0.43
  # A painting is inside its wall, and its disc inside the painting.
  assert (canvases.half_width < 0.5).all()
  assert (canvases.bottom > 0).all() and (canvases.top < WALL_HEIGHT).all()
  top = canvases.split + 2 * canvases.disc
  assert (top < canvases.top - canvases.frame).all()
  # Styles of a scene differ.
  for n in range(_MANY):
    patterns = np.stack(scenes.styles[1:], 1)[n].T
    assert len(np.unique(patterns, axis=0)) == count
  assert scenes.sky.buildings.max() < np.tan(view.FIELD_OF_VIEW / 2)


def test_places_are_free_and_away_from_walls(many):
  scenes, places = many
  for n in range(_MANY):
    for east in (-0.299, 0, 0.299):
      for north in (-0.299, 0, 0.299):
        x, y = np.floor(places[n] + [east, north]).astype(int)
        assert not scenes.solid[n, y, x]
  apart = np.linalg.norm(scenes.things.position - places[:, None], axis=-1)
  assert (apart > scenes.things.radius + 0.05).all()
  cells = np.floor(places).astype(int)
  things = np.floor(scenes.things.position).astype(int)
  assert not (cells[:, None] == things).all(-1).any()


def test_all_free_places_are_as_likely():
  scene = _scene(3)
  keys = jax.random.split(jax.random.key(2), 4_000)
  places = np.asarray(
    jax.jit(jax.vmap(rooms.draw_place, (0, None)))(keys, scene)
  )
  x, y = np.floor(places).astype(int).T
  counts = np.bincount(CELLS * y + x, minlength=CELLS**2)
  free = ~scene.solid
  column, row = np.floor(scene.things.position).astype(int).T
  free[row, column] = False
  np.testing.assert_array_equal(counts > 0, free.ravel())
  assert_even(counts[free.ravel()])
  inside = (places % 1).ravel()
  assert inside.min() >= 0.3 - 1e-5 and inside.max() <= 0.7 + 1e-5
  assert_even(np.histogram(inside, 10, (0.3, 0.7))[0])


# Rooms for training, validation and test.


def _draw(images, seed, count=100):
  keys = jax.random.split(jax.random.key(seed), count)
  scenes = _draw_many(keys, images)
  return {np.asarray(x).tobytes() for x in np.asarray(scenes.things.color)}


_draw_many = jax.jit(jax.vmap(lambda key, images: images.draw(key), (0, None)))


def test_rooms_are_drawn_from_their_numbers():
  first = np.uint32(3_000_000_000)
  few = rooms.Rooms(first, np.int32(5), 32)
  drawn = _draw(few, 1)
  known = {
    _scene(first + np.uint32(n)).things.color.tobytes() for n in range(5)
  }
  assert drawn == known
  assert len(known) == 5


def test_rooms_of_the_parts_are_never_the_same():
  parts = rooms.split(16)
  assert [part.shape for part in parts] == [(16, 16, 3)] * 3
  numbers = [range(x.first, int(x.first) + int(x.count)) for x in parts]
  # Those of the test follow those of training, as in earlier versions.
  assert [each.start for each in numbers] == [0, 2 * 2**24, 2**24]
  assert {len(each) for each in numbers} == {2**24}
  drawn = [_draw(images, 1) for images in parts]
  assert len(set().union(*drawn)) == sum(map(len, drawn)) == 300
  # Sizes are no leaves: they are shapes.
  assert len(jax.tree.leaves(parts[0])) == 2


@pytest.mark.parametrize('size', [0, -3])
def test_sizes_that_make_no_sense_are_refused(size):
  with pytest.raises(ValueError, match=f'^rooms: size is {size}; it must be'):
    rooms.split(size)


def test_what_is_drawn_belongs_to_its_version():
  """Fails if rooms change: increase `VERSION`, then update these numbers."""
  assert rooms.VERSION == 1
  means = []
  for number in range(4):
    scene = _scene(number)
    pose = _pose(*_place(jax.random.key(number), scene), 2.0 * number)
    means.append(_frame(scene, pose).mean())
  np.testing.assert_allclose(
    means, [0.46005, 0.58007, 0.45255, 0.45832], atol=1e-4
  )
