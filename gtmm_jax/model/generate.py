"""Generation: infer latents of a prefix, then draw what follows from the prior.

A continuation is called a dream. Where later steps do not depend on generated
frames (see `TemporalVAE.imagine`), one scan draws all latents, and all frames
are decoded after it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.model import free_energy
from gtmm_jax.model.temporal_vae import State, TemporalVAE

Array = jax.Array


class LongerPrefix(NamedTuple):
  """More true frames for some episodes, after a prefix of P that all have.

  Attributes:
    frames: true frames, [T - P, B, H, W, C] in [0, 1].
    is_true: bool [T - P, B], where the true frame is inferred, and none is
      generated.
  """

  frames: Array
  is_true: Array


class Dream(NamedTuple):
  """A continuation of a prefix of length P.

  Attributes:
    frames: means of the dreamed frames, or samples in models that encode their
      own frames again, [T - P, B, H, W, C] in [0, 1]; true frames where a
      longer prefix has them.
    z: latents drawn from the prior, [T - P, B, Z].
    stored: these latents as the core is given them, [T - P, B, Z].
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
  longer: LongerPrefix | None = None,
) -> Dream:
  """Infers the latents of P frames and dreams the rest of T.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    prefix: frames in [0, 1], [P, B, H, W, C], P >= 1.
    condition: c of the whole episode, [T, B, A].
    noise: standard normal, [T, B, noise_size], for the posterior's latents
      during the prefix and the prior's after it.
    frame_noise: noise to sample frames that are encoded again with, [T - P, B,
      H, W, C], uniform for Bernoulli frames; None takes the frames' means.
    longer: true frames after the prefix, where episodes differ in its length.

  Returns:
    The dream.

  Raises:
    ValueError: the prefix is empty, or as long as the episode.
  """
  length, total = prefix.shape[0], condition.shape[0]
  if not 1 <= length < total:
    raise ValueError(
      f'prefix has {length} frames and condition {total} steps; the prefix '
      f'must have at least 1 and fewer than all.'
    )
  features = model.apply(variables, prefix, method='encode')
  state, _ = free_energy.scan_steps(
    model, variables, None, features, condition[:length], noise[:length]
  )
  return dream(
    model,
    variables,
    state,
    condition[length:],
    noise[length:],
    frame_noise,
    longer,
  )


def dream(
  model: TemporalVAE,
  variables: free_energy.Variables,
  state: State,
  condition: Array,
  noise: Array,
  frame_noise: Array | None = None,
  longer: LongerPrefix | None = None,
) -> Dream:
  """Dreams L steps, beginning in any state.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    state: after the latest frame, or before the first; leaves [B, ...].
    condition: c of the steps, [L, B, A].
    noise: standard normal, [L, B, noise_size], for the prior's latents.
    frame_noise: as of `continue_episode`, [L, B, H, W, C].
    longer: as of `continue_episode`, [L, B, ...].
  """

  def body(state, inputs):
    condition, noise, frame_noise, features, is_true = inputs
    dreamed = model.apply(
      variables, state, condition, noise, frame_noise, method='imagine'
    )
    if is_true is None:
      return dreamed
    observed, _ = model.apply(
      variables, state, features, condition, noise, method='observe'
    )
    return _select(is_true, observed, dreamed[0]), dreamed[1]

  features = is_true = None
  if longer is not None:
    features = model.apply(variables, longer.frames, method='encode')
    is_true = longer.is_true
  steps = (condition, noise, frame_noise, features, is_true)
  state, imagined = jax.lax.scan(body, state, steps)
  if imagined.frame is not None:
    frames = imagined.frame
  else:
    frames = model.apply(
      variables, imagined.z, imagined.context, method='decode'
    ).mean
  if longer is not None:
    frames = _select(longer.is_true, longer.frames, frames)
  return Dream(jnp.asarray(frames), imagined.z, imagined.stored, state)


def _select(condition: Array, one: Any, other: Any) -> Any:
  """Takes leaves of one tree where true, else of the other; axes [..., B]."""

  def select(one: Array, other: Array) -> Array:
    axes = one.ndim - condition.ndim
    return jnp.where(
      condition.reshape(*condition.shape, *axes * [1]), one, other
    )

  return jax.tree.map(select, one, other)


def run_free(
  model: TemporalVAE,
  variables: free_energy.Variables,
  frames: Array,
  condition: Array,
  noise: Array,
  prefix: int,
  pixel_key: Array | None = None,
  in_prefix: Array | None = None,
) -> Array:
  """Returns frames of whole episodes, dreamed after a prefix.

  Args:
    model: the temporal VAE.
    variables: its variables.
    frames: true frames in [0, 1], [T, B, H, W, C].
    condition: [T, B, A].
    noise: standard normal, [T, B, noise_size].
    prefix: number of true frames to start from, in all episodes at least.
    pixel_key: random key to sample frames that are encoded again with; None
      takes their means.
    in_prefix: bool [T, B], true for the frames of each episode's own prefix;
      None if all have the same.

  Returns:
    The prefix followed by the dream, [T, B, H, W, C].
  """
  frame_noise = None
  if pixel_key is not None:
    shape = frames[prefix:].shape
    frame_noise = jax.random.uniform(pixel_key, shape, jnp.float32)
  longer = None
  if in_prefix is not None:
    longer = LongerPrefix(frames[prefix:], in_prefix[prefix:])
  dream = continue_episode(
    model, variables, frames[:prefix], condition, noise, frame_noise, longer
  )
  return jnp.concatenate([frames[:prefix], dream.frames])
