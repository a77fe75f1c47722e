"""Evaluation of one replica on held-out episodes.

Running averages stand in for batch statistics, so a sequence's terms depend on
nothing but that sequence.
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax import folds
from gtmm_jax.evaluation import classifier, fidelity, metrics, retrieval
from gtmm_jax.model import distributions, free_energy, generate
from gtmm_jax.problem import Problem

Array = jax.Array


class EvaluationState(NamedTuple):
  """Sums over evaluation batches, for one replica.

  Attributes:
    totals: of the metrics.
    entropy: of the frames, summed over batches of their mean a sequence, nats:
      the floor that grey values leave under the negative bound.
    retrieved: counts of generated frames that are what they should be.
    closeness: how close generated frames come, where none is a repeat.
  """

  totals: metrics.Totals
  entropy: Array
  retrieved: retrieval.Tally
  closeness: fidelity.Fidelity


class Generated(NamedTuple):
  """Frames of a batch of episodes, each generated twice.

  Attributes:
    ahead: from the prior, given the true past, [T, B, H, W, C] in [0, 1].
    free: a true prefix, and what was generated from there on, likewise.
  """

  ahead: Array
  free: Array


def zeros(length: int) -> EvaluationState:
  """Sums over no batch, for episodes of `length` frames."""
  return EvaluationState(
    metrics.zeros(length),
    jnp.float32(0),
    retrieval.zeros(),
    fidelity.zeros(),
  )


def evaluate_batch(
  problem: Problem,
  prefix: int,
  asks: Literal['frame', 'class', 'view'],
  binarize: bool,
  state: EvaluationState,
  variables: free_energy.Variables,
  key: Array,
  images: Any,
  judge: Any = None,
) -> EvaluationState:
  """Adds one batch of episodes.

  Args:
    problem: model, task and batch size.
    prefix: true frames that free-running generation is given.
    asks: what a predictable frame has to be: an earlier frame, any image of a
      class, or a view that is close to the true one.
    binarize: whether generated frames that are encoded again are drawn.
    state: so far; its batch count picks the next key.
    variables: `params` and `batch_stats` of the replica.
    key: the replica's key.
    images: held-out ones.
    judge: parameters of the classifier of images, where episodes ask for a
      class; None where they ask for a frame.

  Returns:
    The new sums.
  """
  number = state.totals.batches.astype(jnp.uint32)
  batch_key = jax.random.fold_in(key, jnp.uint32(folds.EVALUATION) + number)
  dreams_key = jax.random.fold_in(key, folds.DREAMS)
  episode, noise = problem.draw(batch_key, images)
  inference = free_energy.infer(
    problem.model, variables, episode.frames, episode.condition, noise
  )
  generated = generate_twice(
    problem,
    prefix,
    binarize,
    variables,
    jax.random.fold_in(dreams_key, number),
    (episode, noise, inference.steps),
  )
  _, entropy, retrieved, closeness = state
  if problem.model.observation_map.likelihood == 'bernoulli':
    floor = distributions.bernoulli_entropy(episode.frames)
    entropy += floor.sum((0, -3, -2, -1)).mean()
  if asks == 'view':
    measured = fidelity.measure(
      episode.frames, generated.free, episode.predictable, prefix
    )
    closeness = jax.tree.map(jnp.add, closeness, measured)
  else:
    classify = judge and functools.partial(classifier.classify, judge)
    tally = retrieval.tally(episode, *generated, prefix, classify)
    retrieved = jax.tree.map(jnp.add, retrieved, tally)
  totals = metrics.add(state.totals, inference.terms, episode.predictable)
  return EvaluationState(totals, entropy, retrieved, closeness)


def generate_twice(
  problem: Problem,
  prefix: int,
  binarize: bool,
  variables: free_energy.Variables,
  key: Array,
  watched: tuple[Any, Array, Any],
) -> Generated:
  """Generates the frames of episodes one step ahead, and free-running.

  Args:
    problem: whose model generates.
    prefix: true frames that free-running generation is given.
    binarize: whether generated frames that are encoded again are drawn.
    variables: of the model.
    key: random key of the pixels of frames that are encoded again.
    watched: the episodes, the noise of their latents, and the steps that
      `free_energy.infer` made of both.

  Returns:
    The frames.
  """
  episode, noise, steps = watched
  # The prior at t depends on noise before t alone, so that at t is still free.
  z = steps.prior.sample(noise)
  ahead = problem.model.apply(variables, z, steps.context, method='decode')
  free = generate.run_free(
    problem.model,
    variables,
    episode.frames,
    episode.condition,
    noise,
    prefix,
    key if binarize else None,
  )
  return Generated(ahead.mean, free)
