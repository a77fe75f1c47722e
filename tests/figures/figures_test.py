"""Tests of what the figures show, read back from the drawn figures."""

import pathlib

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.text import Text
from PIL import Image

from gtmm_jax import figures

pytestmark = pytest.mark.filterwarnings('error')

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _nulls(array):
  """Converts to nested lists, with None for what is not finite, as records."""
  if np.ndim(array):
    return [_nulls(item) for item in array]
  return float(array) if np.isfinite(array) else None


def _run(label='lstm', replicas=3, length=15, lines=12, seed=0, **changes):
  """Makes the records of a run that learns; `changes` replace whole arrays."""
  random = np.random.default_rng(seed)
  steps = 100 * np.arange(1, lines + 1)
  noise = random.random((2, lines, replicas))
  decay = np.exp(-np.arange(lines) / lines)[:, None]
  given = {
    'kl': 5 + random.random((replicas, length)),
    'kl_last': 4 * decay + noise[0],
    'negative_bound': 90 + 60 * decay + noise[1],
    'failed_at': [None] * replicas,
    'predictable': np.arange(length) >= length - 5,
  } | changes
  metrics = [
    {
      'step': int(step),
      'seconds': 1.0,
      'kl_last': _nulls(given['kl_last'][line]),
      'negative_bound': _nulls(given['negative_bound'][line]),
      'failed_at': [
        at if at is not None and at <= step else None
        for at in given['failed_at']
      ],
    }
    for line, step in enumerate(steps)
  ]
  evaluation = {
    'step': int(100 * lines),
    'episodes': 64,
    'kl': _nulls(given['kl']),
    'failed_at': given['failed_at'],
    'predictable': [float(value) for value in given['predictable']],
  }
  return figures.Run(label, metrics, evaluation)


def _array(run, name):
  lines = [line[name] for line in run.metrics]
  return np.array(lines, np.float64).T


def _band(collection):
  """Returns lower and upper edge of a filled band by x."""
  corners = collection.get_paths()[0].vertices
  return {
    x: (column.min(), column.max())
    for x in np.unique(corners[:, 0])
    for column in [corners[corners[:, 0] == x, 1]]
  }


def _legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def _texts(figure):
  return [
    text
    for text in figure.findobj(Text)
    if text.get_visible() and text.get_text().strip()
  ]


def _check_nothing_cut_off(figure):
  figure.draw_without_rendering()
  page = figure.bbox
  # Ticks beyond the limits of their axis are not drawn.
  drawn = {id(text) for text in _texts(figure)}
  for axes in figure.axes:
    for axis, (low, high) in (
      (axes.xaxis, axes.get_xlim()),
      (axes.yaxis, axes.get_ylim()),
    ):
      for tick in axis.get_major_ticks():
        if not low <= tick.get_loc() <= high:
          drawn.discard(id(tick.label1))
  for text in _texts(figure):
    if id(text) in drawn:
      box = text.get_window_extent()
      assert box.x0 >= 0 and box.y0 >= 0, text
      assert box.x1 <= page.x1 and box.y1 <= page.y1, text


def test_curves_are_means_with_bands_of_one_standard_error():
  run = _run(replicas=4)
  figure = figures.results_figure([run])
  expected = (
    (np.arange(1, 16), np.array(run.evaluation['kl'])),
    (100 * np.arange(1, 13), _array(run, 'kl_last')),
    (100 * np.arange(1, 13), _array(run, 'negative_bound')),
  )
  assert len(figure.axes) == 3
  for axes, (x, values) in zip(figure.axes, expected, strict=True):
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
    (collection,) = axes.collections
    error = values.std(axis=0, ddof=1) / 2
    for at, (low, high) in _band(collection).items():
      index = list(x).index(at)
      mean = values.mean(axis=0)[index]
      np.testing.assert_allclose(low, mean - error[index])
      np.testing.assert_allclose(high, mean + error[index])


def test_a_single_replica_has_no_band():
  figure = figures.results_figure([_run(replicas=1)])
  for axes in figure.axes:
    assert len(axes.lines) == 1 and not axes.collections
  assert _legend(figure) == ['LSTM', 'predictable frames']
  # Nor has one that is left of several.
  figure = figures.results_figure([_run(replicas=2, failed_at=[None, 1])])
  assert not any(axes.collections for axes in figure.axes)


