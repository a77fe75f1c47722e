"""Evaluation of replicas on held-out episodes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax import folds, replicas
from gtmm_jax.evaluation import (
  classifier,
  episodes,
  evaluate,
  fidelity,
  generation,
  metrics,
  perfect_read,
  retrieval,
)
from gtmm_jax.evaluation.generation import Dream
from gtmm_jax.model import free_energy
from gtmm_jax.process import jax_settings
from gtmm_jax.runs import drawn_episodes, part_values
from gtmm_jax.runs.exam import Exam, Sample, Weights
from gtmm_jax.tasks.sources.dataset import Split

# Classes of digits: only tasks on digits ask for a class.
_CLASSES = 10
# Episodes, at most, that the compiled program evaluates before their frames go
# to the host; rounded up to whole batches.
_PORTION = 500
# Greatest number of validation episodes in an evaluation during training.
_ON_THE_WAY = 100
# Metrics of the parameters without their average, at the end.
_OF_LAST_ITERATE = ('negative_bound', 'kl_new', 'kl_predictable')


class AtTheEnd(NamedTuple):
  """The evaluation at the end of a run.

  Attributes:
    values: content of `evaluation.json`.
    episodes: content of `evaluation.npz`, leaves [R, N, T].
  """

  values: dict[str, Any]
  episodes: episodes.EpisodeValues


class _Evaluated(NamedTuple):
  """An evaluation of all replicas, on the host.

  Attributes:
    values: means, by the names that records use.
    episodes: values of single frames, leaves [R, N, T].
    reads: of each batch, leaves [R, N / B, ...]; of all episodes, and of each
      part of a mixture.
  """

  values: dict[str, Any]
  episodes: episodes.EpisodeValues
  reads: tuple[perfect_read.Moments, ...]


class Evaluation:
  """Evaluates variables of replicas; compiles once, at the first call.

  Attributes:
    is_compiled: whether it has compiled.
  """

  def __init__(self, exam: Exam) -> None:
    """Stores the exam; compiles and moves nothing yet."""
    self._exam = exam
    self._protocol = generation.Protocol(
      exam.problem, exam.task.prefix, exam.task.asks, exam.binarize
    )
    self._step = replicas.repeat(exam.layout, _one_batch(self._protocol))
    self._classifier: Any = None
    self.is_compiled = False

  def at_the_end(self, weights: Weights, split: Split) -> AtTheEnd:
    """Evaluates what training ended with.

    Args:
      weights: of all replicas; they are not changed.
      split: that episodes are drawn from.
    """
    sample = Sample(self._exam.keys, self._exam.count, split)
    values, frames, reads = self._evaluate(weights, weights.variables, sample)
    floors = self._kl_floors(weights, reads, split)
    last = None
    if weights.last_iterate is not None:
      last = self._evaluate(
        weights, weights.last_iterate, sample, generates=False
      ).values
      last = {name: last[name] for name in _OF_LAST_ITERATE}
    more = {
      'classifier_accuracy': self._classifier_accuracy(split),
      'last_iterate': last,
    }
    values = part_values.with_floors({**values, **more}, floors, frames)
    return AtTheEnd(values, frames)

  def on_the_way(self, weights: Weights) -> dict[str, Any]:
    """Returns `held_out` of a line of `metrics.jsonl`.

    Episodes are for validation, whatever the evaluation at the end reads. They
    are the same each time, and other ones than at the end. There are 100, or as
    many as at the end if these are fewer.

    Args:
      weights: of all replicas; they are not changed.

    Returns:
      `episodes`, `split`, and the metrics of `evaluation.json` that have one
      number per replica, each [R]; without metrics for which no replica has a
      value.
    """
    return part_values.on_the_way(self._validate(weights, _ON_THE_WAY).values)

  def dream(self, weights: Weights, replica: int, split: Split) -> Dream:
    """Dreams episodes for the figures of a replica, by the same program.

    Args:
      weights: of all replicas; they are not changed.
      replica: its number.
      split: that episodes are drawn from.

    Returns:
      What `drawn_episodes.dream` returns, on the host; a recorded episode may
      be there twice.
    """
    fold = functools.partial(jax.random.fold_in, data=folds.DRAWING)
    keys = jax.vmap(fold)(self._exam.keys)
    sample = Sample(keys, 1, split)
    state, _ = self._add_batches(weights.variables, sample)
    return jax.tree.map(lambda leaf: leaf[replica], state.dream)

  def _kl_floors(
    self,
    weights: Weights,
    reads: Sequence[perfect_read.Moments],
    split: Split,
  ) -> list[np.ndarray]:
    """Returns the KL that a perfect read would leave, nats a frame, [R].

    It is fitted on validation episodes: at most 500 of them for test episodes,
    otherwise every other batch of those of the evaluation.

    Args:
      weights: of all replicas.
      reads: of each batch of the evaluation at the end.
      split: of that evaluation.

    Returns:
      The floor over all episodes, and over those of each part of a mixture; NaN
      where no frame comes back, or the memory stores no latents.
    """
    pairs = map(perfect_read.halves, reads)
    if split == 'test' and reads[0].count.any():
      validation = self._validate(weights, _PORTION, generates=False).reads
      pairs = zip(
        map(perfect_read.total, validation),
        map(perfect_read.total, reads),
        strict=True,
      )
    return [
      perfect_read.mean_kl(reported, perfect_read.fit(fitted))
      for fitted, reported in pairs
    ]

  def _validate(
    self, weights: Weights, most: int, generates: bool = True
  ) -> _Evaluated:
    """Evaluates on `most` validation episodes, or as many as at the end."""
    fold = functools.partial(jax.random.fold_in, data=folds.HELD_OUT)
    keys, count = jax.vmap(fold)(self._exam.keys), min(self._exam.count, most)
    sample = Sample(keys, count, 'validation')
    return self._evaluate(weights, weights.variables, sample, generates)

  def _evaluate(
    self,
    weights: Weights,
    variables: free_energy.Variables,
    sample: Sample,
    generates: bool = True,
  ) -> _Evaluated:
    """Evaluates on whole batches of episodes.

    Args:
      weights: whose step and failures are reported.
      variables: of all replicas, on the devices.
      sample: the episodes.
      generates: whether frames are generated; if not, values of generated
        frames are NaN.
    """
    exam, failed_at = self._exam, weights.failed_at
    size = exam.problem.batch_size
    batches = -(-sample.count // size)
    sums, portions = self._add_batches(variables, sample, generates)
    is_bernoulli = exam.problem.model.observation_map.likelihood == 'bernoulli'
    values = {
      'step': weights.step,
      'episodes': batches * size,
      'split': sample.split,
      **metrics.means(sums.totals, failed_at),
      **retrieval.accuracies(sums.retrieved, failed_at >= 0),
      **fidelity.means(sums.closeness, failed_at >= 0),
      'entropy_floor': (
        float(np.mean(sums.entropy)) / batches if is_bernoulli else None
      ),
      'predictable': np.mean(sums.totals.predictable, axis=0) / batches,
    }
    if sums.parts:
      values['by_task'] = part_values.by_task(
        exam.task.parts, sums.parts, failed_at, size
      )
    frames, reads = zip(*portions, strict=True)
    return _Evaluated(
      values,
      episodes.join(frames, failed_at >= 0),
      jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *reads),
    )

  def _add_batches(
    self,
    variables: free_energy.Variables,
    sample: Sample,
    generates: bool = True,
  ) -> tuple[evaluate.EvaluationState, list[Any]]:
    """Evaluates batches, in portions of P; all portions are one program.

    Args:
      variables: of all replicas, on the devices.
      sample: the episodes.
      generates: whether frames are generated.

    Returns:
      The last state, whose sums are over all batches, and of each portion
      `episodes` and `reads`, leaves [R, P, ...]; all on the host.
    """
    exam, size = self._exam, self._exam.problem.batch_size
    own = variables, replicas.scatter(exam.layout, sample.keys)
    images = exam.images.held_out(sample.split)
    shared = images, self._fit_classifier(), np.bool_(generates)
    shared = replicas.broadcast(exam.layout, shared)
    batches = -(-sample.count // size)
    portion = -(-min(exam.count, _PORTION) // size)
    parts, length = len(getattr(exam.task, 'parts', ())), exam.task.length
    nothing = generation.no_dream(self._protocol, images, drawn_episodes.COUNT)
    start = evaluate.zeros(exam.problem, length, portion, parts, nothing)
    count = exam.layout.replicas
    state = replicas.scatter(
      exam.layout,
      jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), start
      ),
    )
    portions = []
    for first in range(0, batches, portion):
      count = min(portion, batches - first)
      state = self._step(state, own, shared, count)
      reads = (state.reads, *(part.reads for part in state.parts))
      latest = replicas.gather((state.episodes, reads))
      portions.append(
        jax.tree.map(lambda leaf, count=count: leaf[:, :count], latest)
      )
    self.is_compiled = True
    return replicas.gather(state), portions

  def _fit_classifier(self) -> Any:
    """Returns the parameters of a task's classifier, None without."""
    if self._classifier is None and self._exam.task.asks == 'class':
      fit = functools.partial(classifier.fit, classes=_CLASSES)
      self._classifier = jax.jit(fit)(
        jax_settings.key(0), self._exam.images.training
      )
    return self._classifier

  def _classifier_accuracy(self, split: Split) -> float | None:
    """Returns the share of a split's digits that the classifier gets right."""
    params = self._fit_classifier()
    if params is None:
      return None
    images = self._exam.images.held_out(split)
    return float(jax.jit(classifier.accuracy)(params, images))


def _one_batch(
  protocol: generation.Protocol,
) -> Callable[..., evaluate.EvaluationState]:
  """Returns a function that adds a batch of episodes to one replica's sums."""

  def step(sums, own, shared):
    return evaluate.evaluate_batch(protocol, sums, *own, *shared)

  return step
