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

Array = jax.Array


class TrainState(NamedTuple):
  """State of training, for one replica.

  Attributes:
    step: updates made, int32.
    params: the model's parameters.
    batch_stats: the model's running averages.
    optimizer: state of the optax transformation.
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
  failed_at: Array
  totals: metrics.Totals
  gradient_norm: Array


def adam(
  learning_rate: float, gradient_norm: float = 10.0
) -> optax.GradientTransformation:
  """Returns Adam (section 4.1) on gradients clipped to a global norm.

  The paper names no clipping. A norm of 10 clips nearly every step, not only
  outliers: gradients of the small preset have norms of some 300 to 1,300. Adam
  ignores a constant factor, so that the clip makes all batches weigh the same.
  """
  chain = optax.chain(
    optax.clip_by_global_norm(gradient_norm), optax.adam(learning_rate)
  )

  def update(gradients, state, params=None):
    # optax raises a rate to a whole number, which strict promotion forbids.
    with jax.numpy_dtype_promotion('standard'):
      return chain.update(gradients, state, params)

  return optax.GradientTransformation(chain.init, update)


def init_state(
  problem: Problem,
  optimizer: optax.GradientTransformation,
  key: Array,
  images: Any,
) -> TrainState:
  """Returns the state before the first step.

  Args:
    problem: the model and its episodes.
    optimizer: updates the parameters.
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
  params = variables['params']
  return TrainState(
    step=jnp.int32(0),
    params=params,
    batch_stats=variables.get('batch_stats', {}),
    optimizer=optimizer.init(params),
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
    episode: `frames [T, B, H, W, C]` and `condition [T, B, A]`.
    noise: standard normal, [T, B, Z].
  """
  variables = {'params': params, 'batch_stats': batch_stats}
  with derivatives.written_out():
    inference = free_energy.infer(
      problem.model,
      variables,
      episode.frames,
      episode.condition,
      noise,
      train=True,
      recompute=problem.recompute,
    )
  return free_energy.negative_bound(inference.terms).mean(), inference


def train_step(
  problem: Problem,
  optimizer: optax.GradientTransformation,
  state: TrainState,
  key: Array,
  images: Any,
) -> TrainState:
  """Updates one replica on a fresh batch.

  Args:
    problem: the model and its episodes.
    optimizer: updates the parameters.
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
  updates, optimizer_state = optimizer.update(
    gradients, state.optimizer, state.params
  )
  norm = optax.tree.norm(gradients)
  is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
  has_failed = (state.failed_at >= 0) | ~is_finite
  updated = state._replace(
    params=optax.apply_updates(state.params, updates),
    batch_stats=inference.batch_stats,
    optimizer=optimizer_state,
    totals=metrics.add(state.totals, inference.terms, episode.predictable),
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
