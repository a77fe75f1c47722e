"""Runs on episodes of one's own: all at once, in windows, and mistakes."""

import importlib.util
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import own_episodes
import program_flags
import run_settings
import shared_programs
import show_task
from gtmm_jax import checkpoints, figures, presets, records, replicas
from gtmm_jax.model import build
from gtmm_jax.runs import (
  own_frames,
  pictures,
  prepare,
  program,
  recorded,
  results,
  session,
  workdirs,
)
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.tasks import frames
from gtmm_jax.tasks.sources.dataset import DataError

ROOT = pathlib.Path(__file__).resolve().parents[2]

_SHAPE = (8, 12, 3)
_EACH = 4 * (8 * 12 * 3 + 1)
_IS_WATCHED = importlib.util.find_spec('tensorboardX') is not None
# Room for six of eighteen training episodes.
_ROOM = 6.5 * _EACH / 1e6


class Interruption(Exception):
  """Stands for the power going off."""


def _request(workdir, file, **changes):
  values = {
    'task': 'frames',
    'model': 'vrnn',
    'preset': 'small',
    'workdir': str(workdir),
    'data': f'files:{file}',
    'steps': 4,
    'replicas': 2,
    'batch_size': 2,
    'report_every': 2,
    'evaluate_every': 1,
    'seed': 1,
    'evaluation_episodes': 4,
  }
  return run_settings.make(**{**values, **changes})


def _prepare(workdir, file, **changes):
  return prepare.prepare(_request(workdir, file, **changes))


def _lines(workdir):
  """Reads metrics without their seconds."""
  lines = records.read_metrics(workdir)
  for line in lines:
    assert line.pop('seconds') > 0
    assert line.pop('steps_per_second') > 0
  return lines


@pytest.fixture(scope='module', autouse=True)
def _trace_once():
  """Lets runs that resume in this process share their programs."""
  with shared_programs.of_equal_runs():
    yield


@pytest.fixture(scope='module')
def colour(tmp_path_factory):
  """Saves twenty episodes in colour, two each for validation and test."""
  return own_episodes.save(tmp_path_factory.mktemp('colour'), shape=_SHAPE)


@pytest.fixture(scope='module')
def grey(tmp_path_factory):
  """Saves grey episodes with a condition and marks."""
  file = tmp_path_factory.mktemp('grey') / 'episodes.npz'
  rng = np.random.default_rng(0)
  np.savez_compressed(
    file,
    frames=own_episodes.make(20, 5, (12, 8, 1)),
    condition=rng.normal(size=(20, 5, 3)),
    predictable=np.tile([0, 0, 0, 1, 1], (20, 1)),
  )
  return file


@pytest.fixture(scope='module')
def windowed(tmp_path_factory, colour):
  """Trains six steps in windows without interruption; returns the workdir."""
  workdir = tmp_path_factory.mktemp('windowed') / 'run'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(pictures, 'draw', lambda *_: None)
    session.complete(_prepare(workdir, colour, steps=6, device_megabytes=_ROOM))
  return workdir


