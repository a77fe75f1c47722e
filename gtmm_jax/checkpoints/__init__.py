"""Checkpoints of a run, with orbax: save, restore, the latest good one.

A checkpoint is a tree of NumPy arrays on the host, so it knows nothing of
devices and can be restored onto any number of them. Beside the tree lie a
checksum of every leaf, which orbax does not keep, and notes of the program's
own; they become whole in the same moment as the tree.
"""

from gtmm_jax.checkpoints.directory import (
  CannotSave,
  Directory,
  Restored,
  close,
  open_directory,
  restore_latest,
  save,
)
from gtmm_jax.checkpoints.leaves import CheckpointMismatch

__all__ = [
  'CannotSave',
  'CheckpointMismatch',
  'Directory',
  'Restored',
  'close',
  'open_directory',
  'restore_latest',
  'save',
]
