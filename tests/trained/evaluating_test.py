"""Evaluations of a trained run, against the run's own and by hand."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest

import evaluate as program
import gtmm_jax
import own_episodes
import program_flags
import shared_programs
import trained_runs
from gtmm_jax import folds, records, replicas, trained
from gtmm_jax.model import build
from gtmm_jax.problem import Problem
from gtmm_jax.runs import exam, held_out, prepare, recorded
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.trained import evaluating, evaluations, variants

_SIZES = {'pre_recall': 3, 'recall': 2}


@pytest.fixture(scope='module')
def recalled(tmp_path_factory):
  """Returns a run and its own evaluation; replica 1 failed."""
  folder = tmp_path_factory.mktemp('recall')
  run = trained_runs.prepare_run(
    folder, task='perfect_recall', evaluation_episodes=3, **_SIZES
  )
  (state,) = trained_runs.write(run, {2: [-1, 1]})
  weights = exam.weights_of(replicas.scatter(run.layout, state))
  evaluation = held_out.Evaluation(exam.of_run(run))
  return run, evaluation.at_the_end(weights, 'validation')


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch):
  monkeypatch.setattr(prepare.digit_images, 'load_digits', trained_runs.digits)


@pytest.fixture(autouse=True, scope='module')
def _flags():
  with (
    program_flags.defined(program.define_flags),
    shared_programs.of_equal_runs(),
  ):
    yield


def _evaluate(run, *flags):
  """Calls the program; returns the folder of the results of a name."""
  arguments = ['evaluate.py', f'--workdir={run.workdir}', *flags]
  assert program_flags.exit_code(arguments, program.main) == 0
  names = [each for each in flags if each.startswith('--name=')]
  name = names[0].partition('=')[2] if names else 'as_trained'
  return run.workdir / 'evaluations' / name


def _same(one, other):
  """Checks that two records are equal to rounding, null for null."""
  assert type(one) is type(other) or None not in (one, other)
  if isinstance(one, dict):
    assert one.keys() == other.keys()
    for name in one:
      _same(one[name], other[name])
  elif isinstance(one, list):
    assert len(one) == len(other)
    for pair in zip(one, other, strict=True):
      _same(*pair)
  elif isinstance(one, float):
    assert one == pytest.approx(other, rel=1e-4, abs=1e-4)
  else:
    assert one == other


def test_with_no_flags_the_values_are_those_of_the_run(recalled, capsys):
  run, expected = recalled
  folder = _evaluate(run)
  values = records.read_evaluation(folder / 'validation')
  _same(values, records.documents.as_json(expected.values))
  assert values['last_iterate']['negative_bound'][0] is not None
  assert {'command', 'commit', 'clean'} <= records.read_config(folder).keys()
  arrays = records.read_episodes(folder / 'validation')
  for one, other in zip(arrays, expected.episodes, strict=True):
    assert one.dtype == other.dtype
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
  out = capsys.readouterr().out
  assert 'l 3, k 2' in out and 'Replica 1 stopped being finite' in out
  assert (folder / 'kl_by_frame.png').exists()


def test_longer_episodes_are_those_of_their_seed_and_split(recalled):
  run = gtmm_jax.load(recalled[0].workdir, replica=0)
  sizes = {'pre_recall': 5}
  measured = trained.evaluate(
    run, sizes, 'test', episodes=2, seed=4, bounds=['particle']
  )
  (key, _) = replica_keys(dataclasses.replace(run.settings, seed=4))
  key = jax.random.fold_in(key, np.uint32(folds.EVALUATION))
  task = variants.make(run, sizes).task
  problem = Problem(run.model, task.sample, run.settings.batch_size)

  @jax.jit
  def by_hand():
    episode, _ = problem.draw(key, run.data.test)
    _, terms = run.observe(jax.random.split(key)[1], episode.frames)
    # With one sample both tighter bounds are the same.
    bound_key = jax.random.fold_in(key, folds.TIGHTER_BOUNDS)
    bound = run.log_likelihood(bound_key, episode.frames, bound='iwae')
    return episode.predictable, terms.kl, bound

  predictable, kl, bound = by_hand()
  np.testing.assert_allclose(measured.episodes.kl[0], kl.T, 1e-4, 1e-4)
  np.testing.assert_array_equal(measured.episodes.predictable[0], predictable.T)
  array = measured.bounds['negative_bound_particle']
  np.testing.assert_allclose(array, -bound[None], rtol=1e-4)
  values = measured.values
  assert (values['split'], values['episodes']) == ('test', 2)
  mean = values['negative_bound_particle']
  np.testing.assert_allclose(mean, array.mean(1), rtol=1e-6)
  assert values['last_iterate']['negative_bound'].shape == (1,)


def test_the_same_command_repeats_nothing_and_another_is_refused(
  recalled, capsys, monkeypatch
):
  run, (values, episodes) = recalled
  bounds = {'negative_bound_iwae': np.array([[7.0, 9.0, 8.0, 8.0], [1.0] * 4])}
  means = {'negative_bound_iwae': np.array([8.0, np.nan]), 'bound_samples': 5}
  measured = evaluating.Measured({**values, **means}, episodes, bounds)
  calls = []

  def evaluate(_, *arguments):
    calls.append(arguments)
    return measured

  monkeypatch.setattr(evaluating.Evaluator, '__call__', evaluate)
  monkeypatch.setattr(evaluations.figures, 'save', lambda *_: [])
  flags = ['--bound=iwae', '--samples=5', '--evaluate_on=test,validation']
  name = f'--name={"-".join(flags).replace("--", "")}'
  folder = _evaluate(run, *flags, name)
  assert calls == [(split, ('iwae',), 5) for split in ('test', 'validation')]
  first = capsys.readouterr().out
  assert 'IWAE' in first and 'Tighter bounds are of 5 samples' in first
  for split in ('test', 'validation'):
    with np.load(folder / split / 'bounds.npz') as arrays:
      assert arrays.files == ['negative_bound_iwae']
      np.testing.assert_array_equal(
        arrays['negative_bound_iwae'], bounds['negative_bound_iwae']
      )
    written = records.read_evaluation(folder / split)
    assert written['negative_bound_iwae'] == [8.0, None]
  # One that was interrupted goes on.
  (folder / 'test' / 'evaluation.json').unlink()
  _evaluate(run, *flags, name)
  assert [split for split, *_ in calls] == ['test', 'validation', 'test']
  _evaluate(run, *flags, name)
  assert len(calls) == 3
  lines = [x for x in first.splitlines() if not x.startswith('evaluating ')]
  assert capsys.readouterr().out.splitlines()[-len(lines) :] == lines
  before = trained_runs.contents(folder)
  arguments = ['evaluate.py', f'--workdir={run.workdir}', *flags, name]
  error = program_flags.refused(capsys, [*arguments, '--seed=3'], program.main)
  assert 'other settings: seed (0 then, 3 now); give another --name' in error
  assert trained_runs.contents(folder) == before


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--workdir=absent'], 'There is no run in absent'),
    (['--step=3'], 'no checkpoint of step 3 .*; there are those of step 2'),
    (['--rows=2'], '--rows means nothing to perfect_recall.*--pre_recall and'),
    (['--pre_recall=3,1'], 'recall is 2 and pre_recall 1'),
    (['--recall=0'], 'recall is 0; it must be at least 1'),
    (['--pre_recall=nan'], "'nan'; it must be whole numbers"),
    (['--pre_recall='], 'it must be whole numbers with commas'),
    (['--pre_recall=99999999999'], 'must be at most'),
    (['--episodes=0'], '--episodes is 0; it must be >= 1'),
    (['--samples=0', '--bound=iwae'], '--samples is 0; it must be >= 1'),
    (['--samples=9'], '--samples is of tighter bounds; add --bound=iwae,'),
    (['--bound=elbo'], "bound is 'elbo'; there are iwae and particle"),
    (['--evaluate_on=training'], "split is 'training'; it must be validation"),
    (['--seed=-1'], '--seed is -1'),
    (['--slots=grow', '--pre_recall=9'], 'cannot grow: its weights core/att'),
    (['--name=a/b'], '--name=a/b cannot name a folder'),
    (['--data=files:absent'], 'absent'),
  ],
)
def test_mistakes_are_told_and_nothing_is_written(
  recalled, capsys, monkeypatch, tmp_path, flags, message
):
  workdir = recalled[0].workdir
  if '--data=files:absent' in flags:
    monkeypatch.undo()
  monkeypatch.chdir(tmp_path)
  before = trained_runs.contents(workdir)
  arguments = ['evaluate.py', f'--workdir={workdir}', *flags]
  error = program_flags.refused(capsys, arguments, program.main)
  assert re.search(message, error), error
  assert trained_runs.contents(workdir) == before
  assert not list(tmp_path.iterdir())


def _trained(tmp_path, **changes):
  """Returns a trained run without variables."""
  run = trained_runs.prepare_run(
    tmp_path, **{'task': 'perfect_recall', **_SIZES, **changes}
  )
  shape = run.images.training.shape
  return trained.Trained(
    workdir=tmp_path,
    step=0,
    replica=None,
    failed_at=np.full(2, -1),
    model=run.problem.model,
    variables=None,
    is_average=False,
    task=run.task,
    settings=run.settings,
    recorded=recorded.Recorded(run.settings, run.task, shape, None),
    kinds=BUILT_IN,
  )


@pytest.mark.parametrize(
  ('changes', 'slots'),
  [
    ({'model': 'ntm'}, 10),
    ({'model': 'lru'}, 50),
    ({'model': 'dnc', 'set': ('slots=3',)}, 6),
    ({'model': 'associative', 'without': ('age', 'arrival')}, 10),
    ({'model': 'associative', 'set': ('positions=fourier',)}, 10),
    ({'model': 'introspective', 'set': ('positions=fourier',)}, 10),
  ],
)
def test_a_memory_grows_with_the_frames(tmp_path, changes, slots):
  run = _trained(tmp_path, **changes)
  longer = {'pre_recall': 7, 'recall': 3}
  variant = variants.make(run, longer)
  assert (variant.slots, variant.change) == (slots, 'grown')
  assert f'{slots} slots; trained with' in variant.remark
  shapes = [
    build.variable_shapes(model, (28, 28, 1))
    for model in (run.model, variant.model)
  ]
  assert jax.tree.map(lambda leaf: leaf.shape, shapes[0]) == jax.tree.map(
    lambda leaf: leaf.shape, shapes[1]
  )
  kept = variants.make(run, longer, 'trained')
  assert kept.model == run.model
  # The LRU has five slots for each frame.
  is_full = kept.slots < 9
  assert kept.change == ('overwritten' if is_full else '')
  assert ('slots for 10 frames: ' in kept.remark) == is_full
  # Shorter episodes keep the slots.
  assert variants.make(run, {'pre_recall': 2}).model == run.model


@pytest.mark.parametrize(
  ('changes', 'why'),
  [
    ({}, r'core/attention/\w+ are for 5 slots'),
    ({'model': 'associative'}, 'are for 5 slots'),
    ({'set': ('attention=gaussian',)}, 'at a share of all its slots'),
    ({'model': 'ntm', 'set': ('initial_memory=learned',)}, 'core/initial_mem'),
  ],
)
def test_a_memory_that_cannot_grow_says_why(tmp_path, changes, why):
  run = _trained(tmp_path, **changes)
  variant = variants.make(run, {'pre_recall': 7})
  assert (variant.model, variant.change) == (run.model, 'overwritten')
  assert re.search(
    rf'5 slots for 9 frames \(it cannot grow: .*{why}', variant.remark
  )
  with pytest.raises(ValueError, match=why) as error:
    variants.make(run, {'pre_recall': 7}, 'grow')
  assert '--slots=trained' in str(error.value)
  # The latent of the last frame is never read.
  assert not variants.make(run, {'pre_recall': 4}).remark


def test_a_model_without_slots_has_none_to_grow(tmp_path):
  run = _trained(tmp_path, model='vrnn', set=('latent_size=3',))
  variant = variants.make(run, {'pre_recall': 7})
  assert (variant.slots, variant.remark) == (None, '')
  with pytest.raises(ValueError, match='vrnn has no slots'):
    variants.make(run, {'pre_recall': 7}, 'grow')


def test_means_of_bounds_are_those_of_each_part_of_a_mixture():
  number = np.array([[0, 2, 0, 2], [2, 2, 2, 2]], np.int8)
  episodes = types.SimpleNamespace(part=np.repeat(number[..., None], 3, 2))
  array = np.array([[1.0, 2.0, 4.0, 8.0], [np.nan] * 4])
  values = {'by_task': dict.fromkeys('abc', {'kl_new': 7})}
  extended = evaluating.with_bounds(values, episodes, {'tight': array})
  np.testing.assert_allclose(extended['tight'], [3.75, np.nan])
  for name, mean in (('a', 2.5), ('b', np.nan), ('c', 5.0)):
    part = extended['by_task'][name]
    np.testing.assert_allclose(part['tight'], [mean, np.nan])
    assert part['kl_new'] == 7


def test_other_own_episodes_have_frames_of_the_same_size(tmp_path):
  names = {}
  for name, length, shape in (
    ('short', 4, (8, 12, 1)),
    ('long', 6, (8, 12, 1)),
    ('large', 4, (12, 12, 1)),
  ):
    folder = tmp_path / name
    folder.mkdir()
    file = own_episodes.save(folder, count=30, length=length, shape=shape)
    names[name] = f'files:{file}'
  run = _trained(
    tmp_path / 'run',
    task='frames',
    data=names['short'],
    load=prepare.load_images,
    **dict.fromkeys(_SIZES),
  )
  longer = variants.with_data(run, names['long'])
  assert len(longer.data.validation.frames[0]) == 6
  variant = variants.make(longer)
  assert (variant.task.length, variant.slots) == (6, 4)
  assert '4 slots for 6 frames' in variant.remark
  with pytest.raises(ValueError, match=r'frames \(12, 12, 1\).*\(8, 12, 1\)'):
    variants.with_data(run, names['large'])
  with pytest.raises(ValueError, match='the file that --data names'):
    variants.make(run, {'length': 6})
  assert variants.make(run, {'prefix': 1}).task.prefix == 1
