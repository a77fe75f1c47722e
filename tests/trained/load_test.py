"""Tests of trained runs as models, against what the model itself computes."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import gtmm_jax
import slow_cases
from gtmm_jax import figures, records
from gtmm_jax.evaluation import importance
from gtmm_jax.model import free_energy, generate
from gtmm_jax.runs import drawn_episodes, pictures, prepare, recorded, resolve
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.tasks.episode import Episode
from trained_runs import WALK, contents, digits, prepare_run, write

_ACTIONS = 4
_KEY = jax.random.key(7)


class Plain(nn.RNNCellBase):
  """A core without memory."""

  names: tuple[str, ...]

  @nn.compact
  def __call__(self, carry, inputs):
    carry = nn.tanh(nn.Dense(4)(jnp.concatenate([carry, inputs], -1)))
    return carry, carry

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    del rng
    return jnp.zeros((*input_shape[:-1], 4))


def plain(sizes, slots, *, names: tuple[str, ...] = ('a', 'b')):
  """Makes the core, with an option whose values are names."""
  del sizes, slots
  return Plain(names)


_OWN = {'plain': plain}


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Returns the folder of a run, whose replica 1 failed before step 4."""
  folder = tmp_path_factory.mktemp('walk')
  write(
    prepare_run(folder, **WALK),
    {2: [-1, -1], 4: [-1, 3]},
  )
  return folder


@pytest.fixture(scope='module')
def both(workdir):
  """Returns all replicas, at the step at which both were finite."""
  return gtmm_jax.load(workdir, step=2)


@pytest.fixture(scope='module')
def one(workdir):
  """Returns replica 1 alone."""
  return gtmm_jax.load(workdir, step=2, replica=1)


@pytest.fixture(scope='module')
def walk():
  """Returns frames and conditions of two walks, [T, B, ...]."""
  rng = np.random.default_rng(3)
  frames = rng.uniform(0, 1, (6, 2, 28, 28, 1)).astype(np.float32)
  return frames, np.eye(_ACTIONS, dtype=np.float32)[rng.integers(0, 4, (6, 2))]


def _same(one, other, **tolerance):
  tolerance = {'rtol': 1e-4, 'atol': 1e-5, **tolerance}
  assert jax.tree.structure(one) == jax.tree.structure(other)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other
  )


def _noise(run, key, *axes):
  return jax.random.normal(key, (*axes, run.model.noise_size))


def test_what_is_loaded_is_the_average_or_the_latest(workdir, both):
  latest = gtmm_jax.load(workdir, step=2, averaged=False)
  rng = np.random.default_rng(2)
  for run in (latest, both):
    jax.tree.map(
      lambda leaf: np.testing.assert_array_equal(
        leaf, np.float32(rng.normal(0, 0.3, leaf.shape))
      ),
      run.variables['params'],
    )
  assert (both.step, both.replica) == (2, None)
  assert both.task.condition_size == _ACTIONS


def test_terms_and_state_are_those_of_inference(one, walk):
  frames, condition = walk
  expected = jax.jit(
    lambda *x: free_energy.infer(one.model, one.variables, *x)
  )(frames, condition, _noise(one, _KEY, 6, 2))
  state, terms = one.observe(_KEY, frames, condition)
  _same(terms, expected.terms)
  _same(state, expected.state)
  _same(jax.jit(one.observe)(_KEY, frames, condition), (state, terms))
  # Bytes are grey values.
  grey = np.round(255 * frames[:, 0]).astype(np.uint8)
  alone = one.observe(_KEY, grey, condition[:, 0])
  same = one.observe(_KEY, grey / np.float32(255), condition[:, 0])
  assert alone[1].kl.shape == (6,)
  _same(alone, same)


