"""Values of every frame of every evaluated episode, and their quantiles."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.evaluation.retrieval import Verdicts
from gtmm_jax.model.free_energy import Terms

Array = jax.Array

# Of the distribution over episodes, with the names that records use.
_QUANTILES = {'5%': 0.05, '50%': 0.5, '95%': 0.95}


class EpisodeValues(NamedTuple):
  """Values of frames: on a device [P, T, B] for P batches, else [R, N, T].

  Log-likelihoods and KL are float32: float16 ends at 65,504, which the KL of a
  model that predicts wrongly can exceed, and rounds the log-likelihood of a
  frame of 10,000 nats to multiples of 8.

  Attributes:
    kl: KL[q(z_t) || p(z_t)], nats.
    log_likelihood: log p(x_t | z_<=t, x_<t), nats.
    predictable: whether a perfect memory could predict the frame, bool.
    source: the earlier step that the frame repeats, -1 if it is new.
    retrieved_ahead: whether the frame that was generated one step ahead is
      right, int8: 1 if it is, 0 if not, -1 where no image is asked for.
    retrieved_free: the same, free-running; nothing is asked in the prefix.
    mask: false for the padding after an episode, whose KL and log-likelihood
      are 0.
    part: int8, which part of a mixture the episode is of; 0 in other tasks.
  """

  kl: Array
  log_likelihood: Array
  predictable: Array
  source: Array
  retrieved_ahead: Array
  retrieved_free: Array
  mask: Array
  part: Array


def zeros(batches: int, length: int, batch_size: int) -> EpisodeValues:
  """Returns room for the values of `batches` batches, [P, T, B]."""
  shape = (batches, length, batch_size)
  # An array in two places cannot be donated.
  return EpisodeValues(
    jnp.zeros(shape, jnp.float32),
    jnp.zeros(shape, jnp.float32),
    jnp.zeros(shape, bool),
    jnp.zeros(shape, jnp.int32),
    jnp.zeros(shape, jnp.int8),
    jnp.zeros(shape, jnp.int8),
    jnp.zeros(shape, bool),
    jnp.zeros(shape, jnp.int8),
  )


def of_batch(terms: Terms, episode: Any, verdicts: Verdicts) -> EpisodeValues:
  """Returns the values of a batch, [T, B].

  Args:
    terms: of the bound, [T, B].
    episode: `predictable` and `source`, [T, B]; `mask` and `part`, [T, B] or
      None.
    verdicts: on the generated frames, [T, B].
  """
  shape, mask, part = terms.kl.shape, episode.mask, episode.part
  return EpisodeValues(
    terms.kl.astype(jnp.float32),
    terms.log_likelihood.astype(jnp.float32),
    episode.predictable,
    episode.source.astype(jnp.int32),
    verdicts.ahead,
    verdicts.free,
    jnp.ones(shape, bool) if mask is None else mask,
    jnp.zeros(shape, jnp.int8) if part is None else part.astype(jnp.int8),
  )


def join(
  portions: Sequence[EpisodeValues], has_failed: np.ndarray
) -> EpisodeValues:
  """Joins the episodes of portions of batches.

  Args:
    portions: of every replica, leaves [R, P, T, B], on the host.
    has_failed: whether a replica failed, bool [R].

  Returns:
    Leaves [R, N, T], episodes in the order in which they were drawn. Of a
    replica that failed, KL and log-likelihoods are NaN and nothing is asked
    (-1). Sources have the smallest integers that hold T.
  """

  def joined(*parts: np.ndarray) -> np.ndarray:
    whole = np.moveaxis(np.concatenate(parts, axis=1), 3, 2)
    return np.ascontiguousarray(whole.reshape(len(whole), -1, whole.shape[-1]))

  values = jax.tree.map(joined, *portions)
  left_out = np.broadcast_to(has_failed[:, None, None], values.kl.shape)
  length = values.kl.shape[-1]
  return values._replace(
    kl=np.where(left_out, np.float32(np.nan), values.kl),
    log_likelihood=np.where(
      left_out, np.float32(np.nan), values.log_likelihood
    ),
    source=values.source.astype(np.min_scalar_type(-length)),
    retrieved_ahead=np.where(left_out, np.int8(-1), values.retrieved_ahead),
    retrieved_free=np.where(left_out, np.int8(-1), values.retrieved_free),
  )


def quantiles(
  values: EpisodeValues, part: int | None = None
) -> dict[str, Mapping[str, np.ndarray]]:
  """Returns quantiles over episodes, with linear interpolation.

  Args:
    values: [R, N, T], on the host.
    part: of a mixture, whose episodes alone count; None for all episodes.

  Returns:
    `negative_bound`, nats a sequence; `kl_new` and `kl_predictable`, nats a
    frame: of an episode, the mean over its new or predictable frames; episodes
    without such a frame are left out. Each has `5%`, `50%` and `95%`, [R]; NaN
    where a replica has no episode, or one that is not finite.
  """
  bounds = (values.kl.astype(np.float64) - values.log_likelihood).sum(-1)
  is_counted = np.ones(bounds.shape, bool)
  if part is not None:
    is_counted = values.part[..., 0] == part
  is_new = values.mask & ~values.predictable
  by_episode = {
    'negative_bound': (bounds, is_counted),
    'kl_new': _means(values.kl, is_new),
    'kl_predictable': _means(values.kl, values.predictable),
  }
  return {
    name: dict(
      zip(_QUANTILES, _quantiles(each, exists & is_counted), strict=True)
    )
    for name, (each, exists) in by_episode.items()
  }


def _means(
  values: np.ndarray, is_counted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns means over the counted frames of an episode, and if there are."""
  counts = is_counted.sum(-1)
  sums = np.where(is_counted, values, 0.0).sum(-1, dtype=np.float64)
  return sums / np.maximum(counts, 1), counts > 0


def _quantiles(values: np.ndarray, exists: np.ndarray) -> np.ndarray:
  """Returns quantiles [Q, R] of the values [R, N] that exist."""
  levels = list(_QUANTILES.values())
  columns = []
  for row, mask in zip(values, exists, strict=True):
    existing = row[mask]
    is_known = existing.size > 0 and np.isfinite(existing).all()
    columns.append(
      np.quantile(existing, levels) if is_known else [np.nan] * len(levels)
    )
  return np.transpose(columns)
