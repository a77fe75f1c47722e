"""The paper's metrics, summed on the device and averaged on the host.

Gemici et al. 2017, section 4: the bound, the KL of every time step, the KL of
the last frame. Frames that a memory could predict are kept apart from new ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.model.free_energy import Terms

Array = jax.Array


class Totals(NamedTuple):
  """Sums of batches' means.

  Attributes:
    batches: number of batches, int32.
    log_likelihood: sum over sequences that have frame t, divided by B, nats,
      [T].
    kl: the same of the KL, [T].
    kl_predictable: KL of the predictable frames, divided by all T*B frames.
    kl_last: mean over sequences of the KL of their last frame, nats.
    predictable: fraction of sequences whose frame t is predictable, [T].
    frames: fraction of sequences that have a frame t, [T]; that of the first
      frame is the fraction of sequences that count at all.
  """

  batches: Array
  log_likelihood: Array
  kl: Array
  kl_predictable: Array
  kl_last: Array
  predictable: Array
  frames: Array


def zeros(length: int) -> Totals:
  """Returns totals of no batch, for sequences of `length` frames."""
  # An array in two places cannot be donated.
  steps = (jnp.zeros(length, jnp.float32) for _ in range(4))
  log_likelihood, kl, predictable, frames = steps
  kl_predictable, kl_last = jnp.float32(0), jnp.float32(0)
  return Totals(
    jnp.int32(0),
    log_likelihood,
    kl,
    kl_predictable,
    kl_last,
    predictable,
    frames,
  )


def add(
  totals: Totals, terms: Terms, predictable: Array, mask: Array | None = None
) -> Totals:
  """Adds one batch to the totals.

  Args:
    totals: sums over the batches before.
    terms: of the batch, [T, B]; there may be fewer frames than the totals have,
      and those that are missing do not count.
    predictable: whether memory could predict the frame, bool [T, B].
    mask: whether the frame counts, bool [T, B]; frames that do not, come after
      those that do, or a whole sequence does not count. None if all count.

  Returns:
    The new totals.
  """
  if mask is None:
    mask = jnp.ones(predictable.shape, bool)
  missing = totals.kl.shape[0] - mask.shape[0]
  if missing:
    terms, predictable, mask = jax.tree.map(
      lambda leaf: jnp.pad(leaf, ((0, missing), (0, 0))),
      (terms, predictable, mask),
    )
  terms = Terms(*(jnp.where(mask, each, 0.0) for each in terms))
  is_counted = mask.astype(terms.kl.dtype)
  is_predictable = (predictable & mask).astype(terms.kl.dtype)
  after = jnp.concatenate([is_counted[1:], jnp.zeros_like(is_counted[:1])])
  is_last = is_counted - after
  return Totals(
    totals.batches + 1,
    totals.log_likelihood + terms.log_likelihood.mean(axis=1),
    totals.kl + terms.kl.mean(axis=1),
    totals.kl_predictable + (terms.kl * is_predictable).mean(),
    totals.kl_last + (terms.kl * is_last).sum(axis=0).mean(),
    totals.predictable + is_predictable.mean(axis=1),
    totals.frames + is_counted.mean(axis=1),
  )


def means(totals: Totals, failed_at: np.ndarray) -> dict[str, np.ndarray]:
  """Returns the metrics of R replicas, by the names that records use.

  Args:
    totals: of every replica, leaves [R, ...], on the host.
    failed_at: int [R], the step at which a replica stopped being finite, -1
      where it did not. Metrics of a replica that failed are NaN.

  Returns:
    `negative_bound [R]`, `log_likelihood [R, T]`, `kl [R, T]`, `kl_last [R]`,
    `kl_new [R]`, `kl_predictable [R]` and `failed_at [R]` (object array, None
    where finite). The bound is in nats a sequence, KL in nats a frame; those of
    frame t are means over the sequences that have it, NaN where none has, and
    `kl_last` is that of the last frame that a sequence has.
  """
  totals = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), totals)
  has_none = (failed_at >= 0) | (totals.frames[:, 0] == 0)
  sequences = np.where(has_none, np.nan, totals.frames[:, 0])
  frames = np.where(has_none[:, None], np.nan, totals.frames)
  frames = np.where(frames > 0, frames, np.nan)
  kl, log_likelihood = (
    each / sequences[:, None] for each in (totals.kl, totals.log_likelihood)
  )
  share = totals.predictable.mean(axis=1)
  new_share = np.where(has_none, np.nan, totals.frames.mean(axis=1)) - share
  # A task may have no new frame, or no predictable one: the KL is NaN then.
  kl_new = (totals.kl.mean(axis=1) - totals.kl_predictable) / np.where(
    new_share > 0, new_share, np.nan
  )
  kl_predictable = totals.kl_predictable / np.where(share > 0, share, np.nan)
  return {
    'negative_bound': (kl - log_likelihood).sum(axis=1),
    'log_likelihood': totals.log_likelihood / frames,
    'kl': totals.kl / frames,
    'kl_last': totals.kl_last / sequences,
    'kl_new': kl_new,
    'kl_predictable': np.where(has_none, np.nan, kl_predictable),
    'failed_at': np.array(
      [int(step) if step >= 0 else None for step in failed_at], object
    ),
  }
