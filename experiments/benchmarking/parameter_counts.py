"""Counts the parameters of every model at a preset, beside Table 1."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from gtmm_jax import presets
from gtmm_jax.model import build

# Digits and characters (20 + 5 frames), and 3D environments (30 frames).
TABLE_1: Mapping[str, Mapping[str, int]] = MappingProxyType(
  {
    'digits': {
      'vrnn': 1_884_177,
      'introspective': 1_863_107,
      'ntm': 1_869_381,
      'lru': 1_866_282,
      'dnc': 1_859_336,
    },
    'environments': {
      'vrnn': 5_912_706,
      'introspective': 5_972_806,
      'ntm': 5_986_692,
      'lru': 5_979_115,
      'dnc': 5_980_327,
    },
  }
)
# Stands in for the models that the paper does not have.
_STAND_IN = 'introspective'


def rows(preset: str) -> list[dict[str, Any]]:
  """Returns a row for each kind of frames and each model, as JSON has it.

  Computes shapes only: compiles nothing and reads no images.

  Args:
    preset: name of the preset.

  Returns:
    `preset`, `frames`, `model`, `parameters`, `share_percent` of the largest
    model on these frames; at the preset paper also `paper`, the count in Table
    1, and `difference_percent` from it, elsewhere None.
  """
  counted = []
  for frames, table in TABLE_1.items():
    counts = {model: _count(model, preset, frames) for model in presets.MODELS}
    for model, count in counts.items():
      paper = table.get(model, table[_STAND_IN]) if preset == 'paper' else None
      counted.append(
        {
          'preset': preset,
          'frames': frames,
          'model': model,
          'parameters': count,
          'share_percent': 100 * count / max(counts.values()),
          'paper': paper,
          'difference_percent': paper and 100 * (count / paper - 1),
        }
      )
  return counted


def _count(model: str, preset: str, frames: str) -> int:
  """Returns the number of parameters of a model at a preset."""
  is_grey = frames == 'digits'
  sizes = presets.choose(preset, 1 if is_grey else 3)
  if is_grey:
    shape, length = (28, 28, 1), sum(sizes.episodes['perfect_recall'].values())
  else:
    rotation = sizes.episodes['rotation']
    shape, length = (rotation['size'],) * 2 + (3,), rotation['length']
  vae = build.temporal_vae(model, sizes, shape, frames=length)
  variables = build.variable_shapes(vae, shape)
  return sum(leaf.size for leaf in jax.tree.leaves(variables['params']))
