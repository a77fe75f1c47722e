"""The paper's wiring of memories and ours, as presets and options set it."""

import math

import pytest

from gtmm_jax import presets
from gtmm_jax.memory import DNC, LRU, NTM
from gtmm_jax.model import build

_SHAPES = {1: (28, 28, 1), 3: (32, 32, 3)}
_CORES = {'ntm': NTM, 'lru': LRU, 'dnc': DNC}
_WRITERS = pytest.mark.parametrize('model', _CORES)
_CHANNELS = pytest.mark.parametrize('channels', _SHAPES)


def _vae(model, preset, channels=1, **options):
  chosen = presets.choose(preset, channels)
  return build.temporal_vae(
    model, chosen, _SHAPES[channels], 6, options=options
  )


@_WRITERS
@_CHANNELS
def test_the_paper_preset_has_cores_whose_keys_are_functions_of_h_alone(
  model, channels
):
  core = _vae(model, 'paper', channels).core
  preset = presets.choose('paper', channels)
  strength = {'strength': preset.lru_strength} if model == 'lru' else {}
  # A core as for any other project, which the reference numbers hold.
  assert core == _CORES[model](
    slots=presets.slots(model, 6),
    word_size=preset.word_size,
    read_heads=5,
    controller_size=preset.controller_size[model],
    initial_strength=preset.key_strength[model],
    **strength,
  )
  assert core.latent_size == 0


@_WRITERS
def test_tags_are_an_option_of_both_presets(model):
  for preset, weight in (('small', 4.0), ('paper', 1.0)):
    with_tags = _vae(model, preset, tag=True).core
    assert with_tags.latent_size == 32
    assert with_tags.controller_weight == weight
    without = _vae(model, preset, tag=False).core
    assert without == with_tags.clone(
      latent_size=0, controller_weight=DNC.controller_weight
    )


@pytest.mark.parametrize('model', [*_CORES, 'associative'])
def test_the_weight_of_the_controller_is_an_option(model):
  # The NTM of the small preset has no tags.
  tags = {'tag': True} if model == 'ntm' else {}
  assert _vae(model, 'small', **tags).core.controller_weight == 4.0
  core = _vae(model, 'small', controller_weight=2.5, **tags).core
  assert core.controller_weight == 2.5
  assert _vae('associative', 'paper').core.controller_weight == 4.0


@_CHANNELS
@pytest.mark.parametrize('model', presets.MODELS)
def test_conditions_are_as_strong_as_latents_or_as_they_are(model, channels):
  summarises = channels == 3 and model in (*_CORES, 'associative')
  latent = presets.choose('small', channels).latent_size
  root = math.sqrt(48 if summarises else latent)
  assert _vae(model, 'small', channels).condition_scale == root
  assert _vae(model, 'paper', channels).condition_scale == 1
