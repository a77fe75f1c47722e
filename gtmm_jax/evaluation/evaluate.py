"""Evaluation of one replica on held-out episodes.

Batch normalisation uses running averages here, so that a sequence's terms
depend on that sequence alone.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.evaluation import (
  classifier,
  episodes,
  fidelity,
  metrics,
  perfect_read,
  retrieval,
  sums,
)
from gtmm_jax.evaluation.generation import (
  Dream,
  Generated,
  Protocol,
  first,
  generate_twice,
)
from gtmm_jax.model import distributions, free_energy
from gtmm_jax.model.temporal_vae import Step, TemporalVAE
from gtmm_jax.problem import Problem, evaluation_key, pixel_key

Array = jax.Array


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
    parts: sums over the episodes of each part of a mixture; empty for other
      tasks.
    dream: of the first episodes of the latest batch, for pictures; None if
      there are to be none.
  """

  totals: metrics.Totals
  entropy: Array
  retrieved: retrieval.Tally
  closeness: fidelity.Fidelity
  episodes: episodes.EpisodeValues
  reads: perfect_read.Moments
  parts: tuple[sums.Sums, ...] = ()
  dream: Dream | None = None


def zeros(
  problem: Problem,
  length: int,
  batches: int,
  parts: int = 0,
  dream: Dream | None = None,
) -> EvaluationState:
  """Returns the state before the first batch.

  Args:
    problem: the model and the batch size.
    length: T, frames of an episode.
    batches: P, the number of batches whose single frames are kept.
    parts: number of the parts of a mixture; 0 for any other task.
    dream: room for that of each batch, from `no_dream`; None to keep none.
  """
  every = (length, batches, problem.model.latent_size)
  whole = sums.zeros(*every)
  return EvaluationState(
    whole.totals,
    jnp.float32(0),
    whole.retrieved,
    fidelity.zeros(),
    episodes.zeros(batches, length, problem.batch_size),
    whole.reads,
    tuple(sums.zeros(*every) for _ in range(parts)),
    dream,
  )


def evaluate_batch(
  protocol: Protocol,
  state: EvaluationState,
  variables: free_energy.Variables,
  key: Array,
  images: Any,
  judge: Any = None,
  generates: Array | bool = True,
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
    generates: whether frames are generated, bool []; if not, no frame is judged
      or measured, in half the time.

  Returns:
    The new state.
  """
  problem = protocol.problem
  number = state.totals.batches.astype(jnp.uint32)
  episode, noise = problem.draw(evaluation_key(key, number), images)
  inference = problem.infer(variables, episode, noise)

  def generate_and_judge():
    generated = generate_twice(
      protocol, variables, pixel_key(key, number), episode, noise, inference
    )
    after = generated.free[protocol.prefix :]
    dream = first(Dream(episode, inference.frames, after), state.dream)
    return *_judge(protocol, episode, generated, judge), dream

  def leave_out():
    nothing = retrieval.none_asked(episode.predictable.shape), fidelity.zeros()
    return *nothing, state.dream

  verdicts, measured, dream = jax.lax.cond(
    generates, generate_and_judge, leave_out
  )
  entropy = state.entropy
  if problem.model.observation_map.likelihood == 'bernoulli':
    floor = distributions.bernoulli_entropy(episode.frames)
    # Padding, frames of zeros, has no entropy.
    entropy += floor.sum((0, -3, -2, -1)).mean()
  batch = sums.Batch(
    inference.terms,
    episode.predictable,
    verdicts,
    functools.partial(
      _reads, problem.model, variables, episode, inference.steps
    ),
  )
  whole = sums.add(
    sums.Sums(state.totals, state.retrieved, state.reads), batch, episode.mask
  )
  return EvaluationState(
    whole.totals,
    entropy,
    whole.retrieved,
    jax.tree.map(jnp.add, state.closeness, measured),
    sums.put(
      state.episodes,
      episodes.of_batch(inference.terms, episode, verdicts),
      state.totals.batches,
    ),
    whole.reads,
    tuple(
      sums.add(part, batch, _of_part(episode, number))
      for number, part in enumerate(state.parts)
    ),
    dream,
  )


def _judge(
  protocol: Protocol, episode: Any, generated: Generated, judge: Any
) -> tuple[retrieval.Verdicts, fidelity.Fidelity]:
  """Judges generated frames, or measures how close they are to true views."""
  if protocol.asks == 'view':
    measured = fidelity.measure(
      episode.frames, generated.free, episode.predictable, protocol.prefix
    )
    return retrieval.none_asked(episode.predictable.shape), measured
  classify = judge and functools.partial(classifier.classify, judge)
  prefix = protocol.prefix
  if episode.in_prefix is not None:
    prefix = episode.in_prefix.sum(axis=0, dtype=jnp.int32)
  verdicts = retrieval.judge(episode, *generated, prefix, classify)
  return verdicts, fidelity.zeros()


def _of_part(episode: Any, number: int) -> Array:
  """Returns the mask of the frames of a part of a mixture, bool [T, B]."""
  is_own = episode.part == number
  return is_own if episode.mask is None else is_own & episode.mask


def _reads(
  model: TemporalVAE,
  variables: free_energy.Variables,
  episode: Any,
  steps: Step,
  mask: Array,
) -> perfect_read.Moments:
  """Returns moments over frames where the mask is true, [Z]."""
  stored = model.apply(variables, steps.z, steps.posterior, method='stored')
  stores = mask & (not model.core_sees_frames)
  return perfect_read.moments(
    steps.posterior, stored, episode.source, episode.predictable & stores
  )