@pytest.mark.parametrize('failed_at', [100, 700, 1200])
def test_a_failed_replica_is_left_out_of_every_panel(failed_at):
  run = _run(replicas=4, failed_at=[None, failed_at, None, None])
  # What it left behind is null, or, before it failed, wild.
  for line in run.metrics:
    failed = line['failed_at'][1] is not None
    for name in ('kl_last', 'negative_bound'):
      line[name][1] = None if failed else 1e9
  run.evaluation['kl'][1] = [None] * 15
  figure = figures.results_figure([run])
  keep = [0, 2, 3]
  frames, last, bound = (axes.lines[0].get_ydata() for axes in figure.axes)
  kl = np.array(run.evaluation['kl'], np.float64)
  np.testing.assert_allclose(frames, kl[keep].mean(axis=0))
  np.testing.assert_allclose(last, _array(run, 'kl_last')[keep].mean(axis=0))
  expected = _array(run, 'negative_bound')[keep].mean(axis=0)
  np.testing.assert_allclose(bound, expected)
  assert figure.axes[2].get_ylim()[1] < 200
  assert _legend(figure)[0] == 'LSTM (3 of 4 replicas)'


def test_nulls_leave_gaps_or_count_for_nothing():
  values = np.full((6, 2), 3.0)
  values[1] = np.nan
  values[2, 0] = np.nan
  values[3, 0] = np.inf
  run = _run(replicas=2, lines=6, kl_last=values)
  run.metrics[4]['kl_last'] = None
  axes = figures.results_figure([run]).axes[1]
  assert str(list(axes.lines[0].get_ydata())) == str(
    [np.float64(value) for value in (3, np.nan, 3, 3, np.nan, 3)]
  )
  assert np.isfinite(axes.get_ylim()).all()


@pytest.mark.parametrize('which', ['nothing', 'all failed', 'all null'])
def test_panels_without_data_say_so(which):
  if which == 'nothing':
    run = figures.Run('lstm', [], None)
  elif which == 'all failed':
    run = _run(replicas=2, failed_at=[100, 300])
  else:
    nothing = np.full((12, 3), np.nan)
    run = _run(
      kl=np.full((3, 15), np.nan), kl_last=nothing, negative_bound=nothing
    )
  figure = figures.results_figure([run])
  for axes in figure.axes:
    assert [text.get_text() for text in axes.texts] == ['no data']
    assert not axes.lines and not axes.collections
  _check_nothing_cut_off(figure)


def test_a_run_without_records_leaves_the_others_as_they_are():
  full = _run('dnc')
  runs = [
    figures.Run('empty', [], None),
    full,
    figures.Run('trained', full.metrics, None),
    figures.Run('tested', [], full.evaluation),
  ]
  figure = figures.results_figure(runs)
  assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2]
  assert not any(axes.texts for axes in figure.axes)
  colours = [
    [to_hex(line.get_color()) for line in axes.lines] for axes in figure.axes
  ]
  handles = figure.legends[0].get_lines()
  legend = [to_hex(line.get_color()) for line in handles]
  assert colours[0] == [legend[1], legend[3]]
  assert colours[1] == colours[2] == [legend[1], legend[2]]
  assert _legend(figure)[:4] == ['empty', 'DNC', 'trained', 'tested']


def test_every_run_has_a_look_of_its_own_the_same_in_all_panels():
  runs = [_run(f'run {i}', replicas=1, seed=i) for i in range(20)]
  figure = figures.results_figure(runs)
  looks = [
    [(line.get_color(), line.get_linestyle()) for line in axes.lines]
    for axes in figure.axes
  ]
  assert looks[0] == looks[1] == looks[2]
  assert len(set(looks[0])) == 20
  assert len(figure.legends) == 1
  assert not any(axes.get_legend() for axes in figure.axes)


