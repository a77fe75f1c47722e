"""From a model's name and a preset to the temporal VAE."""

from flax import linen as nn

from gtmm_jax import maps
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.model import Store, TemporalVAE
from gtmm_jax.presets import Preset


def temporal_vae(
  model: str,
  preset: Preset,
  frame_shape: tuple[int, int, int],
  slots: int,
  *,
  store: Store = 'sample',
  order: str = 'age',
) -> TemporalVAE:
  """Builds one of the paper's models.

  Args:
    model: 'vrnn' or 'introspective'.
    preset: its sizes.
    frame_shape: (H, W, C); C = 1 is Bernoulli, C = 3 Gaussian. The digit
      networks need H and W to be multiples of 4.
    slots: of the memory; the paper takes the number of frames of an episode.
    store: what the memory is given of a latent (see `TemporalVAE`).
    order: of the introspection network's slots, 'age' or 'arrival'.

  Returns:
    The model, without parameters.

  Raises:
    ValueError: if the model has another name, or the frames another size.
  """
  encoder, decoder = _networks(preset, frame_shape)
  return TemporalVAE(
    core=_core(model, preset, slots, order),
    prior_map=maps.PriorMap(preset.latent_size, preset.prior_hidden),
    posterior_map=maps.PosteriorMap(encoder, preset.latent_size),
    observation_map=maps.ObservationMap(
      decoder, 'bernoulli' if frame_shape[-1] == 1 else 'gaussian'
    ),
    latent_size=preset.latent_size,
    core_sees_frames=model == 'vrnn',
    store=store,
  )


def _core(model: str, preset: Preset, slots: int, order: str) -> nn.Module:
  if model == 'vrnn':
    return LSTM(preset.controller_size[model])
  if model == 'introspective':
    return Introspective(
      latent_size=preset.latent_size,
      slots=slots,
      read_heads=preset.read_heads,
      controller_size=preset.controller_size[model],
      attention_size=preset.attention_size,
      order=order,
    )
  raise ValueError(
    f'There is no model {model!r}; the models are vrnn and introspective.'
  )


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
    return maps.DigitEncoder(features), maps.DigitDecoder(frame_shape)
  hidden = preset.dense_hidden
  return (
    maps.DenseEncoder(hidden, features),
    maps.DenseDecoder(tuple(reversed(hidden)), frame_shape),
  )
