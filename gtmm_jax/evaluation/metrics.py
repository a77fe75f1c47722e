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
    log_likelihood: mean over sequences, nats, [T].
    kl: mean over sequences, nats, [T].
    kl_predictable: KL of the predictable frames, divided by all T*B frames.
    predictable: fraction of sequences whose frame t is predictable, [T].
  """

  batches: Array
  log_likelihood: Array
  kl: Array
  kl_predictable: Array
  predictable: Array


def zeros(length: int) -> Totals:
  """Returns totals of no batch, for sequences of `length` frames."""
  batches, kl_predictable = jnp.int32(0), jnp.float32(0)
  # Three arrays, because an array in two places cannot be donated.
  steps = (jnp.zeros(length, jnp.float32) for _ in range(3))
  log_likelihood, kl, predictable = steps
  return Totals(batches, log_likelihood, kl, kl_predictable, predictable)


def add(totals: Totals, terms: Terms, predictable: Array) -> Totals:
  """Adds one batch to the totals.

  Args:
    totals: sums over the batches before.
    terms: of the batch, [T, B].
    predictable: whether memory could predict the frame, bool [T, B].

  Returns:
    The new totals.
  """
  is_predictable = predictable.astype(terms.kl.dtype)
  return Totals(
    totals.batches + 1,
    totals.log_likelihood + terms.log_likelihood.mean(axis=1),
    totals.kl + terms.kl.mean(axis=1),
    totals.kl_predictable + (terms.kl * is_predictable).mean(),
    totals.predictable + is_predictable.mean(axis=1),
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
    where finite). The bound is in nats a sequence, KL in nats a frame.
  """
  totals = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), totals)
  has_none = (failed_at >= 0) | (totals.batches == 0)
  batches = np.where(has_none, np.nan, totals.batches)
  log_likelihood = totals.log_likelihood / batches[:, None]
  kl = totals.kl / batches[:, None]
  share = totals.predictable.mean(axis=1)
  new_share = batches - share
  # A task may have no new frame, or no predictable one: the KL is NaN then.
  kl_new = (totals.kl.mean(axis=1) - totals.kl_predictable) / np.where(
    new_share > 0, new_share, np.nan
  )
  kl_predictable = totals.kl_predictable / np.where(share > 0, share, np.nan)
  return {
    'negative_bound': (kl - log_likelihood).sum(axis=1),
    'log_likelihood': log_likelihood,
    'kl': kl,
    'kl_last': kl[:, -1],
    'kl_new': kl_new,
    'kl_predictable': np.where(has_none, np.nan, kl_predictable),
    'failed_at': np.array(
      [int(step) if step >= 0 else None for step in failed_at], object
    ),
  }
