"""Training of one replica: its state, and one step.

From `train_step` to the equations: `model/free_energy.py` computes the bound
(eqs. 6 and 7) by scanning `model/temporal_vae.py`, where the factors of eq. 1
are. Its maps f_z, f_q and f_x are in `model/maps.py`, their networks in
`model/networks.py`, the KL in `model/distributions.py`, and the memory, its
core, in `gtmm_jax/memory/`.

The functions are pure. They know no devices (`gtmm_jax.replicas` runs them for
many replicas) and no tasks: a task is a function from a key and images to an
episode.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gtmm_jax import folds
from gtmm_jax.evaluation import metrics
from gtmm_jax.memory import derivatives
from gtmm_jax.model import free_energy
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import (
  Average,
  Recipe,
  begin_average,
  make_optimizer,
  update_average,
)

Array = jax.Array


class TrainState(NamedTuple):
  """State of training, for one replica.

  Attributes:
    step: updates made, int32.
    params: the model's parameters.
    batch_stats: the model's running averages.
    optimizer: state of the optax transformation.
    average: moving averages of params and batch_stats, empty without.
    failed_at: step whose bound or gradient was not finite, -1 if none. From it
      on the rest of the state stays as it was.
    totals: metrics of the training batches since they were last reset.
    gradient_norm: sum over these batches of the gradient's global norm, before
      clipping.
  """

  step: Array
  params: Any
  batch_stats: Any
  optimizer: Any
  average: Average
  failed_at: Array
  totals: metrics.Totals
  gradient_norm: Array


def init_state(
  problem: Problem,
  recipe: Recipe,
  key: Array,
  images: Any,
) -> TrainState:
  """Returns the state before the first step.

  Args:
    problem: the model and its episodes.
    recipe: of the updates.
    key: the replica's key; step s of training folds in s, s >= 1.
    images: the second argument of `problem.sample`.

  Returns:
    The state.
  """
  # Initialisation needs the shapes of a batch, not its values.
  episode, noise = jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
    jax.eval_shape(problem.draw, key, images),
  )
  variables = problem.model.init(
    jax.random.fold_in(key, folds.INIT),
    None,
    episode.frames[0],
    episode.condition[0],
    noise[0],
  )
  params, batch_stats = variables['params'], variables.get('batch_stats', {})
  return TrainState(
    step=jnp.int32(0),
    params=params,
    batch_stats=batch_stats,
    optimizer=make_optimizer(recipe).init(params),
    average=begin_average(recipe, params, batch_stats),
    failed_at=jnp.int32(-1),
    totals=metrics.zeros(episode.frames.shape[0]),
    gradient_norm=jnp.float32(0),
  )


def objective(
  problem: Problem, params: Any, batch_stats: Any, episode: Any, noise: Array
) -> tuple[Array, free_energy.Inference]:
  """Returns a batch's mean negative bound, nats a sequence, and its inference.

  Args:
    problem: the model, and what its backward pass rematerialises.
    params: the model's parameters.
    batch_stats: the model's running averages.
    episode: `frames [T, B, H, W, C]`, `condition [T, B, A]` and, where some are
      padding, `mask [T, B]`.
    noise: standard normal, [T, B, noise_size].
  """
  variables = {'params': params, 'batch_stats': batch_stats}
  with derivatives.written_out():
    inference = problem.infer(
      variables, episode, noise, train=True, recompute=problem.recompute
    )
  return free_energy.negative_bound(inference.terms).mean(), inference


def train_step(
  problem: Problem,
  recipe: Recipe,
  state: TrainState,
  key: Array,
  images: Any,
) -> TrainState:
  """Updates one replica on a fresh batch.

  Args:
    problem: the model and its episodes.
    recipe: of the updates.
    state: before the step.
    key: the replica's key, the same at every step.
    images: the second argument of `problem.sample`.

  Returns:
    The state after the step. A step whose bound or gradient is not finite is
    marked in `failed_at`; from it on only the step count changes.
  """
  step = state.step + 1
  episode, noise = problem.draw(jax.random.fold_in(key, step), images)
  gradient = jax.value_and_grad(objective, argnums=1, has_aux=True)
  (loss, inference), gradients = gradient(
    problem, state.params, state.batch_stats, episode, noise
  )
  updates, optimizer_state = make_optimizer(recipe).update(
    gradients, state.optimizer, state.params
  )
  params = optax.apply_updates(state.params, updates)
  norm = optax.tree.norm(gradients)
  is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
  has_failed = (state.failed_at >= 0) | ~is_finite
  updated = state._replace(
    params=params,
    batch_stats=inference.batch_stats,
    optimizer=optimizer_state,
    average=update_average(
      recipe, state.average, step, params, inference.batch_stats
    ),
    totals=metrics.add(
      state.totals, inference.terms, episode.predictable, episode.mask
    ),
    gradient_norm=state.gradient_norm + norm,
  )
  return jax.tree.map(
    lambda before, after: jnp.where(has_failed, before, after), state, updated
  )._replace(
    step=step,
    failed_at=jnp.where(
      (state.failed_at < 0) & ~is_finite, step, state.failed_at
    ),
  )


def last_iterate(state: TrainState) -> free_energy.Variables:
  """Returns the model's variables as the latest step left them."""
  return {'params': state.params, 'batch_stats': state.batch_stats}


def evaluated(state: TrainState) -> free_energy.Variables:
  """Returns the model's variables for evaluation: averages where kept."""
  has_average = bool(jax.tree.leaves(state.average))
  return state.average._asdict() if has_average else last_iterate(state)


def reset_totals(state: TrainState) -> TrainState:
  """Returns the same state with the sums over batches at zero."""
  return state._replace(
    totals=jax.tree.map(jnp.zeros_like, state.totals),
    gradient_norm=jnp.zeros_like(state.gradient_norm),
  )


def means(
  totals: metrics.Totals, gradient_norm: np.ndarray, failed_at: np.ndarray
) -> dict[str, np.ndarray]:
  """Returns means over batches of R replicas, by the names that records use.

  Args:
    totals: as in `TrainState`, of every replica, leaves [R, ...], on the host.
    gradient_norm: as in `TrainState`, [R].
    failed_at: as in `TrainState`, int [R].

  Returns:
    All that `metrics.means` returns, and `gradient_norm [R]`; NaN where a
    replica has failed, or there was no batch.
  """
  has_none = (failed_at >= 0) | (totals.batches == 0)
  return {
    **metrics.means(totals, failed_at),
    'gradient_norm': gradient_norm / np.where(has_none, np.nan, totals.batches),
  }