def test_every_result_of_all_replicas_is_that_of_each_alone(both, one, walk):
  frames, condition = walk
  results = []
  for run in (both, one):
    state, terms = run.observe(_KEY, frames[:4], condition[:4])
    dream = run.dream(_KEY, state, 2, condition[4:], samples=2)
    bound = run.log_likelihood(_KEY, frames, condition)
    watched = run.watch(frames, condition)
    results.append((state, terms, dream, bound, watched))
  of_all, of_one = results
  leaves = jax.tree.leaves(of_all)
  assert all(leaf.shape[0] == 2 for leaf in leaves)
  _same(jax.tree.map(lambda leaf: leaf[1], of_all), of_one)
  assert not np.allclose(of_all[1].kl[0], of_all[1].kl[1])


def test_a_dream_continues_an_episode(one, walk):
  frames, condition = walk
  state, _ = one.observe(_KEY, frames[:4], condition[:4])
  key = jax.random.key(8)
  dream = one.dream(key, state, 2, condition[4:], samples=3)
  assert dream.frames.shape == (3, 2, 2, 28, 28, 1)
  before = _noise(one, _KEY, 4, 2)
  continued = jax.jit(
    lambda noise: generate.continue_episode(
      one.model, one.variables, frames[:4], condition, noise
    )
  )
  for sample, each in enumerate(jax.random.split(key, 3)):
    after = _noise(one, jax.random.split(each)[0], 2, 2)
    expected = continued(jnp.concatenate([before, after]))
    _same(jax.tree.map(lambda leaf, s=sample: leaf[s], dream), expected)
  compiled = jax.jit(one.dream, static_argnames=('length', 'samples'))
  _same(compiled(key, state, 2, condition[4:], samples=3), dream)


def test_a_dream_from_nothing_begins_before_the_first_frame(both, one, walk):
  condition = walk[1][:3, 0]
  dream = one.dream(_KEY, None, 3, condition, samples=2)
  features = one.model.apply(
    one.variables, jnp.zeros((28, 28, 1)), method='encode'
  )
  state = one.model.apply(
    one.variables, features, condition[0], method='initial_state'
  )
  noise = _noise(one, jax.random.split(jax.random.split(_KEY)[1])[0], 3)
  for t in range(3):
    state, imagined = one.model.apply(
      one.variables, state, condition[t], noise[t], method='imagine'
    )
    _same(dream.z[1, t], imagined.z)
  _same(jax.tree.map(lambda leaf: leaf[1], dream.state), state)
  several = both.dream(_KEY, None, 3, walk[1][:3])
  assert several.frames.shape == (2, 1, 3, 2, 28, 28, 1)


def test_the_elbo_is_the_mean_of_bounds(one, walk):
  frames, condition = walk
  bound = one.log_likelihood(_KEY, frames, condition, samples=2)
  expected = [
    -free_energy.negative_bound(one.observe(key, frames, condition)[1])
    for key in jax.random.split(_KEY)
  ]
  _same(bound, sum(expected) / 2)


@pytest.mark.parametrize(
  ('bound', 'function'),
  slow_cases.but_for(
    [('particle', importance.particle)],
    [
      ('iwae', importance.importance_weighted),
      ('particle', importance.particle),
    ],
  ),
)
def test_tighter_bounds_are_those_of_their_module(one, walk, bound, function):
  frames, condition = walk
  values = one.log_likelihood(_KEY, *walk, bound=bound, samples=3)
  expected = jax.jit(lambda *x: function(one.model, one.variables, *x, _KEY, 3))
  _same(values, expected(frames, condition))
  alone = one.log_likelihood(
    _KEY, frames[:, 0], condition[:, 0], bound=bound, samples=3
  )
  _same(alone, values[0])


def test_what_is_watched_is_what_the_core_has(one, walk):
  frames, condition = walk
  expected = jax.jit(lambda *x: free_energy.watch(one.model, one.variables, *x))
  watched = one.watch(frames, condition, _KEY)
  _same(watched, expected(*walk, _noise(one, _KEY, 6, 2)))
  quiet = one.watch(frames[:, 0], condition[:, 0])
  # Slot n of frame t holds the latent of n + 1 frames before.
  for t in range(1, 6):
    np.testing.assert_allclose(
      quiet.core.memory[t, 0], quiet.stored[t - 1], atol=1e-5
    )


