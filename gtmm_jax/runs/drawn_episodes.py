"""The episodes in a run's figures, and what a model makes of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import folds
from gtmm_jax.evaluation.generation import Dream
from gtmm_jax.model import free_energy
from gtmm_jax.problem import Problem, evaluation_key, pixel_key
from gtmm_jax.tasks import frames

# Episodes in a figure, at most.
COUNT = 3
# The number of the batch whose keys they have.
_FIRST = 0


def batch(
  problem: Problem, key: jax.Array, images: Any
) -> tuple[Any, jax.Array]:
  """Draws the first episodes of a batch, but no recorded episode twice.

  Args:
    problem: of the run, with its batch size.
    key: of the figures of a replica.
    images: held-out images.

  Returns:
    At most `COUNT` episodes, and the noise of their latents. With the same key
    an evaluation draws them in its first batch.
  """
  key = batch_key(key)
  first = jax.tree.map(lambda x: x[:, :COUNT], problem.draw(key, images))
  if not isinstance(images, frames.Frames):
    return first
  count = min(len(first[1][0]), images.frames.shape[0])
  key = jax.random.fold_in(key, folds.WITHOUT_REPEATS)
  keys = jax.random.split(key, 1 + count)
  episode = draw_each_once(problem.sample, keys[1:], keys[0], images)
  return episode, first[1][:, :count]


def draw_each_once(
  sample: Callable[[jax.Array, Any], Any],
  keys: jax.Array,
  order_key: jax.Array,
  images: frames.Frames,
) -> Any:
  """Draws recorded episodes, [T, E, ...], each at most once.

  Args:
    sample: of the task.
    keys: with which the task draws, [E]; no more than there are episodes.
    order_key: random key of the choice.
    images: recorded episodes.
  """
  order = jax.random.permutation(order_key, images.frames.shape[0])
  chosen = order[: len(keys)]
  each = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen, None], images)
  return jax.vmap(sample, (0, 0), 1)(keys, each)


def batch_key(key: jax.Array) -> jax.Array:
  """Returns the key of the episodes, and of the noise of their latents."""
  return evaluation_key(key, _FIRST)


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
    problem: of the run, with its batch size.
    prefix: true frames before those that are generated.
    binarize: whether generated frames that are encoded again are drawn.
    variables: of the model.
    key: of the figures of a replica.
    images: held-out images.
  """
  episode, noise = batch(problem, key, images)
  inference = problem.infer(variables, episode, noise)
  pixels = pixel_key(key, _FIRST) if binarize else None
  free = problem.generate(variables, episode, noise, prefix, pixels)
  return Dream(episode, inference.frames, free[prefix:])


def watch(
  problem: Problem,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, Any]:
  """Returns the episodes of `dream`, and the core's carries over the first."""
  episode, noise = batch(problem, key, images)
  first = (x[:, :1] for x in (episode.frames, episode.condition, noise))
  cores = free_energy.watch(problem.model, variables, *first).core
  return episode, jax.tree.map(lambda leaf: leaf[:, 0], cores)
