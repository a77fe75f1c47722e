"""The figure of a memory, read back from the drawn figure and its file."""

import matplotlib
import numpy as np
import pytest

import slow_cases
from gtmm_jax import figures
from gtmm_jax.figures import Panel
from read_figures import check_layout, pixels, words

pytestmark = pytest.mark.filterwarnings('error')

_MARK = np.array((213, 94, 0))
_WHITE = np.array((255, 255, 255))


def _frames(length, side=28, channels=1, seed=0):
  random = np.random.default_rng(seed)
  return random.integers(0, 9, (length, side, side, channels)) / 8


def _weights(length, slots, seed=0):
  return np.random.default_rng(seed).random((length, slots))


def _all_kinds(length=15, slots=15, heads=5, words=32):
  """Makes panels like those of an external memory."""
  random = np.random.default_rng(3)
  names = [
    f'{mode} {head + 1}'
    for mode in ('backward', 'content', 'forward')
    for head in range(heads)
  ]
  unit = (0.0, 1.0)
  return [
    *(
      Panel(
        f'read weights, head {head + 1}',
        _weights(length, slots, head),
        'slot',
        'weight',
        unit,
      )
      for head in range(heads)
    ),
    Panel('usage', 7 * _weights(length, slots, 9), 'slot', 'usage'),
    Panel(
      'content at the last frame',
      random.normal(size=(words, slots)),
      'slot',
      'value',
      columns='word',
    ),
    Panel('gates', _weights(length, 1), ['write'], 'gate', unit),
    Panel('read modes', _weights(length, len(names)), names, 'share', unit),
  ]


def _maps(figure):
  """Returns axes of heat maps and their scales, in the order of the panels."""
  axes = [axes for axes in figure.axes if axes.get_xlabel()]
  return [(one, one.images[0].colorbar.ax) for one in axes]


def _strips(figure):
  return [
    axes
    for axes in figure.axes
    if axes.images and not axes.get_xlabel() and not axes.axison
  ]


def _box(axes):
  """Returns whole pixels from the upper left: left, top, right, bottom."""
  width, height = axes.figure.get_size_inches() * axes.figure.dpi
  place = axes.get_position()
  edges = np.array(
    (
      place.x0 * width,
      (1 - place.y1) * int(height),
      place.x1 * width,
      (1 - place.y0) * int(height),
    )
  )
  np.testing.assert_allclose(edges, np.round(edges), atol=0.01)
  return np.round(edges).astype(int)


def _draw(frames, panels, **options):
  """Draws a memory; returns the pixels as bytes, [Y, X, 3], and the figure."""
  figure = figures.memory_figure(frames, panels, **options)
  return np.rint(255 * pixels(figure)).astype(int), figure


def _cells(pixels, axes, panel):
  """Returns the colours [columns, rows, 3] at the middle of a panel's cells."""
  left, top, right, bottom = _box(axes)
  count, rows = panel.values.shape
  x = left + (np.arange(count) + 0.5) * (right - left) / count
  y = top + (np.arange(rows) + 0.5) * (bottom - top) / rows
  return pixels[np.ix_(y.astype(int), x.astype(int))].swapaxes(0, 1)


def _check_cells(pixels, axes, panel, name, low, high):
  """Checks all cells but those at the edges, which the axes' frame covers."""
  colours = matplotlib.colormaps[name]
  expected = colours((panel.values - low) / (high - low), bytes=True)
  found = _cells(pixels, axes, panel)
  difference = abs(found - expected[..., :3].astype(int)).max(axis=-1)
  assert difference[1:-1, 1:-1].max(initial=0) <= 2
  assert difference.shape[1] < 3 or np.mean(difference <= 2) > 0.9


@pytest.mark.parametrize(
  ('length', 'slots', 'heads', 'words'),
  slow_cases.but_for([(4, 3, 1, 8)], [(4, 3, 1, 8), (100, 500, 1, 64)]),
)
def test_every_value_has_its_colour_in_the_file(length, slots, heads, words):
  panels = _all_kinds(length, slots, heads, words)
  page, figure = _draw(_frames(length), panels, title='Memory')
  maps = _maps(figure)
  assert len(maps) == len(panels)
  for (axes, _), panel in zip(maps, panels, strict=True):
    greatest = abs(panel.values).max()
    if panel.title == 'usage':
      scale = ('viridis', 0.0, greatest)
    elif panel.columns == 'word':
      scale = ('berlin', -greatest, greatest)
    else:
      scale = ('viridis', 0.0, 1.0)
    _check_cells(page, axes, panel, *scale)


