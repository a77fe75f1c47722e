"""The estimate of memory: against the compiler, and how it grows."""

from typing import get_args

import jax
import jax.numpy as jnp
import pytest

import kept
from gtmm_jax import presets
from gtmm_jax.memory.scan import Recompute
from gtmm_jax.model import build

_SHAPE = (28, 28, 1)


def _estimate(
  model, frames, recompute='nothing', preset=presets.SMALL, batch=4
):
  vae = build.temporal_vae(model, preset, _SHAPE, frames)
  return kept.estimate(vae, _SHAPE, frames, batch, recompute=recompute)


def test_a_product_keeps_its_inputs():
  def function(w, x):
    return ((x @ w) ** 2).sum()

  w, x = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((5, 3), (7, 5)))
  # x, and twice what is squared.
  assert kept._bytes_of_gradient(function, w, x) == 4 * (7 * 5 + 7 * 3)


@pytest.mark.parametrize('model', presets.MODELS)
def test_less_is_kept_where_more_is_computed_again(model):
  nothing, steps, everything = (
    _estimate(model, 36, recompute) for recompute in get_args(Recompute)
  )
  assert nothing.inside == steps.inside == 0 < everything.inside
  assert steps.through < nothing.through
  assert everything.through < steps.through


@pytest.mark.parametrize(
  ('model', 'recompute', 'power'),
  [
    ('vrnn', 'nothing', 1.0),
    ('introspective', 'nothing', 1.0),
    # As many links as slots squared, at every step or at 2 sqrt(T) of them.
    ('dnc', 'steps', 3.0),
    ('dnc', 'everything', 2.5),
  ],
)
def test_memory_grows_as_it_should(model, recompute, power):
  few, many = (_estimate(model, t, recompute).through for t in (400, 1600))
  # Store and weights of N slots at T steps grow as their product.
  most = 2.0 if model == 'introspective' else power
  assert 4 ** (power - 0.35) < many / few < 4 ** (most + 0.1)


@pytest.mark.parametrize('model', ['introspective', 'dnc'])
def test_long_episodes_of_twenty_replicas_fit(model):
  """T 400 of the paper preset within 40 GiB."""
  found = _estimate(
    model, 400, 'everything', presets.PAPER, presets.PAPER.batch_size
  )
  assert 20 * sum(found) < 40 * 2**30
