"""Presets and what is built of them: the paper's settings, and each flag's."""

from typing import get_args

import jax
import pytest

from gtmm_jax import presets
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.model import build, cores
from gtmm_jax.model.temporal_vae import Store

_SHAPE = (28, 28, 1)


@pytest.mark.parametrize('preset', [presets.PAPER, presets.PAPER_COLOUR])
def test_the_paper_preset_is_the_papers(preset):
  """Pins the sizes of Gemici et al. 2017, section 4.1, and those we chose."""
  everyone = set(presets.MODELS)
  assert preset.learning_rate == 1e-3
  assert preset.long_learning_rate == 1e-4
  assert (preset.batch_size, preset.replicas) == (10, 20)
  assert preset.read_heads == 5
  is_grey = preset is presets.PAPER
  assert preset.latent_size == (32 if is_grey else 256)
  assert preset.networks == ('digit' if is_grey else 'colour')
  assert preset.store == dict.fromkeys(everyone, 'sample')
  assert preset.lru_strength == 'none'
  assert preset.gradient_norm is None
  assert (preset.schedule, preset.warmup_steps) == ('constant', 0)
  assert preset.average == 0
  assert set(preset.steps.values()) == {100_000}
  for task, sizes in preset.episodes.items():
    if task == 'navigation':
      assert sizes == {'rows': 4, 'columns': 4, 'length': 25}
    elif task == 'mixture':
      recall = {'pre_recall': 20, 'recall': 5}
      assert sizes == {**recall, 'rows': 4, 'columns': 4, 'length': 25}
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


def test_options_are_what_no_size_decides_and_reach_the_core():
  options = {name: cores.options(make) for name, make in cores.MODELS.items()}
  assert not options['vrnn']
  assert options['introspective']['order'].default == 'age'
  assert presets.OPTIONS == {
    ('introspective', 'dynamic_dependency'): {'order': 'arrival'}
  }
  for name, values in (
    ('introspective', {'order': 'arrival'}),
    ('dnc', {'write_heads': 2, 'usage_gradient': False}),
    ('associative', {'top_k': 3, 'without': ('age', 'succession')}),
    ('transformer', {'layers': 3, 'heads': 2, 'positions': 'both'}),
    ('ssm', {'layers': 3, 'state_size': 7, 'least_radius': 0.5}),
  ):
    assert values.keys() <= options[name].keys()
    core = build.temporal_vae(
      name, presets.SMALL, _SHAPE, 6, options=values
    ).core
    assert {option: getattr(core, option) for option in values} == values


def test_a_model_of_ones_own_gets_sizes_slots_and_options():
  def make(sizes, slots, *, more: int = 0):
    return LSTM(sizes.controller_size + slots + more)

  assert cores.options(make) == {'more': cores.Option(int, 0)}
  models = {'mine': make}
  sizes = presets.change(presets.SMALL, 'mine', {'controller_size': 7})
  for more, slots, size in ((0, None, 13), (5, 4, 16)):
    core = build.temporal_vae(
      'mine',
      sizes,
      _SHAPE,
      6,
      slots=slots,
      options={'more': more},
      models=models,
    ).core
    assert core == LSTM(size)
  with pytest.raises(ValueError, match="no model 'dnc'; there are mine"):
    build.temporal_vae('dnc', sizes, _SHAPE, 6, models=models)


@pytest.mark.parametrize('model', presets.MODELS)
@pytest.mark.parametrize('store', get_args(Store))
def test_what_is_stored_reaches_the_model(model, store):
  vae = build.temporal_vae(model, presets.SMALL, _SHAPE, 6, store=store)
  assert vae.store == store
  assert vae.core_sees_frames == (model == 'vrnn')


@pytest.mark.parametrize('model', ['transformer', 'ssm'])
def test_frames_are_an_input_where_the_option_says_so(model):
  for sees_frames in (False, True):
    vae = build.temporal_vae(
      model, presets.SMALL, _SHAPE, 6, options={'sees_frames': sees_frames}
    )
    assert vae.core_sees_frames == sees_frames
    widths = {
      leaf.shape[0]
      for leaf in jax.tree.leaves(
        build.variable_shapes(vae, _SHAPE, 3)['params']['core']['embedding']
      )
      if len(leaf.shape) == 2
    }
    # Latents, conditions and, if they are seen, features of frames.
    assert widths == {32 + 3 + (64 if sees_frames else 0)}


def test_strengths_of_keys_reach_the_cores():
  for preset, strength in (
    (presets.PAPER, 'none'),
    (presets.SMALL, 'softplus'),
  ):
    for model in ('ntm', 'lru', 'dnc'):
      core = build.temporal_vae(model, preset, _SHAPE, 6).core
      assert core.initial_strength == 10.0
      assert model != 'lru' or core.strength == strength
