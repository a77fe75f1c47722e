"""Updates of parameters as one would write them first, for tests."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.recipe import Recipe


class State(NamedTuple):
  """What an update changes.

  Attributes:
    step: updates made.
    params: the model's parameters.
    first: Adam's average of the gradient.
    second: Adam's average of the squared gradient.
    average: of the parameters.
  """

  step: Any
  params: Any
  first: Any
  second: Any
  average: Any


def begin(params: Any) -> State:
  """Returns the state before the first step."""
  zeros = jax.tree.map(lambda leaf: 0 * leaf, params)
  return State(0, params, zeros, zeros, params)


def rate(recipe: Recipe, step: Any) -> Any:
  """Returns the learning rate of a step, the first one being 1."""
  highest, last = recipe.learning_rate, recipe.decay_steps
  if last is None:
    return highest
  rise = step / max(1, recipe.warmup_steps)
  falling = math.ceil(recipe.fall_share * last)
  fall = jnp.maximum(0, last + 1 - step) / falling
  return highest * jnp.minimum(1, jnp.minimum(rise, fall))


def update(recipe: Recipe, state: State, gradients: Any) -> State:
  """Returns the state after clipping, Adam's update and averaging."""
  step = state.step + 1
  norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradients)))
  most = recipe.gradient_norm
  scale = 1.0 if most is None else jnp.minimum(1, most / norm)
  decay = jnp.minimum(recipe.average, step / (step + 9))

  def each(param, gradient, first, second, average):
    gradient = scale * gradient
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient**2
    spread = jnp.sqrt(second / (1 - 0.999**step)) + 1e-8
    mean = first / (1 - 0.9**step)
    param = param - rate(recipe, step) * mean / spread
    return param, first, second, decay * average + (1 - decay) * param

  trees = state.params, gradients, state.first, state.second, state.average
  leaves, structures = zip(*map(jax.tree.flatten, trees), strict=True)
  columns = zip(*map(each, *leaves), strict=True)
  params, *moments, average = (
    jax.tree.unflatten(structures[0], column) for column in columns
  )
  return State(step, params, *moments, average)
