"""The count of a training step's arithmetic, beside what is known of it."""

import functools

import pytest

import tiny_preset
from benchmarking import flops
from gtmm_jax import presets
from gtmm_jax.model import build

_SHAPE, _BATCH = (4, 4, 1), 3
_TINY = tiny_preset.make(
  dense_hidden=(40,),
  latent_size=8,
  prior_hidden=(16,),
  controller_size=dict.fromkeys(presets.MODELS, 32),
  attention_size=16,
)


@pytest.fixture(scope='module', autouse=True)
def _compile_once():
  """Lets tests that count the same program compile it once."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(flops, 'compiled_step', functools.cache(flops.compiled_step))
    yield


def _model(name: str, slots: int = 6):
  return build.temporal_vae(name, _TINY, _SHAPE, slots)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['vrnn', 'lru'])
def test_long_episodes_are_extrapolated_from_short_ones(name):
  model = _model(name)
  counted = flops.training_step(model, _SHAPE, 6, _BATCH)
  compiled = flops.compiled_step(model, _SHAPE, 6, _BATCH)
  # Models as small as this one spend more on sums over time than others do.
  assert counted == pytest.approx(compiled, rel=0.03)


def test_products_of_matrices_are_most_of_it():
  # Three products a layer and example, two where the input is a frame.
  frames, latent, hidden, lstm = 5, 8, 40, 32
  first = 16 * hidden
  others = [
    hidden * 2 * latent,
    (3 * latent + lstm) * 4 * lstm,
    lstm * 16 + 16 * 2 * latent,
    lstm * 2 * latent,
    (latent + lstm) * hidden + hidden * 16,
  ]
  products = frames * _BATCH * 2 * (2 * first + 3 * sum(others))
  adam = 17 * (first + sum(others))
  counted = flops.training_step(_model('vrnn'), _SHAPE, frames, _BATCH)
  assert products + adam < counted < 1.3 * (products + adam)


@pytest.mark.slow
def test_operations_follow_batch_and_slots():
  few, many = (
    flops.compiled_step(_model('introspective'), _SHAPE, 2, batch)
    for batch in (4, 8)
  )
  assert 1.5 < many / few < 2
  larger = flops.compiled_step(_model('introspective', 24), _SHAPE, 2, 8)
  # Weights of 18 more slots, and reads of their latents, at least.
  assert larger - many > 2 * 8 * 2 * 18 * (3 * 16 * 2 + 2 * 2 * 8)
