"""Counts the parameters of every model beside the paper's Table 1."""

from typing import Any

import jax

from gtmm_jax import presets
from gtmm_jax.model import build

# Shapes of frames, and frames of an episode, in Table 1.
_PAPER_FRAMES = {
  'digits': ((28, 28, 1), 25),
  'environments': ((32, 32, 3), 30),
}


def rows() -> list[dict[str, Any]]:
  """Returns a row for each kind of frames and each model, as JSON has it.

  Computes shapes only: compiles nothing and reads no images.

  Returns:
    `frames`, `model`, `parameters` at the paper preset, `paper`, the count in
    Table 1, and `difference_percent`.
  """
  return [
    {
      'frames': frames,
      'model': model,
      'parameters': (count := _count(model, frames)),
      'paper': paper,
      'difference_percent': 100 * (count / paper - 1),
    }
    for frames, counts in presets.PAPER_PARAMETERS.items()
    for model, paper in counts.items()
  ]


def _count(model: str, frames: str) -> int:
  """Returns the number of parameters of a model at the paper preset."""
  shape, length = _PAPER_FRAMES[frames]
  preset = presets.choose('paper', shape[-1])
  vae = build.temporal_vae(model, preset, shape, frames=length)
  variables = build.variable_shapes(vae, shape)
  return sum(leaf.size for leaf in jax.tree.leaves(variables['params']))
