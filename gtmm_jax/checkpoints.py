"""Checkpoints of a run, with orbax: save, restore, the latest good one.

A checkpoint is a tree of NumPy arrays on the host, so it knows nothing of
devices and can be restored onto any number of them.
"""

import contextlib
import errno
import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

Tree = Any

# What says nothing of a file: no memory, too many open, their server gone.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)


class CheckpointMismatch(ValueError):
  """A checkpoint holds another tree than the program expects."""


class CannotSave(OSError):
  """A checkpoint could not be written; those before it are whole."""


class Restored(NamedTuple):
  """What was found.

  Attributes:
    step: of the checkpoint.
    tree: NumPy arrays, in the template's structure.
    unreadable: newer checkpoints that could not be read, step to reason; their
      folders are kept, renamed to `unreadable-STEP`.
  """

  step: int
  tree: Tree
  unreadable: dict[int, str]


def open_directory(
  directory: str | os.PathLike[str], keep: int = 2
) -> ocp.CheckpointManager:
  """Opens a directory of checkpoints, and makes it if it is not there.

  Args:
    directory: where checkpoints lie.
    keep: how many of the latest are kept.

  Returns:
    The manager, for `close`.
  """
  return ocp.CheckpointManager(
    os.path.abspath(directory),
    # Named here, so that a checkpoint's shapes can be read before its arrays.
    item_handlers=ocp.StandardCheckpointHandler(),
    options=ocp.CheckpointManagerOptions(max_to_keep=keep),
  )


def save(manager: ocp.CheckpointManager, step: int, tree: Tree) -> None:
  """Writes `tree` in the background; its arrays must not change any more.

  A checkpoint counts once it is whole: one that was being written when the
  program ended is never restored.

  Raises:
    CannotSave: if this one or the one before cannot be written.
  """
  with _writing(manager):
    manager.save(step, args=ocp.args.StandardSave(tree))


def close(manager: ocp.CheckpointManager) -> None:
  """Waits for what is being written, and closes the directory.

  Raises:
    CannotSave: if the last checkpoint cannot be written.
  """
  with _writing(manager):
    manager.close()


@contextlib.contextmanager
def _writing(manager: ocp.CheckpointManager) -> Iterator[None]:
  # A full disk, a quota: writers make it a ValueError as well as an OSError.
  try:
    yield
  except (OSError, ValueError) as error:
    why = str(error).split('\n')[0]
    raise CannotSave(
      f'A checkpoint could not be written in {manager.directory} ({why})'
    ) from error


def restore_latest(
  manager: ocp.CheckpointManager, template: Tree
) -> Restored | None:
  """Restores the latest checkpoint that can be read.

  Args:
    manager: from `open_directory`.
    template: a tree with the leaves' shapes and dtypes (arrays or
      `jax.ShapeDtypeStruct`).

  Returns:
    What was found, or None where there is no checkpoint. Newer checkpoints that
    can't be read are set aside, so that their steps can be saved again.

  Raises:
    CheckpointMismatch: if the latest readable one holds another tree; names the
      leaves.
    OSError, MemoryError: for want of memory or open files, or of the server
      that has them, which says nothing of the checkpoint: none is set aside.
  """
  blank = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  unreadable = {}
  for step in sorted(manager.all_steps(), reverse=True):
    try:
      saved = _shapes(manager.item_metadata(step))
      if not saved:
        raise ValueError('it does not say what it holds')
      require_same_leaves(saved, _shapes(template))
      tree = manager.restore(step, args=ocp.args.StandardRestore(blank))
    except (CheckpointMismatch, MemoryError):
      raise
    # Whatever a damaged file makes a reader raise: the one before may be whole.
    except Exception as error:
      if getattr(error, 'errno', None) in _PASSING:
        raise
      unreadable[step] = str(error).split('\n')[0]
      continue
    for bad in unreadable:
      _set_aside(pathlib.Path(manager.directory), bad)
    manager.reload()
    return Restored(step, tree, unreadable)
  if unreadable:
    raise CheckpointMismatch(
      f'None of the checkpoints in {manager.directory} can be read (steps '
      f'{list(unreadable)}). Remove that folder to start again, or take '
      f'another --workdir.'
    )
  return None


def _set_aside(directory: pathlib.Path, step: int) -> None:
  """Renames a checkpoint's folder, under a name that is not taken."""
  for attempt in itertools.count():
    name = f'unreadable-{step}' + (f'-{attempt}' if attempt else '')
    if not (directory / name).exists():
      os.rename(directory / str(step), directory / name)
      return


def _shapes(tree: Tree) -> dict[str, tuple[tuple[int, ...], str]]:
  """Each leaf's name, shape and dtype."""
  tree = getattr(tree, 'tree', tree)
  leaves, _ = jax.tree.flatten_with_path(tree)
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): (
      tuple(leaf.shape),
      str(np.dtype(leaf.dtype)),
    )
    for path, leaf in leaves
  }


def require_same_leaves(saved: dict, expected: dict) -> None:
  """Raises `CheckpointMismatch` that names up to three leaves that differ."""
  differ = [
    f'{name} (checkpoint: {saved.get(name, "absent")}, expected: '
    f'{expected.get(name, "absent")})'
    for name in sorted(saved.keys() | expected.keys())
    if saved.get(name) != expected.get(name)
  ]
  if differ:
    more = f' and {len(differ) - 3} more' if len(differ) > 3 else ''
    raise CheckpointMismatch(
      f'The checkpoint holds other arrays than this model: '
      f'{"; ".join(differ[:3])}{more}. Use the settings it was made with, or '
      f'another --workdir.'
    )
