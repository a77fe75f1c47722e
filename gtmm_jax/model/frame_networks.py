"""Chooses the encoder and the decoder of frames that a preset names."""

from flax import linen as nn

from gtmm_jax.model import networks
from gtmm_jax.presets import Preset

# The strides of the colour networks leave one pixel of so many.
_LEAST_COLOUR_SIDE = 32


def choose(
  preset: Preset, frame_shape: tuple[int, int, int]
) -> tuple[nn.Module, nn.Module]:
  """Returns the encoder and the decoder of frames.

  Args:
    preset: names the kind of networks, and their sizes.
    frame_shape: (H, W, C).

  Raises:
    ValueError: the networks cannot have this size of frames.
  """
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
  patches = _patches(preset, frame_shape)
  return (
    networks.DenseEncoder(hidden, features, patches),
    networks.DenseDecoder(tuple(reversed(hidden)), frame_shape, patches),
  )


def _patches(
  preset: Preset, frame_shape: tuple[int, int, int]
) -> tuple[tuple[int, int], ...]:
  """Returns the preset's layers of patches that fill a frame (H, W, C)."""
  height, width, _ = frame_shape
  fitting = []
  for side, channels in preset.patches:
    if height % side or width % side:
      break
    height, width = height // side, width // side
    fitting.append((side, channels))
  return tuple(fitting)
