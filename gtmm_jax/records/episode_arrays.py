"""Writing and reading of `evaluation.npz`: values of every evaluated frame."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gtmm_jax.records import documents

_EPISODES = 'evaluation.npz'
# Errors of zipfile and NumPy for a damaged file.
_DAMAGE = (
  zipfile.BadZipFile,
  zlib.error,
  EOFError,
  KeyError,
  NotImplementedError,
  OSError,
  RuntimeError,
  ValueError,
)


class EpisodeArrays(NamedTuple):
  """Values of R replicas on N episodes of T frames, each [R, N, T].

  Episode n of replica r is a function of seed, replica, batch size, task and
  data alone: runs of several models have the same episodes, in the same order.

  Attributes:
    kl: KL of posterior and prior in nats, float32; NaN for a replica that
      failed.
    log_likelihood: of the frame in nats, float32; NaN as in `kl`.
    predictable: whether a perfect memory could predict the frame, bool.
    source: the earlier step (from 0) that the frame repeats, -1 if it is new;
      the smallest signed integers that hold T.
    retrieved_ahead: whether the frame that was generated one step ahead shows
      the right image, int8: 1 if it does, 0 if not, -1 where no image is asked
      for.
    retrieved_free: the same, free-running; -1 in the prefix, too.
    mask: whether the frame belongs to the episode, bool: false for the padding
      after one that is shorter than T, whose other values mean nothing.
    part: which task of a mixture the episode is of, int8, from 0, in the order
      of `by_task` in `evaluation.json`; 0 where the task is no mixture.
  """

  kl: np.ndarray
  log_likelihood: np.ndarray
  predictable: np.ndarray
  source: np.ndarray
  retrieved_ahead: np.ndarray
  retrieved_free: np.ndarray
  mask: np.ndarray
  part: np.ndarray


def write_episodes(
  workdir: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]
) -> None:
  """Writes `evaluation.npz`, compressed, replacing an older one in one step.

  Args:
    workdir: the run's folder; it is made if there is none.
    arrays: by name, the fields of `EpisodeArrays`.

  Raises:
    TypeError: an array is missing, or has a name of no field.
  """
  documents.replace_arrays(
    Path(workdir) / _EPISODES, EpisodeArrays(**arrays)._asdict()
  )


def read_episodes(workdir: str | os.PathLike[str]) -> EpisodeArrays:
  """Reads `evaluation.npz`.

  Raises:
    ValueError: the file is missing, damaged, or has other arrays.
  """
  path = Path(workdir) / _EPISODES
  if not path.exists():
    raise ValueError(f'{path} is missing; {_remedy(path)}')
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = EpisodeArrays(*(file[name] for name in EpisodeArrays._fields))
  except _DAMAGE as error:
    raise ValueError(f'{path} is damaged; {_remedy(path)}') from error
  shapes = {array.shape for array in arrays}
  if len(shapes) > 1 or arrays.kl.ndim != 3:
    raise ValueError(
      f'{path} has arrays of shapes {sorted(shapes)}, not all [R, N, T]; '
      f'{_remedy(path)}'
    )
  return arrays


def _remedy(path: Path) -> str:
  return (
    f"delete {path.with_suffix('.json').name} beside it and give the run's "
    'command again, which evaluates the run again.'
  )
