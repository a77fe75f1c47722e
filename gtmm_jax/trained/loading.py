"""Loads a trained run from its folder; nothing there is changed."""

import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from gtmm_jax import checkpoints
from gtmm_jax.model import build, cores
from gtmm_jax.model.free_energy import Variables
from gtmm_jax.process import places
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import recorded, resolve, workdirs
from gtmm_jax.trained.trained import Trained


def load(
  workdir: str | os.PathLike[str],
  step: int | None = None,
  replica: int | None = None,
  averaged: bool = True,
  models: Mapping[str, cores.Make] | None = None,
  tasks: Mapping[str, type] | None = None,
) -> Trained:
  """Loads a trained run, on a machine with any devices.

  The run may still be training. Its data are read only when they are used.

  Args:
    workdir: folder of the run.
    step: of the checkpoint; None for the latest.
    replica: its number, from 0; None for all replicas.
    averaged: whether to take the moving average of the parameters, as the
      evaluation does, where the run has one.
    models: your own models, as the program that trained has them.
    tasks: your own tasks, likewise.

  Returns:
    The trained model. Where all replicas are loaded and one failed, a warning
    tells which.

  Raises:
    ValueError: there is no run, checkpoint or replica of that name, it cannot
      be read, or the replica failed; one line tells what there is.
    OSError: a file cannot be read at the moment.
  """
  kinds = kinds_module.with_own(models or {}, tasks or {})
  folder = places.locate(workdir, 'workdir')
  run = recorded.read(folder, kinds)
  settings = run.settings
  count = settings.replicas
  if replica is not None and replica not in range(count):
    raise ValueError(
      f'There is no replica {replica} in {folder}; there are '
      f'{", ".join(map(str, range(count)))}.'
    )
  model = resolve.make_model(settings, run.task, run.frame_shape, kinds)
  source = 'average' if averaged and settings.average else None
  step, state = _read(folder, run, model, source, step)
  failed_at = state.pop('failed_at')
  _tell_failed(folder, failed_at, replica)
  variables = state[source] if source else state
  if replica is not None:
    variables = jax.tree.map(lambda leaf: leaf[replica], variables)
  return Trained(
    workdir=folder,
    step=step,
    replica=replica,
    failed_at=failed_at,
    model=model,
    variables=jax.device_put(variables),
    is_average=source is not None,
    task=run.task,
    settings=settings,
    recorded=run,
    kinds=kinds,
  )


def last_iterate(run: Trained) -> Variables | None:
  """Returns the variables of a run without their average, as they are shaped.

  Args:
    run: from `load`.

  Returns:
    `params` and `batch_stats`; None where the run's variables are no average.
  """
  if not run.is_average:
    return None
  _, state = _read(run.workdir, run.recorded, run.model, None, run.step)
  del state['failed_at']
  if run.replica is None:
    return state
  return jax.tree.map(lambda leaf: leaf[run.replica], state)


def _read(
  folder: pathlib.Path,
  run: recorded.Recorded,
  model: Any,
  source: str | None,
  step: int | None,
) -> tuple[int, dict[str, Any]]:
  """Reads a checkpoint, with second tries in place of replicas that failed.

  Args:
    folder: of the run.
    run: of the folder.
    model: the temporal VAE.
    source: the field that holds the variables; None for the state itself.
    step: of the checkpoint; None for the latest.

  Returns:
    The step, and the fields of `_template`.
  """
  step, state = checkpoints.read_part(
    folder / 'checkpoints',
    _template(run, model, source, run.settings.replicas),
    step,
  )
  for replica in np.flatnonzero(state['failed_at'] >= 0).tolist():
    second = workdirs.second_try(folder, replica) / 'checkpoints'
    if (second / str(step)).exists():
      template = _template(run, model, source, 1)
      _, retried = checkpoints.read_part(second, template, step)
      state = jax.tree.map(
        lambda leaf, new, replica=replica: np.concatenate(
          [leaf[:replica], new, leaf[replica + 1 :]]
        ),
        state,
        retried,
      )
  return step, state


def _template(
  run: recorded.Recorded, model: Any, source: str | None, count: int
) -> dict[str, Any]:
  """Returns the shapes of the fields to read from a checkpoint.

  Args:
    run: of the folder.
    model: the temporal VAE.
    source: the field that holds the variables; None for the state itself.
    count: number of replicas in the checkpoint.
  """
  shapes = {
    'batch_stats': {},
    **build.variable_shapes(model, run.frame_shape, run.task.condition_size),
  }
  variables = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), shapes
  )
  fields = {source: variables} if source else variables
  return {**fields, 'failed_at': jax.ShapeDtypeStruct((count,), np.int32)}


def _tell_failed(
  folder: pathlib.Path, failed_at: np.ndarray, replica: int | None
) -> None:
  """Raises `ValueError` for a replica that failed; warns where all are asked.

  Args:
    folder: of the run.
    failed_at: int [R], -1 where a replica is finite.
    replica: its number; None for all.
  """
  failed = {int(r): int(failed_at[r]) for r in np.flatnonzero(failed_at >= 0)}
  if replica in failed:
    finite = ', '.join(map(str, np.flatnonzero(failed_at < 0))) or 'none'
    raise ValueError(
      f'Replica {replica} in {folder} stopped being finite at step '
      f'{failed[replica]}; finite are: {finite}.'
    )
  if replica is None and failed:
    which = ', '.join(f'{r} (at step {step})' for r, step in failed.items())
    warnings.warn(
      f'Replicas of {folder} stopped being finite: {which}. Their variables '
      f'are those before that step.',
      stacklevel=3,
    )
