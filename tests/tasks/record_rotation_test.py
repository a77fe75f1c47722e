"""Recordings of a ViZDoom level: places, turns, the file, and mistakes."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from unittest import mock

import jax
import numpy as np
import pytest

import program_flags
import record_rotation
from gtmm_jax.process import command, signals
from gtmm_jax.tasks import Rotation
from gtmm_jax.tasks.sources import vizdoom_level

_PROGRAM = pathlib.Path(record_rotation.__file__)
_DEFAULTS = {
  'output': 'episodes.npz',
  'episodes': 200,
  'length': 30,
  'size': 32,
  'level': 'my_way_home',
  'seed': 0,
}


def _request(**changes):
  return record_rotation.Request(**(_DEFAULTS | changes))


def _engine():
  pytest.importorskip('vizdoom', reason='ViZDoom is not installed')


def _run(folder, *arguments, **environment):
  return subprocess.run(
    [sys.executable, str(_PROGRAM), *arguments],
    cwd=folder,
    env=os.environ | environment,
    capture_output=True,
    text=True,
    check=False,
  )


def _box(x1, y1, x2, y2):
  """Returns the edges of a rectangle."""
  corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]
  return [
    (*one, *other)
    for one, other in zip(corners, corners[1:] + corners[:1], strict=True)
  ]


def _plan(*sectors):
  """Makes a plan of sectors, each a list of edges and whether it is high."""
  return vizdoom_level.Plan(
    np.array([edge for edges, _ in sectors for edge in edges], float),
    np.array([i for i, (edges, _) in enumerate(sectors) for _ in edges]),
    np.array([high for _, high in sectors]),
  )


# A room with a pillar in it, a low passage at its right, and a room beyond that
# is half as large.
_PLAN = _plan(
  (_box(0, 0, 100, 100) + _box(40, 40, 60, 70), True),
  (_box(100, 20, 150, 50), False),
  (_box(150, 0, 200, 96), True),
)


def _is_free(x, y):
  room = 0 < x < 100 and 0 < y < 100
  pillar = 40 < x < 60 and 40 < y < 70
  return (room and not pillar) or (150 < x < 200 and 0 < y < 96)


def test_inside_is_between_the_walls_and_under_a_high_ceiling():
  for x in np.arange(-10.5, 220, 7):
    for y in np.arange(-10.5, 120, 7):
      found = vizdoom_level.is_inside(_PLAN, np.array([x, y]))
      assert found == _is_free(x, y), (x, y)


def test_slanted_walls_are_followed():
  triangle = _plan(([(0, 0, 90, 0), (90, 0, 0, 90), (0, 90, 0, 0)], True))
  for x in np.arange(-9.7, 100, 5):
    for y in np.arange(-9.2, 100, 5):
      expected = x > 0 and y > 0 and x + y < 90
      assert vizdoom_level.is_inside(triangle, np.array([x, y])) == expected


def test_sectors_in_one_place_are_no_place():
  # Such things exist in levels: bridges, and edges left over.
  twice = _plan((_box(0, 0, 9, 9), True), (_box(5, 0, 20, 9), True))
  found = [
    vizdoom_level.is_inside(twice, np.array([x, 4.0])) for x in (2.0, 7.0, 15.0)
  ]
  assert found == [True, False, True]


def test_places_are_free_and_everywhere():
  rng = np.random.default_rng(0)
  places = np.array([vizdoom_level.draw_place(rng, _PLAN) for _ in range(2000)])
  assert (places == np.rint(places)).all()
  assert all(_is_free(x + 0.5, y + 0.5) for x, y in places)
  # By area.
  share, expected = (places[:, 0] > 125).mean(), 4800 / (9400 + 4800)
  assert abs(share - expected) < 0.04
  assert len(np.unique(places, axis=0)) > 1500


def test_a_level_without_room_is_told():
  with pytest.raises(ValueError, match='no place to stand'):
    vizdoom_level.draw_place(
      np.random.default_rng(0), _plan((_box(0, 0, 9, 9), False))
    )


def test_motion_is_that_of_the_task():
  request = _request(episodes=5, length=15, size=8, seed=3)
  turned, predictable = record_rotation.motion(request)
  assert turned.shape == predictable.shape == (5, 15)
  task = Rotation(15, 8)
  for n in range(5):
    key = jax.random.fold_in(jax.random.key(3), n)
    np.testing.assert_allclose(
      np.radians(turned[n]), task.angles(key), rtol=1e-6
    )
  np.testing.assert_array_equal(predictable, turned >= 360 - 1e-4)
  assert predictable.any(1).all() and not predictable[:, :7].any()
  assert len(np.unique(turned[:, -1])) == 5
  # Fewer episodes are the first of many.
  fewer, _ = record_rotation.motion(
    _request(episodes=2, length=15, size=8, seed=3)
  )
  np.testing.assert_array_equal(fewer, turned[:2])


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'episodes': 0}, '--episodes is 0'),
    ({'episodes': -3}, '--episodes is -3'),
    ({'length': 13}, '--length is 13; it must be at least 14'),
    ({'size': 4}, '--size is 4'),
    ({'size': 34}, '--size is 34; it must be a multiple of 4'),
    ({'size': 244}, '8 to 240'),
    ({'size': -8}, '--size is -8'),
    ({'level': 'nowhere'}, "--level is 'nowhere'; there are my_way_home"),
    ({'level': 'E5M1'}, "'E5M1'"),
    ({'level': 'E1M0'}, "'E1M0'"),
    ({'level': 'MAP33'}, "'MAP33'"),
    ({'level': 'MAP00'}, "'MAP00'"),
    ({'level': 'MAP011'}, "'MAP011'"),
    ({'level': ''}, "--level is ''"),
    ({'seed': -1}, '--seed is -1'),
    ({'seed': 2**32}, '--seed is 4294967296'),
    ({'output': 'episodes'}, 'an .npz file'),
    ({'output': ''}, 'an .npz file'),
    ({'output': 'folder.npz'}, 'an .npz file'),
    ({'output': 'file/episodes.npz'}, 'cannot be written'),
  ],
)
def test_mistakes_are_told_before_anything_is_written(
  tmp_path, monkeypatch, changes, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'folder.npz').mkdir()
  (tmp_path / 'file').write_text('')
  with pytest.raises(ValueError) as error:
    record_rotation.check(_request(**changes))
  assert message in str(error.value) and '\n' not in str(error.value)
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ['file', 'folder.npz']


@pytest.mark.skipif(
  not hasattr(os, 'geteuid') or os.geteuid() == 0,
  reason='the superuser may write everywhere',
)
def test_a_folder_that_may_not_be_written_is_told(tmp_path):
  tmp_path.chmod(0o500)
  with pytest.raises(ValueError, match='cannot be written'):
    record_rotation.check(_request(output=str(tmp_path / 'episodes.npz')))


def test_every_level_that_is_named_has_its_files():
  names = [
    *vizdoom_level.SCENARIOS,
    *(f'E{i}M{j}' for i in range(1, 5) for j in range(1, 10)),
    *(f'MAP{i:02}' for i in range(1, 33)),
  ]
  assert len({vizdoom_level.resolve(name) for name in names}) == len(names)
  _engine()
  import vizdoom

  for name in names:
    game, scenario, _ = vizdoom_level.resolve(name)
    folder = pathlib.Path(vizdoom.__file__).parent
    assert game is None or (folder / game).is_file()
    folder = pathlib.Path(vizdoom.scenarios_path)
    assert scenario is None or (folder / scenario).is_file()


@pytest.mark.parametrize('failure', vizdoom_level._FAILURES)
def test_whatever_vizdoom_raises_is_a_mistake(monkeypatch, failure):
  engine = mock.MagicMock(__file__='vizdoom.py', scenarios_path='scenarios')
  kinds = {
    name: type(name, (Exception,), {}) for name in vizdoom_level._FAILURES
  }
  engine.configure_mock(**kinds)
  game = engine.DoomGame.return_value
  game.init.side_effect = kinds[failure]('no room in /dev/shm')
  monkeypatch.setattr(vizdoom_level, 'import_vizdoom', lambda: engine)
  with (
    pytest.raises(ValueError, match='ViZDoom failed: no room'),
    vizdoom_level.open_level('my_way_home', 0),
  ):
    pass
  game.close.assert_called_once_with()


def test_what_is_caught_is_all_that_vizdoom_has():
  _engine()
  import vizdoom

  kinds = {name for name in dir(vizdoom) if name.endswith('Exception')}
  assert kinds == set(vizdoom_level._FAILURES)


def test_without_vizdoom_the_extra_is_named(tmp_path):
  hidden = tmp_path / 'hidden'
  hidden.mkdir()
  (hidden / 'vizdoom.py').write_text('raise ImportError')
  folder = tmp_path / 'here'
  folder.mkdir()
  search = os.pathsep.join((str(hidden), os.environ['PYTHONPATH']))
  result = _run(folder, PYTHONPATH=search)
  assert result.returncode == 2 and result.stdout == ''
  assert result.stderr == (
    'record_rotation.py: ViZDoom is not installed; pip install '
    '"gtmm_jax[vizdoom]".\n'
  )
  assert not list(folder.iterdir())


def test_every_field_of_a_request_has_a_flag_with_its_default():
  names = record_rotation.Request.__dataclass_fields__
  with program_flags.defined(record_rotation.define_flags):
    defaults = {name: record_rotation.FLAGS[name].default for name in names}
  assert defaults == _DEFAULTS


def _arrays():
  rng = np.random.default_rng(1)
  frames = rng.integers(0, 256, (2, 14, 8, 8, 3), np.uint8)
  return frames, rng.random((2, 14)) < 0.5


def test_the_file_holds_the_arrays_as_they_are(tmp_path):
  frames, predictable = _arrays()
  path = tmp_path / 'new' / 'episodes.npz'
  record_rotation.write(path, frames, predictable)
  assert list(path.parent.iterdir()) == [path]
  with np.load(path) as loaded:
    assert sorted(loaded) == ['frames', 'predictable']
    np.testing.assert_array_equal(loaded['frames'], frames)
    np.testing.assert_array_equal(loaded['predictable'], predictable)
    assert loaded['frames'].dtype == np.uint8
    assert loaded['predictable'].dtype == np.bool_
  # Bytes as in memory, so that they can stay in the file.
  with zipfile.ZipFile(path) as archive:
    for entry in archive.infolist():
      assert entry.compress_type == zipfile.ZIP_STORED
  assert frames.tobytes() in path.read_bytes()


@pytest.mark.parametrize('error', [OSError('full'), KeyboardInterrupt()])
def test_a_file_that_cannot_be_finished_is_not_there(
  tmp_path, monkeypatch, error
):
  path = tmp_path / 'episodes.npz'
  record_rotation.write(path, *_arrays())
  before = path.read_bytes()

  def fail(file, **_):
    file.write(b'a part')
    raise error

  monkeypatch.setattr(np, 'savez', fail)
  for name in ('episodes.npz', 'other.npz'):
    with pytest.raises(type(error)):
      record_rotation.write(tmp_path / name, *_arrays())
  assert list(tmp_path.iterdir()) == [path]
  assert path.read_bytes() == before


def test_the_same_flags_give_the_same_file_and_nothing_else(
  tmp_path, monkeypatch
):
  _engine()
  here, scratch = tmp_path / 'here', tmp_path / 'scratch'
  here.mkdir()
  scratch.mkdir()
  flags = ['--episodes=2', '--length=14', '--size=16']
  result = _run(here, *flags, TMPDIR=str(scratch))
  assert (result.returncode, result.stderr) == (0, '')
  lines = result.stdout.splitlines()
  assert lines[0] == ('my_way_home, 2 episodes of 14 frames, 16 x 16, seed 0')
  assert lines[-1].split() == ['written', 'episodes.npz']
  # In this process, from where paths lead to the same folder.
  monkeypatch.chdir(here)
  monkeypatch.setattr(tempfile, 'tempdir', str(scratch))
  for changes in (
    {'output': 'again.npz', 'episodes': 2},
    {'output': 'fewer.npz', 'episodes': 1},
    {'output': 'other.npz', 'episodes': 1, 'seed': 2**32 - 1},
  ):
    request = _request(length=14, size=16, **changes)
    path = record_rotation.check(request)
    frames, predictable, _ = record_rotation.record(request, command.console())
    record_rotation.write(path, frames, predictable)
  names = ['again.npz', 'episodes.npz', 'fewer.npz', 'other.npz']
  assert sorted(path.name for path in here.iterdir()) == names
  assert not list(scratch.iterdir())
  again, first = ((here / name).read_bytes() for name in names[:2])
  assert again == first
  frames, fewer, other = (np.load(here / name)['frames'] for name in names[1:])
  assert frames.shape == (2, 14, 16, 16, 3) and frames.dtype == np.uint8
  np.testing.assert_array_equal(fewer, frames[:1])
  assert (other != fewer).mean() > 0.5
  assert (frames[0] != frames[1]).mean() > 0.5


def test_a_signal_ends_the_recording_and_closes_the_game(monkeypatch):
  closed = []

  @contextlib.contextmanager
  def open_level(*_):
    try:
      frames = np.zeros((14, 8, 8, 3), np.uint8)
      yield mock.Mock(record=lambda *_: (frames, 0.0))
    finally:
      closed.append(True)

  monkeypatch.setattr(vizdoom_level, 'open_level', open_level)
  monkeypatch.setattr(signals, 'received', lambda: 15)
  with pytest.raises(signals.Stopped, match='nothing was written'):
    record_rotation.record(
      _request(episodes=3, length=14, size=8), command.console()
    )
  assert closed


_STEP = 10


@pytest.fixture(scope='module')
def turns():
  """Records two turns, in steps of 10 degrees, at each of three places."""
  _engine()
  turned = np.arange(0, 720, _STEP, dtype=np.float64)
  rng = np.random.default_rng(5)
  with vizdoom_level.open_level('my_way_home', 0) as opened:
    seen = [opened.record(rng, turned, 64) for _ in range(3)]
  # The game knows 65,536 headings.
  assert max(error for _, error in seen) < 1.5 * 360 / 65536
  return np.stack([frames for frames, _ in seen]).astype(np.float64)


def test_nothing_moves_and_no_angle_drifts(turns):
  first, second = np.split(turns, 2, axis=1)
  assert abs(first - second).max() <= 8
  assert abs(first - second).mean() < 0.1
  # Which says something, since neighbours in angle differ.
  assert (abs(np.diff(first, axis=1)).mean((2, 3, 4)) > 0.5).mean() > 0.9
  assert abs(turns[0] - turns[1]).mean() > 5


def test_the_camera_turns_to_the_right(turns):
  # By so much the middle of the picture moves to the left: the square is three
  # quarters as wide as it is far away from the eye, on each side.
  shift = round(32 / 0.75 * np.tan(np.radians(_STEP)))
  one, other = turns[:, :-1, :, 16:48], turns[:, 1:]
  left = abs(one - other[:, :, :, 16 - shift : 48 - shift]).mean((2, 3, 4))
  right = abs(one - other[:, :, :, 16 + shift : 48 + shift]).mean((2, 3, 4))
  assert (left < right).mean() > 0.9


@pytest.mark.parametrize('name', ['health_gathering_supreme', 'E1M1', 'MAP01'])
def test_other_levels_have_places_too(name):
  _engine()
  with vizdoom_level.open_level(name, 1) as opened:
    frames, error = opened.record(
      np.random.default_rng(0), np.arange(0, 360, 24.0), 8
    )
  assert frames.shape == (15, 8, 8, 3) and error < 0.01
  assert frames.std() > 5
