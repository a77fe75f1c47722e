"""Sums over the episodes of a task, or of one part of a mixture."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.evaluation import metrics, perfect_read, retrieval
from gtmm_jax.model.free_energy import Terms

Array = jax.Array


class Sums(NamedTuple):
  """Sums for one replica.

  Attributes:
    totals: of the metrics.
    retrieved: counts of generated frames that are right.
    reads: moments of the floor of a perfect read, of the latest P batches, [P,
      ...]; batch b has row b mod P.
  """

  totals: metrics.Totals
  retrieved: retrieval.Tally
  reads: perfect_read.Moments


class Batch(NamedTuple):
  """The parts of a batch of episodes that are summed.

  Attributes:
    terms: of the bound, [T, B].
    predictable: whether memory could predict the frame, bool [T, B].
    verdicts: on generated frames, [T, B].
    reads: function from a mask, bool [T, B], to moments over its frames.
  """

  terms: Terms
  predictable: Array
  verdicts: retrieval.Verdicts
  reads: Any


def zeros(length: int, batches: int, latent_size: int) -> Sums:
  """Returns sums over no batch.

  Args:
    length: T, frames of an episode.
    batches: P.
    latent_size: Z.
  """
  return Sums(
    metrics.zeros(length),
    retrieval.zeros(),
    perfect_read.zeros(batches, latent_size),
  )


def add(sums: Sums, batch: Batch, mask: Array | None) -> Sums:
  """Adds the frames of a batch for which the mask is true.

  Args:
    sums: over the batches before.
    batch: the batch.
    mask: bool [T, B]; None if all frames count.
  """
  is_counted = jnp.ones(batch.predictable.shape, bool) if mask is None else mask
  tally = retrieval.tally(batch.verdicts, mask)
  return Sums(
    metrics.add(sums.totals, batch.terms, batch.predictable, mask),
    jax.tree.map(jnp.add, sums.retrieved, tally),
    put(sums.reads, batch.reads(is_counted), sums.totals.batches),
  )


def put(rows: Any, row: Any, number: Array) -> Any:
  """Writes a batch's leaves over row `number` mod P of leaves [P, ...]."""

  def put_leaf(old: Array, new: Array) -> Array:
    index = jnp.remainder(number, jnp.int32(old.shape[0]))
    return jax.lax.dynamic_update_index_in_dim(old, new, index, 0)

  return jax.tree.map(put_leaf, rows, row)
