"""Evaluation of a run's replicas on held-out episodes."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gtmm_jax import folds, replicas, train
from gtmm_jax.evaluation import (
  classifier,
  evaluate,
  fidelity,
  metrics,
  retrieval,
)
from gtmm_jax.process import jax_settings
from gtmm_jax.runs.run import Run, replica_keys

# Of digits, which alone are asked for by class.
_CLASSES = 10
# Held-out episodes of an evaluation on the way, at most.
_ON_THE_WAY = 100
# What each evaluation on the way tells, finite or not.
_ALWAYS = (
  'episodes',
  'failed_at',
  'negative_bound',
  'kl_new',
  'kl_predictable',
  'kl_last',
)
# What only an evaluation at the end tells.
_AT_THE_END = (
  'step',
  'log_likelihood',
  'kl',
  'classifier_accuracy',
  'entropy_floor',
  'predictable',
)


class Evaluation:
  """Evaluates states of a run; compiles at the first time, and once.

  Attributes:
    is_compiled: whether it has.
  """

  def __init__(self, run: Run) -> None:
    """Nothing is compiled or moved yet."""
    self._run = run
    self._step = replicas.repeat(run.layout, _one_batch(run))
    # The classifier of digits and its accuracy, where a class is asked for.
    self._judge: tuple[Any, float | None] | None = None
    self.is_compiled = False

  def at_the_end(self, state: train.TrainState) -> dict[str, Any]:
    """Returns the content of `evaluation.json`.

    Args:
      state: of all replicas, on the devices; it is not changed.
    """
    settings = self._run.settings
    return self._evaluate(
      state, replica_keys(settings), settings.evaluation_episodes
    )

  def on_the_way(self, state: train.TrainState) -> dict[str, Any]:
    """Returns what a line of `metrics.jsonl` has as `held_out`.

    The episodes are the same each time, and others than at the end; there are
    100 of them, or as many as at the end where that is fewer.

    Args:
      state: of all replicas, on the devices; it is not changed.

    Returns:
      `episodes`, how many, and by the names of `evaluation.json` the values
      that a replica has one of, each [R]; without metrics of other tasks, of
      which no replica has a value.
    """
    settings = self._run.settings
    fold = functools.partial(jax.random.fold_in, data=folds.HELD_OUT)
    found = self._evaluate(
      state,
      jax.vmap(fold)(replica_keys(settings)),
      min(settings.evaluation_episodes, _ON_THE_WAY),
    )
    return {
      name: value
      for name, value in found.items()
      if name in _ALWAYS or name not in _AT_THE_END and np.isfinite(value).any()
    }

  def _evaluate(
    self, state: train.TrainState, keys: jax.Array, episodes: int
  ) -> dict[str, Any]:
    """Evaluates on at least so many episodes, in whole batches."""
    run = self._run
    settings, problem = run.settings, run.problem
    judge, judged = self._judged()
    batches = -(-episodes // settings.batch_size)
    start = jax.tree.map(
      lambda leaf: np.broadcast_to(leaf, (settings.replicas, *leaf.shape)),
      evaluate.zeros(run.task.length),
    )
    variables = {'params': state.params, 'batch_stats': state.batch_stats}
    sums = self._step(
      replicas.scatter(run.layout, start),
      (variables, replicas.scatter(run.layout, keys)),
      replicas.broadcast(run.layout, (run.images.held_out, judge)),
      batches,
    )
    sums = replicas.gather(sums)
    self.is_compiled = True
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
      asks_class = self._run.task.asks == 'class'
      images = self._run.images
      self._judge = _fit_judge(images) if asks_class else (None, None)
    return self._judge


def _one_batch(run: Run) -> Callable[..., evaluate.EvaluationState]:
  """A function that adds a batch of episodes to the sums of one replica."""
  task = run.task

  def step(sums, own, shared):
    return evaluate.evaluate_batch(
      run.problem,
      task.prefix,
      task.asks,
      run.settings.binarize,
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
