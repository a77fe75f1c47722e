"""Evaluation of one replica on held-out episodes.

Running averages stand in for batch statistics, so a sequence's terms depend on
nothing but that sequence.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax import distributions, free_energy, metrics, train

Array = jax.Array

# Keys of evaluation batches are folded from here on; training's keys, one a
# step from 1, stay below.
_FIRST_KEY = 2**31


class EvaluationState(NamedTuple):
  """Sums over evaluation batches, for one replica.

  Attributes:
    totals: of the metrics.
    entropy: of the frames, summed over batches of their mean a sequence, nats:
      the floor that grey values leave under the negative bound.
  """

  totals: metrics.Totals
  entropy: Array


def zeros(length: int) -> EvaluationState:
  """Sums over no batch, for episodes of `length` frames."""
  return EvaluationState(metrics.zeros(length), jnp.float32(0))


def evaluate_batch(
  problem: train.Problem,
  state: EvaluationState,
  variables: free_energy.Variables,
  key: Array,
  images: Any,
) -> EvaluationState:
  """Adds one batch of episodes.

  Args:
    problem: model, task and batch size.
    state: so far; its batch count picks the next key.
    variables: `params` and `batch_stats` of the replica.
    key: the replica's key.
    images: held-out ones.

  Returns:
    The new sums.
  """
  index = state.totals.batches.astype(jnp.uint32) + jnp.uint32(_FIRST_KEY)
  episode, noise = train.batch(problem, jax.random.fold_in(key, index), images)
  inference = free_energy.infer(
    problem.model, variables, episode.frames, episode.condition, noise
  )
  entropy = distributions.bernoulli_entropy(episode.frames)
  return EvaluationState(
    metrics.add(state.totals, inference.terms, episode.predictable),
    state.entropy + entropy.sum((0, -3, -2, -1)).mean(),
  )
