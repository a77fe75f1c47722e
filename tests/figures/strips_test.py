"""Strips of frames: which pixels stand where, marks, captions and blocks."""

import numpy as np
import pytest

from gtmm_jax import figures
from read_figures import check_layout, pixels, texts, words

pytestmark = pytest.mark.filterwarnings('error')


def _frames(length, side=28, channels=1, seed=0):
  """Draws frames in eighths, which bytes hold to half a byte."""
  random = np.random.default_rng(seed)
  return random.integers(0, 9, (length, side, side, channels)) / 8


def _places(figure):
  """Returns pixel (x of the middle, y) of numbers, and of names in order."""
  shown = [(text.get_text(), text) for text in figure.axes[0].texts]
  numbers = {
    int(word): text.get_position() for word, text in shown if word.isdigit()
  }
  names = [
    (word, text.get_position())
    for word, text in shown
    if text.get_ha() == 'right'
  ]
  return numbers, names


def _picture(figure, page, number, row_y, side=56):
  """Returns the pixels of a frame, of a side of `side` pixels."""
  x = round(_places(figure)[0][number][0] - side / 2)
  y = round(row_y - side / 2)
  return page[y : y + side, x : x + side]


@pytest.mark.parametrize(
  ('side', 'scale', 'channels'), [(14, 4, 1), (28, 2, 3), (60, 1, 1)]
)
def test_frames_are_shown_pixel_for_pixel(side, scale, channels):
  rows = [
    figures.Row('episode', _frames(15, side, channels)),
    figures.Row('reconstruction', _frames(15, side, channels, seed=1)),
  ]
  figure = figures.strip_figure(rows, title='Frames')
  numbers, names = _places(figure)
  assert sorted(numbers) == list(range(1, 16))
  assert [name for name, _ in names] == ['episode', 'reconstruction']
  page = pixels(figure)
  for row, (_, (_, y)) in zip(rows, names, strict=True):
    for number in (1, 8, 15):
      shown = _picture(figure, page, number, y, side * scale)
      expected = row.frames[number - 1].repeat(scale, 0).repeat(scale, 1)
      expected = np.broadcast_to(expected, shown.shape)
      np.testing.assert_allclose(shown, expected, atol=0.5 / 255 + 1e-9)


@pytest.mark.parametrize(
  ('length', 'columns', 'turn', 'sizes'),
  [
    (25, 25, 15, [25]),
    (30, 25, None, [15, 15]),
    (31, 25, 15, [15, 16]),
    (55, 25, None, [18, 18, 19]),
    (60, 25, 30, [15, 15, 15, 15]),
    (50, 25, 40, [20, 20, 10]),
    (3, 1, 2, [1, 1, 1]),
  ],
)
def test_blocks_are_of_about_equal_length(length, columns, turn, sizes):
  blocks = figures.blocks(length, columns, turn)
  assert [len(block) for block in blocks] == sizes
  assert [frame for block in blocks for frame in block] == [*range(length)]


def test_the_second_turn_stands_under_the_first():
  rows = [figures.Row('turns', _frames(30))]
  numbers, _ = _places(figures.strip_figure(rows, turn=15))
  assert len(numbers) == 30
  for frame in range(1, 16):
    assert numbers[frame][0] == numbers[frame + 15][0]
    assert numbers[frame][1] < numbers[frame + 15][1]


def test_long_rows_go_on_in_further_blocks():
  frames = _frames(55)
  # The short row comes first, and no frame is left without a number.
  rows = [figures.Row('short', _frames(4)), figures.Row('a', frames)]
  figure = figures.strip_figure(rows, columns=25)
  numbers, names = _places(figure)
  assert sorted(numbers) == list(range(1, 56))
  assert len({y for _, y in numbers.values()}) == 3
  # A row with nothing left to show takes no place.
  assert [name for name, _ in names] == ['short', 'a', 'a', 'a']
  shown = _picture(figure, pixels(figure), 55, names[-1][1][1])[::2, ::2, :1]
  np.testing.assert_allclose(shown, frames[-1], atol=0.5 / 255 + 1e-9)


