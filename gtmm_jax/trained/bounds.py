"""Tighter bounds of the log-likelihood, of the episodes of an evaluation."""

from typing import Literal

import jax
import numpy as np

from gtmm_jax import folds, replicas
from gtmm_jax.evaluation import importance
from gtmm_jax.model.free_energy import Variables
from gtmm_jax.problem import evaluation_key
from gtmm_jax.runs.exam import Exam
from gtmm_jax.tasks.sources.dataset import Split

Tighter = Literal['iwae', 'particle']

ESTIMATES = {
  'iwae': importance.importance_weighted,
  'particle': importance.particle,
}


def negative_bounds(
  exam: Exam,
  variables: Variables,
  split: Split,
  bound: Tighter,
  samples: int,
) -> np.ndarray:
  """Returns negative bounds of each episode of an evaluation at the end.

  Args:
    exam: of the evaluation, whose episodes these are, in the same order.
    variables: of all replicas, on the devices.
    split: that episodes are drawn from.
    bound: which of `ESTIMATES`.
    samples: K >= 1, of each episode.

  Returns:
    Nats a sequence, float32 [R, N]; infinite where all weights are zero.
  """
  problem = exam.problem
  batches = -(-exam.count // problem.batch_size)

  def step(state, own, images):
    rows, number = state
    variables, key = own
    batch_key = evaluation_key(key, number)
    episode, _ = problem.draw(batch_key, images)
    values = ESTIMATES[bound](
      problem.model,
      variables,
      episode.frames,
      episode.condition,
      jax.random.fold_in(batch_key, folds.TIGHTER_BOUNDS),
      samples,
      episode.mask,
    )
    return rows.at[number].set(-values), number + 1

  count = exam.layout.replicas
  start = (
    np.zeros((count, batches, problem.batch_size), np.float32),
    np.zeros(count, np.int32),
  )
  rows, _ = replicas.gather(
    replicas.repeat(exam.layout, step)(
      replicas.scatter(exam.layout, start),
      (variables, replicas.scatter(exam.layout, exam.keys)),
      replicas.broadcast(exam.layout, exam.images.held_out(split)),
      batches,
    )
  )
  return rows.reshape(count, -1)
