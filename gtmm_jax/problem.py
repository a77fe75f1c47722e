"""The problem that a model is trained and evaluated on, and its batches."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import folds
from gtmm_jax.memory import scan
from gtmm_jax.model import free_energy, generate
from gtmm_jax.model.temporal_vae import TemporalVAE

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Problem:
  """A model and the episodes that it models.

  Attributes:
    model: the temporal VAE.
    sample: (key, images) -> episode, with `frames [T, H, W, C]`, `condition
      [T, A]`, `predictable [T]` and `mask [T]`, None if no frame is padding.
    batch_size: B, sequences in a batch.
    recompute: what the backward pass rematerialises, as `free_energy.infer`
      has it.
  """

  model: TemporalVAE
  sample: Callable[[Array, Any], Any]
  batch_size: int
  recompute: scan.Recompute = 'nothing'

  def draw(self, key: Array, images: Any) -> tuple[Any, Array]:
    """Draws a batch of episodes and the noise of its latents.

    Args:
      key: random key.
      images: the second argument of `sample`.

    Returns:
      The episode with axes [T, B, ...], and standard normal noise [T, B,
      noise_size].
    """
    _, noise_key = jax.random.split(key)
    episode = jax.vmap(self.sample, in_axes=(0, None), out_axes=1)(
      self.episode_keys(key), images
    )
    shape = (*episode.frames.shape[:2], self.model.noise_size)
    return episode, jax.random.normal(noise_key, shape, jnp.float32)

  def infer(
    self,
    variables: free_energy.Variables,
    episode: Any,
    noise: Array,
    **options: Any,
  ) -> free_energy.Inference:
    """Infers the latents of episodes, and computes the bound's terms.

    Args:
      variables: of the model.
      episode: `frames`, `condition` and `mask`, as `draw` returns them.
      noise: standard normal, [T, B, noise_size].
      **options: `train` and `recompute` of `free_energy.infer`.
    """
    return free_energy.infer(
      self.model,
      variables,
      episode.frames,
      episode.condition,
      noise,
      episode.mask,
      **options,
    )

  def generate(
    self,
    variables: free_energy.Variables,
    episode: Any,
    noise: Array,
    prefix: int,
    pixel_key: Array | None,
  ) -> Array:
    """Generates the frames of episodes after a prefix, as `run_free` does.

    Args:
      variables: of the model.
      episode: as `draw` returns it.
      noise: standard normal, [T, B, noise_size].
      prefix: number of true frames; more where an episode has its own.
      pixel_key: of sampled pixels; None encodes grey values again.

    Returns:
      True and generated frames, [T, B, H, W, C].
    """
    return generate.run_free(
      self.model,
      variables,
      episode.frames,
      episode.condition,
      noise,
      prefix,
      pixel_key,
      episode.in_prefix,
    )

  def episode_keys(self, key: Array) -> Array:
    """Returns the keys that `draw` gives to `sample`, [B]."""
    return jax.random.split(jax.random.split(key)[0], self.batch_size)


def evaluation_key(key: Array, batch: Array | int) -> Array:
  """Returns the key of the episodes of a batch of an evaluation.

  Args:
    key: of the replica.
    batch: its number, from 0.
  """
  return jax.random.fold_in(
    key, jnp.uint32(folds.EVALUATION) + jnp.uint32(batch)
  )


def pixel_key(key: Array, batch: Array | int) -> Array:
  """Returns the key of the pixels that are sampled in that batch's dreams."""
  return jax.random.fold_in(
    jax.random.fold_in(key, folds.DREAMS), jnp.uint32(batch)
  )
