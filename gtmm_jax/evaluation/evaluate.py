"""Evaluation of one replica on held-out episodes.

Batch normalisation uses running averages here, so that a sequence's terms
depend on that sequence alone.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax import folds
from gtmm_jax.evaluation import (
  classifier,
  episodes,
  fidelity,
  metrics,
  perfect_read,
  retrieval,
)
from gtmm_jax.model import distributions, free_energy, generate
from gtmm_jax.model.temporal_vae import Step, TemporalVAE
from gtmm_jax.problem import Problem

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Protocol:
  """The rules by which a model is evaluated.

  Attributes:
    problem: the model, its held-out episodes and the batch size.
    prefix: true frames that free-running generation is given.
    asks: what a predictable frame has to be: 'frame', an earlier frame;
      'class', any image of a class; 'view', close to the true view.
    binarize: whether the pixels of generated frames are sampled before the
      frames are encoded again.
  """

  problem: Problem
  prefix: int
  asks: Literal['frame', 'class', 'view']
  binarize: bool = False


class EvaluationState(NamedTuple):
  """Sums over evaluation batches, and the latest batches, for one replica.

  Attributes:
    totals: of the metrics.
    entropy: of the frames, nats a sequence, summed over the batches' means: the
      least negative log-likelihood that grey values allow.
    retrieved: counts of generated frames that are right.
    closeness: distances of generated frames from true ones, where no frame is a
      repeat.
    episodes: values of the frames of the latest P batches, [P, T, B]; batch b
      has row b mod P.
    reads: moments of the floor of a perfect read, [P, ...], likewise; of no
      frame for the VRNN, whose core does not store latents alone.
  """

  totals: metrics.Totals
  entropy: Array
  retrieved: retrieval.Tally
  closeness: fidelity.Fidelity
  episodes: episodes.EpisodeValues
  reads: perfect_read.Moments


class Generated(NamedTuple):
  """Frames of a batch of episodes, each generated twice.

  Attributes:
    ahead: from the prior given the true past, [T, B, H, W, C] in [0, 1].
    free: a true prefix, and the frames generated after it, of the same shape.
  """

  ahead: Array
  free: Array


def zeros(problem: Problem, length: int, batches: int) -> EvaluationState:
  """Returns the state before the first batch.

  Args:
    problem: the model and the batch size.
    length: T, frames of an episode.
    batches: P, the number of batches whose single frames are kept.
  """
  return EvaluationState(
    metrics.zeros(length),
    jnp.float32(0),
    retrieval.zeros(),
    fidelity.zeros(),
    episodes.zeros(batches, length, problem.batch_size),
    perfect_read.zeros(batches, problem.model.latent_size),
  )


def evaluate_batch(
  protocol: Protocol,
  state: EvaluationState,
  variables: free_energy.Variables,
  key: Array,
  images: Any,
  judge: Any = None,
) -> EvaluationState:
  """Evaluates one batch of episodes.

  Args:
    protocol: how to evaluate.
    state: of the batches so far; their number picks the next keys.
    variables: `params` and `batch_stats` of the replica.
    key: the replica's key.
    images: held-out ones.
    judge: parameters of the classifier of images, where episodes ask for a
      class; else None.

  Returns:
    The new state.
  """
  problem = protocol.problem
  number = state.totals.batches.astype(jnp.uint32)
  batch_key = jax.random.fold_in(key, jnp.uint32(folds.EVALUATION) + number)
  dreams_key = jax.random.fold_in(key, folds.DREAMS)
  episode, noise = problem.draw(batch_key, images)
  inference = free_energy.infer(
    problem.model, variables, episode.frames, episode.condition, noise
  )
  generated = generate_twice(
    protocol,
    variables,
    jax.random.fold_in(dreams_key, number),
    episode,
    noise,
    inference,
  )
  entropy, closeness = state.entropy, state.closeness
  if problem.model.observation_map.likelihood == 'bernoulli':
    floor = distributions.bernoulli_entropy(episode.frames)
    entropy += floor.sum((0, -3, -2, -1)).mean()
  if protocol.asks == 'view':
    measured = fidelity.measure(
      episode.frames, generated.free, episode.predictable, protocol.prefix
    )
    closeness = jax.tree.map(jnp.add, closeness, measured)
    verdicts = retrieval.none_asked(episode.predictable.shape)
  else:
    classify = judge and functools.partial(classifier.classify, judge)
    verdicts = retrieval.judge(episode, *generated, protocol.prefix, classify)
  kept = _put(
    (state.episodes, state.reads),
    (
      episodes.of_batch(inference.terms, episode, verdicts),
      _reads(problem.model, variables, episode, inference.steps),
    ),
    state.totals.batches,
  )
  return EvaluationState(
    metrics.add(state.totals, inference.terms, episode.predictable),
    entropy,
    jax.tree.map(jnp.add, state.retrieved, retrieval.tally(verdicts)),
    closeness,
    *kept,
  )


def _reads(
  model: TemporalVAE,
  variables: free_energy.Variables,
  episode: Any,
  steps: Step,
) -> perfect_read.Moments:
  """Returns a batch's moments for the floor of a perfect read, [Z]."""
  stored = model.apply(variables, steps.z, steps.posterior, method='stored')
  stores = jnp.full(episode.predictable.shape, not model.core_sees_frames)
  return perfect_read.moments(
    steps.posterior, stored, episode.source, episode.predictable & stores
  )


def _put(rows: Any, row: Any, number: Array) -> Any:
  """Writes a batch's leaves over row `number` mod P of leaves [P, ...]."""

  def put(old: Array, new: Array) -> Array:
    index = jnp.remainder(number, jnp.int32(old.shape[0]))
    return jax.lax.dynamic_update_index_in_dim(old, new, index, 0)

  return jax.tree.map(put, rows, row)


def generate_twice(
  protocol: Protocol,
  variables: free_energy.Variables,
  key: Array,
  episode: Any,
  noise: Array,
  inference: free_energy.Inference,
) -> Generated:
  """Generates the frames of episodes one step ahead, and free-running.

  Args:
    protocol: whose model generates.
    variables: of the model.
    key: random key of the sampled pixels.
    episode: true episodes, axes [T, B, ...].
    noise: of their latents, [T, B, noise_size].
    inference: from `free_energy.infer` on both.

  Returns:
    The frames.
  """
  model = protocol.problem.model
  # The prior at t depends on the noise before t alone, so that at t is unused.
  z = inference.prior.sample(noise)
  context = inference.steps.context
  ahead = model.apply(variables, z, context, method='decode')
  free = generate.run_free(
    model,
    variables,
    episode.frames,
    episode.condition,
    noise,
    protocol.prefix,
    key if protocol.binarize else None,
  )
  return Generated(ahead.mean, free)
