"""The leaves of a checkpoint: their names, shapes, dtypes and checksums."""

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax.process import exchange

Tree = Any
# Before a checksum of the checksums of rows. Others are of all bytes.
_OF_ROWS = 'rows:'


class CheckpointMismatch(ValueError):
  """A checkpoint holds another tree than the program expects."""


class Damaged(ValueError):
  """A checkpoint is not as it was written; names what differs."""


class Leaf(NamedTuple):
  """Shape of an array, and the name of its dtype."""

  shape: tuple[int, ...]
  dtype: str


def checksum(data: bytes) -> str:
  """Computes the SHA-256 of bytes, in hexadecimal digits."""
  return hashlib.sha256(data).hexdigest()


def describe(tree: Tree) -> dict[str, Leaf]:
  """Describes each leaf by name; `tree` may be orbax's metadata of a tree."""
  return {
    name: Leaf(tuple(leaf.shape), str(np.dtype(leaf.dtype)))
    for name, leaf in _named(tree).items()
  }


def as_json(tree: Tree) -> dict[str, list[Any]]:
  """Describes each leaf by name, with its checksum, for JSON.

  A checksum is the SHA-256 of the SHA-256 of its rows, since of a leaf of
  several processes each process has some of the rows. All call this together.
  """
  checksums = _checksums(tree)
  return {
    name: [list(leaf.shape), leaf.dtype, checksums[name]]
    for name, leaf in describe(tree).items()
  }


def require_as_written(saved: dict[str, Leaf], written: Any) -> None:
  """Checks that a checkpoint holds the leaves that were written.

  Args:
    saved: the leaves according to orbax.
    written: the result of `as_json` when it was written.

  Raises:
    Damaged: a leaf differs; names the first one.
  """
  try:
    expected = {
      name: Leaf(tuple(shape), dtype)
      for name, (shape, dtype, _) in written.items()
    }
  except (AttributeError, TypeError, ValueError):
    raise Damaged('its checksums cannot be read') from None
  for name in sorted(saved.keys() | expected.keys()):
    if saved.get(name) != expected.get(name):
      raise Damaged(f'leaf {name} is not as it was written')


def require_checksums(tree: Tree, written: dict[str, list[Any]]) -> None:
  """Compares checksums; raises `Damaged` that names the first that differs."""
  of_rows = _checksums(tree)
  for name, leaf in _named(tree).items():
    checksum_read = of_rows[name]
    # Earlier versions had the SHA-256 of all bytes.
    if not written[name][2].startswith(_OF_ROWS):
      checksum_read = checksum(np.asarray(leaf).tobytes())
    if written[name][2] != checksum_read:
      raise Damaged(f'leaf {name} is not as it was written')


def require_same(saved: dict[str, Leaf], expected: dict[str, Leaf]) -> None:
  """Compares leaves; raises `CheckpointMismatch` that names up to three."""

  def in_words(leaf):
    return 'absent' if leaf is None else f'{leaf.dtype} {leaf.shape}'

  differ = [
    f'{name} (checkpoint: {in_words(saved.get(name))}, expected: '
    f'{in_words(expected.get(name))})'
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


def _checksums(tree: Tree) -> dict[str, str]:
  """Returns the checksum of each leaf, on the host or of several processes."""
  leaves = _named(tree)
  digests = [_digests(leaf) for leaf in leaves.values()]
  if not all(map(_is_whole, leaves.values())):
    digests = exchange.join(digests)
  return {
    name: _OF_ROWS + checksum(rows.tobytes())
    for name, rows in zip(leaves, digests, strict=True)
  }


def _digests(leaf: Any) -> np.ndarray:
  """Returns the SHA-256 of each row that this process has, [rows, 32]."""
  parts = [leaf]
  if not _is_whole(leaf):
    shards = leaf.addressable_shards
    shards = sorted(shards, key=lambda shard: shard.index[0].start or 0)
    parts = [shard.data for shard in shards]
  rows = (row for part in parts for row in np.atleast_1d(np.asarray(part)))
  digests = b''.join(hashlib.sha256(row.tobytes()).digest() for row in rows)
  return np.frombuffer(digests, np.uint8).reshape(-1, 32)


def _is_whole(leaf: Any) -> bool:
  """Returns whether this process has all rows of an array."""
  return getattr(leaf, 'is_fully_addressable', True)


def _named(tree: Tree) -> dict[str, Any]:
  # orbax's metadata hold the tree of leaves in `tree`.
  leaves, _ = jax.tree.flatten_with_path(getattr(tree, 'tree', tree))
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): leaf
    for path, leaf in leaves
  }
