"""Builds a temporal VAE from the name of a model and a preset."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import presets
from gtmm_jax.model import frame_networks, maps
from gtmm_jax.model.cores import MODELS, Make, Sizes
from gtmm_jax.model.temporal_vae import Store, TemporalVAE
from gtmm_jax.presets import Preset

# Models whose core gets a summary of a latent, where a preset has one.
_SUMMARISING = ('ntm', 'lru', 'dnc', 'associative')


def temporal_vae(
  model: str,
  preset: Preset,
  frame_shape: tuple[int, int, int],
  frames: int,
  *,
  store: Store = 'sample',
  slots: int | None = None,
  options: Mapping[str, Any] = MappingProxyType({}),
  models: Mapping[str, Make] = MODELS,
) -> TemporalVAE:
  """Builds one of the paper's models, or one of the others.

  Args:
    model: one of `models`.
    preset: its sizes.
    frame_shape: (H, W, C); C = 1 is Bernoulli, C = 3 Gaussian. The digit
      networks need H and W to be multiples of 4, the paper's for colour at
      least 32.
    frames: of an episode.
    store: what the memory is given of a latent (see `TemporalVAE`).
    slots: of the memory; None for what the paper has (`presets.slots`).
    options: of the core, by the names of `cores.options`; others are
      the preset's or the model's.
    models: the models that there are.

  Returns:
    The model, without parameters.

  Raises:
    ValueError: there is no such model, its networks cannot have this size of
      frames, or its posterior starts from a prior that is a mixture. The core
      checks its options when it makes a carry.
  """
  if model not in models:
    raise ValueError(
      f'There is no model {model!r}; there are {", ".join(models)}.'
    )
  is_residual = preset.posterior == 'residual'
  if is_residual and preset.prior_components > 1:
    raise ValueError(
      f'posterior is residual and prior_components is '
      f'{preset.prior_components}; it must start from one Gaussian: '
      f'set prior_components to 1, or posterior to additive.'
    )
  encoder, decoder = frame_networks.choose(preset, frame_shape)
  summary_size = preset.summary_size if model in _SUMMARISING else 0
  sizes = Sizes(
    latent_size=summary_size or preset.latent_size,
    **{
      name: presets.for_model(preset, name, model) for name in Sizes._fields[1:]
    },
  )
  if slots is None:
    slots = presets.slots(model, frames)
  options = {**preset.options.get(model, {}), **options}
  core = models[model](sizes, slots, **options)
  return TemporalVAE(
    core=core,
    prior_map=maps.PriorMap(
      preset.latent_size,
      preset.prior_hidden,
      preset.prior_components,
      in_scan=is_residual,
    ),
    posterior_map=maps.PosteriorMap(encoder, preset.latent_size, is_residual),
    observation_map=maps.ObservationMap(
      decoder, 'bernoulli' if frame_shape[-1] == 1 else 'gaussian'
    ),
    latent_size=preset.latent_size,
    core_sees_frames=options.get('sees_frames', model == 'vrnn'),
    store=store,
    summary_size=summary_size,
    condition_scale=condition_scale(preset, sizes.latent_size),
    posterior_sees_prior=is_residual,
  )


def variable_shapes(
  model: TemporalVAE, frame_shape: tuple[int, int, int], condition_size: int = 0
) -> Any:
  """Returns the shapes of a model's variables; nothing is computed.

  Args:
    model: from `temporal_vae`.
    frame_shape: (H, W, C).
    condition_size: A, of the paper's c_t.

  Returns:
    `params` and, where it has them, `batch_stats`, of `jax.ShapeDtypeStruct`.
  """
  inputs = [
    jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    for shape in (frame_shape, (condition_size,), (model.noise_size,))
  ]
  return jax.eval_shape(
    lambda *inputs: model.init(jax.random.key(0), None, *inputs), *inputs
  )


def condition_scale(preset: Preset, features: int) -> float:
  """Returns the number by which the core's conditions are multiplied.

  Args:
    preset: the preset.
    features: of a latent that the core gets.
  """
  scale = preset.condition_scale
  return math.sqrt(features) if scale == 'sqrt' else scale
