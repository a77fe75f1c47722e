"""Event files, read by TensorBoard's own reader, have what the records have."""

import functools
import importlib.util
import types

import jax
import numpy as np
import pytest

import own_episodes
import program_flags
import run_settings
from gtmm_jax import figures, records, replicas, train
from gtmm_jax.evaluation import generation
from gtmm_jax.runs import (
  event_files,
  event_pictures,
  exam,
  pictures,
  prepare,
  program,
)
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.tasks import episode

pytest.importorskip('tensorboardX', reason='tensorboardX is not here')
event_accumulator = pytest.importorskip(
  'tensorboard.backend.event_processing.event_accumulator',
  reason='tensorboard is not here',
)


def _line(step, **changes):
  """Makes a line of a run of two replicas, the second of which failed."""
  return {
    'step': step,
    'seconds': float(step),
    'learning_rate': 1e-3,
    'steps_per_second': 50.0,
    'negative_bound': [100.0 - step / 100, None],
    'kl_new': [10.0, None],
    'kl_predictable': [5.0, None],
    'kl_last': [4.0, None],
    'gradient_norm': [3.0, None],
    'failed_at': [None, 1],
    **changes,
  }


_HELD_OUT = {
  'negative_bound': [90.0, 80.0],
  'kl_new': [10.0, 10.0],
  'kl_predictable': [2.0, 4.0],
  'kl_last': [2.0, 4.0],
  'retrieval_ahead': [0.5, 0.75],
  'failed_at': [None, None],
}
_PICTURES = {'shown': np.arange(60, dtype=np.uint8).reshape(4, 5, 3)}


@pytest.fixture(name='run')
def _run(tmp_path, monkeypatch):
  """Makes a run of two replicas, with a picture that takes no model."""
  drawn = types.SimpleNamespace(draw=lambda _: _PICTURES)
  monkeypatch.setattr(event_files, 'Pictures', lambda *_: drawn)
  settings = types.SimpleNamespace(replicas=2, tensorboard=True)
  return types.SimpleNamespace(workdir=tmp_path, settings=settings)


def _report(run, *lines):
  """Opens the files of a run, as at a start, and reports lines."""
  with event_files.opened(run, None) as files:
    for line in lines:
      records.append_metrics(run.workdir, line)
      settled_at = records.settled_at(records.read_metrics(run.workdir))
      files.add(line, settled_at, None)


def _read(run, name):
  events = event_accumulator.EventAccumulator(
    str(run.workdir / 'tensorboard' / name)
  )
  return events.Reload()


def _curve(run, name, tag):
  return [(each.step, each.value) for each in _read(run, name).Scalars(tag)]


def test_each_replica_and_the_mean_have_curves(run):
  _report(run, _line(10), _line(120), _line(230, held_out=_HELD_OUT))
  bounds = [(10, 99.9), (120, 98.8), (230, 97.7)]
  for name in ('replica_0', 'mean'):
    np.testing.assert_allclose(
      _curve(run, name, 'training/negative_bound'), bounds, rtol=1e-6
    )
  assert _curve(run, 'mean', 'training/gradient_norm')[0] == (10, 3.0)
  # The ratio means something once the KL of new frames has settled.
  assert _curve(run, 'mean', 'training/ratio') == [(120, 0.5), (230, 0.5)]
  np.testing.assert_allclose(
    _curve(run, 'mean', 'run/learning_rate')[0], (10, 1e-3)
  )
  assert _curve(run, 'mean', 'run/steps_per_second')[0] == (10, 50.0)
  assert _curve(run, 'mean', 'validation/retrieval_ahead') == [(230, 0.625)]
  assert _curve(run, 'replica_1', 'validation/retrieval_ahead') == [(230, 0.75)]
  # Only training failed: the values of the second replica are null.
  tags = _read(run, 'replica_1').Tags()['scalars']
  assert {tag.split('/')[0] for tag in tags} == {'validation'}
  times = [
    each.wall_time
    for each in _read(run, 'mean').Scalars('training/negative_bound')
  ]
  np.testing.assert_allclose(np.diff(times), [110, 110], atol=0.01)