def test_a_run_on_grey_episodes_leaves_all_that_runs_leave(
  tmp_path, grey, monkeypatch, capsys
):
  workdir = tmp_path / 'run'
  run = _prepare(workdir, grey, model='introspective')
  moved, place = [], replicas.broadcast

  def followed(layout, tree):
    # Counts of steps are placed, too.
    if not isinstance(tree, int):
      moved.append(tree)
    return place(layout, tree)

  monkeypatch.setattr(replicas, 'broadcast', followed)
  draw, rows = figures.strip_figure, []

  def noted(given, *arguments, **options):
    rows.extend(given)
    return draw(given, *arguments, **options)

  monkeypatch.setattr(figures, 'strip_figure', noted)
  monkeypatch.setattr(workdirs, 'figure_names', lambda _: ('episodes',))
  session.complete(run)
  # Two are for validation, and each is drawn once.
  assert {own_episodes.numbers(row.frames) for row in rows[::3]} == {8, 18}
  assert len(rows) == 6
  # What fits is moved once; what is for validation at each evaluation.
  assert moved[0] is run.images.training
  assert len(moved) > 1
  for images, classifier, _ in moved[1:]:
    assert images is run.images.validation and classifier is None
  out = capsys.readouterr().out
  assert 'introspective on frames (T 5, 12 x 8 x 1)' in out
  assert '16 training, 2 validation and 2 test episodes' in out
  config = records.read_config(workdir)
  assert config['settings']['length'] == 5
  assert config['settings']['shape'] == [12, 8, 1]
  assert config['settings']['device_megabytes'] is None
  assert config['data']['flag'] == f'files:{grey}'
  assert len(config['data']['checksum']) == 64
  lines = records.read_metrics(workdir)
  assert [line['step'] for line in lines] == [2, 4]
  for line in lines:
    assert np.shape(line['kl']) == (2, 5)
    assert np.isfinite(line['kl_predictable']).all()
  evaluation = records.read_evaluation(workdir)
  np.testing.assert_allclose(evaluation['predictable'], [0, 0, 0, 1, 1])
  for name in ('dream_error', 'dream_similarity', 'copy_error'):
    assert np.isfinite(evaluation[name]).all()
  # One frame more is dreamed than is marked.
  assert evaluation['dream_error_all'] != evaluation['dream_error']
  assert evaluation['entropy_floor'] > 0
  drawn = sorted(os.listdir(workdir / 'figures'))
  assert drawn == ['episodes.pdf', 'episodes.png']
  assert (run.task.length, run.task.condition_size) == (5, 3)
  assert run.task.prefix == 2


@pytest.mark.slow
def test_windows_are_trained_on_one_after_another(
  tmp_path, colour, monkeypatch
):
  trained, place = [], replicas.broadcast

  def followed(layout, tree):
    if isinstance(tree, frames.Frames):
      trained.append(tuple(own_episodes.numbers(tree.frames)))
      # The window before has been given up.
      assert not _windows_on_devices()
    return place(layout, tree)

  monkeypatch.setattr(replicas, 'broadcast', followed)
  concluded = []
  monkeypatch.setattr(
    results, 'conclude', lambda *_: concluded.append(_windows_on_devices())
  )
  run = _prepare(tmp_path, colour, steps=6, device_megabytes=_ROOM)
  session.complete(run)
  windows = run.images.training
  expected = [own_episodes.numbers(windows.at(i).frames) for i in range(3)]
  assert trained == [tuple(numbers) for numbers in expected]
  assert len(set(trained)) == 3
  # None is in the way of the evaluation.
  assert concluded == [0]


def _windows_on_devices():
  """Counts arrays with the shape of windows on two devices."""
  shape = (6, own_episodes.LENGTH, *_SHAPE)
  return sum(array.shape[1:] == shape for array in jax.live_arrays())


def test_a_run_in_windows_says_so(windowed):
  config = records.read_config(windowed)
  assert config['settings']['device_megabytes'] == _ROOM
  assert 'trained on 6 at a time' in config['data']['source']
  evaluation = records.read_evaluation(windowed)
  # Nothing is marked: everything is new.
  assert evaluation['predictable'] == [0.0] * own_episodes.LENGTH
  assert evaluation['kl_predictable'] == [None, None]
  assert evaluation['dream_error'] == [None, None]
  for source in ('dream', 'last', 'copy'):
    error, psnr, similarity = (
      np.array(evaluation[f'{source}_{name}_all'])
      for name in ('error', 'psnr', 'similarity')
    )
    # Frames are uniform noise: none is near, or further than a black one.
    assert np.all((error > 0.05) & (error < 1 / 3))
    np.testing.assert_allclose(psnr, -10 * np.log10(error), rtol=0.05)
    assert np.all((similarity > -0.2) & (similarity < 0.5))
  assert evaluation['entropy_floor'] is None


