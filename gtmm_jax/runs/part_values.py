"""Values of an evaluation, those of the parts of a mixture too."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gtmm_jax.evaluation import episodes, metrics, retrieval, sums

# Metrics of each evaluation during training, finite or not.
_ALWAYS = (
  'episodes',
  'split',
  'failed_at',
  'negative_bound',
  'kl_new',
  'kl_predictable',
  'kl_last',
)
# Metrics of only the evaluation at the end.
_AT_THE_END = (
  'step',
  'log_likelihood',
  'kl',
  'entropy_floor',
  'predictable',
)


def by_task(
  names: Iterable[str],
  parts: Sequence[sums.Sums],
  failed_at: np.ndarray,
  batch_size: int,
) -> dict[str, dict[str, Any]]:
  """Returns the metrics of the parts of a mixture, by their tasks' names.

  Args:
    names: of the parts.
    parts: sums over all batches, leaves [R, ...], on the host.
    failed_at: int [R], as in `train.TrainState`.
    batch_size: sequences in a batch.

  Returns:
    For each part `episodes [R]`, the number of its episodes, and the metrics of
    an evaluation.
  """
  values = {}
  for name, part in zip(names, parts, strict=True):
    totals = part.totals
    shares = np.asarray(totals.frames[:, 0], np.float64)
    predictable = totals.predictable / np.maximum(shares, 1e-9)[:, None]
    values[name] = {
      'episodes': np.round(batch_size * shares).astype(int),
      **metrics.means(totals, failed_at),
      **retrieval.accuracies(part.retrieved, failed_at >= 0),
      'predictable': np.mean(predictable, axis=0),
    }
  return values


def with_floors(
  values: Mapping[str, Any],
  floors: Sequence[np.ndarray],
  frames: episodes.EpisodeValues,
) -> dict[str, Any]:
  """Adds what only the evaluation at the end has.

  Args:
    values: of the evaluation; `by_task` holds those of the parts, if any.
    floors: KL of a perfect read, [R], of the whole and of each part.
    frames: values of all frames, [R, N, T].

  Returns:
    The values with `kl_floor [R]` and `quantiles`, for the parts, too.
  """
  whole = dict(values)
  parts = whole.pop('by_task', {})
  whole |= {
    'kl_floor': _of_finite(whole, floors[0]),
    'quantiles': episodes.quantiles(frames),
  }
  if parts:
    whole['by_task'] = {
      name: {
        **each,
        'kl_floor': _of_finite(each, floors[number + 1]),
        'quantiles': episodes.quantiles(frames, number),
      }
      for number, (name, each) in enumerate(parts.items())
    }
  return whole


def on_the_way(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values that a line of `metrics.jsonl` has, of parts, too."""
  parts = values.get('by_task', {})
  reported = {
    name: value
    for name, value in values.items()
    if name != 'by_task'
    and (
      name in _ALWAYS or name not in _AT_THE_END and np.isfinite(value).any()
    )
  }
  if parts:
    reported['by_task'] = {
      name: on_the_way(each) for name, each in parts.items()
    }
  return reported


def _of_finite(values: Mapping[str, Any], floor: np.ndarray) -> np.ndarray:
  """Returns the floor, NaN for replicas that failed."""
  return np.where(np.isnan(values['negative_bound']), np.nan, floor)
