"""Checks that a run fits into memory, before anything is compiled."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import replicas
from gtmm_jax.model import build
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources.dataset import Dataset

# Frames and their reconstructions are float32.
_COPIES, _BYTES = 2, 4
# Parameters, their gradients and Adam's two averages.
_COPIES_OF_PARAMETERS = 4


def require_for_run(
  settings: Settings,
  length: int,
  model: TemporalVAE,
  images: Dataset,
  layout: replicas.Layout,
) -> None:
  """Checks a lower bound of the memory that a training step needs.

  Args:
    settings: of the run.
    length: T, frames of an episode.
    model: of the run.
    images: of the run.
    layout: of replicas on devices.

  Raises:
    ValueError: a device has less memory.
  """
  batch = settings.batch_size
  carry = jax.eval_shape(
    lambda key: model.core.initialize_carry(key, (batch, model.latent_size)),
    jax.random.key(0),
  )
  sizes = settings.episode
  cells = sizes.get('rows', 0) * sizes.get('columns', 0)
  shape = images.training.shape[-3:]
  state = [carry]
  if settings.sizes:
    # Presets fit. The moving average is one more copy.
    copies = _COPIES_OF_PARAMETERS + bool(settings.average)
    state += copies * [build.variable_shapes(model, shape)]
  require_for_training(layout, batch, length, shape, cells, state)


def require_for_training(
  layout: replicas.Layout,
  batch_size: int,
  length: int,
  shape: tuple[int, ...],
  cells: int = 0,
  carry: Any = (),
) -> None:
  """Checks a lower bound of the memory of a training step.

  A step may need ten times more.

  Args:
    layout: where replicas run.
    batch_size: sequences in a batch.
    length: steps of a sequence.
    shape: of the input of a step, (H, W, C) of frames.
    cells: number of images on an episode's map, if any.
    carry: shapes of the core's carry for a batch, from `jax.eval_shape`.

  Raises:
    ValueError: a device has less memory.
  """
  size = math.prod(shape) * _BYTES
  frames = batch_size * (_COPIES * length + cells) * size
  state = sum(
    math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
    for leaf in jax.tree.leaves(carry)
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
  )
  _require(
    (frames + state) * layout.per_device,
    layout,
    f'A batch of {batch_size:,} sequences of {length:,} steps',
    'shorter sequences, smaller frames or sizes, fewer slots, a smaller batch, '
    'or fewer replicas',
  )


def require_for_drawing(
  count: int, length: int, shape: tuple[int, ...]
) -> None:
  """Checks a lower bound of the memory that drawing episodes needs.

  Args:
    count: episodes.
    length: frames of each.
    shape: (H, W, C).

  Raises:
    ValueError: a device has less memory.
  """
  _require(
    count * length * math.prod(shape) * _BYTES,
    replicas.plan(1, convolutional=False),
    f'To draw {count:,} episodes of {length:,} frames',
    'shorter episodes, smaller frames, or fewer episodes',
  )


def _require(
  needed: int, layout: replicas.Layout, what: str, less: str
) -> None:
  has = replicas.memory(layout)
  if needed > has:
    raise ValueError(
      f'{what} takes at least {needed / 1e9:,.1f} GB on each device, which has '
      f'{has / 1e9:,.1f} GB; use {less}.'
    )