@pytest.mark.parametrize(
  ('predictable', 'stretches'),
  [
    ([0, 0, 0, 1, 1], [(3.5, 5.5)]),
    ([1, 0, 0, 1, 0], [(0.5, 1.5), (3.5, 4.5)]),
    ([0, 0.5, 0.5, 1, 0], [(1.5, 3.5), (3.5, 4.5)]),
    ([1, 1, 1, 1, 1], [(0.5, 5.5)]),
    ([0, 0, 0, 0, 0], []),
  ],
)
def test_predictable_frames_are_shaded(predictable, stretches):
  figure = figures.results_figure([_run(length=5, predictable=predictable)])
  frames, last, bound = figure.axes
  boxes = [patch.get_extents() for patch in frames.patches]
  inverse = frames.transData.inverted()
  found = [
    (
      inverse.transform((box.x0, box.y0))[0],
      inverse.transform((box.x1, box.y1))[0],
    )
    for box in boxes
  ]
  np.testing.assert_allclose(
    np.reshape(found, (-1, 2)), np.reshape(stretches, (-1, 2)), atol=1e-9
  )
  assert not last.patches and not bound.patches
  assert ('predictable frames' in _legend(figure)) == bool(stretches)
  # The more often a frame is predictable, the darker.
  shades = [1 - np.mean(patch.get_facecolor()[:3]) for patch in frames.patches]
  weights = [predictable[round(start - 0.5)] for start, _ in stretches]
  np.testing.assert_allclose(shades, np.array(weights) * max(shades, default=0))
  # Seen, and yet no lines are lost in it.
  assert not stretches or 0.05 < max(shades) < 0.5


def test_axes_have_names_units_and_whole_frames():
  figure = figures.results_figure([_run(length=25)], 'Perfect recall')
  frames, last, bound = figure.axes
  assert [axes.get_xlabel() for axes in figure.axes] == [
    'frame',
    'training step',
    'training step',
  ]
  assert all('nats' in axes.get_ylabel() for axes in figure.axes)
  assert 'KL' in frames.get_title() and 'KL' in last.get_title()
  assert 'bound' in bound.get_title()
  assert figure.get_suptitle() == 'Perfect recall'
  assert frames.get_xlim() == (0.5, 25.5)
  assert all(tick == int(tick) for tick in frames.get_xticks())
  assert frames.get_ylim()[0] == last.get_ylim()[0] == 0
  assert last.get_xlim()[0] == 0 and last.get_xlim()[1] >= 1200


