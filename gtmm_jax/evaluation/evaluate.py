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
  sums,
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
    parts: sums over the episodes of each part of a mixture; empty for other
      tasks.
  """

  totals: metrics.Totals
  entropy: Array
  retrieved: retrieval.Tally
  closeness: fidelity.Fidelity
  episodes: episodes.EpisodeValues
  reads: perfect_read.Moments
  parts: tuple[sums.Sums, ...] = ()


class Generated(NamedTuple):
  """Frames of a batch of episodes, each generated twice.

  Attributes:
    ahead: from the prior given the true past, [T, B, H, W, C] in [0, 1].
    free: a true prefix, and the frames generated after it, of the same shape.
  """

  ahead: Array
  free: Array


def zeros(
  problem: Problem, length: int, batches: int, parts: int = 0
) -> EvaluationState:
  """Returns the state before the first batch.

  Args:
    problem: the model and the batch size.
    length: T, frames of an episode.
    batches: P, the number of batches whose single frames are kept.
    parts: number of the parts of a mixture; 0 for any other task.
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
  batch_key = jax.random.fold_in(key, jnp.uint32(folds.EVALUATION) + number)
  dreams_key = jax.random.fold_in(key, folds.DREAMS)
  episode, noise = problem.draw(batch_key, images)
  inference = problem.infer(variables, episode, noise)

  def generate_and_judge() -> tuple[retrieval.Verdicts, fidelity.Fidelity]:
    pixel_key = jax.random.fold_in(dreams_key, number)
    generated = generate_twice(
      protocol, variables, pixel_key, episode, noise, inference
    )
    return _judge(protocol, episode, generated, judge)

  def leave_out() -> tuple[retrieval.Verdicts, fidelity.Fidelity]:
    return retrieval.none_asked(episode.predictable.shape), fidelity.zeros()

  verdicts, measured = jax.lax.cond(generates, generate_and_judge, leave_out)
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
    episode.in_prefix,
  )
  return Generated(ahead.mean, free)
