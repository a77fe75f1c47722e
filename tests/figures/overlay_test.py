"""Tests of maps that a walk leaves behind, read back from pictures."""

import numpy as np
import pytest
from matplotlib.text import Annotation

from gtmm_jax import figures
from read_figures import check_layout, pixels, words

pytestmark = pytest.mark.filterwarnings('error')

_GAP = 2
_GREY = round(0.3 * 255) / 255


def _frames(length, side=28, seed=0):
  """Draws frames in fifths, which bytes hold exactly."""
  random = np.random.default_rng(seed)
  return random.integers(0, 6, (length, side, side, 1)) / 5


def _visits(positions):
  """Counts how often each cell was seen before."""
  cells = [tuple(cell) for cell in positions]
  return np.array([cells[:t].count(cell) for t, cell in enumerate(cells)])


def _labels(figure):
  """Returns pixels (x, y) of the words over columns, and of rows' names."""
  texts = [text for text in figure.axes[0].texts if text.get_text()]
  over = {
    int(text.get_text()[4:]): text.get_position()
    for text in texts
    if text.get_text().startswith('t = ')
  }
  names = [
    (text.get_text(), text.get_position())
    for text in texts
    if text.get_ha() == 'right'
  ]
  return over, names


def _cells(page, middle, count, side):
  """Returns the cells [rows, columns, side, side, 3] of the map at (x, y)."""
  rows, columns = count
  tall, wide = (_GAP + n * (side + _GAP) for n in count)
  x, y = round(middle[0] - wide / 2), round(middle[1] - tall / 2)
  cells = np.empty((rows, columns, side, side, 3))
  for row, column in np.ndindex(rows, columns):
    top = y + _GAP + row * (side + _GAP)
    left = x + _GAP + column * (side + _GAP)
    cells[row, column] = page[top : top + side, left : left + side]
    # The gap above and left of it is neither dark nor white.
    assert (abs(page[top - 2 : top, left] - 0.6) < 0.01).all()
    assert (abs(page[top, left - 2 : left] - 0.6) < 0.01).all()
  return cells


def _draw(rows, positions, **options):
  """Draws an overlay; returns its pixels, and where columns and rows are."""
  visits = _visits(positions)
  figure = figures.overlay_figure(rows, positions, visits, **options)
  return pixels(figure), *_labels(figure)


# Forth and back between two cells, then on to a third: the first cell is seen
# four times, the second three times; rows and columns begin below zero.
_WALK = np.array(
  [[-3, 5], [-3, 4], [-3, 5], [-3, 4], [-3, 5], [-3, 4], [-3, 5], [-2, 5]]
)


def test_visits_are_red_green_and_blue_and_later_ones_are_left_out():
  frames, other = _frames(8), _frames(8, seed=1)
  rows = [('truth', frames), ('dream', other)]
  page, over, names = _draw(rows, _WALK)
  assert list(over) == [5, 8]
  assert [name for name, _ in names] == ['last five moves', 'truth', 'dream']
  for (_, drawn), (_, (_, y)) in zip(rows, names[1:], strict=True):
    large = drawn[..., 0].repeat(2, axis=1).repeat(2, axis=2)
    dark = np.zeros((56, 56))
    grey = np.full((56, 56, 3), _GREY)
    left, right = (0, 0), (0, 1)
    early = {
      right: np.stack([large[0], large[2], large[4]], axis=-1),
      left: np.stack([large[1], large[3], dark], axis=-1),
      (1, 0): grey,
      (1, 1): grey,
    }
    late = early | {
      # The fourth visit to the cell at the right changes nothing.
      left: np.stack([large[1], large[3], large[5]], axis=-1),
      (1, 1): np.stack([large[7], dark, dark], axis=-1),
    }
    for end, expected in ((5, early), (8, late)):
      cells = _cells(page, (over[end][0], y), (2, 2), 56)
      for cell, picture in expected.items():
        np.testing.assert_allclose(cells[cell], picture, atol=0.5 / 255)


def test_what_agrees_is_yellow_then_white_and_dark_is_not_unvisited():
  ink = np.zeros((5, 28, 28, 1))
  ink[:, :14] = 1
  walk = np.array([[0, 0], [0, 1], [0, 0], [0, 1], [0, 0]])
  rows = [('a', ink)]
  page, over, names = _draw(rows, walk)
  cells = _cells(page, (over[5][0], names[1][1][1]), (1, 2), 56)
  assert (cells[0, 0, :28] == 1).all()
  assert (cells[0, 1, :28] == [1, 1, 0]).all()
  assert (cells[0, :, 28:] == 0).all()


