"""A run: everything that training and evaluation need, checked and typed."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import folds, presets, replicas
from gtmm_jax.problem import Problem
from gtmm_jax.process import jax_settings
from gtmm_jax.recipe import Recipe
from gtmm_jax.runs.curriculum import Stage
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class Run:
  """A checked run, before anything is compiled or written.

  Attributes:
    settings: resolved settings.
    workdir: folder of the results; None for a run that is only measured.
    task: the task.
    images: images or episodes for training, validation and test.
    more_images: a sentence on the limits of bundled data, if any.
    preset: sizes of the networks.
    problem: the problem that each replica trains and is evaluated on.
    stages: of the curriculum, whose shorter episodes come first; often none.
    recipe: of the updates.
    layout: of replicas on devices.
    config: content of `config.json`.
    why: the reason for the preset.
  """

  settings: Settings
  workdir: pathlib.Path | None
  task: Any
  images: Dataset
  more_images: str
  preset: presets.Preset
  problem: Problem
  stages: tuple[Stage, ...]
  recipe: Recipe
  layout: replicas.Layout
  config: dict[str, Any]
  why: str


def replica_keys(settings: Settings) -> jax.Array:
  """Returns one key for each replica, a function of (seed, replica), [R]."""
  fold = functools.partial(jax.random.fold_in, jax_settings.key(settings.seed))
  numbers = jnp.arange(settings.replicas, dtype=jnp.uint32)
  if settings.second_try is not None:
    numbers += jnp.uint32(folds.SECOND_TRIES + settings.second_try)
  return jax.vmap(fold)(numbers)
