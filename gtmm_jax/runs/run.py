"""A run: all that training and evaluation need to know, checked and typed."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from gtmm_jax import presets, replicas
from gtmm_jax.problem import Problem
from gtmm_jax.process import jax_settings
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class Run:
  """A run that makes sense; nothing was compiled or written for it yet.

  Attributes:
    settings: as resolved.
    workdir: where results go.
    task: the task.
    images: to train on, and held out.
    more_images: a sentence on what the bundled ones lack, if anything.
    preset: sizes of the networks.
    problem: what one replica trains.
    layout: where replicas run.
    config: what `config.json` will hold.
    why: why the preset is what it is.
  """

  settings: Settings
  workdir: pathlib.Path
  task: Any
  images: Dataset
  more_images: str
  preset: presets.Preset
  problem: Problem
  layout: replicas.Layout
  config: dict[str, Any]
  why: str


def replica_keys(settings: Settings) -> jax.Array:
  """Returns one key for each replica, a function of (seed, replica), [R]."""
  fold = functools.partial(jax.random.fold_in, jax_settings.key(settings.seed))
  return jax.vmap(fold)(jnp.arange(settings.replicas))
