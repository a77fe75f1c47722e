"""The figure of results: which values are drawn where, and what it says."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from PIL import Image

from gtmm_jax import figures
from gtmm_jax.figures import curves
from read_figures import check_layout, legend, words

pytestmark = pytest.mark.filterwarnings('error')

_STEPS = 100 * np.arange(1, 13)


def _nulls(array):
  """Turns values that are not finite into None, as records have them."""
  if np.ndim(array):
    return [_nulls(item) for item in array]
  return float(array) if np.isfinite(array) else None


def _run(label='lstm', replicas=3, length=15, lines=12, seed=0, **changes):
  """Makes a run that learns; `changes` replace whole arrays."""
  random = np.random.default_rng(seed)
  noise = random.random((2, lines, replicas))
  decay = np.exp(-np.arange(lines) / lines)[:, None]
  values = {
    'kl': 5 + random.random((replicas, length)),
    'kl_last': 4 * decay + noise[0],
    'negative_bound': 90 + 60 * decay + noise[1],
    'failed_at': [None] * replicas,
    'predictable': np.arange(length) >= length - 5,
  } | changes
  metrics = [
    {
      'step': step,
      'kl_last': _nulls(values['kl_last'][line]),
      'negative_bound': _nulls(values['negative_bound'][line]),
      'failed_at': [
        at if at is not None and at <= step else None
        for at in values['failed_at']
      ],
    }
    for line, step in enumerate(range(100, 100 * lines + 1, 100))
  ]
  evaluation = {
    'step': 100 * lines,
    'kl': _nulls(values['kl']),
    'failed_at': values['failed_at'],
    'predictable': [float(value) for value in values['predictable']],
  }
  return figures.Run(label, metrics, evaluation)


def _array(run, name):
  return np.array([line[name] for line in run.metrics], np.float64).T


def _band(collection):
  """Returns the lower and upper edges of a filled band, by x."""
  corners = collection.get_paths()[0].vertices
  columns = [corners[corners[:, 0] == x, 1] for x in np.unique(corners[:, 0])]
  return np.array([(column.min(), column.max()) for column in columns]).T


def test_curves_are_means_with_bands_of_one_standard_error():
  run = _run(replicas=4)
  figure = figures.results_figure([run])
  expected = (
    (np.arange(1, 16), np.array(run.evaluation['kl'])),
    (_STEPS, _array(run, 'kl_last')),
    (_STEPS, _array(run, 'negative_bound')),
  )
  for axes, (x, values) in zip(figure.axes, expected, strict=True):
    (line,), (band,) = axes.lines, axes.collections
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / 2
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_allclose(line.get_ydata(), mean)
    np.testing.assert_allclose(_band(band), [mean - error, mean + error])


@pytest.mark.parametrize(
  'run', [_run(replicas=1), _run(replicas=2, failed_at=[None, 1])]
)
def test_a_single_replica_has_no_band(run):
  figure = figures.results_figure([run])
  for axes in figure.axes:
    assert len(axes.lines) == 1 and not axes.collections
  assert not any('error' in label for label in legend(figure))


def test_a_failed_replica_is_left_out_of_every_panel():
  run = _run(replicas=4, failed_at=[None, 700, None, None])
  # Its values are null, and wild before it failed.
  for line in run.metrics:
    failed = line['failed_at'][1] is not None
    for name in ('kl_last', 'negative_bound'):
      line[name][1] = None if failed else 1e9
  run.evaluation['kl'][1] = [None] * 15
  figure = figures.results_figure([run])
  arrays = (
    np.array(run.evaluation['kl'], np.float64),
    _array(run, 'kl_last'),
    _array(run, 'negative_bound'),
  )
  for axes, array in zip(figure.axes, arrays, strict=True):
    mean = array[[0, 2, 3]].mean(axis=0)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
  assert figure.axes[2].get_ylim()[1] < 200
  assert legend(figure)[0] == 'LSTM (3 of 4 replicas)'


def test_nulls_leave_gaps_or_count_for_nothing():
  values = np.full((6, 2), 3.0)
  values[1] = np.nan
  values[2, 0] = np.nan
  values[3, 0] = np.inf
  run = _run(replicas=2, lines=6, kl_last=values)
  run.metrics[4]['kl_last'] = None
  axes = figures.results_figure([run]).axes[1]
  expected = [3, np.nan, 3, 3, np.nan, 3]
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), expected)
  assert np.isfinite(axes.get_ylim()).all()


_NAN = np.full((12, 3), np.nan)


@pytest.mark.parametrize(
  'run',
  [
    figures.Run('lstm', [], None),
    _run(replicas=2, failed_at=[100, 300]),
    _run(kl=np.full((3, 15), np.nan), kl_last=_NAN, negative_bound=_NAN),
  ],
)
def test_panels_without_data_say_so(run):
  figure = figures.results_figure([run])
  for axes in figure.axes:
    assert [text.get_text() for text in axes.texts] == ['no data']
    assert not axes.lines and not axes.collections
  check_layout(figure)


def test_a_run_without_records_leaves_the_others_as_they_are():
  full = _run('dnc')
  runs = [
    figures.Run('empty', [], None),
    full,
    figures.Run('trained', full.metrics, None),
    figures.Run('tested', [], full.evaluation),
  ]
  figure = figures.results_figure(runs)
  frames, last, bound = (
    [to_hex(line.get_color()) for line in axes.lines] for axes in figure.axes
  )
  _, dnc, trained, tested = (
    to_hex(line.get_color()) for line in figure.legends[0].get_lines()
  )
  assert frames == [dnc, tested] and last == bound == [dnc, trained]
  assert legend(figure)[:4] == ['empty', 'DNC', 'trained', 'tested']


def _looks(runs):
  """Returns colour and dashes of each run, equal in panels and legend."""
  figure = figures.results_figure(runs)
  looks = [
    [(to_hex(line.get_color()), line.get_linestyle()) for line in lines]
    for lines in (
      *(axes.lines for axes in figure.axes),
      figure.legends[0].get_lines(),
    )
  ]
  assert looks[0] == looks[1] == looks[2] == looks[3]
  return looks[0]


def test_every_run_has_a_look_of_its_own_the_same_in_all_panels():
  runs = [_run(f'run {i}', replicas=1)._replace(model=f'{i}') for i in range(9)]
  assert len(set(_looks(runs))) == 9
  unnamed = [run._replace(model=None) for run in runs] * 2
  unnamed = [run._replace(label=str(i)) for i, run in enumerate(unnamed)]
  assert len(set(_looks(unnamed))) == 18
  # More runs of one model than there are dashes.
  one = [run._replace(model='8') for run in runs]
  assert len(set(_looks([*one[:5], runs[7]]))) == 6


def test_runs_of_one_model_share_its_colour_and_have_their_own_dashes():
  models = {'vrnn': 'vrnn', 'dnc': 'dnc', 'dnc, means': 'dnc', 'more': 'dnc'}
  runs = [_run(label)._replace(model=model) for label, model in models.items()]
  vrnn, dnc, means, more = _looks(runs)
  assert dnc[0] == means[0] == more[0] != vrnn[0]
  assert vrnn[1] == dnc[1] == '-'
  assert len({dnc[1], means[1], more[1]}) == 3
  # Runs of a single model have colours of their own.
  assert len({colour for colour, _ in _looks(runs[1:])}) == 3


@pytest.mark.parametrize(
  ('predictable', 'stretches'),
  [
    ([1, 0, 0, 1, 0], [(0.5, 1.5), (3.5, 4.5)]),
    ([0, 0.5, 0.5, 1, 0], [(1.5, 3.5), (3.5, 4.5)]),
    ([1, 1, 1, 1, 1], [(0.5, 5.5)]),
    ([0, 0, 0, 0, 0], []),
  ],
)
def test_predictable_frames_are_shaded(predictable, stretches):
  figure = figures.results_figure([_run(length=5, predictable=predictable)])
  frames, last, bound = figure.axes
  inverse = frames.transData.inverted()
  shaded = [
    inverse.transform_bbox(patch.get_extents()) for patch in frames.patches
  ]
  ends = [(box.x0, box.x1) for box in shaded]
  np.testing.assert_allclose(
    np.reshape(ends, (-1, 2)), np.reshape(stretches, (-1, 2)), atol=1e-9
  )
  assert not last.patches and not bound.patches
  assert ('predictable frames' in legend(figure)) == bool(stretches)
  # The more often a frame is predictable, the darker; lines stay visible.
  shades = [1 - np.mean(patch.get_facecolor()[:3]) for patch in frames.patches]
  weights = [predictable[round(start - 0.5)] for start, _ in stretches]
  np.testing.assert_allclose(shades, np.array(weights) * max(shades, default=0))
  assert not stretches or 0.05 < max(shades) < 0.5


def test_axes_have_names_units_and_whole_frames():
  figure = figures.results_figure([_run(length=25)], 'Perfect recall')
  frames, last, bound = figure.axes
  assert frames.get_xlabel() == 'frame'
  assert last.get_xlabel() == bound.get_xlabel() == 'training step'
  assert all('nats' in axes.get_ylabel() for axes in figure.axes)
  assert 'KL' in frames.get_title() and 'KL' in last.get_title()
  assert 'bound' in bound.get_title()
  assert figure.get_suptitle() == 'Perfect recall'
  assert frames.get_xlim() == (0.5, 25.5)
  assert all(tick == int(tick) for tick in frames.get_xticks())
  assert frames.get_ylim()[0] == last.get_ylim()[0] == 0
  assert last.get_xlim()[0] == 0 and last.get_xlim()[1] >= 1200


@pytest.mark.parametrize('lines', [3, 12, 300])
def test_neither_a_huge_start_nor_a_spike_squashes_the_rest(lines):
  curve = np.linspace(150, 100, lines)[:, None] + np.zeros((1, 2))
  curve[: max(1, lines // 10)] = 1e8
  if lines == 300:
    curve[200] = 1e7
  run = _run(replicas=2, lines=lines, negative_bound=curve, kl_last=curve)
  _, last, bound = figures.results_figure([run]).axes
  low, high = bound.get_ylim()
  assert 50 < low <= 100 and curve[-1, 0] <= high < 250
  assert last.get_ylim()[0] == 0 and last.get_ylim()[1] < 250


@pytest.mark.parametrize('lines', [1, 3, 40])
@pytest.mark.parametrize('level', [-1e3, 0.0, 1e5])
def test_ordinary_and_flat_curves_are_shown_whole(lines, level):
  random = np.random.default_rng(1)
  curve = level + np.linspace(2, 1, lines)[:, None] * random.random((1, 3))
  flat = np.full((lines, 3), abs(level))
  run = _run(lines=lines, negative_bound=curve, kl_last=flat)
  for axes in figures.results_figure([run]).axes[1:]:
    low, high = axes.get_ylim()
    mean = axes.lines[0].get_ydata()
    assert low <= mean.min() and mean.max() < high
  # The bound's limits are of the curve's own size.
  assert high - low < (20 if lines > 1 else 0.2 * max(abs(level), 10))


def test_two_runs_of_different_size_are_both_shown():
  low = _run('a', negative_bound=np.full((12, 3), 100.0))
  high = _run('b', negative_bound=np.full((12, 3), 900.0))
  bottom, top = figures.results_figure([low, high]).axes[2].get_ylim()
  assert bottom < 100 and top > 900


def test_held_out_episodes_are_rings_and_the_floor_is_a_line():
  run, other = _run('a', negative_bound=np.full((12, 3), 100.0)), _run('b')
  # The evaluation has more episodes: it replaces a line at its step.
  for line, bound in ((1, 130.0), (5, 180.0), (11, 0.0)):
    values = {'kl_last': [1.0, 2.0, 3.0], 'negative_bound': [bound] * 3}
    run.metrics[line]['held_out'] = values
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
  low, high = bound.get_ylim()
  assert high > 180 and low < 60
  assert any((np.array(line.get_ydata()) == 60).all() for line in bound.lines)
  labels = ' '.join(legend(figure))
  assert 'held-out' in labels and 'floor' in labels
  labels = ' '.join(legend(figures.results_figure([other])))
  assert 'held-out' not in labels and 'floor' not in labels
  check_layout(figure)


@pytest.mark.parametrize(
  ('label', 'printed'),
  [
    ('dnc', 'DNC'),
    ('associative-store=sample', 'associative memory, given samples'),
    ('without=content,age', 'without reads by content and reads by age'),
    ('without=none', 'nothing left out'),
    ('top_k=4', 'reading 4 slots by each addressing'),
    ('ntm-learning_rate=5e-05-seed=-1', 'NTM, learning rate 5e-05, seed -1'),
    ('my-own run', 'my-own run'),
  ],
)
def test_legends_have_words_in_place_of_flags(label, printed):
  assert figures.in_print(label) == printed


def test_long_curves_are_averaged_by_neighbours():
  values = np.random.default_rng(2).random((4000, 3))
  # A single null among the neighbours counts for nothing.
  values[5, 0] = np.nan
  run = _run(lines=4000, kl_last=values)
  line = figures.results_figure([run]).axes[1].lines[0]
  blocks = np.nanmean(values.reshape(400, 10, 3), axis=1).mean(axis=1)
  np.testing.assert_allclose(line.get_ydata(), blocks)
  np.testing.assert_array_equal(line.get_xdata(), 1000 * np.arange(1, 401))
  # Blocks of one report or two, of which the last ends with the last report.
  run = _run(lines=457)
  curve = curves.over_training(run, 'kl_last')
  assert len(curve.x) == 400 and curve.x[-1] == 45_700
  reports = _array(run, 'kl_last').mean(axis=0)
  lengths = np.diff(np.append(0, curve.x)) // 100
  assert set(lengths) == {1, 2}
  np.testing.assert_allclose((curve.mean * lengths).sum(), reports.sum())


def test_points_are_marked_where_a_line_would_not_show_them():
  frames, last, _ = figures.results_figure([_run()]).axes
  assert frames.lines[0].get_marker() == 'o'
  assert last.lines[0].get_marker() == ''
  _, last, bound = figures.results_figure([_run(lines=1)]).axes
  assert last.lines[0].get_marker() == bound.lines[0].get_marker() == 'o'


@pytest.mark.parametrize(
  ('count', 'length', 'name'),
  [(1, 15, '_hidden $x$'), (12, 55, 'a long name of a model: $5 ^{ ä_b')],
)
def test_nothing_is_cut_off_and_labels_are_as_they_are_written(
  count, length, name
):
  runs = [_run(f'{name} {i}', 2, length, seed=i) for i in range(count)]
  figure = figures.results_figure(runs, 'costs $1 or $2')
  check_layout(figure)
  shown = words(figure)
  assert {'costs $1 or $2', *(run.label for run in runs)} <= set(shown)
  boxes = [axes.get_tightbbox() for axes in figure.axes]
  assert boxes[0].x1 < boxes[1].x0 and boxes[1].x1 < boxes[2].x0
  assert min(box.height for box in boxes) > 180
  assert figure.legends[0].get_window_extent().y1 < min(b.y0 for b in boxes)


def test_every_shade_and_line_keeps_its_colour_in_the_file(tmp_path):
  # Far more colours than a palette holds, soft edges and bands counted in.
  runs = [
    _run(f'run {i}', 3, 55, 30, i, predictable=np.linspace(0, 1, 55))
    for i in range(7)
  ]
  figure = figures.results_figure(runs)
  frames = figure.axes[0]
  drawn = [patch.get_facecolor() for patch in frames.patches]
  drawn += [to_rgba(line.get_color()) for line in frames.lines]
  assert len(drawn) == 54 + 7
  path = figures.save(figure, tmp_path / 'shades')[0]
  assert path.stat().st_size < 150_000
  with Image.open(path) as picture:
    counts = picture.convert('RGB').getcolors(picture.width * picture.height)
  colours = np.array([colour for _, colour in counts], np.float64)
  for colour in drawn:
    expected = 255 * np.array(colour[:3])
    assert abs(colours - expected).max(axis=1).min() <= 1


def test_no_runs_or_labels_alike_are_refused():
  with pytest.raises(ValueError, match='no runs'):
    figures.results_figure([])
  with pytest.raises(ValueError, match='different'):
    figures.results_figure([_run('a'), _run('a')])