def test_a_failed_replica_is_told(workdir):
  with pytest.warns(UserWarning, match=r'finite: 1 \(at step 3\)'):
    run = gtmm_jax.load(workdir)
  assert run.step == 4
  np.testing.assert_array_equal(run.failed_at, [-1, 3])
  with pytest.raises(ValueError, match='at step 3; finite are: 0'):
    gtmm_jax.load(workdir, replica=1)
  assert gtmm_jax.load(workdir, replica=0).replica == 0


def test_figures_are_those_of_the_run(workdir, monkeypatch):
  monkeypatch.setattr(prepare.digit_images, 'load_digits', digits)
  calls = []

  def note(settings, problem, drawn, prefix):
    calls.append((problem.model, drawn, prefix))
    nothing = np.full((6, 1), -1)
    episode = Episode(
      np.zeros((6, 1, 28, 28, 1)),
      np.zeros((6, 1, 0)),
      nothing,
      np.zeros((6, 1), bool),
      nothing,
    )
    generated = episode.frames[prefix:]
    return drawn_episodes.Dream(episode, episode.frames, generated)

  monkeypatch.setattr(pictures, '_dream', note)
  with pytest.warns(UserWarning, match='finite'):
    run = gtmm_jax.load(workdir)
  assert isinstance(run.figure('episodes'), figures.Figure)
  ((model, (variables, key, images), prefix),) = calls
  assert (model, prefix) == (run.model, run.task.prefix)
  _same(variables, gtmm_jax.load(workdir, replica=0).variables)
  assert (key == pictures.key_of(run.settings, 0)).all()
  np.testing.assert_array_equal(images.pixels, digits().validation.pixels)
  with pytest.raises(ValueError, match='overlay, memory'):
    run.figure('dreams')


def test_the_figure_of_results_is_of_the_records(both, tmp_path, monkeypatch):
  run = dataclasses.replace(both, workdir=tmp_path)
  line = {'step': 2, 'kl_last': [3.0, 4.0], 'failed_at': [None, None]}
  evaluation = {**line, 'kl': [[1.0, 2.0]] * 2, 'predictable': [0.0, 1.0]}
  records.append_metrics(tmp_path, line)
  records.write_evaluation(tmp_path, evaluation)
  calls = []
  monkeypatch.setattr(
    figures,
    'results_figure',
    lambda *runs, **title: calls.append((runs, title)),
  )
  run.figure('results')
  (((((label, metrics, last, _),),), title),) = calls
  assert label == 'introspective'
  assert [each['kl_last'] for each in metrics] == [[3.0, 4.0]]
  assert last['kl'] == evaluation['kl']
  assert title == {'title': 'navigation, 2 x 2, T 6'}


def test_the_overlay_is_a_map_of_the_first_episode(one, monkeypatch):
  monkeypatch.setattr(prepare.digit_images, 'load_digits', digits)
  calls = []

  def dream(settings, problem, drawn, prefix):
    _, key, images = drawn
    batch = functools.partial(drawn_episodes.batch, problem)
    episode, _ = jax.jit(batch)(key, images)
    generated = np.full_like(episode.frames[prefix:], prefix / 10)
    return drawn_episodes.Dream(episode, episode.frames, generated)

  monkeypatch.setattr(pictures, '_dream', dream)
  monkeypatch.setattr(
    figures,
    'overlay_figure',
    lambda *all, **options: calls.append((all, options)),
  )
  one.figure('overlay')
  (((rows, places, visits), options),) = calls
  (_, truth), *generated = rows
  for prefix, (name, frames) in zip((3, 1), generated, strict=True):
    assert name == f'generated after frame {prefix}'
    np.testing.assert_array_equal(frames[:prefix], truth[:prefix])
    assert (frames[prefix:] == np.float32(prefix / 10)).all()
  # A cell shows one image, and has been counted before.
  assert options['grid'] == (2, 2)
  assert places.min() >= 0 and places.max() <= 1
  for t, (place, frame) in enumerate(zip(places, truth, strict=True)):
    before = [s for s in range(t) if (places[s] == place).all()]
    assert visits[t] == len(before)
    for s in before:
      np.testing.assert_array_equal(frame, truth[s])
  assert 'introspection network on navigation' in options['title']


