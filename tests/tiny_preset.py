"""A preset of models that compile soon."""

import dataclasses
from typing import Any

from gtmm_jax import presets
from gtmm_jax.presets import Preset

_SIZES = {
  'dense_hidden': (16,),
  'latent_size': 4,
  'prior_hidden': (8,),
  'read_heads': 2,
  'controller_size': dict.fromkeys(presets.MODELS, 8),
  'attention_size': 8,
}


def make(**changes: Any) -> Preset:
  """Returns the small preset with tiny sizes, and with `changes` of fields."""
  return dataclasses.replace(presets.SMALL, **{**_SIZES, **changes})
