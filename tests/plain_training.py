"""A training step as one would write it first, for tests to compare with.

Inside the scan over time every step encodes its frame, advances and decodes.
The numbers are those of `train.train_step` for networks without batch
normalisation: with it, running averages are used here, since a batch of one
time step is another batch.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import derivatives
from gtmm_jax.model.distributions import kl_divergence
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe

Array = jax.Array


class State(NamedTuple):
  """What training changes; the running statistics stay as they are.

  Attributes:
    step: updates made.
    params: the model's parameters.
    batch_stats: its running statistics.
    first: Adam's average of the gradient.
    second: Adam's average of the squared gradient.
    average: of the parameters.
  """

  step: Any
  params: Any
  batch_stats: Any
  first: Any
  second: Any
  average: Any


def begin(params: Any, batch_stats: Any) -> State:
  """Returns the state before the first step."""
  zeros = jax.tree.map(lambda leaf: 0 * leaf, params)
  return State(0, params, batch_stats, zeros, zeros, params)


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
  return State(step, params, state.batch_stats, *moments, average)


def negative_bound(
  problem: Problem,
  params: Any,
  batch_stats: Any,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Array:
  """Computes the objective of `train.objective`, nats a sequence.

  Args:
    problem: whose model it is.
    params: the model's parameters.
    batch_stats: its running averages.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A].
    noise: standard normal, [T, B, Z].
  """
  model = problem.model
  variables = {'params': params, 'batch_stats': batch_stats}

  def body(state, inputs):
    state, step, prior, distribution = model.apply(variables, state, *inputs)
    likelihood = distribution.log_likelihood(inputs[0]).sum((-3, -2, -1))
    kl = kl_divergence(step.posterior, prior, bounded=True)
    return state, kl - likelihood

  features = model.apply(variables, frames[0], method='encode')
  state = model.apply(variables, features, condition[0], method='initial_state')
  # Of the cores, backward passes are those of training.
  with derivatives.written_out():
    _, terms = jax.lax.scan(body, state, (frames, condition, noise))
  return terms.sum(axis=0).mean()


def train_step(
  problem: Problem, recipe: Recipe, state: State, key: Array, images: Any
) -> tuple[State, Array]:
  """Updates one replica; returns the state and the bound before it.

  Args:
    problem: what is trained.
    recipe: of the updates.
    state: before the step.
    key: of this step.
    images: what `problem.sample` takes.
  """
  episode, noise = problem.draw(key, images)
  loss, gradients = jax.value_and_grad(negative_bound, argnums=1)(
    problem,
    state.params,
    state.batch_stats,
    episode.frames,
    episode.condition,
    noise,
  )
  return update(recipe, state, gradients), loss