def test_pictures_come_with_validation(run):
  _report(run, _line(10), _line(20, held_out=_HELD_OUT))
  (shown,) = _read(run, 'pictures').Images('shown')
  assert (shown.step, shown.width, shown.height) == (20, 5, 4)
  assert shown.encoded_image_string.startswith(b'\x89PNG')


def test_a_run_that_resumes_has_each_step_once(run):
  held_out = {'held_out': _HELD_OUT}
  _report(run, _line(10), _line(20, **held_out), _line(30, **held_out))
  # Its last checkpoint is that of step 20.
  records.drop_metrics_after(run.workdir, 20)
  _report(run, _line(30, negative_bound=[7.0, None], **held_out))
  curve = _curve(run, 'mean', 'training/negative_bound')
  assert [step for step, _ in curve] == [10, 20, 30]
  assert curve[-1] == (30, 7.0)
  shown = _read(run, 'pictures').Images('shown')
  assert [each.step for each in shown] == [20, 30]


def test_curves_from_before_they_were_asked_for_are_there(run):
  for step in (10, 20):
    records.append_metrics(run.workdir, _line(step))
  lost = {**_line(30, seconds=None, negative_bound=[None, None]), 'lost': True}
  records.append_metrics(run.workdir, lost)
  _report(run)
  curve = _curve(run, 'mean', 'training/negative_bound')
  assert [step for step, _ in curve] == [10, 20]


def test_parts_of_a_mixture_have_curves_of_their_own():
  held_out = {**_HELD_OUT, 'by_task': {'navigation': _HELD_OUT}}
  curves = event_files.curves(_line(10, held_out=held_out), True)
  assert list(curves['validation/navigation/ratio']) == [0.2, 0.4]


def test_nothing_is_written_unless_asked_for(run):
  run.settings.tensorboard = False
  with event_files.opened(run, None) as files:
    assert files is None
  assert list(run.workdir.iterdir()) == []


def test_a_full_disk_is_an_error_of_the_run(run, monkeypatch):
  with event_files.opened(run, None) as files:
    path = run.workdir / 'tensorboard' / 'mean'
    (name,) = path.iterdir()
    writer = files._curves['mean']._writer._py_recordio_writer._writer
    monkeypatch.setattr(writer, 'write', _raise_full)
    with pytest.raises(OSError, match='No space left'):
      files.add(_line(10), None, None)
    monkeypatch.undo()
  assert name.exists()


def _raise_full(_):
  raise OSError(28, 'No space left on device')


def test_rows_of_frames_are_one_picture():
  frames = np.zeros((2, 16, 24, 1))
  frames[0] = 1.0
  later = np.concatenate([np.full((1, 16, 24, 1), np.nan), frames[:1]])
  rows = [
    figures.Row('true', frames, np.array([False, True])),
    figures.Row('generated', later),
  ]
  picture = event_pictures.strip(rows)
  # Enlarged three times, with four pixels between.
  assert picture.shape == (2 * 52, 2 * 76, 3) and picture.dtype == np.uint8
  assert (picture[:48, :72] == 255).all()
  assert (picture[:48, 76:148] == 0).all()
  assert (picture[48:50, 76:148] == 255).all()
  assert (picture[48:50, :72] == 96).all()
  assert (picture[52:100, :72] == 96).all()
  assert (picture[52:100, 76:148] == 255).all()


def test_read_weights_are_cells():
  weights = np.zeros((3, 2, 4))
  weights[1, 0, 2] = 0.5
  picture = event_pictures.heatmaps(weights)
  assert picture.shape == (2 * (4 * 8 + 4), 3 * 8, 3)
  assert (picture[16:24, 8:16] == 255).all()
  assert (picture == 255).sum() == 8 * 8 * 3


