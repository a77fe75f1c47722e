"""A directory of checkpoints: save, restore the latest that is whole."""

import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from gtmm_jax.checkpoints import disks, leaves

Tree = Any
Notes = Mapping[str, Any]

# What lies beside a tree, in the file that makes its checkpoint whole.
_LEAVES, _NOTES, _OF_NOTES = 'leaves', 'notes', 'checksum_of_notes'


class CannotSave(OSError):
  """A checkpoint could not be written; those before it are whole."""


class Directory(NamedTuple):
  """A directory of checkpoints that is open.

  Attributes:
    manager: orbax's.
    damaged: checkpoints that orbax cannot list, step to reason; their folders
      are kept, renamed to `unreadable-STEP`.
  """

  manager: ocp.CheckpointManager
  damaged: dict[int, str]

  @property
  def path(self) -> pathlib.Path:
    """The folder of the checkpoints."""
    return pathlib.Path(self.manager.directory)

  def steps(self) -> list[int]:
    """Lists the steps of the checkpoints, the latest first."""
    return sorted(self.manager.all_steps(), reverse=True)


class Restored(NamedTuple):
  """A checkpoint that was restored, and those that were passed over.

  Attributes:
    step: of the checkpoint.
    tree: NumPy arrays, in the template's structure.
    notes: that were saved with it, if any were and they are whole.
    damaged: newer checkpoints that could not be read, or were not as they were
      written, step to reason; their folders are kept, renamed to
      `unreadable-STEP`.
    unwanted: newer ones that were not wanted; kept as `unwanted-STEP`.
  """

  step: int
  tree: Tree
  notes: Notes
  damaged: dict[int, str]
  unwanted: list[int]


def open_directory(
  directory: str | os.PathLike[str], keep: int = 2
) -> Directory:
  """Opens a directory of checkpoints, and makes it if it is not there.

  Args:
    directory: where checkpoints lie.
    keep: how many of the latest are kept.

  Returns:
    The directory, for `close`.

  Raises:
    CheckpointMismatch: if it has checkpoints and orbax cannot list any.
    OSError: if it cannot be made.
  """
  path = pathlib.Path(directory).absolute()
  damaged = _unlisted(path)
  if damaged and len(damaged) == len(_steps(path)):
    raise _none_can_be_read(path, damaged)
  for step in damaged:
    _set_aside(path, step, 'unreadable')
  manager = ocp.CheckpointManager(
    path,
    # Named here, so that a checkpoint's shapes can be read before its arrays.
    item_handlers=ocp.StandardCheckpointHandler(),
    # Of one that was being written when its program ended.
    options=ocp.CheckpointManagerOptions(
      max_to_keep=keep, cleanup_tmp_directories=True
    ),
  )
  return Directory(manager, damaged)


def _steps(path: pathlib.Path) -> list[Any]:
  """Lists the steps that orbax finds in a directory; none is read yet."""
  if not path.exists():
    return []
  return list(ocp.path.step.standard_name_format().find_all(path))


def _unlisted(path: pathlib.Path) -> dict[int, str]:
  """Finds checkpoints that keep orbax from opening their directory."""
  damaged = {}
  for found in _steps(path):
    try:
      # All that orbax reads to list a checkpoint.
      _ = found.commit_timestamp
    # Whatever a damaged file makes a reader raise.
    except Exception as error:
      damaged[found.step] = _why_unreadable(found.path, error)
  return damaged


def save(
  directory: Directory,
  step: int,
  tree: Tree,
  notes: Notes | None = None,
) -> None:
  """Writes `tree` in the background; its arrays must not change any more.

  A checkpoint counts once it is whole: one that was being written when the
  program ended is never restored.

  Args:
    directory: from `open_directory`.
    step: of the checkpoint, of which there is none yet.
    tree: arrays.
    notes: anything that JSON can hold, to be read with the tree or before it.

  Raises:
    CannotSave: if this one or the one before cannot be written.
  """
  text = json.dumps(notes or {})
  beside = {
    _LEAVES: leaves.as_json(tree),
    _NOTES: text,
    _OF_NOTES: leaves.checksum(text.encode()),
  }
  with _writing(directory):
    directory.manager.save(
      step, args=ocp.args.StandardSave(tree), custom_metadata=beside
    )


def close(directory: Directory) -> None:
  """Waits for what is being written, and closes the directory.

  Raises:
    CannotSave: if the last checkpoint cannot be written.
  """
  with _writing(directory):
    directory.manager.close()


