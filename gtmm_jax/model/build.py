"""From a model's name and a preset to the temporal VAE."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax import presets
from gtmm_jax.memory import associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.mixed_reads import Nearest
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.model import maps, networks
from gtmm_jax.model.temporal_vae import Store, TemporalVAE
from gtmm_jax.presets import Preset

# The strides of the colour networks leave one pixel of so many.
_LEAST_COLOUR_SIDE = 32


def temporal_vae(
  model: str,
  preset: Preset,
  frame_shape: tuple[int, int, int],
  frames: int,
  *,
  store: Store = 'sample',
  order: str = 'age',
  top_k: int = 0,
  nearest: Nearest = 'exact',
  without: tuple[str, ...] = (),
) -> TemporalVAE:
  """Builds one of the paper's models, or the one with an associative memory.

  Args:
    model: one of `presets.MODELS`.
    preset: its sizes.
    frame_shape: (H, W, C); C = 1 is Bernoulli, C = 3 Gaussian. The digit
      networks need H and W to be multiples of 4, the paper's for colour at
      least 32.
    frames: of an episode; they decide the number of slots (`presets.slots`).
    store: what the memory is given of a latent (see `TemporalVAE`).
    order: of the introspection network's slots, 'age' or 'arrival'.
    top_k: of the associative memory, like what follows (see `Associative`).
    nearest: how it finds so many slots.
    without: what it goes without.

  Returns:
    The model, without parameters.

  Raises:
    ValueError: if the model has another name, or the frames another size, or
      the associative memory settings without sense.
  """
  encoder, decoder = _networks(preset, frame_shape)
  is_summarised = model in presets.SUMMARISING and preset.summary_size
  summary_size = preset.summary_size if is_summarised else 0
  slots = presets.slots(model, frames)
  if model == 'associative':
    core = _associative(preset, slots, top_k, nearest, without)
  else:
    core = _core(model, preset, slots, order)
  return TemporalVAE(
    core=core,
    prior_map=maps.PriorMap(preset.latent_size, preset.prior_hidden),
    posterior_map=maps.PosteriorMap(encoder, preset.latent_size),
    observation_map=maps.ObservationMap(
      decoder, 'bernoulli' if frame_shape[-1] == 1 else 'gaussian'
    ),
    latent_size=preset.latent_size,
    core_sees_frames=model == 'vrnn',
    store=store,
    summary_size=summary_size,
  )


def variable_shapes(
  model: TemporalVAE, frame_shape: tuple[int, int, int], condition_size: int = 0
) -> Any:
  """Shapes of a model's variables; nothing is computed.

  Args:
    model: from `temporal_vae`.
    frame_shape: (H, W, C).
    condition_size: A, of the paper's c_t.

  Returns:
    `params` and, where it has them, `batch_stats`, of `jax.ShapeDtypeStruct`.
  """
  inputs = [
    jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    for shape in (frame_shape, (condition_size,), (model.latent_size,))
  ]
  return jax.eval_shape(
    lambda *inputs: model.init(jax.random.key(0), None, *inputs), *inputs
  )


def _core(model: str, preset: Preset, slots: int, order: str) -> nn.Module:
  if model not in presets.MODELS:
    raise ValueError(
      f'There is no model {model!r}; there are {", ".join(presets.MODELS)}.'
    )
  size = preset.controller_size[model]
  if model == 'vrnn':
    return LSTM(size)
  if model == 'introspective':
    return Introspective(
      latent_size=preset.latent_size,
      slots=slots,
      read_heads=preset.read_heads,
      controller_size=size,
      attention_size=preset.attention_size,
      order=order,
    )
  sizes = {
    'slots': slots,
    'word_size': preset.word_size,
    'read_heads': preset.read_heads,
    'controller_size': size,
    'latent_size': preset.summary_size or preset.latent_size,
    'initial_strength': preset.key_strength[model],
  }
  if model == 'ntm':
    return NTM(**sizes)
  if model == 'lru':
    return LRU(**sizes, strength=preset.lru_strength)
  return DNC(**sizes)


def _associative(
  preset: Preset,
  slots: int,
  top_k: int,
  nearest: Nearest,
  without: tuple[str, ...],
) -> nn.Module:
  core = associative.Associative(
    latent_size=preset.summary_size or preset.latent_size,
    slots=slots,
    key_size=preset.key_size,
    read_heads=preset.read_heads,
    controller_size=preset.controller_size['associative'],
    attention_size=preset.attention_size,
    initial_strength=preset.key_strength['associative'],
    top_k=top_k,
    nearest=nearest,
    without=without,
  )
  associative.require_settings(core)
  return core


def _networks(
  preset: Preset, frame_shape: tuple[int, int, int]
) -> tuple[nn.Module, nn.Module]:
  features = 2 * preset.latent_size
  if preset.networks == 'digit':
    if frame_shape[0] % 4 or frame_shape[1] % 4:
      raise ValueError(
        f'Frames are {frame_shape[0]}x{frame_shape[1]}; the digit networks '
        f'halve them twice, so height and width must be multiples of 4.'
      )
    return networks.DigitEncoder(features), networks.DigitDecoder(frame_shape)
  if preset.networks == 'colour':
    if min(frame_shape[:2]) < _LEAST_COLOUR_SIDE:
      raise ValueError(
        f'Frames are {frame_shape[0]}x{frame_shape[1]}; the colour networks '
        f'need at least {_LEAST_COLOUR_SIDE}x{_LEAST_COLOUR_SIDE}: enlarge the '
        f'frames, or use the preset small.'
      )
    return networks.ColourEncoder(features), networks.ColourDecoder(frame_shape)
  hidden = preset.dense_hidden
  patches = presets.patches(preset, frame_shape)
  return (
    networks.DenseEncoder(hidden, features, patches),
    networks.DenseDecoder(tuple(reversed(hidden)), frame_shape, patches),
  )
