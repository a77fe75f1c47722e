"""Evaluation of a run's replicas on held-out episodes."""

from collections.abc import Callable
from typing import Any

import jax
import jax_settings
import numpy as np

from gtmm_jax import (
  classifier,
  evaluate,
  fidelity,
  metrics,
  replicas,
  retrieval,
  train,
)

# Of digits, which alone are asked for by class.
_CLASSES = 10


class Evaluation:
  """Evaluates states of a run; compiles at the first time, and once."""

  def __init__(self, prepared: Any) -> None:
    """Nothing is compiled or moved yet."""
    self._prepared = prepared
    self._step = replicas.repeat(prepared.layout, _one_batch(prepared))
    # The classifier of digits and its accuracy, where a class is asked for.
    self._judge: tuple[Any, float | None] | None = None

  def __call__(
    self, state: train.TrainState, own: Any, episodes: int
  ) -> dict[str, Any]:
    """Returns the content of `evaluation.json`.

    Args:
      state: of all replicas, on the devices; it is not changed.
      own: the replicas' keys, on the devices.
      episodes: at least so many are evaluated, in whole batches.
    """
    prepared = self._prepared
    settings, problem = prepared.settings, prepared.problem
    judge, judged = self._judged()
    batches = -(-episodes // settings.batch_size)
    start = jax.tree.map(
      lambda leaf: np.broadcast_to(leaf, (settings.replicas, *leaf.shape)),
      evaluate.zeros(prepared.task.length),
    )
    variables = {'params': state.params, 'batch_stats': state.batch_stats}
    sums = self._step(
      replicas.scatter(prepared.layout, start),
      (variables, own),
      replicas.broadcast(prepared.layout, (prepared.images.held_out, judge)),
      batches,
    )
    sums = replicas.gather(sums)
    failed_at = replicas.gather(state.failed_at)
    return {
      'step': int(replicas.gather(state.step)[0]),
      'episodes': batches * settings.batch_size,
      **metrics.means(sums.totals, failed_at),
      **retrieval.accuracies(sums.retrieved, failed_at >= 0),
      **fidelity.means(sums.closeness, failed_at >= 0),
      'classifier_accuracy': judged,
      'entropy_floor': (
        float(np.mean(sums.entropy)) / batches
        if problem.model.observation_map.likelihood == 'bernoulli'
        else None
      ),
      'predictable': np.mean(sums.totals.predictable, axis=0) / batches,
    }

  def _judged(self) -> tuple[Any, float | None]:
    if self._judge is None:
      asks_class = self._prepared.task.asks == 'class'
      images = self._prepared.images
      self._judge = _fit_judge(images) if asks_class else (None, None)
    return self._judge


def _one_batch(prepared: Any) -> Callable[..., evaluate.EvaluationState]:
  """A function that adds a batch of episodes to the sums of one replica."""
  task = prepared.task

  def step(sums, own, shared):
    return evaluate.evaluate_batch(
      prepared.problem,
      task.prefix,
      task.asks,
      prepared.settings.binarize,
      sums,
      *own,
      *shared,
    )

  return step


def _fit_judge(loaded: Any) -> tuple[Any, float]:
  """A classifier of the training digits, and its accuracy on held-out ones."""

  def fit(training, held_out):
    params = classifier.fit(jax_settings.key(0), training, _CLASSES)
    return params, classifier.accuracy(params, held_out)

  params, accuracy = jax.jit(fit)(loaded.training, loaded.held_out)
  return params, float(accuracy)