@pytest.fixture(scope='module')
def interrupted(tmp_path_factory, colour):
  """Trains the run of `windowed` in three starts; returns the workdir.

  It has event files, too, if their writer is installed.
  """
  workdir = tmp_path_factory.mktemp('interrupted') / 'run'
  changes = {'steps': 6, 'device_megabytes': _ROOM, 'tensorboard': _IS_WATCHED}

  def run():
    session.complete(_prepare(workdir, colour, **changes))

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(pictures, 'draw', lambda *_: None)
    for owner, name in (
      (records, 'append_metrics'),  # Steps without their line.
      (checkpoints, 'save'),  # A line without its checkpoint.
    ):
      with pytest.MonkeyPatch.context() as once:
        function, calls = getattr(owner, name), []

        def stopped(*args, function=function, calls=calls):
          calls.append(args)
          if len(calls) == 2:
            raise Interruption
          return function(*args)

        once.setattr(owner, name, stopped)
        with pytest.raises(Interruption):
          run()
    run()
  return workdir


@pytest.mark.slow
def test_an_interrupted_run_goes_on_through_the_same_windows(
  windowed, interrupted
):
  assert _lines(interrupted) == _lines(windowed)
  one, other = (records.read_evaluation(w) for w in (windowed, interrupted))
  assert one == other


@pytest.mark.slow
def test_event_files_of_an_interrupted_run_have_each_step_once(interrupted):
  reader = pytest.importorskip(
    'tensorboard.backend.event_processing.event_accumulator',
    reason='tensorboard is not here',
  )
  if not _IS_WATCHED:
    pytest.skip('tensorboardX is not here')
  folder = interrupted / 'tensorboard'
  assert sorted(os.listdir(folder)) == [
    *('mean', 'pictures', 'replica_0', 'replica_1')
  ]
  lines = records.read_metrics(interrupted)
  for replica in range(2):
    events = reader.EventAccumulator(str(folder / f'replica_{replica}'))
    curve = events.Reload().Scalars('training/negative_bound')
    assert [(each.step, each.value) for each in curve] == [
      (line['step'], np.float32(line['negative_bound'][replica]))
      for line in lines
    ]
  events = reader.EventAccumulator(str(folder / 'pictures')).Reload()
  (tag,) = events.Tags()['images']
  assert [each.step for each in events.Images(tag)] == [2, 4, 6]


def test_a_finished_run_gets_the_curves_of_its_records(
  windowed, tmp_path, colour, monkeypatch
):
  pytest.importorskip('tensorboardX', reason='tensorboardX is not here')
  workdir = shutil.copytree(windowed, tmp_path / 'run')
  monkeypatch.setattr(workdirs, 'is_complete', lambda *_: True)
  monkeypatch.setattr(results, 'show', lambda *_: None)
  changes = {'steps': 6, 'device_megabytes': _ROOM, 'tensorboard': True}
  session.complete(_prepare(workdir, colour, **changes))
  (file,) = (workdir / 'tensorboard' / 'replica_1').iterdir()
  # Once for each of three lines.
  assert file.read_bytes().count(b'training/negative_bound') == 3
  assert records.read_evaluation(workdir) == records.read_evaluation(windowed)


@pytest.mark.parametrize('limit', [None, _ROOM])
def test_a_file_that_is_cut_ends_a_run_where_it_is_read_again(
  tmp_path, colour, limit
):
  file = pathlib.Path(shutil.copy(colour, tmp_path))
  run = _prepare(tmp_path / 'run', file, device_megabytes=limit)
  images = own_frames.Training(run.layout, run.images)
  images.at(0)
  os.truncate(file, 1000)
  images.at(0)
  if limit is None:
    images.at(1)
  else:
    # As run.py tells it, in one line; test_what_ends_a_run_is_told_in_one_line.
    with pytest.raises(DataError, match=r'was cut from .* to 1,000 bytes'):
      images.at(1)


