"""Bytes, arrays and values that the processes of a program tell each other.

All processes call these functions in the same order and wait for each other
there. A program of one process tells itself, which costs nothing.
"""

import collections
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gtmm_jax.process import distributed

# Bytes that are sent at once; the first ones are the length.
_HEAD, _LENGTH = 1024, 8


def connect() -> None:
  """Connects the devices of all processes, soon after these have joined.

  XLA waits only half a minute for processes when their devices first connect.

  Raises:
    ValueError: processes have different numbers of devices.
  """
  counts = collections.Counter(each.process_index for each in jax.devices())
  if len(set(counts.values())) > 1:
    raise ValueError(
      f'Processes have {", ".join(map(str, counts.values()))} devices; give '
      f'each of them as many as the others.'
    )
  wait()


def is_first() -> bool:
  """Returns whether this is the process that writes and prints."""
  return distributed.number() == 0


def gather(data: bytes) -> list[bytes]:
  """Returns the bytes of all processes, in the order of their numbers."""
  if distributed.count() == 1:
    return [data]
  first = _HEAD - _LENGTH
  length = len(data).to_bytes(_LENGTH, 'little')
  heads = _gather_array(length + data[:first], _HEAD)
  lengths = [int.from_bytes(head[:_LENGTH], 'little') for head in heads]
  parts = [head[_LENGTH:] for head in heads]
  longest = max(lengths) - first
  if longest > 0:
    # Powers of two, since each size is a program of its own.
    rest = _gather_array(data[first:], 1 << (longest - 1).bit_length())
    parts = [head + tail for head, tail in zip(parts, rest, strict=True)]
  return [part[:length] for part, length in zip(parts, lengths, strict=True)]


def join(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Joins arrays of all processes along their first axis.

  Args:
    arrays: of this process; others have the same but for the first axis, which
      is as long in all arrays of a process.
  """
  if distributed.count() == 1 or not arrays:
    return list(arrays)
  own = len(arrays[0])
  data = gather(b''.join(array.tobytes() for array in arrays))
  row_bytes = sum(array.nbytes for array in arrays) // own
  counts = [len(each) // row_bytes for each in data]
  at, joined = [0] * len(data), []
  for array in arrays:
    parts = []
    for process, count in enumerate(counts):
      end = at[process] + array.nbytes // own * count
      part = np.frombuffer(data[process][at[process] : end], array.dtype)
      parts.append(part.reshape(count, *array.shape[1:]))
      at[process] = end
    joined.append(np.concatenate(parts))
  return joined


def values(value: Any) -> list[Any]:
  """Returns the values of all processes, anything that JSON can hold."""
  return [json.loads(text) for text in gather(json.dumps(value).encode())]


def agree(value: Any) -> Any:
  """Returns the first process's value, anything that JSON can hold."""
  return value if distributed.count() == 1 else values(value)[0]


def wait() -> None:
  """Waits until all processes are here."""
  gather(b'')


def _gather_array(data: bytes, size: int) -> list[bytes]:
  """Gathers bytes that are filled up to a size, the same in all processes."""
  filled = np.frombuffer(data.ljust(size, b'\0'), np.uint8)
  try:
    rows = multihost_utils.process_allgather(filled)
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' in str(error):
      raise
    distributed.end_lost()
  return [row.tobytes() for row in np.asarray(rows)]
