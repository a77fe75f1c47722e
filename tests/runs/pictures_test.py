"""Tests of a run's figures, against the core's own carries."""

import dataclasses
import functools
import math
import types

import jax
import numpy as np
import pytest

import numbered_images
import own_episodes
import slow_cases
from gtmm_jax import figures, folds, presets, records, train
from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.transformer import Transformer
from gtmm_jax.model import build, free_energy
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe
from gtmm_jax.runs import drawn_episodes, memory_panels, pictures, workdirs
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.tasks.frames import Frames, OwnFrames
from gtmm_jax.tasks.mixture import Mixture
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images

_LENGTH, _SLOTS, _WORDS = 7, 9, 6
_SIZES = {'slots': _SLOTS, 'controller_size': 8}
_CORES = {
  'introspective': lambda heads: Introspective(
    latent_size=_WORDS, read_heads=heads, **_SIZES
  ),
  'associative': lambda heads: Associative(
    latent_size=_WORDS, read_heads=heads, **_SIZES
  ),
  'ntm': lambda heads: NTM(word_size=_WORDS, read_heads=heads, **_SIZES),
  'lru': lambda heads: LRU(word_size=_WORDS, read_heads=heads, **_SIZES),
  'dnc': lambda heads: DNC(word_size=_WORDS, read_heads=heads, **_SIZES),
}


def _carries(core):
  """Carries over one episode without a batch, leaves [T, ...]."""
  return jax.jit(functools.partial(_run, core))()


def _run(core):
  inputs = jax.random.normal(jax.random.key(0), (_LENGTH, _WORDS))
  carry = core.initialize_carry(jax.random.key(1), inputs[0].shape)
  variables = core.init(jax.random.key(2), carry, inputs[0])
  # Larger than at the start, so that gates and heads differ.
  variables = jax.tree.map(lambda leaf: 3.0 * leaf, variables)

  def body(carry, now):
    carry, _ = core.apply(variables, carry, now)
    return carry, carry

  return jax.lax.scan(body, carry, inputs)[1]


def _panels(cores):
  panels = memory_panels.panels(cores)
  assert len({panel.title for panel in panels}) == len(panels)
  return {panel.title: panel for panel in panels}


def _same(panel, values):
  np.testing.assert_allclose(panel.values, values, rtol=1e-6)


def test_panels_of_a_transformer_are_the_reads_of_each_blocks_heads():
  core = Transformer(size=8, slots=_SLOTS, layers=2, heads=3, head_size=4)
  cores = _carries(core)
  panels = _panels(cores)
  shown = [f'{block}.{head}' for block in (1, 2) for head in (1, 2, 3)]
  assert list(panels) == [f'read weights, head {name}' for name in shown]
  for index, panel in enumerate(panels.values()):
    _same(panel, cores.read_weights[:, index])


@pytest.mark.parametrize('name', _CORES)
@pytest.mark.parametrize('heads', slow_cases.but_for([5], [1, 5]))
def test_panels_are_what_the_core_carries(name, heads):
  cores = _carries(_CORES[name](heads))
  panels = _panels(cores)
  for head in range(heads):
    suffix = f', head {head + 1}' if heads > 1 else ''
    panel = panels.pop(f'read weights{suffix}')
    _same(panel, cores.read_weights[:, head])
    # All heads have one scale, which ends where their weights do.
    assert panel.limits == (0.0, pytest.approx(cores.read_weights.max()))
    assert (panel.rows, panel.columns) == ('slot', 'frame')
  memory = np.asarray(cores.memory, np.float64)
  _same(panels.pop('norm of each slot'), np.sqrt((memory**2).sum(-1)))
  content = panels.pop('content at the last frame')
  _same(content, memory[-1].T)
  assert (content.rows, content.columns) == ('slot', 'word')
  alike = panels.pop('cosines of slots at the last frame')
  assert (alike.rows, alike.columns) == ('slot', 'slot')
  assert alike.limits == (-1.0, 1.0)
  for one, row in zip(memory[-1], alike.values, strict=True):
    for other, cosine in zip(memory[-1], row, strict=True):
      norms = math.sqrt((one @ one) * (other @ other))
      expected = one @ other / norms if norms else 0.0
      assert cosine == pytest.approx(expected, abs=1e-6)
  if name not in ('introspective', 'associative'):
    several = name == 'lru' and heads > 1
    title = f'write weights, greatest of {heads} heads'
    panel = panels.pop(title if several else 'write weights')
    greatest = np.asarray(cores.write_weights).max(axis=1)
    _same(panel, greatest)
    limits = None if several else (0.0, pytest.approx(greatest.max()))
    assert panel.limits == limits
  if name in ('lru', 'dnc'):
    panel = panels.pop('usage')
    _same(panel, cores.usage)
    assert panel.limits == ((0.0, 1.0) if name == 'dnc' else None)
  gates = dict(
    row
    for panel in panels.values()
    for row in zip(panel.rows, np.transpose(panel.values), strict=True)
  )
  assert all(panel.limits == (0.0, 1.0) for panel in panels.values())
  expected = _expected_gates(name, cores, heads)
  assert gates.keys() == expected.keys()
  for row, values in expected.items():
    np.testing.assert_allclose(gates[row], values, rtol=1e-6)
  # Nothing is blank: each of them changes.
  assert all(np.ptp(values) > 0 for values in gates.values())
  if heads == 1:
    frames = np.zeros((_LENGTH, 28, 28, 1))
    figures.memory_figure(frames, memory_panels.panels(cores))


