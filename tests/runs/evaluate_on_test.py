"""The parts of the data in a run: which one is read when, and is named."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import run_settings
import shared_programs
from gtmm_jax import records, train
from gtmm_jax.evaluation import classifier
from gtmm_jax.runs import held_out, pictures, prepare, session, workdirs
from gtmm_jax.tasks import recall
from gtmm_jax.tasks.sources.dataset import Dataset, Images, checksum_of

# The upper left pixel of all images of a part.
_MARKS = {'training': 10, 'validation': 20, 'test': 30}


def _images(part):
  rng = np.random.default_rng(_MARKS[part])
  pixels = rng.integers(0, 256, (20, 28, 28, 1), np.uint8)
  pixels[:, 0, 0] = _MARKS[part]
  return Images(pixels, np.arange(20, dtype=np.int32) % 10)


def _digits(*_):
  parts = [_images(part) for part in _MARKS]
  return Dataset(*parts, 'marked images', checksum_of(*parts))


@pytest.fixture(autouse=True)
def _marked(monkeypatch):
  """Replaces the digits by marked images, and classifies them quickly."""
  monkeypatch.setattr(prepare.digit_images, 'load_digits', _digits)
  soon = functools.partial(classifier.fit, steps=2)
  monkeypatch.setattr(classifier, 'fit', soon)
  names = 'results', 'episodes'
  monkeypatch.setattr(workdirs, 'figure_names', lambda _: names)
  with shared_programs.of_equal_runs():
    yield


def _prepare(workdir, **changes):
  values = {
    'task': 'parity_recall',
    'model': 'vrnn',
    'preset': 'small',
    'workdir': str(workdir),
    'pre_recall': 2,
    'recall': 1,
    'steps': 2,
    'replicas': 1,
    'batch_size': 2,
    'report_every': 1,
    'evaluate_every': 1,
    'evaluation_episodes': 2,
  }
  return prepare.prepare(run_settings.make(**{**values, **changes}))


def _touch(run, state, wanted, evaluation):
  """Leaves empty figures; returns the images that would be drawn."""
  folder = run.workdir / 'figures'
  folder.mkdir(exist_ok=True)
  for path in workdirs.figure_paths(run.workdir, run.settings):
    path.touch()
  return pictures.subject(run, state).images


@pytest.fixture
def read(monkeypatch):
  """Collects the marks that each activity of a run reads."""
  marks, activity = {}, ['training']

  def add(mark):
    marks.setdefault(activity[-1], set()).add(int(mark))

  def note(images):
    jax.debug.callback(add, images.pixels[0, 0, 0, 0])

  def noting(function, place):
    def replacement(*arguments, **options):
      note(arguments[place])
      return function(*arguments, **options)

    return replacement

  def during(owner, name):
    function = getattr(owner, name)

    def replacement(*arguments):
      jax.effects_barrier()
      activity.append(name)
      result = function(*arguments)
      jax.effects_barrier()
      if name == 'draw':
        add(result.pixels[0, 0, 0, 0])
      activity.pop()
      return result

    monkeypatch.setattr(owner, name, replacement)

  during(held_out.Evaluation, 'on_the_way')
  during(held_out.Evaluation, 'at_the_end')
  during(held_out.Evaluation, '_fit_classifier')
  # Drawing itself has tests of its own.
  monkeypatch.setattr(pictures, 'draw', _touch)
  during(pictures, 'draw')
  monkeypatch.setattr(classifier, 'fit', noting(classifier.fit, 1))
  monkeypatch.setattr(classifier, 'accuracy', noting(classifier.accuracy, 1))
  sample = recall.ParityRecall.sample

  def noted(self, key, images):
    note(images)
    return sample(self, key, images)

  monkeypatch.setattr(recall.ParityRecall, 'sample', noted)
  return marks


class _Untouchable:
  """Images that nothing may read."""

  def __getattr__(self, name):
    raise AssertionError(f'{name} of test images was read')


def _forbidden(*_):
  raise AssertionError('what is done already was done again')


def test_each_part_is_read_for_its_purpose_alone(
  tmp_path, capsys, monkeypatch, read
):
  """Runs on validation, then evaluates on the test without training."""
  workdir = tmp_path / 'run'
  run = _prepare(workdir)
  images = run.images._replace(test=_Untouchable())
  session.complete(dataclasses.replace(run, images=images))
  assert read == {
    'training': {_MARKS['training']},
    '_fit_classifier': {_MARKS['training']},
    'on_the_way': {_MARKS['validation']},
    'at_the_end': {_MARKS['validation']},
    'draw': {_MARKS['validation']},
  }
  read.clear()
  first = records.read_evaluation(workdir)
  out = capsys.readouterr().out
  assert '2 validation episodes, 1 replicas' in out
  assert 'on validation episodes' in out and 'of validation digits' in out
  lines = (workdir / 'metrics.jsonl').read_bytes()
  results = workdir / 'figures' / 'results.png'
  before = results.stat().st_mtime_ns
  monkeypatch.setattr(train, 'train_step', _forbidden)
  session.complete(_prepare(workdir, evaluate_on='test'))
  assert read == {
    '_fit_classifier': {_MARKS['training']},
    'at_the_end': {_MARKS['test']},
    'draw': {_MARKS['test']},
  }
  second = records.read_evaluation(workdir)
  assert (first['split'], second['split']) == ('validation', 'test')
  for evaluation in (first, second):
    assert 0 <= evaluation['classifier_accuracy'] <= 1
    for name in ('retrieval_ahead', 'retrieval_free'):
      assert 0 <= evaluation[name][0] <= 1
    # Of two classes, chance is what position tells, not what memory does.
    assert evaluation['retrieval_ahead_chance'] == [None]
  assert first['negative_bound'] != second['negative_bound']
  assert records.read_config(workdir)['settings']['evaluate_on'] == 'test'
  assert (workdir / 'metrics.jsonl').read_bytes() == lines
  assert {
    line['held_out']['split'] for line in records.read_metrics(workdir)
  } == {'validation'}
  assert results.stat().st_mtime_ns > before
  out = capsys.readouterr().out
  assert '2 test episodes, 1 replicas' in out
  assert 'on test episodes' in out and 'of test digits' in out
  # What is there is shown, and nothing is done.
  monkeypatch.setattr(held_out.Evaluation, 'at_the_end', _forbidden)
  session.complete(_prepare(workdir, evaluate_on='test'))
  assert '2 test episodes' in capsys.readouterr().out
  # Back again it is evaluated again.
  with pytest.raises(AssertionError, match='done again'):
    session.complete(_prepare(workdir))


def test_a_workdir_of_two_parts_is_refused(tmp_path):
  run = _prepare(tmp_path / 'run')
  settings = dict(run.config['settings'])
  del settings['evaluate_on']
  data = {**run.config['data'], 'checksum': '0' * 64}
  config = {**run.config, 'settings': settings, 'data': data}
  records.write_config(tmp_path / 'run', config)
  with pytest.raises(ValueError, match='an earlier version trained') as caught:
    _prepare(tmp_path / 'run')
  message = str(caught.value)
  assert 'data (' in message and 'another --workdir' in message
  assert '\n' not in message and 'evaluate_on' not in message
  # Other data alone are told as such.
  config['settings'] = run.config['settings']
  records.write_config(tmp_path / 'run', config)
  with pytest.raises(ValueError, match=r'data \(') as caught:
    _prepare(tmp_path / 'run')
  assert 'earlier version' not in str(caught.value)


def test_an_evaluation_is_that_of_the_split_it_names(tmp_path):
  evaluation = {'step': 2, 'episodes': 2}
  # Those of earlier versions, which had two parts, name none.
  for named in ('validation', 'test', None):
    split = {} if named is None else {'split': named}
    records.write_evaluation(tmp_path, evaluation | split)
    for split_now in ('validation', 'test'):
      is_there = workdirs.is_evaluated(tmp_path, 2, 2, split_now)
      assert is_there == (named == split_now)
