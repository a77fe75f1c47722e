"""A directory of checkpoints: saving, and restoring the latest complete one."""

import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orbax.checkpoint as ocp

from gtmm_jax.checkpoints import disks, leaves, reading
from gtmm_jax.process import distributed

Tree = Any
Notes = Mapping[str, Any]


class CannotSave(OSError):
  """A checkpoint could not be written; the earlier ones are complete."""


class Directory(NamedTuple):
  """An open directory of checkpoints.

  Attributes:
    manager: orbax's.
    damaged: checkpoints that orbax cannot list, from step to reason. Their
      folders are kept, renamed to `unreadable-STEP`.
  """

  manager: ocp.CheckpointManager
  damaged: dict[int, str]

  @property
  def path(self) -> pathlib.Path:
    """Returns the folder of the checkpoints."""
    return pathlib.Path(self.manager.directory)

  def steps(self) -> list[int]:
    """Lists the steps of the checkpoints, the latest first."""
    return sorted(self.manager.all_steps(), reverse=True)


class Restored(NamedTuple):
  """A checkpoint that was restored, and newer ones that were not.

  Attributes:
    step: of the checkpoint.
    tree: NumPy arrays, in the template's structure.
    notes: those that were saved with it; empty if there are none or they are
      damaged.
    damaged: newer checkpoints that cannot be read or do not match what was
      written, from step to reason. Their folders are kept, renamed to
      `unreadable-STEP`.
    unwanted: steps of newer checkpoints that were not wanted; kept as
      `unwanted-STEP`.
  """

  step: int
  tree: Tree
  notes: Notes
  damaged: dict[int, str]
  unwanted: list[int]


def open_directory(
  directory: str | os.PathLike[str], keep: int = 2, alone: bool = True
) -> Directory:
  """Opens a directory of checkpoints, and makes it if it does not exist.

  Args:
    directory: its path.
    keep: number of checkpoints to keep, the latest ones.
    alone: whether one process opens it, to restore. If not, all processes open
      it together, to save; one has opened it alone before.

  Returns:
    The directory; call `close` when done.

  Raises:
    CheckpointMismatch: there are checkpoints and orbax can list none of them.
    OSError: the directory cannot be made.
  """
  path = pathlib.Path(directory).absolute()
  damaged = reading.find_unlisted(path) if alone else {}
  if damaged and len(damaged) == len(reading.list_steps(path)):
    raise _none_can_be_read(path, damaged)
  for step in damaged:
    _set_aside(path, step, 'unreadable')
  # orbax does not make it for some of several processes.
  path.mkdir(parents=True, exist_ok=True)
  together = ocp.options.MultiprocessingOptions(
    # Named, so that they wait for each other without their devices.
    active_processes={*range(distributed.count())}
  )
  manager = ocp.CheckpointManager(
    path,
    # Named here, so that a checkpoint's shapes can be read before its arrays.
    item_handlers=ocp.StandardCheckpointHandler(),
    # Cleans up after a program that ended while it wrote a checkpoint.
    options=ocp.CheckpointManagerOptions(
      max_to_keep=keep,
      create=False,
      cleanup_tmp_directories=True,
      multiprocessing_options=reading.alone() if alone else together,
    ),
  )
  return Directory(manager, damaged)


def save(
  directory: Directory,
  step: int,
  tree: Tree,
  notes: Notes | None = None,
) -> None:
  """Saves `tree` in the background; its arrays must not change any more.

  A checkpoint counts once it is complete: one that was being written when the
  program ended is never restored.

  Args:
    directory: from `open_directory`.
    step: of the checkpoint; there must be none of this step yet.
    tree: arrays on the host, or global ones of which each process has rows;
      all processes save them together.
    notes: any JSON, which can be read before the tree.

  Raises:
    CannotSave: this checkpoint or the one before cannot be written.
  """
  text = json.dumps(notes or {})
  metadata = {
    reading.LEAVES: leaves.as_json(tree),
    reading.NOTES: text,
    reading.NOTES_CHECKSUM: leaves.checksum(text.encode()),
  }
  with _writing(directory):
    directory.manager.save(
      step, args=ocp.args.StandardSave(tree), custom_metadata=metadata
    )


def wait(directory: Directory) -> None:
  """Waits until the last checkpoint is complete.

  Raises:
    CannotSave: it cannot be written.
  """
  with _writing(directory):
    directory.manager.wait_until_finished()


def close(directory: Directory) -> None:
  """Waits until the last checkpoint is written and closes the directory.

  Raises:
    CannotSave: the last checkpoint cannot be written.
  """
  with _writing(directory):
    directory.manager.close()


@contextlib.contextmanager
def _writing(directory: Directory) -> Iterator[None]:
  # For a full disk or a quota writers raise a ValueError or an OSError.
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
  """Restores the latest wanted checkpoint that is undamaged.

  Newer checkpoints are set aside, so that their steps can be saved again.

  Args:
    directory: from `open_directory`.
    template: a tree with the leaves' shapes and dtypes (arrays or
      `jax.ShapeDtypeStruct`).
    is_wanted: called with step and notes before a checkpoint is read.

  Returns:
    The checkpoint, or None if no checkpoint is wanted.

  Raises:
    CheckpointMismatch: the latest readable one holds another tree (the leaves
      are named); or all are wanted and none can be read.
    OSError, MemoryError: the system lacks memory, open files, permission or the
      connection to a server. This says nothing about the checkpoint, so none is
      set aside.
  """
  damaged, unwanted = dict(directory.damaged), []
  manager = directory.manager
  for step in directory.steps():
    written, notes = reading.read_metadata(manager, step)
    if not is_wanted(step, notes):
      unwanted.append(step)
      continue
    try:
      tree = reading.read_tree(manager, step, template, written)
    except (leaves.CheckpointMismatch, MemoryError):
      raise
    # A damaged file can make its reader raise anything; try the one before.
    except Exception as error:
      damaged[step] = reading.explain(directory.path / str(step), error)
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
  reasons = '; '.join(f'of step {step}: {why}' for step, why in damaged.items())
  return leaves.CheckpointMismatch(
    f'None of the checkpoints in {path} can be read ({reasons}). Remove that '
    f'folder to start again, or use another --workdir.'
  )


def _set_aside(directory: pathlib.Path, step: int, kind: str) -> None:
  """Renames a checkpoint's folder to a name that is not taken."""
  for attempt in itertools.count():
    name = f'{kind}-{step}' + (f'-{attempt}' if attempt else '')
    if not (directory / name).exists():
      os.rename(directory / str(step), directory / name)
      return