def _expected_gates(name, cores, heads):
  def rows(kind, values):
    count = values.shape[1]
    return {
      f'{kind} {head + 1}' if count > 1 else kind: values[:, head]
      for head in range(count)
    }

  if name == 'introspective':
    return rows('read', np.asarray(cores.gates).mean(axis=2))
  if name == 'associative':
    found = rows('read', np.asarray(cores.gates).mean(axis=2))
    for index, addressing in enumerate(('age', 'arrival', 'content')):
      found |= rows(addressing, cores.shares[..., index])
    return found
  if name == 'ntm':
    return rows('read', cores.read_gates) | rows('write', cores.write_gates)
  if name == 'lru':
    return rows('write', cores.gates)
  gates = cores.gates
  return {
    'write': gates.write[:, 0],
    'allocation': gates.allocation[:, 0],
    **rows('free', gates.free),
    **rows('backward', gates.read_modes[..., 0]),
    **rows('content', gates.read_modes[..., 1]),
    **rows('forward', gates.read_modes[..., 2]),
  }


@pytest.mark.parametrize(
  ('added', 'titles'),
  [
    # Weights of the first head and of what the others add to them.
    ([0, 0, 0], ['head 2 of 3, all alike']),
    ([0, 0.2, 0], ['head 1 (3 alike)', 'head 2']),
    ([0, 0.2, -0.2], ['head 1', 'head 2', 'head 3']),
  ],
)
def test_heads_that_are_alike_have_one_panel(added, titles):
  weights = np.full((4, 3, 5), 0.3)
  # The second one is the strongest, by less than a tenth.
  weights[:, 1] += 0.02
  weights[2, :, 4] += added
  panels = memory_panels._weights('read', weights)
  assert [panel.title for panel in panels] == [
    f'read weights, {title}' for title in titles
  ]
  for panel, title in zip(panels, titles, strict=True):
    np.testing.assert_array_equal(panel.values, weights[:, int(title[5]) - 1])
    assert panel.limits == (0.0, weights.max())


def test_read_modes_of_several_write_heads_are_summed_by_their_kind():
  cores = _carries(DNC(word_size=_WORDS, read_heads=2, write_heads=3, **_SIZES))
  panels = _panels(cores)
  for head in range(3):
    panel = panels[f'write weights, head {head + 1}']
    _same(panel, cores.write_weights[:, head])
  modes = np.asarray(cores.gates.read_modes)
  expected = [modes[..., :3].sum(-1), modes[..., 3], modes[..., 4:].sum(-1)]
  _same(panels['read modes'], np.concatenate(expected, axis=1))


def test_the_memory_that_is_drawn_is_that_of_the_first_episode_drawn():
  preset = dataclasses.replace(
    presets.SMALL, dense_hidden=(16,), latent_size=4, prior_hidden=(8,)
  )
  task = PerfectRecall(4, 2)
  model = build.temporal_vae('introspective', preset, (8, 8, 1), task.length)
  problem = Problem(model, task.sample, 3)
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
  images = Images(pixels, np.zeros(12, np.int32))
  key = jax.random.key(4)
  state = jax.jit(
    lambda key: train.init_state(problem, Recipe(0.1), key, images)
  )(key)
  variables = {'params': state.params, 'batch_stats': {}}
  drawn = (variables, key, images)
  dream = jax.jit(functools.partial(drawn_episodes.dream, problem, 4, False))
  watch = jax.jit(functools.partial(drawn_episodes.watch, problem))
  (episode, _, _), (watched, cores) = dream(*drawn), watch(*drawn)
  np.testing.assert_array_equal(watched.frames, episode.frames)
  batch_key = jax.random.fold_in(key, np.uint32(folds.EVALUATION))
  noise_key = jax.random.split(batch_key)[1]
  noise = jax.random.normal(noise_key, (task.length, 3, 4))
  infer = jax.jit(functools.partial(free_energy.infer, model))
  z = infer(variables, episode.frames, episode.condition, noise).steps.z
  z = np.asarray(z)
  # At frame t (from 0) slot n holds the latent of n + 1 frames before.
  for t in range(task.length):
    for slot in range(task.length):
      stored = z[t - 1 - slot, 0] if slot < t else 0.0
      np.testing.assert_allclose(cores.memory[t, slot], stored, atol=1e-5)


