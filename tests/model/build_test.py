"""Presets and what is built of them: the paper's settings, and each flag's."""

import pytest

from gtmm_jax import presets
from gtmm_jax.model import build

_SHAPE = (28, 28, 1)


@pytest.mark.parametrize('preset', [presets.PAPER, presets.PAPER_COLOUR])
def test_the_paper_preset_is_the_papers(preset):
  """Gemici et al. 2017, section 4.1; where it is silent, what we chose."""
  everyone = set(presets.MODELS)
  assert preset.learning_rate == dict.fromkeys(everyone, 1e-3)
  assert preset.long_learning_rate == 1e-4
  assert (preset.batch_size, preset.replicas) == (10, 20)
  assert preset.read_heads == 5
  is_grey = preset is presets.PAPER
  assert preset.latent_size == (32 if is_grey else 256)
  assert preset.networks == ('digit' if is_grey else 'colour')
  assert preset.store == dict.fromkeys(everyone, 'sample')
  assert preset.lru_strength == 'none'
  assert preset.order == {
    task: 'arrival' if task == 'dynamic_dependency' else 'age'
    for task in presets.TASKS
  }
  assert preset.gradient_norm == 10
  assert set(preset.steps.values()) == {100_000}
  for task, sizes in preset.episodes.items():
    if task == 'navigation':
      assert sizes == {'rows': 4, 'columns': 4, 'length': 25}
    elif task == 'rotation':
      assert sizes == {'length': 30, 'size': 32}
    elif task != 'frames':
      assert sizes == {'pre_recall': 20, 'recall': 5}


def test_memories_have_as_many_slots_as_frames_the_lru_five_times():
  for model in presets.MODELS:
    slots = presets.slots(model, 25)
    assert slots == (125 if model == 'lru' else 25)
    core = build.temporal_vae(model, presets.SMALL, _SHAPE, 25).core
    assert getattr(core, 'slots', slots) == slots


@pytest.mark.parametrize('order', ['age', 'arrival'])
def test_the_order_of_slots_reaches_the_core(order):
  vae = build.temporal_vae(
    'introspective', presets.SMALL, _SHAPE, 6, order=order
  )
  assert vae.core.order == order


@pytest.mark.parametrize('nearest', presets.NEAREST)
def test_settings_of_the_associative_memory_reach_the_core(nearest):
  core = build.temporal_vae(
    'associative',
    presets.SMALL,
    _SHAPE,
    6,
    top_k=3,
    nearest=nearest,
    without=('age', 'succession'),
  ).core
  assert (core.top_k, core.nearest) == (3, nearest)
  assert core.without == ('age', 'succession')
  assert (core.initial_strength, core.key_size) == (8.0, 64)


@pytest.mark.parametrize('model', presets.MODELS)
@pytest.mark.parametrize('store', presets.STORES)
def test_what_is_stored_reaches_the_model(model, store):
  vae = build.temporal_vae(model, presets.SMALL, _SHAPE, 6, store=store)
  assert vae.store == store
  assert vae.core_sees_frames == (model == 'vrnn')


def test_strengths_of_keys_reach_the_cores():
  for preset, strength in (
    (presets.PAPER, 'none'),
    (presets.SMALL, 'softplus'),
  ):
    for model in ('ntm', 'lru', 'dnc'):
      core = build.temporal_vae(model, preset, _SHAPE, 6).core
      assert core.initial_strength == 10.0
      assert model != 'lru' or core.strength == strength