def test_a_missing_extra_is_named_before_anything_is_done(
  tmp_path, monkeypatch, capsys
):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, *rest: None if name == 'tensorboardX' else find(name, *rest),
  )
  flags = ['run.py', '--tensorboard', f'--workdir={tmp_path / "run"}']
  with program_flags.defined(program.define_flags):
    said = program_flags.refused(capsys, flags, lambda _: program.run(BUILT_IN))
  assert 'pip install "gtmm_jax[tensorboard]"' in said
  assert list(tmp_path.iterdir()) == []


def test_the_flag_is_no_setting_of_the_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with_it, without = (
    prepare.prepare(run_settings.make(preset='small', tensorboard=is_watched))
    for is_watched in (True, False)
  )
  assert with_it.settings.tensorboard and not without.settings.tensorboard
  assert with_it.workdir == without.workdir
  assert with_it.config == without.config


def test_pictures_are_of_validation_episodes_and_of_reads(tmp_path):
  file = own_episodes.save(tmp_path, count=6, length=4, shape=(8, 12, 1))
  run = prepare.prepare(
    run_settings.make(
      task='frames',
      model='introspective',
      preset='small',
      data=f'files:{file}',
      workdir=str(tmp_path / 'run'),
      replicas=2,
      batch_size=2,
      steps=1,
    )
  )
  initialise = functools.partial(train.init_state, run.problem, run.recipe)
  shapes = jax.eval_shape(
    jax.vmap(initialise, (0, None)), replica_keys(run.settings), run.images[0]
  )
  state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
  state = state._replace(failed_at=np.array([1, -1], np.int32))
  shown = event_pictures.Pictures(run, None).draw(
    replicas.scatter(run.layout, state)
  )
  strip = shown['episode_reconstruction_dream']
  # Only one episode is for validation; its frames are enlarged six times.
  assert strip.shape == (3 * 52, 4 * 76, 3)
  (frames,) = run.images.validation.frames
  truth = strip[:48:6, :, 0].reshape(8, 4, 76)[:, :, :72:6]
  np.testing.assert_array_equal(truth.swapaxes(0, 1), frames[..., 0])
  # The dream begins after half of the frames.
  assert (strip[104:152, : 2 * 76] == 96).all()
  assert (strip[104:152, 2 * 76 : 3 * 76 - 4] != 96).all()
  core = run.problem.model.core
  heads, slots = core.read_heads, core.slots
  assert shown['read_weights'].shape == (heads * (8 * slots + 4), 4 * 8, 3)


def test_dreams_of_other_tasks_are_those_of_the_evaluation(
  tmp_path, monkeypatch
):
  run = prepare.prepare(
    run_settings.make(model='vrnn', preset='small', workdir=str(tmp_path / 'a'))
  )
  length, prefix = run.task.length, run.task.prefix
  shades = np.linspace(0, 1, length).reshape(-1, 1, 1, 1, 1)
  shown = np.broadcast_to(shades, (length, 3, 28, 28, 1))
  marks = np.zeros((length, 3), bool)
  drawn = episode.Episode(shown, shown[:, :, 0, 0, :0], marks, marks, marks)
  requests = []

  def dream(_, replica, split):
    requests.append((replica, split))
    return generation.Dream(drawn, shown, shown[prefix:])

  weights = types.SimpleNamespace(failed_at=np.array([3, -1]))
  monkeypatch.setattr(exam, 'weights_of', lambda _: weights)
  nothing = pictures.Subject(None, None, None, None)
  monkeypatch.setattr(pictures, 'subject', lambda *_: nothing)
  evaluation = types.SimpleNamespace(dream=dream)
  drawings = event_pictures.Pictures(run, evaluation).draw(None)
  assert list(drawings) == ['episode_reconstruction_dream']
  assert requests == [(1, 'validation')]
  (strip,) = drawings.values()
  rows = strip.reshape(9, 60, length, 60, 3)[:, 0, :, 0, 0]
  expected = np.round(255 * shades.ravel())
  np.testing.assert_array_equal(rows[:2], [expected, expected])
  assert (rows[2, :prefix] == 96).all()
  np.testing.assert_array_equal(rows[2, prefix:], expected[prefix:])