@pytest.mark.parametrize(('held_out', 'count'), [(2, 2), (5, 3)])
def test_given_episodes_are_drawn_once_each(held_out, count):
  images = Frames(
    own_episodes.make(held_out, 4, (8, 8, 1)),
    np.zeros((held_out, 4, 0)),
    np.zeros((held_out, 4), bool),
  )
  model = types.SimpleNamespace(noise_size=4)
  problem = Problem(model, OwnFrames(4).sample, count)
  batch = jax.jit(functools.partial(drawn_episodes.batch, problem))
  shown = set()
  for seed in range(12):
    episode, noise = batch(jax.random.key(seed), images)
    assert noise.shape == (4, count, 4)
    numbers = own_episodes.numbers(np.moveaxis(episode.frames, 1, 0))
    assert len(set(numbers)) == count
    shown |= set(numbers)
  assert shown == set(range(held_out))


@pytest.fixture
def drawn(monkeypatch):
  """Collects the arguments of figures, by the figure's name."""
  calls = {}

  def keep(rows, *rest, **options):
    return rows, rest, options

  def save(figure, stem):
    if figure is not None:
      calls[stem.name] = (*figure, stem)

  monkeypatch.setattr(figures, 'strip_figure', keep)
  monkeypatch.setattr(figures, 'overlay_figure', keep)
  monkeypatch.setattr(figures, 'results_figure', lambda *_, **__: None)
  monkeypatch.setattr(figures, 'save', save)
  monkeypatch.setattr(records, 'read_evaluation', lambda _: None)
  return calls


def _dream(problem, prefix, binarize, variables, key, images):
  """Stands in for `dream`; frames show which prefix they follow."""
  del binarize, variables
  batch_key = jax.random.fold_in(key, np.uint32(folds.EVALUATION))
  keys = problem.episode_keys(batch_key)
  episode = jax.vmap(problem.sample, (0, None), 1)(keys, images)
  generated = episode.frames[prefix:] + prefix
  return drawn_episodes.Dream(episode, episode.frames / 2, generated)


def _draw(tmp_path, monkeypatch, task, name):
  """Draws a run whose dreams are `_dream`'s, and returns its episodes."""
  monkeypatch.setattr(drawn_episodes, 'dream', _dream)
  sizes = {'pre_recall': 4, 'recall': 2}
  if name == 'navigation':
    sizes = {'rows': 2, 'columns': 2, 'length': task.length}
  settings = types.SimpleNamespace(
    task=name,
    model='vrnn',
    replicas=1,
    seed=2,
    second_try=None,
    binarize=False,
    batch_size=3,
    evaluate_on='validation',
    episode=sizes,
    shape=None,
  )
  images = numbered_images.make(40)
  problem = Problem(None, task.sample, 3)
  run = types.SimpleNamespace(
    settings=settings,
    task=task,
    workdir=tmp_path,
    problem=problem,
    images=types.SimpleNamespace(
      held_out=lambda split: images, validation=images
    ),
  )
  # Of one replica on one device.
  state = types.SimpleNamespace(
    step=np.zeros((1, 1), int),
    failed_at=np.full((1, 1), -1),
    params={},
    batch_stats={},
    average=(),
  )
  (key,) = replica_keys(settings)
  key = jax.random.fold_in(key, folds.DRAWING)

  def dream(weights, replica, split):
    assert (weights.step, replica, split) == (0, 0, 'validation')
    return _dream(problem, task.prefix, False, {}, key, images)

  evaluation = types.SimpleNamespace(dream=dream)
  pictures.draw(run, state, workdirs.figure_names(settings), evaluation)
  return jax.jit(lambda: _dream(problem, 1, False, {}, key, images)[0])()