def test_other_data_than_those_of_the_run_are_told(both, monkeypatch):
  other = digits()._replace(checksum='0')
  monkeypatch.setattr(prepare.digit_images, 'load_digits', lambda *_: other)
  both.__dict__.pop('data', None)
  with pytest.raises(ValueError, match='have changed'):
    _ = both.data


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'step': 3}, 'step 3.*there are those of step 2 and 4'),
    ({'replica': 2}, 'no replica 2.*there are 0, 1'),
    ({'replica': -1}, 'no replica -1'),
  ],
)
def test_what_is_not_there_is_told_with_what_is(workdir, arguments, message):
  before = contents(workdir)
  with pytest.raises(ValueError, match=message) as error:
    gtmm_jax.load(workdir, **arguments)
  assert '\n' not in str(error.value)
  assert contents(workdir) == before


def test_no_run_and_no_checkpoint_are_told(tmp_path, workdir):
  for folder in (tmp_path, tmp_path / 'absent'):
    with pytest.raises(ValueError, match='There is no run in'):
      gtmm_jax.load(folder)
  config = records.read_config(workdir)
  records.write_config(tmp_path, config)
  with pytest.raises(ValueError, match='There is no checkpoint in'):
    gtmm_jax.load(tmp_path)
  settings = {**config['settings'], 'dreaming': 'lucid'}
  records.write_config(tmp_path, {**config, 'settings': settings})
  with pytest.raises(ValueError, match='dreaming=lucid, which this one'):
    gtmm_jax.load(tmp_path)
  records.write_config(tmp_path, {**config, 'settings': {'model': 'dnc'}})
  with pytest.raises(ValueError, match='lacks a setting'):
    gtmm_jax.load(tmp_path)


def test_a_damaged_checkpoint_is_told_and_stays(tmp_path):
  write(
    prepare_run(tmp_path, **WALK),
    {2: [-1, -1], 4: [-1, -1]},
  )
  for path in (tmp_path / 'checkpoints' / '4').rglob('d/*'):
    if path.is_file():
      path.write_bytes(b'damaged')
  before = contents(tmp_path)
  with pytest.raises(ValueError, match='damaged: .* Name another step: 2'):
    gtmm_jax.load(tmp_path)
  assert gtmm_jax.load(tmp_path, step=2).step == 2
  assert contents(tmp_path) == before
  # Of a model of another size.
  config = records.read_config(tmp_path)
  config['settings']['latent_size'] = 5
  records.write_config(tmp_path, config)
  with pytest.raises(ValueError, match='holds other arrays than this model'):
    gtmm_jax.load(tmp_path, step=2)


def test_a_core_of_ones_own_is_named(tmp_path):
  kinds = kinds_module.with_own(_OWN, {})
  run = prepare_run(
    tmp_path, kinds, model='plain', names=('c',), set=('latent_size=3',)
  )
  write(run, {2: [-1, -1]})
  with pytest.raises(ValueError, match="give models={'plain': ...}"):
    gtmm_jax.load(tmp_path)
  loaded = gtmm_jax.load(tmp_path, models=_OWN)
  assert loaded.model == run.problem.model
  assert loaded.settings.options == {'names': ('c',)}


