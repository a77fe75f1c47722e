"""A training step as one would write it first, for tests to compare with.

Inside the scan over time every step encodes its frame, advances and decodes.
The numbers are those of `train.train_step` for networks without batch
normalisation: with it, running averages are used here, since a batch of one
time step is another batch.
"""

from typing import Any, NamedTuple

import jax
import optax

from gtmm_jax.memory import derivatives
from gtmm_jax.model.distributions import kl_divergence
from gtmm_jax.problem import Problem

Array = jax.Array


class State(NamedTuple):
  """Parameters and optimiser; the running averages stay as they are."""

  params: Any
  batch_stats: Any
  optimizer: Any


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
  problem: Problem,
  optimizer: optax.GradientTransformation,
  state: State,
  key: Array,
  images: Any,
) -> tuple[State, Array]:
  """Updates one replica; returns the state and the bound before it.

  Args:
    problem: what is trained.
    optimizer: what updates the parameters.
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
  updates, moments = optimizer.update(gradients, state.optimizer, state.params)
  params = optax.apply_updates(state.params, updates)
  return State(params, state.batch_stats, moments), loss
