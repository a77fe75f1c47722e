"""Folders of tiny runs as training leaves them, without any training."""

import functools

import jax
import numpy as np

import run_settings
from gtmm_jax import checkpoints, records, train
from gtmm_jax.recipe import Average
from gtmm_jax.runs import prepare
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.tasks.sources.dataset import Dataset, Images, checksum_of

_SIZES = ('latent_size=3', 'dense_hidden=8', 'prior_hidden=5', 'read_heads=1')
WALK = {'task': 'navigation', 'rows': 2, 'columns': 2, 'length': 6}


def digits(*_):
  """Draws a few digits, in place of `digit_images.load_digits`."""
  rng = np.random.default_rng(0)
  parts = [
    Images(
      rng.integers(0, 256, (12, 28, 28, 1), dtype=np.uint8),
      np.arange(12, dtype=np.int32) % 10,
    )
    for _ in range(3)
  ]
  return Dataset(*parts, 'drawn digits', checksum_of(*parts))


def prepare_run(workdir, kinds=BUILT_IN, load=None, **changes):
  """Prepares a run of two replicas; `changes` are settings."""
  values = {
    'model': 'introspective',
    'preset': 'small',
    'replicas': 2,
    'batch_size': 2,
    'average': 0.999,
    'set': _SIZES,
    **changes,
  }
  request = run_settings.make(kinds, workdir=str(workdir), **values)
  return prepare.prepare(request, kinds, load or (lambda *_: (digits(), 'few')))


def write(run, failed_at):
  """Writes what a run leaves: settings, records, a checkpoint for each step.

  Args:
    run: prepared.
    failed_at: of the replicas, by the step of a checkpoint.

  Returns:
    The states that were saved, leaves [R, ...].
  """
  keys = jax.eval_shape(
    lambda: jax.random.split(jax.random.key(1), run.settings.replicas)
  )
  initialise = functools.partial(train.init_state, run.problem, run.recipe)
  shapes = jax.eval_shape(
    jax.vmap(initialise, (0, None)), keys, run.images.training
  )
  state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
  records.write_config(run.workdir, run.config)
  directory = checkpoints.open_directory(run.workdir / 'checkpoints')
  states = []
  for step, failed in failed_at.items():
    rng = np.random.default_rng(step)
    drawn = [
      jax.tree.map(
        lambda leaf, rng=rng: np.float32(rng.normal(0, 0.3, leaf.shape)),
        state.params,
      )
      for _ in range(2)
    ]
    saved = state._replace(
      step=np.full(len(failed), step, np.int32),
      params=drawn[0],
      average=Average(drawn[1], state.average.batch_stats),
      failed_at=np.array(failed, np.int32),
    )
    checkpoints.save(directory, step, saved)
    states.append(saved)
  checkpoints.close(directory)
  return states


def contents(folder):
  """Returns the files below a folder, and when each was written."""
  return {
    path: path.stat().st_mtime_ns
    for path in folder.rglob('*')
    if path.is_file()
  }