@pytest.mark.parametrize('length', slow_cases.but_for([15], [1, 15, 60]))
def test_frames_and_columns_are_aligned(length):
  frames = _frames(length, channels=3)
  panels = _all_kinds(length, 20, heads=1)[:3]
  page, figure = _draw(frames, panels)
  strips, timed = _strips(figure), []
  lefts = {_box(axes)[0] for axes, _ in _maps(figure)}
  for (axes, _), panel in zip(_maps(figure), panels, strict=True):
    if panel.columns == 'frame':
      timed.append(_box(axes))
      assert axes.get_xlim() == (0.5, length + 0.5)
      assert axes.get_ylim() == (panel.values.shape[1] - 0.5, -0.5)
  assert {_box(axes)[0] for axes in strips} == lefts
  for axes in strips:
    left, top, right, bottom = _box(axes)
    assert right - left == timed[0][2] - timed[0][0]
    cell = (right - left) // length
    assert bottom <= min(box[1] for box in timed)
    for frame in (0, length // 2, length - 1):
      middle = left + frame * cell + cell // 2
      half = (bottom - top) // 2
      shown = page[top:bottom, middle - half : middle - half + 2 * half]
      mean = 255 * frames[frame].mean(axis=(0, 1))
      np.testing.assert_allclose(shown.mean((0, 1)), mean, atol=6)
      if bottom - top in (28, 56):
        scale = (bottom - top) // 28
        expected = 255 * frames[frame].repeat(scale, 0).repeat(scale, 1)
        np.testing.assert_allclose(shown, expected, atol=0.51)


def test_frames_that_are_not_square_keep_their_shape():
  figure = figures.memory_figure(np.zeros((5, 16, 48, 3)), [_all_kinds(5)[0]])
  strip = np.asarray(_strips(figure)[0].images[0].get_array())
  dark = (strip == 0).all(axis=-1)
  assert dark.sum() == 5 * 3 * len(strip) ** 2
  # All of them have the same place in their columns.
  columns = dark.reshape(len(strip), 5, -1)
  assert (columns == columns[:, :1]).all()


def test_marks_are_below_frames_and_above_columns():
  marks = np.array([0, 1, 0, 0, 1, 1, 0], bool)
  panels = _all_kinds(7, 9, 1)
  page, figure = _draw(_frames(7), panels, marks=marks)
  for axes in _strips(figure):
    left, _, right, bottom = _box(axes)
    middles = left + ((np.arange(7) + 0.5) * (right - left) / 7).astype(int)
    marked = (page[bottom + 4, middles] == _MARK).all(-1)
    np.testing.assert_array_equal(marked, marks)
  for (axes, _), panel in zip(_maps(figure), panels, strict=True):
    left, top, right, _ = _box(axes)
    above = (page[top - 4, left:right] == _MARK).all(-1)
    if panel.columns == 'frame':
      expected = marks.repeat((right - left) // 7)
      np.testing.assert_array_equal(above, expected)
    else:
      assert not above.any()
  assert any('predictable' in word for word in words(figure))
  plain = figures.memory_figure(_frames(7), panels, marks=~marks & marks)
  assert not plain.axes[0].patches
  assert not any('predictable' in word for word in words(plain))


@pytest.mark.parametrize(
  ('values', 'limits', 'expected'),
  [
    ([[0.0, 2.0], [1.0, 4.0]], None, (0.0, 4.0)),
    ([[0.0, -2.0], [1.0, 1.5]], None, (-2.0, 2.0)),
    ([[0.0, 0.0], [0.0, 0.0]], None, (0.0, 1.0)),
    ([[np.nan, np.nan], [np.nan, np.nan]], None, (0.0, 1.0)),
    ([[np.inf, 3.0], [np.nan, 1.0]], None, (0.0, 3.0)),
    ([[0.0, 2.0], [1.0, 4.0]], (0.0, 1.0), (0.0, 1.0)),
    ([[0.0, 2.0], [1.0, 4.0]], (-1, 9), (-1, 9)),
    ([[True, False], [False, False]], None, (0.0, 1.0)),
  ],
)
def test_scales_end_at_the_limits(values, limits, expected):
  panel = Panel('a', np.array(values), 'slot', 'norm', limits)
  figure = figures.memory_figure(_frames(2), [panel])
  ((axes, bar),) = _maps(figure)
  image = axes.images[0]
  assert image.get_clim() == expected
  assert image.get_cmap().name == ('berlin' if expected[0] < 0 else 'viridis')
  figure.draw_without_rendering()
  labels = [text.get_text() for text in bar.get_yticklabels()]
  # A sign where colours hold more than the scale says.
  beyond = [label[0] in '≤≥' for label in (labels[0], labels[-1])]
  shown = np.nan_to_num(np.array(values, float), posinf=0, neginf=0)
  assert beyond == [shown.min() < expected[0], shown.max() > expected[1]]
  labels = [label.lstrip('≤≥ ') for label in labels]
  numbers = [float(label.replace('\N{MINUS SIGN}', '-')) for label in labels]
  assert (numbers[0], numbers[-1]) == expected
  assert bar.get_ylim() == expected


def test_what_is_not_finite_is_white():
  values = _weights(6, 8)
  values[2, 3], values[4, 1] = np.nan, -np.inf
  panel = Panel('a', values, 'slot', 'weight', (0.0, 1.0))
  page, figure = _draw(_frames(6), [panel])
  cells = _cells(page, _maps(figure)[0][0], panel)
  white = (cells == _WHITE).all(-1)
  np.testing.assert_array_equal(white, ~np.isfinite(values))
  frames = _frames(6)
  frames[1] = np.nan
  picture = _strips(figures.memory_figure(frames, [panel]))[0].images[0]
  cell = np.shape(picture.get_array())[1] // 6
  assert (picture.get_array()[:, cell : 2 * cell] == 255).all()


@pytest.mark.parametrize('length', slow_cases.but_for([40], [1, 40]))
def test_frames_count_from_one_and_slots_from_zero(length):
  slots = 5 * length
  figure = figures.memory_figure(
    _frames(length), _all_kinds(length, slots, 1, words=40)
  )
  figure.draw_without_rendering()
  for axes, _ in _maps(figure):
    across = [text.get_text() for text in axes.get_xticklabels()]
    is_timed = axes.get_xlabel() == 'frame'
    assert across[0] == ('1' if is_timed else '0')
    shown = [int(text) for text in across]
    assert shown == list(axes.get_xticks())
    assert max(shown) <= (length if is_timed else 39)
    if axes.get_ylabel() == 'slot':
      down = [int(text.get_text()) for text in axes.get_yticklabels()]
      assert down[0] == 0 and max(down) < slots
      assert down == list(axes.get_yticks())
  names = [text.get_text() for text in _maps(figure)[-1][0].get_yticklabels()]
  assert names == ['backward 1', 'content 1', 'forward 1']


@pytest.mark.parametrize(
  ('length', 'slots', 'heads'),
  slow_cases.but_for(
    [(1, 1, 1), (15, 75, 5)], [(1, 1, 1), (15, 75, 5), (100, 500, 2)]
  ),
)
def test_nothing_is_cut_off_or_covered(length, slots, heads):
  title = 'costs $1 $ ' * 9 if length < 15 else 'Memory'
  panels = _all_kinds(length, slots, heads)
  panels[-2] = panels[-2]._replace(title='$x$', rows=['a $5 ^{'], meaning='$y$')
  figure = figures.memory_figure(
    # The heads' panels are alike: a few will do.
    _frames(length),
    panels[max(0, heads - 2) :],
    np.ones(length, bool),
    title,
    title,
  )
  check_layout(figure)
  assert {title, '$x$', 'a $5 ^{', '$y$'} <= set(words(figure))
  boxes = [_box(axes) for pair in _maps(figure) for axes in pair]
  boxes = np.array(boxes + [_box(axes) for axes in _strips(figure)])
  apart = (boxes[:, None, :2] >= boxes[None, :, 2:]).any(-1)
  assert (apart | apart.T | np.eye(len(boxes), dtype=bool)).all()
  # Seen at its size, no figure is wider than a page and a half.
  assert figure.bbox.width < 2500


def test_panels_go_on_in_the_order_of_reading():
  panels = _all_kinds(15, 15, 5)
  figure = figures.memory_figure(_frames(15), panels)
  places = [_box(axes)[1::-1].tolist() for axes, _ in _maps(figure)]
  assert places == sorted(places)
  titles = {
    (text.get_position()): text.get_text() for text in figure.axes[0].texts
  }
  for (axes, _), panel in zip(_maps(figure), panels, strict=True):
    left, top, *_ = _box(axes)
    assert titles[left, top - 14] == panel.title


_GOOD = Panel('a', np.zeros((5, 3)), 'slot', 'weight')


@pytest.mark.parametrize(
  ('frames', 'panels', 'options', 'message'),
  [
    (_frames(0), [_GOOD], {}, 'no frames'),
    (_frames(5)[..., 0], [_GOOD], {}, r"'frames' has shape \(5, 28, 28\)"),
    (np.full((5, 8, 8, 1), 9, np.uint8), [_GOOD], {}, 'divide'),
    (_frames(5), [], {}, 'no panels'),
    (_frames(4), [_GOOD], {}, "'a' has 5 columns for 4 frames"),
    (_frames(5), [_GOOD], {'marks': np.ones(4)}, r'\(5,\)'),
  ],
)
def test_what_is_no_episode_is_refused(frames, panels, options, message):
  with pytest.raises(ValueError, match=message):
    figures.memory_figure(frames, panels, **options)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'values': np.zeros(5)}, r'shape \(5,\)'),
    ({'values': np.zeros((5, 0))}, 'at least one'),
    ({'rows': ['one', 'two']}, '2 names for 3 rows'),
    ({'limits': (1.0, 0.0)}, 'smaller first'),
    ({'limits': (0.0, np.nan)}, 'finite'),
    ({'limits': (0.0, 0.5, 1.0)}, 'two'),
  ],
)
def test_what_is_no_panel_is_refused_by_its_title(change, message):
  with pytest.raises(ValueError, match=message) as error:
    figures.memory_figure(_frames(5), [_GOOD._replace(**change)])
  assert "'a'" in str(error.value)