@pytest.mark.parametrize(
  ('length', 'ends'), [(1, [1]), (5, [5]), (12, [5, 10, 12])]
)
@pytest.mark.parametrize('is_tall', [False, True])
def test_columns_are_five_frames_apart_on_walks_of_one_line(
  length, ends, is_tall
):
  # To and fro on three cells.
  line = np.array([0, 1, 2, 1] * 7)[:length]
  walk = np.stack([line, 0 * line][:: 1 if is_tall else -1], axis=1)
  figure = figures.overlay_figure([('a', _frames(length))], walk, _visits(walk))
  over, names = _labels(figure)
  assert list(over) == ends
  assert len({y for _, y in over.values()}) == 1
  assert len(names) == 2


def test_arrows_are_the_last_five_moves():
  walk = np.array([[0, 0], [0, 1], [1, 1], [1, 0], [1, 1], [1, 1], [0, 1]])
  figure = figures.overlay_figure([('a', _frames(7))], walk, _visits(walk))
  over, names = _labels(figure)
  step = 56 + _GAP
  arrows = [
    (np.array(each.xyann), np.array(each.xy))
    for each in figure.axes[0].texts
    if isinstance(each, Annotation)
  ]
  # Four moves led to the first five frames; then five, one of which stays.
  expected = [(5, t) for t in (1, 2, 3, 4)] + [(7, t) for t in (2, 3, 4, 6)]
  assert len(arrows) == len(expected)
  for (start, end), (column, t) in zip(arrows, expected, strict=True):
    middle = np.array([over[column][0], names[0][1][1]])
    ends = []
    for point, cell in ((start, walk[t - 1]), (end, walk[t])):
      away = point - (middle + (cell[::-1] - 0.5) * step)
      # Within the cell it leaves or enters.
      assert abs(away).max() < 28
      ends.append(cell[::-1])
    move, straight = end - start, ends[1] - ends[0]
    # In the move's direction, and to the right of the straight way.
    assert move @ straight > 0.5 * step
    np.testing.assert_allclose(move[straight == 0], 0, atol=1e-9)
  # None lies upon another within a column.
  for first, last in ((0, 4), (4, 8)):
    middles = [tuple(np.round(sum(each), 3)) for each in arrows[first:last]]
    assert len(set(middles)) == last - first
  dots = [line.get_xydata()[0] for line in figure.axes[0].lines]
  for dot, column, cell in zip(dots, (5, 7), walk[[4, 6]], strict=True):
    middle = np.array([over[column][0], names[0][1][1]])
    np.testing.assert_allclose(dot, middle + (cell[::-1] - 0.5) * step)


def test_arrows_are_yellow_on_dark_cells():
  walk = np.array([[0, 0], [0, 1]])
  page, over, names = _draw([('a', _frames(2))], walk)
  cells = _cells(page, (over[2][0], names[0][1][1]), (1, 2), 56)
  is_yellow = (cells[..., 0] > 0.8) & (cells[..., 2] < 0.3)
  assert is_yellow[0, 0].any() and is_yellow[0, 1].any()
  assert np.median(cells) < 0.2


def test_frames_of_nan_are_no_visits():
  frames = _frames(5)
  frames[3:] = np.nan
  frames[0, 0, 0] = np.nan
  walk = np.array([[0, 0], [0, 1], [0, 0], [0, 1], [1, 1]])
  page, over, names = _draw([('a', frames)], walk)
  cells = _cells(page, (over[5][0], names[1][1][1]), (2, 2), 56)
  assert (cells[0, 0, :2, :2, 0] == 0).all()
  assert (cells[0, 1, ..., 1] == 0).all() and cells[0, 1, ..., 0].any()
  np.testing.assert_allclose(cells[1], _GREY)
  # A model that failed shows nothing, and its figure is drawn all the same.
  rows = [('a', np.full((5, 28, 28, 1), np.nan))]
  page, over, names = _draw(rows, walk)
  cells = _cells(page, (over[5][0], names[1][1][1]), (2, 2), 56)
  np.testing.assert_allclose(cells, _GREY)


def test_long_walks_go_on_in_further_blocks():
  random = np.random.default_rng(0)
  walk = np.cumsum(random.integers(-1, 2, (60, 2)), axis=0)
  walk = np.clip(walk, 0, 4)
  frames = _frames(60)
  page, over, names = _draw([('a', frames)], walk)
  assert list(over) == list(range(5, 61, 5))
  blocks = len({y for _, y in over.values()})
  assert blocks > 1 and len(names) == 2 * blocks
  assert page.shape[1] < 2_700
  count = np.ptp(walk, axis=0) + 1
  last = _cells(page, (over[60][0], names[-1][1][1]), count, 56)
  seen = np.flatnonzero((walk == walk[-1]).all(axis=1))[0]
  expected = frames[seen, ..., 0].repeat(2, 0).repeat(2, 1)
  shown = last[tuple(walk[-1] - walk.min(axis=0))][..., 0]
  np.testing.assert_allclose(shown, expected, atol=0.5 / 255)


