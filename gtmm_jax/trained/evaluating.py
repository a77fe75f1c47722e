"""Evaluates a trained run as it was evaluated, also on other episodes."""

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, get_args

import jax
import numpy as np

from gtmm_jax import replicas
from gtmm_jax.evaluation.episodes import EpisodeValues
from gtmm_jax.problem import Problem
from gtmm_jax.process import jax_settings
from gtmm_jax.runs import exam, held_out, resolve, room
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.tasks.sources.dataset import Split
from gtmm_jax.trained import bounds as bounds_module
from gtmm_jax.trained import inputs, loading, variants
from gtmm_jax.trained.trained import Trained
from gtmm_jax.trained.variants import Slots, Variant


class Measured(NamedTuple):
  """An evaluation of a trained run on held-out episodes.

  Attributes:
    values: what `evaluation.json` of a run has, and means of the bounds, nats a
      sequence, by their names, each [R]; of the parts of a mixture in
      `by_task`, too.
    episodes: what `evaluation.npz` has, leaves [R, N, T].
    bounds: `negative_bound_iwae` and `negative_bound_particle`, those asked
      for, nats a sequence, [R, N] for the same episodes.
  """

  values: dict[str, Any]
  episodes: EpisodeValues
  bounds: dict[str, np.ndarray]


def evaluate(
  run: Trained,
  sizes: Mapping[str, int] | None = None,
  split: Split | None = None,
  *,
  episodes: int | None = None,
  seed: int | None = None,
  slots: Slots | None = None,
  bounds: Collection[bounds_module.Tighter] = (),
  samples: int = 1,
) -> Measured:
  """Evaluates a trained run on held-out episodes, such as longer ones.

  Without other arguments its values are those of the run's own evaluation.

  Args:
    run: from `gtmm_jax.load`, or `variants.with_data` of it.
    sizes: of episodes, by name (`{'pre_recall': 50}`); others are the run's.
    split: 'validation' or 'test'; None for the run's.
    episodes: least number of them; None for the run's.
    seed: of the episodes; None for the run's.
    slots: as of `variants.make`.
    bounds: tighter bounds, 'iwae' and 'particle' (`evaluation.importance`).
    samples: K of these bounds.

  Raises:
    ValueError: an argument is wrong; nothing is computed before.
  """
  variant = variants.make(run, sizes, slots)
  evaluator = Evaluator(run, variant, episodes=episodes, seed=seed)
  return evaluator(split or run.settings.evaluate_on, bounds, samples)


class Evaluator:
  """Evaluates a variant of a trained run; compiles once for all splits."""

  def __init__(
    self,
    run: Trained,
    variant: Variant,
    *,
    episodes: int | None = None,
    seed: int | None = None,
  ) -> None:
    """Checks everything; compiles nothing.

    Args:
      run: the trained run; its data are read.
      variant: of it, from `variants.make`.
      episodes: as of `evaluate`.
      seed: as of `evaluate`.

    Raises:
      ValueError: a number or the data are wrong, or a device has too little
        memory.
    """
    settings = variant.settings
    if episodes is None:
      episodes = settings.evaluation_episodes
    inputs.at_least_one(episodes=episodes)
    if seed is not None:
      settings = dataclasses.replace(settings, seed=seed)
      resolve.check(settings, run.kinds)
    keys = replica_keys(settings)
    if run.replica is not None:
      keys = keys[run.replica][None]
    preset = resolve.sized(settings, run.kinds)
    layout = replicas.plan(len(keys), preset.networks != 'dense')
    room.require_for_run(
      settings, variant.task.length, variant.model, run.data, layout
    )
    problem = Problem(variant.model, variant.task.sample, settings.batch_size)
    self._run = run
    self._exam = exam.Exam(
      problem,
      variant.task,
      settings.binarize,
      run.data,
      layout,
      keys,
      episodes,
    )
    self._evaluation = held_out.Evaluation(self._exam)

  def __call__(
    self,
    split: Split,
    bounds: Collection[bounds_module.Tighter] = (),
    samples: int = 1,
  ) -> Measured:
    """Evaluates on episodes of a split.

    Args:
      split: 'validation' or 'test'.
      bounds: as of `evaluate`.
      samples: as of `evaluate`.

    Raises:
      ValueError: an argument is wrong.
    """
    require_known(split, bounds, samples)
    with jax_settings.with_precision(self._run.settings.precision):
      values, episodes = self._evaluation.at_the_end(self._weights, split)
      arrays = {
        f'negative_bound_{bound}': bounds_module.negative_bounds(
          self._exam, self._weights.variables, split, bound, samples
        )
        for bound in bounds
      }
    for array in arrays.values():
      array[self._weights.failed_at >= 0] = np.nan
    if arrays:
      values = with_bounds(values, episodes, arrays)
      values['bound_samples'] = samples
    return Measured(values, episodes, arrays)

  @functools.cached_property
  def _weights(self) -> exam.Weights:
    run, layout = self._run, self._exam.layout
    last = loading.last_iterate(run)
    failed_at = run.failed_at
    if run.replica is not None:
      failed_at = failed_at[run.replica][None]

    def put(variables: Any) -> Any:
      if run.replica is not None:
        variables = jax.tree.map(lambda leaf: leaf[None], variables)
      return replicas.scatter(layout, variables)

    return exam.Weights(
      run.step,
      failed_at,
      put(run.variables),
      None if last is None else put(last),
    )


def with_bounds(
  values: Mapping[str, Any],
  episodes: EpisodeValues,
  arrays: Mapping[str, np.ndarray],
) -> dict[str, Any]:
  """Adds means over episodes of tighter bounds, for parts of a mixture, too.

  Args:
    values: of an evaluation.
    episodes: of the same, leaves [R, N, T].
    arrays: nats a sequence, [R, N], by their names.
  """

  def means(is_counted: np.ndarray) -> dict[str, np.ndarray]:
    counts = is_counted.sum(1)
    counts = np.where(counts > 0, counts, np.nan)
    return {
      name: np.where(is_counted, array, 0.0).sum(1) / counts
      for name, array in arrays.items()
    }

  numbers = episodes.part[..., 0]
  extended = {**values, **means(np.ones_like(numbers, bool))}
  if 'by_task' in values:
    extended['by_task'] = {
      name: {**part, **means(numbers == number)}
      for number, (name, part) in enumerate(values['by_task'].items())
    }
  return extended


def require_known(
  split: Split, bounds: Collection[bounds_module.Tighter], samples: int
) -> None:
  """Raises `ValueError` for another split or bound, or samples below 1."""
  inputs.at_least_one(samples=samples)
  if split not in get_args(Split):
    raise ValueError(
      f'split is {split!r}; it must be {" or ".join(get_args(Split))}.'
    )
  for bound in bounds:
    if bound not in bounds_module.ESTIMATES:
      raise ValueError(
        f'bound is {bound!r}; there are '
        f'{" and ".join(bounds_module.ESTIMATES)}, beside the one that is '
        f'always there.'
      )
