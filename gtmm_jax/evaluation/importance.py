"""Tighter bounds of the log-likelihood, from K samples of the posterior.

With a^k_t the logarithm of the factor by which step t multiplies the weight of
sample k (`particles.py`), they are

  importance-weighted   log 1/K sum_k exp(sum_t a^k_t)
  particle filter       sum_t log sum_k w^k_{t-1} exp(a^k_t)

The first is by Burda et al. 2016 (https://arxiv.org/abs/1509.00519), the second
by Maddison et al. 2017 (https://arxiv.org/abs/1705.09279), Le et al. 2018
(https://arxiv.org/abs/1705.10306) and Naesseth et al. 2018
(https://arxiv.org/abs/1705.11140). w^k_{t-1} are the weights after step t - 1,
which sum to one. Where few particles have nearly all the weight, these are
continued several times from there, the others are dropped, and all weights are
equal again.

The exponential of either is an unbiased estimate of p(x), so that its own
expectation is at most log p(x), by Jensen's inequality. With one sample it is,
in expectation, the bound that is trained, but for a prior of several
components, whose KL that bound exceeds (`distributions.kl_bound`). Grey values
are soft targets, for which p(x_t | ...) is no density, but the same factor as
in the bound.

Each sequence has a random key of its own, and so has each sample: but for
rounding, values do not depend on how many are computed at a time.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from gtmm_jax.evaluation import particles
from gtmm_jax.evaluation.particles import Observed
from gtmm_jax.model.free_energy import Variables
from gtmm_jax.model.temporal_vae import TemporalVAE

Array = jax.Array

_CHUNK = 1_000


def importance_weighted(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  key: Array,
  samples: int,
  mask: Array | None = None,
  *,
  chunk: int = _CHUNK,
) -> Array:
  """Computes the importance-weighted bound of whole sequences.

  Sample k of sequence b has the noise `jax.random.normal(own, (T, Z))`, where
  `own` is the first key of `jax.random.split(jax.random.fold_in(key, b))`,
  folded with k.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A]; A = 0 where there is none.
    key: random key.
    samples: K, samples of each sequence.
    mask: bool [T, B], false for padding after the last frame of a sequence,
      which counts nowhere; None for no padding.
    chunk: how many samples are computed at a time, of one sequence or of
      several; memory grows with it.

  Returns:
    Nats a sequence, [B]; minus infinity where all weights are zero.

  Raises:
    ValueError: `samples` or `chunk` is below 1.
  """
  _check(samples, chunk)
  chunks = math.ceil(samples / chunk)
  size = math.ceil(samples / chunks)
  numbers = jnp.arange(chunks * size).reshape(chunks, size)

  def estimate(observed, key):
    def share(numbers):
      return particles.run(
        model, variables, observed, key, numbers, samples, None
      )

    return jax.nn.logsumexp(jax.lax.map(share, numbers))

  sequences = frames, condition, mask
  return _map_sequences(
    model, variables, estimate, sequences, key, chunk // size
  )


def particle(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  key: Array,
  samples: int,
  mask: Array | None = None,
  *,
  threshold: float = 0.5,
  chunk: int = _CHUNK,
) -> Array:
  """Computes the particle filter's bound of whole sequences.

  The samples have the same noise as in `importance_weighted`.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A]; A = 0 where there is none.
    key: random key.
    samples: K, particles of each sequence.
    mask: as in `importance_weighted`.
    threshold: the particles are resampled where their effective sample size is
      below this share of K. At 0 they never are, and the value is that of
      `importance_weighted`.
    chunk: how many particles are computed at a time. Those of one sequence
      depend on each other and stay together: memory grows with the larger of
      `chunk` and `samples`.

  Returns:
    Nats a sequence, [B]; minus infinity where all weights are zero after some
    step.

  Raises:
    ValueError: `samples` or `chunk` is below 1, or `threshold` not in [0, 1].
  """
  _check(samples, chunk)
  if not 0 <= threshold <= 1:
    raise ValueError(
      f'threshold is {threshold}; it must be a share of the samples, from 0 to '
      f'1.'
    )

  def estimate(observed, key):
    numbers = jnp.arange(samples)
    return particles.run(
      model, variables, observed, key, numbers, samples, threshold
    )

  sequences = frames, condition, mask
  return _map_sequences(
    model, variables, estimate, sequences, key, chunk // samples
  )


def _map_sequences(
  model: TemporalVAE,
  variables: Variables,
  estimate: Callable[[Observed, Array], Array],
  sequences: tuple[Array, Array, Array | None],
  key: Array,
  at_a_time: int,
) -> Array:
  """Maps (a sequence, its key) -> [] over all sequences, [B].

  Args:
    model: the temporal VAE.
    variables: its variables.
    estimate: the function.
    sequences: frames [T, B, H, W, C], condition [T, B, A], and mask [T, B].
    key: random key.
    at_a_time: sequences computed at a time; at least one is.
  """

  def encode_and_estimate(sequence):
    (frames, condition, mask), key = sequence
    features = model.apply(variables, frames, method='encode')
    return estimate(Observed(frames, features, condition, mask), key)

  sequences = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), sequences)
  count = len(sequences[0])
  fold = functools.partial(jax.random.fold_in, key)
  keys = jax.vmap(fold)(jnp.arange(count))
  return jax.lax.map(
    encode_and_estimate,
    (sequences, keys),
    batch_size=max(1, min(count, at_a_time)),
  )


def _check(samples: int, chunk: int) -> None:
  """Raises ValueError where one of them is below 1."""
  for name, value in (('samples', samples), ('chunk', chunk)):
    if value < 1:
      raise ValueError(f'{name} is {value}; it must be at least 1.')