def test_walks_are_drawn_with_their_own_lines_and_as_maps(
  tmp_path, monkeypatch, drawn
):
  task = Navigation(2, 2, 8)
  episode = _draw(tmp_path, monkeypatch, task, 'navigation')
  assert sorted(drawn) == ['episodes', 'overlay']
  rows, *_ = drawn['episodes']
  assert len(rows) == 9
  truth, marks = np.asarray(episode.frames), np.asarray(episode.predictable)
  # Else the test could not tell one episode's lines from another's.
  assert len({tuple(each) for each in marks.T}) > 1
  for index in range(3):
    first, second, third = rows[3 * index : 3 * index + 3]
    assert first.name == f'episode {index + 1}'
    np.testing.assert_array_equal(first.frames, truth[:, index])
    np.testing.assert_array_equal(first.marks, marks[:, index])
    assert second.marks is None and third.marks is None
    np.testing.assert_allclose(second.frames, truth[:, index] / 2)
    assert np.isnan(third.frames[:4]).all()
    np.testing.assert_allclose(third.frames[4:], truth[4:, index] + 4)
  rows, (positions, visits), options, stem = drawn['overlay']
  assert stem == tmp_path / 'figures' / 'overlay'
  assert options['title'] == 'VRNN on navigation, 2 x 2, T 8: episode 1'
  assert options['grid'] == (2, 2)
  assert positions.min() >= 0 and positions.max() < 2
  assert [name for name, _ in rows] == [
    'truth',
    'generated after frame 4',
    'generated after frame 1',
  ]
  for (_, frames), seen in zip(rows, (8, 4, 1), strict=True):
    np.testing.assert_array_equal(frames[:seen], truth[:seen, 0])
    np.testing.assert_allclose(frames[seen:], truth[seen:, 0] + seen)
  # Frames of the same cell are the same, and counted.
  numbers = numbered_images.numbers(truth[:, 0])
  cells = list(map(tuple, positions))
  assert len(set(cells)) > 1
  for t, cell in enumerate(cells):
    assert visits[t] == cells[:t].count(cell)
    assert all(numbers[s] == numbers[t] for s in range(t) if cells[s] == cell)


@pytest.mark.slow
def test_episodes_of_a_mixture_end_where_their_tasks_do(
  tmp_path, monkeypatch, drawn
):
  task = Mixture(10, 2, 2, 2, 15)
  episode = _draw(tmp_path, monkeypatch, task, 'mixture')
  rows = drawn['episodes'][0]
  names = list(task.parts)
  parts = [names[int(number)] for number in episode.part[0]]
  for index, name in enumerate(parts):
    part = task.parts[name]
    truth, reconstruction, generated = rows[3 * index : 3 * index + 3]
    assert truth.name == f'episode {index + 1}, {name.replace("_", " ")}'
    for row in (truth, reconstruction, generated):
      assert len(row.frames) == part.length
    assert len(truth.marks) == part.length
    is_empty = np.isnan(generated.frames).all((1, 2, 3))
    np.testing.assert_array_equal(
      is_empty, np.arange(part.length) < part.prefix
    )


def test_other_tasks_have_no_map(tmp_path, monkeypatch, drawn):
  _draw(tmp_path, monkeypatch, PerfectRecall(4, 2), 'perfect_recall')
  assert list(drawn) == ['episodes']


@pytest.mark.parametrize('task', presets.TASKS)
def test_only_a_run_of_walks_has_a_figure_of_maps(task):
  for model in ('vrnn', 'lru'):
    settings = types.SimpleNamespace(task=task, model=model)
    is_there = 'overlay' in workdirs.figure_names(settings)
    assert is_there == (task == 'navigation')


@pytest.mark.parametrize('model', presets.MODELS)
def test_only_a_run_with_a_memory_has_a_figure_of_it(tmp_path, model):
  settings = types.SimpleNamespace(
    task='perfect_recall',
    model=model,
    steps=4,
    evaluation_episodes=2,
    evaluate_on='validation',
    retry_failed_replicas=False,
  )
  paths = workdirs.figure_paths(tmp_path, settings)
  names = {path.name for path in paths}
  assert {'results.png', 'episodes.pdf'} < names
  has_memory = model not in ('vrnn', 'ssm')
  assert ({'memory.png', 'memory.pdf'} <= names) == has_memory
  records.write_evaluation(
    tmp_path, {'step': 4, 'episodes': 2, 'split': 'validation'}
  )
  (tmp_path / 'figures').mkdir()
  for path in paths:
    assert not workdirs.is_complete(tmp_path, settings)
    path.write_text('')
  assert workdirs.is_complete(tmp_path, settings)