@contextlib.contextmanager
def _writing(directory: Directory) -> Iterator[None]:
  # A full disk, a quota: writers make it a ValueError as well as an OSError.
  try:
    yield
  except (OSError, ValueError) as error:
    code = disks.code_of(error)
    why = str(error).split('\n')[0] if code is None else os.strerror(code)
    raise CannotSave(
      f'A checkpoint could not be written in {directory.path}: {why}'
    ) from error


def restore_latest(
  directory: Directory,
  template: Tree,
  is_wanted: Callable[[int, Notes], bool] = lambda step, notes: True,
) -> Restored | None:
  """Restores the latest checkpoint that can be read and is as it was written.

  Args:
    directory: from `open_directory`.
    template: a tree with the leaves' shapes and dtypes (arrays or
      `jax.ShapeDtypeStruct`).
    is_wanted: asked with step and notes before a checkpoint is read.

  Returns:
    What was found, or None where no checkpoint is wanted. Checkpoints that are
    newer than the one found are set aside, so that their steps can be saved
    again.

  Raises:
    CheckpointMismatch: if the latest readable one holds another tree; names the
      leaves. If all are wanted, and none of them can be read.
    OSError, MemoryError: for want of memory, open files or the right to read,
      or of the server that has them, which says nothing of the checkpoint: none
      is set aside.
  """
  damaged, unwanted = dict(directory.damaged), []
  manager = directory.manager
  for step in directory.steps():
    written, notes = _beside(manager, step)
    if not is_wanted(step, notes):
      unwanted.append(step)
      continue
    try:
      tree = _read(manager, step, template, written)
    except (leaves.CheckpointMismatch, MemoryError):
      raise
    # Whatever a damaged file makes a reader raise: the one before may be whole.
    except Exception as error:
      damaged[step] = _why_unreadable(directory.path / str(step), error)
      continue
    for newer in damaged.keys() - directory.damaged.keys():
      _set_aside(directory.path, newer, 'unreadable')
    for newer in unwanted:
      _set_aside(directory.path, newer, 'unwanted')
    manager.reload()
    return Restored(step, tree, notes, damaged, unwanted)
  if damaged and not unwanted:
    raise _none_can_be_read(directory.path, damaged)
  return None


def _none_can_be_read(
  path: pathlib.Path, damaged: Mapping[int, str]
) -> leaves.CheckpointMismatch:
  why = '; '.join(f'of step {step}: {why}' for step, why in damaged.items())
  return leaves.CheckpointMismatch(
    f'None of the checkpoints in {path} can be read ({why}). Remove that '
    f'folder to start again, or take another --workdir.'
  )


def _beside(manager: ocp.CheckpointManager, step: int) -> tuple[Any, Notes]:
  """The leaves as they were written, None where that is not known; notes."""
  try:
    beside = manager.metadata(step).custom_metadata or {}
  # Whatever a damaged file makes a reader raise; `_read` will say so.
  except Exception:
    return None, {}
  text = str(beside.get(_NOTES, ''))
  is_whole = beside.get(_OF_NOTES) == leaves.checksum(text.encode())
  return beside.get(_LEAVES), json.loads(text) if is_whole else {}


def _read(
  manager: ocp.CheckpointManager, step: int, template: Tree, written: Any
) -> Tree:
  """One checkpoint's tree, compared with what was written where it is known."""
  saved = leaves.describe(manager.item_metadata(step))
  if not saved:
    raise leaves.Damaged('it does not say what it holds')
  if written is not None:
    leaves.require_as_written(saved, written)
  leaves.require_same(saved, leaves.describe(template))
  blank = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  tree = manager.restore(step, args=ocp.args.StandardRestore(blank))
  if written is not None:
    leaves.require_checksums(tree, written)
  return tree


def _why_unreadable(path: str | os.PathLike[str], error: Exception) -> str:
  """Tells what is wrong with a checkpoint; raises `OSError` if nothing is."""
  if isinstance(error, leaves.Damaged):
    return str(error)
  code = disks.code_of(error)
  if code in disks.PASSING:
    raise OSError(code, os.strerror(code), str(path)) from error
  if code is None:
    return 'a file of it is missing or damaged'
  return os.strerror(code)


def _set_aside(directory: pathlib.Path, step: int, kind: str) -> None:
  """Renames a checkpoint's folder, under a name that is not taken."""
  for attempt in itertools.count():
    name = f'{kind}-{step}' + (f'-{attempt}' if attempt else '')
    if not (directory / name).exists():
      os.rename(directory / str(step), directory / name)
      return
