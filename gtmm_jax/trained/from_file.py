"""Frames of your own, which a trained run observes, from an .npz file."""

import pathlib

import numpy as np

from gtmm_jax.tasks.episode import Episode
from gtmm_jax.tasks.sources import npz
from gtmm_jax.trained import inputs
from gtmm_jax.trained.trained import Trained


def read(run: Trained, file: pathlib.Path) -> Episode:
  """Reads episodes of any length from a file, without pickle.

  Args:
    run: the trained run.
    file: an .npz file that holds `frames`, [T, H, W, C] of one episode or
      [E, T, H, W, C] of several, uint8 or floats in [0, 1]; and, if the run has
      a condition, `condition`, [T, A] or [E, T, A].

  Returns:
    Arrays [T, E, ...]; no frame counts as predictable.

  Raises:
    ValueError: the file cannot be read, or an array has another shape, type or
      range.
  """
  arrays = {}
  with npz.opened(file) as archive:
    for member in npz.members(file, archive):
      if member.name in ('frames', 'condition'):
        arrays[member.name] = npz.read(file, archive, member)
  if 'frames' not in arrays:
    raise ValueError(
      f'{file} has no array frames; save it with np.savez({file.name!r}, '
      f'frames=...), of [T, H, W, C].'
    )
  try:
    frames = inputs.frames(arrays['frames'], run.recorded.frame_shape)
    condition = inputs.condition(
      arrays.get('condition'), run.task.condition_size, frames.shape[:-3]
    )
  except ValueError as error:
    raise ValueError(f'{file}: {error}') from error
  frames, condition = np.asarray(frames), np.asarray(condition)
  if frames.ndim == 4:
    frames, condition = frames[None], condition[None]
  frames, condition = frames.swapaxes(0, 1), condition.swapaxes(0, 1)
  none = np.full(frames.shape[:2], -1, np.int32)
  return Episode(frames, condition, none, none >= 0, none)