@pytest.mark.slow
def test_a_file_that_is_cut_under_a_run_ends_the_program_in_one_line(
  tmp_path, colour
):
  file = pathlib.Path(shutil.copy(colour, tmp_path))
  workdir, content = tmp_path / 'run', file.read_bytes()

  def start(steps):
    flags = {
      'task': 'frames',
      'model': 'vrnn',
      'data': f'files:{file}',
      'steps': steps,
      'replicas': 1,
      'batch_size': 2,
      'report_every': 20,
      'evaluation_episodes': 2,
      'device_megabytes': _ROOM,
      'workdir': workdir,
    }
    run = ROOT / 'experiments' / 'run.py'
    return subprocess.Popen(
      [sys.executable, run, *(f'--{k}={v}' for k, v in flags.items())],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  process = start(100_000)
  while not (workdir / 'metrics.jsonl').exists():
    assert process.poll() is None, process.communicate()
    time.sleep(0.1)
  os.truncate(file, 1000)
  _, told = process.communicate()
  assert process.returncode == 2 and told.count('\n') == 1
  assert f'{file} was cut from {len(content):,} to 1,000 bytes' in told
  step = records.read_metrics(workdir)[-1]['step']
  assert (workdir / 'checkpoints' / str(step)).is_dir()
  file.write_bytes(content)
  process = start(step + 20)
  out, told = process.communicate()
  assert process.returncode == 0, told
  assert f'Resuming from step {step:,}.' in out


def test_windows_change_what_is_learned(
  windowed, tmp_path, colour, monkeypatch
):
  monkeypatch.setattr(results, 'conclude', lambda *_: None)
  session.complete(_prepare(tmp_path / 'run', colour, steps=2))
  assert _lines(tmp_path / 'run')[0] != _lines(windowed)[0]


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'report_every': 3}, 'report_every'),
    ({'device_megabytes': 2 * _ROOM}, 'device_megabytes'),
    ({'device_megabytes': None}, 'device_megabytes'),
  ],
)
def test_other_windows_do_not_go_on_in_the_same_folder(
  windowed, colour, changes, words
):
  given = {'steps': 6, 'device_megabytes': _ROOM, **changes}
  with pytest.raises(ValueError, match=words):
    _prepare(windowed, colour, **given)


def test_other_episodes_do_not_go_on_in_the_same_folder(
  windowed, tmp_path, colour
):
  other = own_episodes.save(tmp_path, shape=_SHAPE, seed=1)
  with pytest.raises(ValueError, match='data'):
    _prepare(windowed, other, steps=6, device_megabytes=_ROOM)
  # The same ones do, from wherever they are read.
  moved = shutil.copy(colour, tmp_path / 'moved.npz')
  _prepare(windowed, moved, steps=6, device_megabytes=_ROOM)


def test_a_prefix_is_a_setting_of_the_run(tmp_path, colour):
  run = _prepare(tmp_path, colour, prefix=3)
  assert run.task.prefix == 3 and run.config['settings']['prefix'] == 3
  records.write_config(tmp_path, run.config)
  with pytest.raises(ValueError, match=r'prefix \(3 in the workdir, None now'):
    _prepare(tmp_path, colour)
  assert recorded.read(tmp_path, BUILT_IN).task == run.task
  # Workdirs from before there was this setting have its default.
  before = _prepare(tmp_path / 'before', colour).config
  assert before['settings'].pop('prefix') is None
  records.write_config(tmp_path / 'before', before)
  assert _prepare(tmp_path / 'before', colour).task.prefix == 2
  assert recorded.read(tmp_path / 'before', BUILT_IN).task.prefix == 2


def test_reports_may_come_as_they_like_without_windows(tmp_path, colour):
  run = _prepare(tmp_path, colour)
  records.write_config(tmp_path, run.config)
  _prepare(tmp_path, colour, report_every=3, device_megabytes=50.0)


