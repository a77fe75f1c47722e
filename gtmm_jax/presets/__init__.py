"""The paper's sizes and the small ones: plain numbers, no jax."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gtmm_jax.presets.paper import PAPER, PAPER_COLOUR
from gtmm_jax.presets.preset import (
  BY_MODEL,
  MODELS,
  TASKS,
  WITHOUT_MEMORY,
  Preset,
)
from gtmm_jax.presets.small import SMALL, SMALL_COLOUR

__all__ = (
  'BY_MODEL',
  'MODELS',
  'OPTIONS',
  'PAPER',
  'PAPER_COLOUR',
  'PRESETS',
  'SMALL',
  'SMALL_COLOUR',
  'TASKS',
  'WITHOUT_MEMORY',
  'Preset',
  'change',
  'choose',
  'for_model',
  'slots',
)

# Options of a model's core whose default a task changes, by (model, task); they
# come before those of a preset.
OPTIONS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
  {('introspective', 'dynamic_dependency'): {'order': 'arrival'}}
)
PRESETS: Mapping[str, Preset] = MappingProxyType(
  {'paper': PAPER, 'small': SMALL}
)
_COLOUR: Mapping[str, Preset] = MappingProxyType(
  {'paper': PAPER_COLOUR, 'small': SMALL_COLOUR}
)


def choose(name: str, channels: int) -> Preset:
  """Returns the preset of a name for grey (one channel) or colour frames."""
  return (PRESETS if channels == 1 else _COLOUR)[name]


def for_model(preset: Preset, name: str, model: str) -> Any:
  """Returns a preset's value for a model, built-in or the user's.

  Args:
    preset: the preset.
    name: of one of its fields; may be the same for all models.
    model: name of the model.
  """
  value = getattr(preset, name)
  if name in BY_MODEL:
    return value.get(model, BY_MODEL[name])
  return value


def change(preset: Preset, model: str, values: Mapping[str, Any]) -> Preset:
  """Returns a preset with other values.

  Args:
    preset: the preset.
    model: whose value changes, where each model has its own.
    values: by the names of the preset's fields.
  """
  return dataclasses.replace(
    preset,
    **{
      name: {**getattr(preset, name), model: value}
      if name in BY_MODEL
      else value
      for name, value in values.items()
    },
  )


def slots(model: str, frames: int) -> int:
  """Returns a memory's slots: as many as frames, for the LRU five times more.

  Gemici et al. 2017, section 4.1.
  """
  return 5 * frames if model == 'lru' else frames
