"""Generation: watch a prefix, then dream what follows.

Frames of the dream come from the prior alone. Where neither the core nor the
store needs to see a frame, the whole dream is one scan over latents, and frames
are decoded after it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.model import free_energy
from gtmm_jax.model.steps import State
from gtmm_jax.model.temporal_vae import TemporalVAE

Array = jax.Array


class Dream(NamedTuple):
  """A continuation of a prefix of length P.

  Attributes:
    frames: means of the dreamed frames, or what was drawn for the models that
      see their own frames, [T - P, B, H, W, C] in [0, 1].
    z: latents drawn from the prior, [T - P, B, Z].
    stored: what the memory was given of each, [T - P, B, Z].
    state: the model's state after the last step.
  """

  frames: Array
  z: Array
  stored: Array
  state: State


def continue_episode(
  model: TemporalVAE,
  variables: free_energy.Variables,
  prefix: Array,
  condition: Array,
  noise: Array,
  frame_noise: Array | None = None,
) -> Dream:
  """Watches P frames and dreams the rest of T.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    prefix: frames in [0, 1], [P, B, H, W, C], P >= 1.
    condition: c of the whole episode, [T, B, A].
    noise: standard normal, [T, B, Z], for the posterior's latents during the
      prefix and the prior's after it.
    frame_noise: [T - P, B, H, W, C], with which frames that something needs to
      see are drawn (uniform for Bernoulli frames); None takes their mean.

  Returns:
    The dream.

  Raises:
    ValueError: if there is no frame to watch, or none to dream.
  """
  watched, total = prefix.shape[0], condition.shape[0]
  if not 1 <= watched < total:
    raise ValueError(
      f'prefix has {watched} frames and condition {total} steps; the prefix '
      f'must have at least 1 and fewer than all.'
    )
  features = model.apply(variables, prefix, method='encode')
  state, _ = free_energy.scan_steps(
    model, variables, None, features, condition[:watched], noise[:watched]
  )

  def body(carry, inputs):
    return model.apply(variables, carry, *inputs, method='imagine')

  steps = (condition[watched:], noise[watched:], frame_noise)
  state, imagined = jax.lax.scan(body, state, steps)
  if imagined.frame is not None:
    frames = imagined.frame
  else:
    frames = model.apply(
      variables, imagined.z, imagined.context, method='decode'
    ).mean
  return Dream(jnp.asarray(frames), imagined.z, imagined.stored, state)


def run_free(
  model: TemporalVAE,
  variables: free_energy.Variables,
  frames: Array,
  condition: Array,
  noise: Array,
  prefix: int,
  pixel_key: Array | None = None,
) -> Array:
  """Frames of whole episodes, dreamed after a prefix.

  Args:
    model: the temporal VAE.
    variables: its variables.
    frames: true ones in [0, 1], [T, B, H, W, C].
    condition: [T, B, A].
    noise: standard normal, [T, B, Z].
    prefix: how many true frames are watched.
    pixel_key: where pixels are sampled, so are those of frames that something
      needs to see, with this key; None takes their means.

  Returns:
    [T, B, H, W, C]: the prefix as it is, and the dream.
  """
  later = frames[prefix:].shape
  dream = continue_episode(
    model,
    variables,
    frames[:prefix],
    condition,
    noise,
    None
    if pixel_key is None
    else jax.random.uniform(pixel_key, later, jnp.float32),
  )
  return jnp.concatenate([frames[:prefix], dream.frames])
