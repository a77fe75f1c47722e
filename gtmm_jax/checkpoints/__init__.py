"""Saving and restoring the checkpoints of a run, with orbax.

A checkpoint is a tree of NumPy arrays on the host. It does not depend on
devices and can be restored onto any number of them. A checksum of every leaf,
which orbax does not keep, and the program's notes are written with the tree: a
checkpoint has all of them or does not count.
"""

from gtmm_jax.checkpoints.directory import (
  CannotSave,
  Directory,
  Restored,
  close,
  open_directory,
  restore_latest,
  save,
  wait,
)
from gtmm_jax.checkpoints.leaves import CheckpointMismatch
from gtmm_jax.checkpoints.reading import read_part, read_whole

__all__ = [
  'CannotSave',
  'CheckpointMismatch',
  'Directory',
  'Restored',
  'close',
  'open_directory',
  'read_part',
  'read_whole',
  'restore_latest',
  'save',
  'wait',
]