def test_long_episodes_learn_at_the_lower_rate(tmp_path, colour):
  file = own_episodes.save(tmp_path, count=3, length=101, shape=(8, 8, 1))
  assert _prepare(tmp_path, file).settings.learning_rate == 1e-4
  assert _prepare(tmp_path, colour).settings.learning_rate == 2e-3


@pytest.mark.parametrize('preset', presets.PRESETS)
@pytest.mark.parametrize(
  ('shape', 'likelihood'),
  [((32, 36, 3), 'gaussian'), ((8, 12, 1), 'bernoulli')],
)
def test_networks_are_those_of_grey_or_colour_frames(
  tmp_path, preset, shape, likelihood
):
  file = own_episodes.save(tmp_path, count=3, shape=shape)
  run = _prepare(tmp_path, file, preset=preset)
  assert run.preset == presets.choose(preset, shape[-1])
  model = run.problem.model
  assert model.observation_map.likelihood == likelihood
  settings = _prepare(
    tmp_path, file, preset=preset, steps=None, store=None, learning_rate=None
  ).settings
  assert settings.store == run.preset.store[settings.model]
  assert settings.learning_rate == run.preset.learning_rate
  steps = settings.steps
  assert steps == {'small': 5_000, 'paper': 100_000}[preset]


@pytest.mark.parametrize(
  ('shape', 'layers'),
  [((32, 32, 3), 2), ((8, 16, 3), 2), ((12, 8, 3), 1), ((30, 32, 3), 0)],
)
def test_layers_whose_patches_do_not_fill_a_frame_are_left_out(shape, layers):
  model = build.temporal_vae(
    'introspective', presets.SMALL_COLOUR, shape, frames=4
  )
  used = presets.SMALL_COLOUR.patches[:layers]
  encoder = model.posterior_map.encoder
  decoder = model.observation_map.decoder
  assert tuple(encoder.patches) == tuple(decoder.patches) == used
  features, _ = jax.eval_shape(
    lambda frame: encoder.init_with_output(jax.random.key(0), frame, True),
    jnp.zeros(shape),
  )
  frame, _ = jax.eval_shape(
    lambda code: decoder.init_with_output(jax.random.key(0), code, True),
    features,
  )
  assert frame.shape == shape


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'data': 'bundled'}, 'give --data=files:FILE'),
    ({'data': 'tfds'}, 'give --data=files:FILE'),
    ({'data': 'files:nowhere.npz'}, 'nowhere.npz does not exist'),
    ({'length': 4}, '--length means nothing to frames; .* the file that'),
    ({'rows': 4}, '--rows means nothing to frames'),
    ({'prefix': 4}, 'prefix is 4; it must be 1 to 3'),
    ({'task': 'perfect_recall', 'prefix': 5}, '--prefix means nothing to perf'),
    ({'size': 32}, '--size means nothing to frames'),
    ({'binarize': True}, '--binarize means nothing to frames'),
    ({'device_megabytes': 0.0}, '--device_megabytes is 0.0'),
    ({'device_megabytes': -1.0}, '--device_megabytes is -1.0'),
    ({'device_megabytes': float('nan')}, '--device_megabytes is nan'),
    ({'device_megabytes': math.inf}, '--device_megabytes is inf'),
    ({'device_megabytes': 0.001}, 'there is room for 0.001'),
    ({'preset': 'paper'}, '8x12; the colour networks need at least 32x32'),
    ({'task': 'rotation'}, 'rotation draws its rooms itself'),
    (
      {'task': 'rotation', 'data': 'bundled', 'device_megabytes': 1.0},
      '--device_megabytes means nothing to rotation',
    ),
  ],
)
def test_mistakes_are_told_before_anything_is_written(
  tmp_path, colour, changes, words
):
  with pytest.raises(ValueError, match=words) as error:
    _prepare(tmp_path / 'run', colour, **changes)
  assert '\n' not in str(error.value)
  assert not (tmp_path / 'run').exists()


