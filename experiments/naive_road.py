"""The naive road: a training step as one would write it first.

Inside the scan over time every step encodes its frame, advances and decodes;
each update is a program of its own, whose bound is copied to the host, and
replicas are trained one after another. The numbers are those of the road that
runs take, for networks without batch normalisation; with it, running averages
are used here, since a batch of one time step is another batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from gtmm_jax.memory import derivatives
from gtmm_jax.model.distributions import kl_divergence
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.problem import Problem

Array = jax.Array


class State(NamedTuple):
  """What training changes.

  Attributes:
    params: the model's parameters.
    batch_stats: its running averages, which stay as they are.
    optimizer: state of the optax transformation.
  """

  params: Any
  batch_stats: Any
  optimizer: Any


def negative_bound(
  model: TemporalVAE,
  params: Any,
  batch_stats: Any,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Array:
  """The objective of `train.objective`, nats a sequence.

  Args:
    model: the temporal VAE.
    params: its parameters.
    batch_stats: its running averages.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A].
    noise: standard normal, [T, B, Z].
  """
  variables = {'params': params, 'batch_stats': batch_stats}

  def body(state, inputs):
    state, step, prior, distribution = model.apply(variables, state, *inputs)
    likelihood = distribution.log_likelihood(inputs[0]).sum((-3, -2, -1))
    kl = kl_divergence(step.posterior, prior, bounded=True)
    return state, kl - likelihood

  features = model.apply(variables, frames[0], method='encode')
  state = model.apply(variables, features, condition[0], method='initial_state')
  # Equations are differentiated as on the other road: the road alone differs.
  with derivatives.written_out():
    _, terms = jax.lax.scan(body, state, (frames, condition, noise))
  return terms.sum(axis=0).mean()


def training_step(
  problem: Problem, optimizer: optax.GradientTransformation
) -> Callable[[State, Array, Any], tuple[State, float]]:
  """One update of one replica, a program of its own.

  Args:
    problem: what is trained.
    optimizer: what updates the parameters.

  Returns:
    (state, key, images) -> (state, bound); `key` is that of this step, and the
    bound a number on the host.
  """

  @jax.jit
  def update(state: State, key: Array, images: Any) -> tuple[State, Array]:
    episode, noise = problem.draw(key, images)
    loss, gradients = jax.value_and_grad(negative_bound, argnums=1)(
      problem.model,
      state.params,
      state.batch_stats,
      episode.frames,
      episode.condition,
      noise,
    )
    updates, moved = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, state.batch_stats, moved), loss

  def step(state: State, key: Array, images: Any) -> tuple[State, float]:
    state, loss = update(state, key, images)
    return state, float(loss)

  return step