def test_frames_of_nan_are_empty_places():
  dream = _frames(6)
  dream[:4] = np.nan
  dream[5, 0, 0] = np.nan
  captions = [f'={number}' for number in range(6)]
  rows = [figures.Row('dream', dream, np.ones(6, bool), captions)]
  figure = figures.strip_figure(rows)
  assert {'=4', '=5'} == set(words(figure)) & set(captions)
  y, page = _places(figure)[1][0][1][1], pixels(figure)
  # Neither the frame nor its mark below it is there.
  assert (_picture(figure, page, 2, y) == 1).all()
  assert (_picture(figure, page, 2, y + 8) == 1).all()
  shown = _picture(figure, page, 6, y)
  assert (shown[:2, :2] == 1).all()
  np.testing.assert_allclose(shown[8, 8], dream[5, 4, 4, 0], atol=0.01)


def test_each_row_has_its_own_frames_underlined():
  black = np.zeros((30, 28, 28, 1))
  marks = {'a': np.arange(30) % 4 == 1, 'b': None, 'c': np.arange(30) % 3 == 0}
  rows = [figures.Row(name, black, each) for name, each in marks.items()]
  figure = figures.strip_figure(rows)
  _, names = _places(figure)
  assert len(names) == 6
  page = pixels(figure)
  for index, (name, (_, y)) in enumerate(names):
    first = 15 * (index // 3) + 1
    for number in range(first, first + 15):
      below = _picture(figure, page, number, y + 6)[-3]
      coloured = (below.max(axis=1) - below.min(axis=1) > 0.3).all()
      expected = marks[name] is not None and marks[name][number - 1]
      assert coloured == expected
  assert any('predictable' in word for word in words(figure))
  plain = figures.strip_figure([figures.Row('a', black, np.zeros(30, bool))])
  assert not any('predictable' in word for word in words(plain))


@pytest.mark.parametrize('columns', [25, 3])
def test_captions_stand_below_their_frames(columns):
  captions = ['·', '← =1', '', '↑', '→ =12', 'a 0']
  rows = [
    figures.Row('a', _frames(6), captions=captions),
    figures.Row('b', _frames(6)),
  ]
  figure = figures.strip_figure(rows, columns=columns)
  numbers, names = _places(figure)
  shown = [text for text in figure.axes[0].texts if text.get_text() in captions]
  shown = [text for text in shown if text.get_text()]
  assert len(shown) == 5
  for text in shown:
    number = captions.index(text.get_text()) + 1
    block = (number - 1) // columns
    x, y = text.get_position()
    assert x == numbers[number][0]
    # Lower than the frame and its mark, higher than the next row's frame.
    (_, (_, frame)), (_, (_, below)) = names[2 * block : 2 * block + 2]
    assert frame + 28 + 5 < y - 8 and y < below - 28
  check_layout(figure)
  # A row without captions has no room for them.
  plain = figures.strip_figure([row._replace(captions=None) for row in rows])
  empty = [row._replace(captions=[''] * 6) for row in rows]
  assert figures.strip_figure(empty).bbox.height == plain.bbox.height
  assert plain.bbox.height < figure.bbox.height


@pytest.mark.parametrize('side', [1, 28])
def test_wide_captions_keep_frames_apart(side):
  ink = np.zeros((3, 56, side, 1))
  captions = ['one long caption', 'another one', 'a $third^{ one']
  row = figures.Row('', ink, np.ones(3, bool), captions)
  figure = figures.strip_figure([row])
  assert set(captions) <= set(words(figure))
  check_layout(figure)
  # Each frame is still below its number.
  page = pixels(figure)
  for x, y in _places(figure)[0].values():
    assert (page[round(y) + 6 : round(y) + 50, int(x)] == 0).all()


@pytest.mark.parametrize('length', [1, 55])
def test_nothing_is_cut_off_and_a_note_stands_below_everything(length):
  title, note = 'A title: $1 ' * 4, 'costs $1 or $2 ' * 5
  rows = [
    figures.Row(name, _frames(length), np.ones(length, bool))
    for name in ('episode', 'a reconstruction: $1', '')
  ]
  figure = figures.strip_figure(rows, title, note)
  check_layout(figure)
  left = _places(figure)[0][1][0] - 28
  seen = texts(figure)
  for text in seen:
    if text.get_ha() == 'right':
      assert text.get_window_extent().x1 < left
  seen = sorted(seen, key=lambda text: -text.get_window_extent().y0)
  assert seen[0].get_text() == title.replace('$', r'\$')
  assert 'predictable' in seen[-2].get_text()
  assert seen[-1].get_text() == note.replace('$', r'\$')


@pytest.mark.parametrize('dtype', [bool, np.uint8, np.float16])
def test_ink_of_any_type_is_white_on_black(dtype):
  frames = np.zeros((1, 28, 28, 1), dtype)
  frames[0, 14] = 1
  figure = figures.strip_figure([figures.Row('a', frames)])
  y = _places(figure)[1][0][1][1]
  shown = _picture(figure, pixels(figure), 1, y)
  assert (shown[28:30] == 1).all() and shown.sum() == 2 * 56 * 3


def test_values_beyond_the_range_are_clipped():
  frames = np.full((2, 28, 28, 3), 1.75)
  frames[0] = -3
  figure = figures.strip_figure([figures.Row('a', frames)])
  y, page = _places(figure)[1][0][1][1], pixels(figure)
  assert (_picture(figure, page, 1, y) == 0).all()
  assert (_picture(figure, page, 2, y) == 1).all()


def test_large_frames_are_thinned():
  small = figures.strip_figure([figures.Row('a', _frames(8, 64))])
  large = figures.strip_figure([figures.Row('a', _frames(8, 256))])
  assert small.bbox.size == pytest.approx(large.bbox.size)


@pytest.mark.parametrize(
  ('rows', 'options', 'message'),
  [
    ([], {}, 'no frames'),
    ([('a', np.zeros((0, 28, 28, 1)))], {}, 'no frames'),
    ([('a', np.zeros((5, 28, 28)))], {}, r"'a' has shape \(5, 28, 28\)"),
    ([('a', np.zeros((5, 28, 28, 2)))], {}, 'C 1'),
    ([('a', np.zeros((5, 0, 28, 1)))], {}, 'shape'),
    ([('a', np.full((5, 28, 28, 1), 200, np.uint8))], {}, 'divide'),
    ([('a', _frames(2)), ('b', _frames(2, 14))], {}, 'height'),
    ([('a', _frames(3)), ('b', _frames(2), np.ones(3, bool))], {}, "'b'"),
    ([('a', _frames(2), None, ['x'])], {}, '1 captions, but must have 2'),
    ([('a', _frames(2))], {'columns': 0}, 'at least 1'),
  ],
)
def test_what_is_no_strip_is_refused(rows, options, message):
  rows = [figures.Row(*row) for row in rows]
  with pytest.raises(ValueError, match=message):
    figures.strip_figure(rows, **options)


def test_spans_are_named_above_their_frames():
  spans = [
    figures.Span('observed', range(12), '#777777'),
    figures.Span('dreamt', range(12, 30), '#0072B2'),
  ]
  rows = [figures.Row('truth', _frames(30)), figures.Row('dream', _frames(30))]
  figure = figures.strip_figure(rows, 'Dreams', turn=15, spans=spans)
  check_layout(figure)
  numbers, _ = _places(figure)
  # The second span goes on in the second block.
  expected = [('observed', 1, 12), ('dreamt', 13, 15), ('dreamt', 16, 30)]
  named = [
    text.get_text()
    for text in figure.axes[0].texts
    if text.get_text() in ('observed', 'dreamt')
  ]
  assert named == [name for name, _, _ in expected]
  for line, (name, first, last) in zip(
    figure.axes[0].lines, expected, strict=True
  ):
    left, right = line.get_xdata()
    assert left == numbers[first][0] - 28 and right == numbers[last][0] + 28
    assert line.get_ydata()[0] < numbers[first][1] - 10
    colours = {span.name: span.colour for span in spans}
    assert line.get_color() == colours[name]


def test_rows_that_are_apart_have_space_above_them():
  frames = _frames(3)
  heights = []
  for is_apart in (False, True):
    rows = [
      figures.Row(name, frames, is_apart=is_apart and name != 'b')
      for name in ('a', 'b', 'c')
    ]
    names = _places(figures.strip_figure(rows))[1]
    heights.append([y for _, (_, y) in names])
  (a, b, c), (first, second, third) = heights
  # The first row has nothing above it.
  assert (first, second) == (a, b) and third > c + 10