def test_a_file_is_read_after_the_flags_were_right(
  tmp_path, colour, monkeypatch
):
  def forbidden(*_):
    raise AssertionError('the file was read')

  monkeypatch.setattr(frames.frame_files, 'read', forbidden)
  for changes in (
    {'rows': 1},
    {'steps': 0},
    {'preset': 'paper'},
    {'device_megabytes': 0.0},
    {'device_megabytes': 0.001},
    {'model': 'associative', 'top_k': 99},
  ):
    settings = _request(tmp_path, colour, **changes)
    with pytest.raises(ValueError, match=next(reversed(changes))):
      prepare.prepare(settings)
  with pytest.raises(ValueError, match='workdir'):
    _prepare(colour, colour)


def test_the_program_takes_the_flags(tmp_path, colour, capsys):
  flags = {
    'task': 'frames',
    'data': f'files:{colour}',
    'device_megabytes': 0.001,
    'workdir': tmp_path / 'run',
  }
  with program_flags.defined(program.define_flags):
    said = program_flags.refused(
      capsys,
      ['run.py', *(f'--{name}={value}' for name, value in flags.items())],
      lambda _: program.run(BUILT_IN),
    )
  assert 'room for 0.001' in said
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
  ('part', 'numbers'),
  [
    ('training', {*range(8), *range(10, 18)}),
    ('validation', {8, 18}),
    ('test', {9, 19}),
  ],
)
@pytest.mark.parametrize('limit', [None, _ROOM])
def test_a_sheet_shows_episodes_of_the_file(
  tmp_path, grey, monkeypatch, part, numbers, limit
):
  calls = []
  monkeypatch.setattr(figures, 'strip_figure', lambda *arguments: arguments)
  monkeypatch.setattr(
    figures, 'save', lambda figure, stem: calls.append((*figure, stem)) or []
  )
  monkeypatch.setattr(
    own_frames, 'room', lambda *_: 1e6 if limit is None else limit
  )
  settings = run_settings.make(
    task='frames', preset='paper', data=f'files:{grey}'
  )
  show_task.draw(show_task.prepare(settings, part, 3, None))
  ((rows, title, note, *_, stem),) = calls
  assert str(stem) == 'frames' and 'T 5, 12 x 8 x 1' in title and note
  for row in rows:
    assert own_episodes.numbers(row.frames) in numbers
    assert list(row.marks) == [False] * 3 + [True] * 2
    # A condition of one's own is no action of navigation.
    assert row.captions == [''] * 5


# --- How much room there is.


def _layout(count, stats):
  device = types.SimpleNamespace(memory_stats=lambda: stats)
  return replicas.Layout((device,) * count, 1)


def test_half_of_an_accelerator_is_for_episodes():
  layout = _layout(2, {'bytes_limit': 10**10, 'bytes_in_use': 5})
  assert replicas.room_for_data(layout) == 5 * 10**9


@pytest.mark.parametrize('stats', [None, {}, {'bytes_in_use': 5}])
def test_half_of_the_machine_is_for_episodes_and_their_copies(
  stats, monkeypatch
):
  sizes = {'SC_PHYS_PAGES': 10**6, 'SC_PAGE_SIZE': 4096}
  monkeypatch.setattr(os, 'sysconf', sizes.__getitem__, raising=False)
  assert replicas.room_for_data(_layout(1, stats)) == 1_024_000_000
  assert replicas.room_for_data(_layout(3, stats)) == 512_000_000


def test_a_machine_that_does_not_tell_has_some_room(monkeypatch):
  monkeypatch.delattr(os, 'sysconf', raising=False)
  assert replicas.room_for_data(_layout(1, None)) == 2**30


def test_room_is_recorded_in_whole_megabytes(tmp_path, colour, monkeypatch):
  monkeypatch.setattr(
    own_frames.replicas, 'room_for_data', lambda _: 12_345_678
  )
  settings = _prepare(tmp_path, colour).settings
  assert own_frames.room(settings, None) == 12
  assert own_frames.room(settings, 0.5) == 0.5
  assert json.dumps(own_frames.room(settings, None)) == '12'
