"""The episodes in a run's figures, and what a model makes of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax import folds
from gtmm_jax.model import free_energy, generate
from gtmm_jax.problem import Problem
from gtmm_jax.tasks import frames


class Dream(NamedTuple):
  """Episodes, and two ways in which a model generates their frames.

  Attributes:
    episode: the episodes, [T, B, ...].
    reconstruction: their frames by the posterior, [T, B, H, W, C].
    generated: by the prior after a prefix, [T - prefix, B, H, W, C]; true
      frames where an episode's own prefix is longer.
  """

  episode: Any
  reconstruction: jax.Array
  generated: jax.Array


def batch(
  problem: Problem, key: jax.Array, images: Any
) -> tuple[Any, jax.Array]:
  """Draws a batch as `Problem.draw` does, but no recorded episode twice."""
  episode, noise = problem.draw(key, images)
  if not isinstance(images, frames.Frames):
    return episode, noise
  key = jax.random.fold_in(key, folds.WITHOUT_REPEATS)
  keys = jax.random.split(key, 1 + problem.batch_size)
  order = jax.random.permutation(keys[0], images.frames.shape[0])
  chosen = order[: problem.batch_size]
  each = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen, None], images)
  return jax.vmap(problem.sample, (0, 0), 1)(keys[1:], each), noise


def batch_key(key: jax.Array) -> jax.Array:
  """Returns the key of the episodes, and of the noise of their latents."""
  return jax.random.split(key)[0]


def dream(
  problem: Problem,
  prefix: int,
  binarize: bool,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> Dream:
  """Draws episodes, reconstructs them, and generates them after a prefix.

  Args:
    problem: of the model; its batch size is the number of episodes.
    prefix: true frames before those that are generated.
    binarize: whether generated frames that are encoded again are drawn.
    variables: of the model.
    key: of the figures of a replica.
    images: held-out images.
  """
  _, frame_key = jax.random.split(key)
  episode, noise = batch(problem, batch_key(key), images)
  inference = problem.infer(variables, episode, noise)
  free = generate.run_free(
    problem.model,
    variables,
    episode.frames,
    episode.condition,
    noise,
    prefix,
    frame_key if binarize else None,
    episode.in_prefix,
  )
  return Dream(episode, inference.frames, free[prefix:])


def watch(
  problem: Problem,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, Any]:
  """Returns the episodes of `dream`, and the core's carries over the first."""
  episode, noise = batch(problem, batch_key(key), images)
  first = (x[:, :1] for x in (episode.frames, episode.condition, noise))
  cores = free_energy.watch(problem.model, variables, *first).core
  return episode, jax.tree.map(lambda leaf: leaf[:, 0], cores)