@pytest.mark.parametrize('lines', [3, 12, 500])
@pytest.mark.parametrize('start', [1e4, 1e8])
def test_a_huge_start_does_not_squash_the_rest(lines, start):
  late = np.linspace(150, 100, lines)[:, None] + np.zeros((1, 2))
  late[: max(1, lines // 10)] = start
  run = _run(replicas=2, lines=lines, negative_bound=late, kl_last=late)
  _, last, bound = figures.results_figure([run]).axes
  low, high = bound.get_ylim()
  highest = late[late < start].max()
  assert 50 < low <= 100 and highest <= high < 250
  assert last.get_ylim()[0] == 0 and highest <= last.get_ylim()[1] < 250


def test_one_spike_does_not_squash_the_rest():
  values = np.linspace(150, 100, 300)[:, None]
  values[200] = 1e7
  axes = figures.results_figure(
    [_run(replicas=1, lines=300, negative_bound=values)]
  ).axes[2]
  assert axes.get_ylim()[1] < 250


@pytest.mark.parametrize('lines', [1, 3, 40])
@pytest.mark.parametrize('level', [-1e3, 0.0, 1e5])
def test_ordinary_curves_are_shown_whole(lines, level):
  random = np.random.default_rng(1)
  values = level + np.linspace(2, 1, lines)[:, None] * random.random((1, 3))
  run = _run(lines=lines, negative_bound=values, kl_last=abs(values))
  for axes in figures.results_figure([run]).axes[1:]:
    low, high = axes.get_ylim()
    mean = axes.lines[0].get_ydata()
    assert low <= mean.min() and mean.max() < high
  # The bound's limits are of the curve's own size; a KL's begin at zero.
  assert high - low < (20 if lines > 1 else 0.2 * max(abs(level), 10))


def test_held_out_episodes_are_rings_and_the_floor_is_a_line():
  run, other = _run('a', negative_bound=np.full((12, 3), 100.0)), _run('b')
  # At the step of the evaluation, which has more episodes, it stands alone.
  for line, bound in ((1, 130.0), (5, 180.0), (11, 0.0)):
    own = {'kl_last': [1.0, 2.0, 3.0], 'negative_bound': [bound] * 3}
    run.metrics[line]['held_out'] = own
  run.evaluation.update(
    kl_last=[4.0, 4.0, 4.0],
    negative_bound=[110.0, None, 114.0],
    entropy_floor=60.0,
  )
  figure = figures.results_figure([run, other])
  frames, last, bound = figure.axes
  assert not frames.containers
  (rings,) = last.containers
  np.testing.assert_allclose(rings.lines[0].get_xydata()[:, 1], [2, 2, 4])
  (rings,) = bound.containers
  np.testing.assert_allclose(
    rings.lines[0].get_xydata(), [[200, 130], [600, 180], [1200, 112]]
  )
  assert rings.lines[0].get_color() == bound.lines[0].get_color()
  # What was never trained on is not cut off, and neither is the floor.
  low, high = bound.get_ylim()
  assert high > 180 and low < 60
  assert any((np.array(line.get_ydata()) == 60).all() for line in bound.lines)
  assert any('held-out' in text for text in _legend(figure))
  assert any('floor' in text for text in _legend(figure))
  plain = figures.results_figure([other])
  assert not any('floor' in text or 'held' in text for text in _legend(plain))
  _check_nothing_cut_off(figure)


@pytest.mark.parametrize(
  ('label', 'words'),
  [
    ('dnc', 'DNC'),
    ('introspective', 'introspection network'),
    ('associative-store=sample', 'associative memory, given samples'),
    ('without=content,age', 'without reads by content and reads by age'),
    ('without=none', 'nothing left out'),
    ('top_k=4', 'reading 4 slots by each addressing'),
    ('learning_rate=0.001', 'learning rate 0.001'),
    ('ntm-learning_rate=5e-05-seed=-1', 'NTM, learning rate 5e-05, seed -1'),
    ('my-own run', 'my-own run'),
  ],
)
def test_legends_have_words_in_place_of_flags(label, words):
  assert figures.in_print(label) == words
  assert _legend(figures.results_figure([_run(label)]))[0] == words


@pytest.mark.parametrize('level', [0.0, -7.0, 5.0])
def test_a_flat_curve_has_limits(level):
  flat = np.full((12, 3), level)
  run = _run(kl=np.full((3, 15), level), kl_last=flat, negative_bound=flat)
  for axes in figures.results_figure([run]).axes:
    low, high = axes.get_ylim()
    assert low <= level < high


def test_a_run_of_another_size_keeps_its_own_limits():
  low = _run('a', negative_bound=np.full((12, 3), 100.0))
  high = _run('b', negative_bound=np.full((12, 3), 900.0))
  bottom, top = figures.results_figure([low, high]).axes[2].get_ylim()
  assert bottom < 100 and top > 900


def test_long_curves_are_averaged_by_neighbours():
  random = np.random.default_rng(2)
  values = random.random((4000, 3))
  run = _run(lines=4000, kl_last=values)
  line = figures.results_figure([run]).axes[1].lines[0]
  x, y = line.get_xdata(), line.get_ydata()
  assert len(x) == 400 and x[-1] == 400_000
  assert line.get_marker() == ''
  blocks = values.reshape(400, 10, 3).mean(axis=(1, 2))
  np.testing.assert_allclose(y, blocks)
  np.testing.assert_array_equal(x, 1000 * np.arange(1, 401))
  # A single null among the neighbours counts for nothing.
  values[5, 0] = np.nan
  run = _run(lines=4000, kl_last=values)
  y = figures.results_figure([run]).axes[1].lines[0].get_ydata()
  np.testing.assert_allclose(y[0], np.nanmean(values[:10], axis=0).mean())
  run = _run(lines=457)
  line = figures.results_figure([run]).axes[1].lines[0]
  assert len(line.get_xdata()) == 400 and line.get_xdata()[-1] == 45_700


def test_points_are_marked_where_a_line_would_not_show_them():
  frames, last, _ = figures.results_figure([_run()]).axes
  assert frames.lines[0].get_marker() == 'o'
  assert last.lines[0].get_marker() == ''
  _, last, bound = figures.results_figure([_run(lines=1)]).axes
  assert last.lines[0].get_marker() == bound.lines[0].get_marker() == 'o'


def _lines(runs):
  """Checks that runs look alike in all panels; returns colours and dashes."""
  figure = figures.results_figure(runs)
  found = [
    [(to_hex(line.get_color()), line.get_linestyle()) for line in lines]
    for lines in (
      *(axes.lines for axes in figure.axes),
      figure.legends[0].get_lines(),
    )
  ]
  assert found[0] == found[1] == found[2] == found[3]
  return found[0]


def test_runs_of_one_model_share_its_colour_and_have_their_own_dashes():
  given = {'vrnn': 'vrnn', 'dnc': 'dnc', 'dnc, means': 'dnc', 'more': 'dnc'}
  runs = [_run(label)._replace(model=model) for label, model in given.items()]
  vrnn, dnc, means, more = _lines(runs)
  assert dnc[0] == means[0] == more[0] != vrnn[0]
  assert vrnn[1] == dnc[1] == '-'
  assert len({dnc[1], means[1], more[1]}) == 3
  # Colours tell runs of a single model apart, and runs without a model.
  assert len({colour for colour, _ in _lines(runs[1:])}) == 3
  unnamed = [run._replace(model=None) for run in runs]
  assert len({colour for colour, _ in _lines(unnamed)}) == 4


def test_more_models_than_colours_are_told_apart_by_dashes():
  runs = [_run(f'run {n}')._replace(model=f'model {n}') for n in range(9)]
  assert len(set(_lines(runs))) == 9
  # And more runs of one model than dashes, by colours.
  one = [run._replace(model='model 8') for run in runs]
  assert len(set(_lines([*one[:5], runs[7]]))) == 6


def test_labels_and_titles_are_shown_as_they_are_written(tmp_path):
  labels = ['_hidden', 'a $5 ^{ b', '$x$', 'ä_b']
  runs = [_run(label, seed=i) for i, label in enumerate(labels)]
  figure = figures.results_figure(runs, 'costs $1 or $2')
  shown = [label.replace(r'\$', '$') for label in _legend(figure)]
  assert shown[:4] == labels
  figures.save(figures.results_figure(runs, 'costs $1 or $2'), tmp_path / 'odd')
  for text in (figure.legends[0].get_texts()[2], figure._suptitle):
    assert text._preprocess_math(text.get_text())[1] is False


@pytest.mark.parametrize(
  ('count', 'replicas', 'length', 'name', 'title'),
  [
    (1, 1, 15, 'lstm', None),
    (5, 20, 55, 'introspective', 'Dynamic dependency'),
    (12, 2, 25, 'a long name of a model with settings', 'Many'),
  ],
)
def test_results_are_small_whole_files(
  tmp_path, count, replicas, length, name, title
):
  runs = [
    _run(f'{name} {i}', replicas, length, lines=450, seed=i)
    for i in range(count)
  ]
  figure = figures.results_figure(runs, title)
  _check_nothing_cut_off(figure)
  boxes = [axes.get_tightbbox() for axes in figure.axes]
  assert boxes[0].x1 < boxes[1].x0 and boxes[1].x1 < boxes[2].x0
  assert min(box.height for box in boxes) > 180
  assert figure.legends[0].get_window_extent().y1 < min(b.y0 for b in boxes)
  # A stem may hold dots, and its folder need not be there.
  stem = tmp_path / 'new' / 'l20.k5'
  paths = figures.save(figures.results_figure(runs, title), stem)
  assert paths == [
    tmp_path / 'new' / 'l20.k5.png',
    tmp_path / 'new' / 'l20.k5.pdf',
  ]
  with Image.open(paths[0]) as picture:
    assert picture.size == (1800, 480)
  assert paths[0].stat().st_size < 150_000
  assert paths[1].read_bytes().startswith(b'%PDF')


def test_every_shade_and_line_keeps_its_colour_in_the_file(tmp_path):
  # Far more colours than a palette holds, soft edges and bands counted in.
  runs = [
    _run(f'run {i}', 3, 55, 90, i, predictable=np.linspace(0, 1, 55))
    for i in range(7)
  ]
  path = figures.save(figures.results_figure(runs), tmp_path / 'shades')[0]
  frames = figures.results_figure(runs).axes[0]
  with Image.open(path) as picture:
    found = picture.convert('RGB').getcolors(picture.width * picture.height)
  pixels = np.array([colour for _, colour in found], np.float64)
  drawn = [patch.get_facecolor() for patch in frames.patches]
  drawn += [to_rgba(line.get_color()) for line in frames.lines]
  assert len(drawn) == 54 + 7
  for colour in drawn:
    expected = 255 * np.array(colour[:3])
    assert abs(pixels - expected).max(axis=1).min() <= 1
  assert path.stat().st_size < 150_000


def test_no_runs_or_labels_alike_are_refused(tmp_path):
  with pytest.raises(ValueError, match='no runs'):
    figures.save(figures.results_figure([]), tmp_path / 'x')
  with pytest.raises(ValueError, match='different'):
    figures.save(figures.results_figure([_run('a'), _run('a')]), tmp_path / 'x')
  assert not list(tmp_path.iterdir())


def _frames(length, side=28, channels=1, seed=0):
  """Frames in eighths, so that a byte an eighth holds them well enough."""
  random = np.random.default_rng(seed)
  return random.integers(0, 9, (length, side, side, channels)) / 8


def _places(figure):
  """Locates each number and name: pixel (x of the middle, y), by its text."""
  (axes,) = figure.axes
  numbers = {}
  names = []
  for text in axes.texts:
    if text.get_text().isdigit():
      numbers[int(text.get_text())] = text.get_position()
    elif text.get_ha() == 'right':
      names.append((text.get_text(), text.get_position()))
  return numbers, names


def _shown(path, figure, number, row_y, side):
  """Returns the pixels at the place of a frame of `side` x `side` pixels."""
  with Image.open(path) as picture:
    pixels = np.asarray(picture.convert('RGB')) / 255
  x = round(_places(figure)[0][number][0] - side / 2)
  y = round(row_y - side / 2)
  return pixels[y : y + side, x : x + side]


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize(('side', 'scale'), [(14, 4), (28, 2), (60, 1)])
def test_frames_are_shown_pixel_for_pixel(tmp_path, channels, side, scale):
  rows = [
    figures.Row('episode', _frames(15, side, channels)),
    figures.Row('reconstruction', _frames(15, side, channels, seed=1)),
  ]
  path = figures.save(
    figures.strip_figure(rows, title='Frames'), tmp_path / 'strip'
  )[0]
  figure = figures.strip_figure(rows, title='Frames')
  numbers, names = _places(figure)
  assert sorted(numbers) == list(range(1, 16))
  assert [name for name, _ in names] == ['episode', 'reconstruction']
  for row, (_, (_, y)) in zip(rows, names, strict=True):
    for number in (1, 8, 15):
      expected = row.frames[number - 1].repeat(scale, 0).repeat(scale, 1)
      shown = _shown(path, figure, number, y, side * scale)
      expected = np.broadcast_to(expected, shown.shape)
      np.testing.assert_allclose(shown, expected, atol=0.5 / 255 + 1e-9)


@pytest.mark.parametrize(
  ('length', 'columns', 'turn', 'sizes'),
  [
    (25, 25, 15, [25]),
    (30, 25, 15, [15, 15]),
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


@pytest.mark.parametrize(
  ('length', 'columns', 'blocks'), [(15, 25, 1), (25, 25, 1), (55, 25, 3)]
)
def test_long_rows_go_on_in_further_blocks(tmp_path, length, columns, blocks):
  frames = _frames(length)
  rows = [figures.Row('a', frames), figures.Row('short', _frames(4))]
  figure = figures.strip_figure(rows, columns=columns)
  path = figures.save(
    figures.strip_figure(rows, columns=columns), tmp_path / 'strip'
  )[0]
  numbers, names = _places(figure)
  assert sorted(numbers) == list(range(1, length + 1))
  assert len({y for _, y in numbers.values()}) == blocks
  # A row with nothing left to show takes no place.
  assert [name for name, _ in names] == ['a', 'short', *['a'] * (blocks - 1)]
  y = [y for name, (_, y) in names if name == 'a'][-1]
  shown = _shown(path, figure, length, y, 56)[::2, ::2, :1]
  np.testing.assert_allclose(shown, frames[-1], atol=0.5 / 255 + 1e-9)


def test_a_short_first_row_leaves_no_frame_without_a_number():
  rows = [figures.Row('short', _frames(3)), figures.Row('long', _frames(9))]
  assert sorted(_places(figures.strip_figure(rows))[0]) == list(range(1, 10))


def test_frames_of_nan_are_empty_places(tmp_path):
  dream = _frames(6)
  dream[:4] = np.nan
  dream[5, 0, 0] = np.nan
  captions = [f'={number}' for number in range(6)]
  rows = [figures.Row('dream', dream, np.ones(6, bool), captions)]
  path = figures.save(figures.strip_figure(rows), tmp_path / 'strip')[0]
  figure = figures.strip_figure(rows)
  shown = {text.get_text() for text in figure.axes[0].texts}
  assert shown & set(captions) == {'=4', '=5'}
  y = _places(figure)[1][0][1][1]
  # The place below a frame, where its mark would be, is as empty.
  assert (_shown(path, figure, 2, y, 56) == 1).all()
  assert (_shown(path, figure, 2, y + 8, 56) == 1).all()
  shown = _shown(path, figure, 6, y, 56)
  assert (shown[:2, :2] == 1).all()
  np.testing.assert_allclose(shown[8, 8], dream[5, 4, 4, 0], atol=0.01)


def test_each_row_has_its_own_frames_underlined(tmp_path):
  black = np.zeros((30, 28, 28, 1))
  marks = [np.arange(30) % 4 == 1, None, np.arange(30) % 3 == 0]
  rows = [
    figures.Row(name, black, each)
    for name, each in zip('abc', marks, strict=True)
  ]
  path = figures.save(figures.strip_figure(rows), tmp_path / 'strip')[0]
  figure = figures.strip_figure(rows)
  _, names = _places(figure)
  assert len(names) == 6
  for index, (name, (_, y)) in enumerate(names):
    block = index // 3
    for number in range(15 * block + 1, 15 * block + 16):
      below = _shown(path, figure, number, y + 6, 56)[-3]
      coloured = (below.max(axis=1) - below.min(axis=1) > 0.3).all()
      expected = marks['abc'.index(name)]
      assert coloured == (expected is not None and expected[number - 1])
  assert any('predictable' in text.get_text() for text in figure.axes[0].texts)
  plain = figures.strip_figure([figures.Row('a', black, np.zeros(30, bool))])
  assert not any(
    'predictable' in text.get_text() for text in plain.axes[0].texts
  )


def _captions(figure, texts):
  """Locates each caption of `texts`: a list of (text, x, y)."""
  return [
    (text.get_text(), *text.get_position())
    for text in figure.axes[0].texts
    if text.get_text() in texts
  ]


@pytest.mark.parametrize(('length', 'columns'), [(6, 25), (6, 3)])
def test_captions_stand_below_their_frames(length, columns):
  texts = ['·', '← =1', '', '↑', '→ =12', 'a 0'][:length]
  rows = [
    figures.Row('a', _frames(length), captions=texts),
    figures.Row('b', _frames(length)),
  ]
  figure = figures.strip_figure(rows, columns=columns)
  numbers, names = _places(figure)
  figure.draw_without_rendering()
  found = _captions(figure, texts)
  assert [text for text, _, _ in found] == [text for text in texts if text]
  rows_at = [y for name, (_, y) in names if name == 'a']
  for text, x, y in found:
    number = texts.index(text) + 1
    assert x == numbers[number][0]
    frame = rows_at[(number - 1) // columns]
    below = names[2 * ((number - 1) // columns) + 1][1][1]
    # Lower than the frame and its mark, higher than the next row's frame.
    assert frame + 28 + 5 < y - 8 and y < below - 28
  # Nothing that is written touches anything else.
  boxes = [text.get_window_extent() for text in _texts(figure)]
  for index, box in enumerate(boxes):
    assert not any(box.overlaps(other) for other in boxes[:index])


def test_only_rows_with_captions_have_room_for_them():
  def height(*captions):
    rows = [figures.Row('a', _frames(2), captions=each) for each in captions]
    figure = figures.strip_figure(rows)
    return round(figure.get_figheight() * figure.dpi)

  none = height(None, None)
  assert height(['', ''], None) == none
  assert height(['a', ''], None) == height(None, ['', '=1']) > none
  assert height(['a', ''], ['b', 'c']) - none == 2 * (
    height(['a', ''], None) - none
  )


@pytest.mark.parametrize('side', [1, 28])
def test_wide_captions_keep_frames_apart(tmp_path, side):
  ink = np.zeros((3, 56, side, 1))
  texts = ['one long caption', 'another one', 'a $third^{ one']
  rows = [figures.Row('', ink, np.ones(3, bool), texts)]
  figure = figures.strip_figure(rows)
  _check_nothing_cut_off(figure)
  boxes = [
    text.get_window_extent()
    for text in figure.axes[0].texts
    if text.get_text().replace('\\', '') in texts
  ]
  assert len(boxes) == 3
  for left, right in zip(boxes, boxes[1:], strict=False):
    assert left.x1 < right.x0
  # Each frame is still below its number.
  path = figures.save(figures.strip_figure(rows), tmp_path / 'strip')[0]
  with Image.open(path) as picture:
    pixels = np.asarray(picture.convert('RGB'))
  for x, y in _places(figure)[0].values():
    assert (pixels[round(y) + 6 : round(y) + 50, int(x)] == 0).all()


def test_a_note_stands_below_everything():
  row = figures.Row('a', _frames(3), np.ones(3, bool), ['x', 'y', 'z'])
  figure = figures.strip_figure([row], 'title', note='costs $1 or $2 ' * 5)
  _check_nothing_cut_off(figure)
  texts = sorted(_texts(figure), key=lambda text: text.get_position()[1])
  assert texts[-1].get_text() == r'costs \$1 or \$2 ' * 5
  assert 'predictable' in texts[-2].get_text()
  assert texts[-1].get_window_extent().y1 < texts[-2].get_window_extent().y0


def test_values_beyond_the_range_are_clipped(tmp_path):
  frames = np.full((2, 28, 28, 3), 1.75)
  frames[0] = -3
  rows = [figures.Row('a', frames)]
  path = figures.save(figures.strip_figure(rows), tmp_path / 'strip')[0]
  figure = figures.strip_figure(rows)
  y = _places(figure)[1][0][1][1]
  assert (_shown(path, figure, 1, y, 56) == 0).all()
  assert (_shown(path, figure, 2, y, 56) == 1).all()


@pytest.mark.parametrize('dtype', [bool, np.uint8, np.float16, np.float32])
def test_ink_of_any_type_is_white_on_black(tmp_path, dtype):
  frames = np.zeros((1, 28, 28, 1), dtype)
  frames[0, 14] = 1
  rows = [figures.Row('a', frames)]
  path = figures.save(figures.strip_figure(rows), tmp_path / 'strip')[0]
  figure = figures.strip_figure(rows)
  y = _places(figure)[1][0][1][1]
  shown = _shown(path, figure, 1, y, 56)
  assert (shown[28:30] == 1).all() and shown.sum() == 2 * 56 * 3


def test_large_frames_are_thinned():
  small = figures.strip_figure([figures.Row('a', _frames(8, 64))])
  large = figures.strip_figure([figures.Row('a', _frames(8, 256))])
  np.testing.assert_allclose(small.get_size_inches(), large.get_size_inches())


@pytest.mark.parametrize('length', [1, 15, 55])
@pytest.mark.parametrize('title', [None, 'A title longer than one frame needs'])
def test_strips_cut_nothing_off(tmp_path, length, title):
  ink = np.zeros((length, 28, 28, 1))
  ink[:, 8:20, 12:16] = _frames(length)[:, 8:20, 12:16]
  rows = [
    figures.Row(name, ink, np.ones(length, bool))
    for name in ('episode', 'a reconstruction: $1', '')
  ]
  figure = figures.strip_figure(rows, title)
  _check_nothing_cut_off(figure)
  figure.draw_without_rendering()
  first = _places(figure)[0][1][0] - 28
  for text in figure.axes[0].texts:
    if text.get_ha() == 'right':
      assert text.get_window_extent().x1 < first
  paths = figures.save(figures.strip_figure(rows, title), tmp_path / 'v1.0')
  assert [path.name for path in paths] == ['v1.0.png', 'v1.0.pdf']
  assert paths[0].stat().st_size < 200_000
  assert paths[1].read_bytes().startswith(b'%PDF')


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
    ([('a', _frames(2), np.ones(3, bool))], {}, r"marks .* 'a' .*\(2,\)"),
    ([('a', _frames(3)), ('b', _frames(2), np.ones(3, bool))], {}, "'b'"),
    ([('a', _frames(2), None, ['x'])], {}, '1 captions, but must have 2'),
    ([('a', _frames(2), None, [])], {}, '0 captions'),
    ([('a', _frames(2))], {'columns': 0}, 'at least 1'),
  ],
)
def test_what_is_no_strip_is_refused(tmp_path, rows, options, message):
  rows = [figures.Row(*row) for row in rows]
  with pytest.raises(ValueError, match=message):
    figures.save(figures.strip_figure(rows, **options), tmp_path / 'strip')
  assert not list(tmp_path.iterdir())