def test_the_whole_grid_is_shown():
  frames, walk = _frames(3), np.array([[1, 2], [1, 1], [0, 1]])
  page, over, names = _draw([('a', frames)], walk, grid=(3, 5))
  cells = _cells(page, (over[3][0], names[1][1][1]), (3, 5), 56)
  lit = {(1, 2): 0, (1, 1): 1, (0, 1): 2}
  for row, column in np.ndindex(3, 5):
    frame = lit.get((row, column))
    if frame is None:
      np.testing.assert_allclose(cells[row, column], _GREY)
    else:
      expected = frames[frame, ..., 0].repeat(2, 0).repeat(2, 1)
      shown = cells[row, column, ..., 0]
      np.testing.assert_allclose(shown, expected, atol=0.5 / 255)


@pytest.mark.parametrize(
  ('grid', 'told'),
  [
    (None, 'cut: the cells that the walk covers'),
    ((9, 20), 'cut: rows 3 to 4 of 9 and columns 7 to 8 of 20'),
  ],
)
def test_a_map_that_is_cut_says_so(grid, told):
  walk = np.array([[2, 7], [2, 6], [3, 6]])
  figure = figures.overlay_figure(
    [('a', _frames(3))], walk, _visits(walk), grid=grid
  )
  assert any(told in word for word in words(figure))
  check_layout(figure)
  whole = figures.overlay_figure(
    [('a', _frames(3))], walk, _visits(walk), grid=(4, 8)
  )
  assert not any('cut' in word for word in words(whole))


def test_a_walk_beyond_the_grid_is_refused():
  walk = np.array([[0, 0], [0, 1], [0, 2]])
  with pytest.raises(ValueError, match='grid of 2 x 2'):
    figures.overlay_figure(
      [('a', _frames(3))], walk, _visits(walk), grid=(2, 2)
    )


def test_cells_of_a_wide_map_are_thinned_to_fit_a_page():
  walk = np.stack([np.zeros(120, int), np.arange(120)], axis=1)
  figure = figures.overlay_figure([('a', _frames(120))], walk, _visits(walk))
  assert figure.get_figwidth() * figure.dpi < 2_700


@pytest.mark.parametrize('title', [None, 'A long title, costs $1 or $2 ' * 4])
@pytest.mark.parametrize('length', [1, 12])
def test_overlays_cut_nothing_off(title, length):
  walk = np.stack([np.arange(length) % 2, np.zeros(length, int)], axis=1)
  rows = [('a row: $1', _frames(length)), ('', _frames(length))]
  figure = figures.overlay_figure(rows, walk, _visits(walk), title)
  check_layout(figure)
  assert any('red' in word for word in words(figure))


_STILL = np.zeros((2, 2), int)
_TWICE = np.arange(2)


@pytest.mark.parametrize(
  ('rows', 'positions', 'visits', 'message'),
  [
    ([], _STILL, _TWICE, 'no maps'),
    ([('a', _frames(0))], _STILL[:0], _TWICE[:0], 'no frames'),
    ([('a', _frames(2)), ('b', _frames(3))], _STILL, _TWICE, r' b \(3'),
    ([('a', _frames(2)), ('b', _frames(2, 14))], _STILL, _TWICE, 'same'),
    ([('a', _frames(2)[..., 0])], _STILL, _TWICE, r"'a' has shape \(2, 28"),
    ([('a', np.zeros((2, 28, 28, 3)))], _STILL, _TWICE, r'\[T, H, W, 1\]'),
    ([('a', np.zeros((2, 0, 28, 1)))], _STILL, _TWICE, 'shape'),
    ([('a', np.full((2, 8, 8, 1), 200))], _STILL, _TWICE, 'divide'),
    ([('a', _frames(2))], _STILL[:1], _TWICE, r'positions .*\(2, 2\)'),
    ([('a', _frames(2))], _STILL / 2, _TWICE, 'positions .*integers'),
    ([('a', _frames(2))], _STILL, np.arange(3), r'visits .*\(2,\)'),
    ([('a', _frames(2))], _STILL, _TWICE > 0, 'visits .*bool'),
    ([('a', _frames(2))], _STILL, -_TWICE, 'visits has -1'),
  ],
)
def test_what_is_no_overlay_is_refused(
  tmp_path, rows, positions, visits, message
):
  with pytest.raises(ValueError, match=message):
    figures.save(
      figures.overlay_figure(rows, positions, visits), tmp_path / 'overlay'
    )
  assert not list(tmp_path.iterdir())
