"""Reading checkpoints; nothing is written, moved or deleted."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from gtmm_jax.checkpoints import disks, leaves, silence
from gtmm_jax.process import distributed

Tree = Any
Notes = Mapping[str, Any]

# Keys of a checkpoint's custom metadata.
LEAVES, NOTES, NOTES_CHECKSUM = 'leaves', 'notes', 'checksum_of_notes'


def read_part(
  directory: str | os.PathLike[str],
  template: Mapping[str, Tree],
  step: int | None = None,
) -> tuple[int, dict[str, Tree]]:
  """Reads some fields of a checkpoint, to use them and not to train on.

  Another program may write to the directory meanwhile.

  Args:
    directory: of the checkpoints.
    template: the fields, with the shapes and dtypes of their leaves (arrays or
      `jax.ShapeDtypeStruct`).
    step: of the checkpoint; None for the latest.

  Returns:
    The step, and the fields: NumPy arrays in the template's structure.

  Raises:
    CheckpointMismatch: there is no such checkpoint, or it is damaged, or it
      holds other arrays than the template (they are named).
    OSError: the system lacks memory, open files, permission or the connection
      to a server.
  """
  path = pathlib.Path(directory).absolute()
  for number, why in find_unlisted(path).items():
    raise leaves.CheckpointMismatch(
      f'The checkpoint of step {number} in {path} cannot be read: {why}. Move '
      f'its folder elsewhere to use the others.'
    )
  there = sorted(each.step for each in list_steps(path))
  if not there:
    raise leaves.CheckpointMismatch(
      f'There is no checkpoint in {path}; train to the first report, or name '
      f'another workdir.'
    )
  if step is not None and step not in there:
    raise leaves.CheckpointMismatch(
      f'There is no checkpoint of step {step} in {path}; there are those of '
      f'step {" and ".join(map(str, there))}.'
    )
  step = there[-1] if step is None else step
  try:
    return step, _read_part(path, template, step)
  except (leaves.CheckpointMismatch, MemoryError):
    raise
  # A damaged file can make its reader raise anything.
  except Exception as error:
    why = explain(path / str(step), error)
    others = ' and '.join(str(each) for each in there if each != step)
    raise leaves.CheckpointMismatch(
      f'The checkpoint of step {step} in {path} is damaged: {why}. '
      + (f'Name another step: {others}.' if others else 'There is no other.')
    ) from error


def read_whole(
  directory: str | os.PathLike[str], template: Tree, step: int
) -> Tree:
  """Reads the checkpoint that another process has restored a moment ago.

  Args:
    directory: of the checkpoints.
    template: a tree with the leaves' shapes and dtypes.
    step: of the checkpoint.

  Raises:
    CheckpointMismatch: it cannot be read, or holds other arrays.
    OSError: as of `read_part`.
  """
  path = pathlib.Path(directory).absolute()
  try:
    with _open(path) as manager:
      written, _ = read_metadata(manager, step)
      return read_tree(manager, step, template, written)
  except (leaves.CheckpointMismatch, MemoryError):
    raise
  # A damaged file can make its reader raise anything.
  except Exception as error:
    raise leaves.CheckpointMismatch(
      f'The first process has restored the checkpoint of step {step} in '
      f'{path}, and another one cannot: {explain(path / str(step), error)}. '
      f'All processes need a --workdir in a file system that they share.'
    ) from error


def _read_part(
  path: pathlib.Path, template: Mapping[str, Tree], step: int
) -> dict[str, Tree]:
  """Reads fields of a checkpoint that is there; a damaged one raises any."""
  with _open(path) as manager:
    saved = manager.item_metadata(step)
    fields = getattr(saved, 'tree', saved)
    part = {name: fields.get(name, {}) for name in template}
    leaves.require_same(leaves.describe(part), leaves.describe(template))
    whole = read_tree(manager, step, fields, read_metadata(manager, step)[0])
    return {
      name: jax.tree.unflatten(
        jax.tree.structure(field), jax.tree.leaves(whole.get(name, {}))
      )
      for name, field in template.items()
    }


@contextlib.contextmanager
def _open(path: pathlib.Path) -> Iterator[ocp.CheckpointManager]:
  """Opens a directory for reading."""
  with (
    silence.storage(),
    contextlib.closing(
      ocp.CheckpointManager(
        path,
        item_handlers=ocp.StandardCheckpointHandler(),
        options=ocp.CheckpointManagerOptions(
          read_only=True, create=False, multiprocessing_options=alone()
        ),
      )
    ) as manager,
  ):
    yield manager


def alone() -> ocp.options.MultiprocessingOptions:
  """Makes one of several processes read by itself, without the others."""
  if distributed.count() == 1:
    return ocp.options.MultiprocessingOptions()
  number = distributed.number()
  return ocp.options.MultiprocessingOptions(
    primary_host=number, active_processes={number}
  )


def list_steps(path: pathlib.Path) -> list[Any]:
  """Lists the steps that orbax finds in a directory, without reading them."""
  if not path.exists():
    return []
  return list(ocp.path.step.standard_name_format().find_all(path))


def find_unlisted(path: pathlib.Path) -> dict[int, str]:
  """Finds checkpoints that keep orbax from opening their directory."""
  damaged = {}
  for checkpoint in list_steps(path):
    try:
      # This is all that orbax reads when it lists a checkpoint.
      _ = checkpoint.commit_timestamp
    # A damaged file can make its reader raise anything.
    except Exception as error:
      damaged[checkpoint.step] = explain(checkpoint.path, error)
  return damaged


def read_metadata(
  manager: ocp.CheckpointManager, step: int
) -> tuple[Any, Notes]:
  """Reads how the leaves were written, None if unknown, and the notes."""
  try:
    metadata = manager.metadata(step).custom_metadata or {}
  # A damaged file can make its reader raise anything; `read_tree` reports it.
  except Exception:
    return None, {}
  text = str(metadata.get(NOTES, ''))
  is_whole = metadata.get(NOTES_CHECKSUM) == leaves.checksum(text.encode())
  return metadata.get(LEAVES), json.loads(text) if is_whole else {}


def read_tree(
  manager: ocp.CheckpointManager, step: int, template: Tree, written: Any
) -> Tree:
  """Reads a checkpoint's tree and compares it with `written`, if not None."""
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


def explain(path: str | os.PathLike[str], error: Exception) -> str:
  """Explains why a checkpoint is unreadable; raises `OSError` if it is not."""
  if isinstance(error, leaves.Damaged):
    return str(error)
  code = disks.code_of(error)
  if code in disks.PASSING:
    raise OSError(code, os.strerror(code), str(path)) from error
  if code is None:
    return 'a file of it is missing or damaged'
  return os.strerror(code)