@pytest.mark.parametrize(
  ('frames', 'condition', 'message'),
  [
    (np.zeros((6, 28, 28)), None, r'shape \(6, 28, 28\).*\[T, 28, 28, 1\]'),
    (np.zeros((6, 20, 28, 1)), None, 'shape'),
    (np.zeros((0, 28, 28, 1)), None, 'at least one frame'),
    (np.zeros((6, 28, 28, 1), int), None, 'type int64'),
    (np.full((6, 28, 28, 1), 255.0), None, 'reach from 255.0'),
    (np.full((6, 28, 28, 1), np.nan), None, 'reach from nan'),
    (np.zeros((6, 28, 28, 1)), None, r'give condition, \[6, 4\]'),
    (np.zeros((6, 28, 28, 1)), np.zeros((5, 4)), r'must be \[6, 4\]'),
  ],
)
def test_frames_of_another_kind_are_told(one, frames, condition, message):
  for function in (one.watch, lambda *x: one.observe(_KEY, *x)):
    with pytest.raises(ValueError, match=message) as error:
      function(frames, condition)
    assert '\n' not in str(error.value)


def test_other_wrong_arguments_are_told(both, one, walk):
  frames, condition = walk
  for wrong in (0, 1.5, True):
    with pytest.raises(ValueError, match='samples is'):
      one.log_likelihood(_KEY, frames, condition, samples=wrong)
    with pytest.raises(ValueError, match='length is'):
      one.dream(_KEY, None, wrong, condition)
  with pytest.raises(ValueError, match='there are elbo'):
    one.log_likelihood(_KEY, frames, condition, bound='tight')
  state = jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape),
    jax.eval_shape(both.observe, _KEY, frames, condition)[0],
  )
  for wrong in (state, 'asleep'):
    with pytest.raises(ValueError, match='state is not one of this model'):
      one.dream(_KEY, wrong, 2, condition[:2])


@pytest.mark.parametrize(
  'changes',
  [
    {'model': 'vrnn', 'task': 'parity_recall', 'set': ('latent_size=5',)},
    {'model': 'ntm', 'task': 'perfect_recall', 'set': ('tag=false',)},
    {'model': 'lru', 'preset': 'paper', 'task': 'navigation', 'set': ()},
    {'model': 'dnc', 'set': ('slots=6', 'key_strength=3.0')},
    {'model': 'associative', 'without': ('age',), 'top_k': 2, 'set': ()},
    {'task': 'dynamic_dependency', 'schedule': 'constant', 'set': ()},
  ],
)
def test_settings_come_back_as_they_were(tmp_path, changes):
  run = prepare_run(tmp_path, **changes)
  records.write_config(tmp_path, run.config)
  back = recorded.read(tmp_path, BUILT_IN)
  model = resolve.make_model(back.settings, back.task, back.frame_shape)
  assert (model, back.task) == (run.problem.model, run.task)
  for name in ('options', 'episode', 'replicas', 'average', 'precision'):
    assert getattr(back.settings, name) == getattr(run.settings, name), name


def test_own_episodes_need_their_file_only_for_data(tmp_path):
  file = tmp_path / 'episodes.npz'
  rng = np.random.default_rng(0)
  np.savez(
    file,
    frames=rng.integers(0, 256, (12, 4, 8, 12, 3), dtype=np.uint8),
    condition=np.zeros((12, 4, 2), np.float32),
  )
  run = prepare_run(
    tmp_path / 'run',
    load=prepare.load_images,
    task='frames',
    data=f'files:{file}',
    set=(),
  )
  (tmp_path / 'run').mkdir()
  records.write_config(tmp_path / 'run', run.config)
  file.unlink()
  back = recorded.read(tmp_path / 'run', BUILT_IN)
  assert back.frame_shape == (8, 12, 3) and back.task == run.task
  config = json.loads((tmp_path / 'run' / 'config.json').read_text())
  # Earlier versions did not record the width of the condition.
  del config['data']['condition_size']
  records.write_config(tmp_path / 'run', config)
  with pytest.raises(ValueError, match='does not exist'):
    recorded.read(tmp_path / 'run', BUILT_IN)


def test_importing_the_package_imports_nothing_else():
  with pytest.raises(AttributeError, match='no attribute'):
    _ = gtmm_jax.unload
