"""JSON of any value, and files that are replaced completely or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def as_json(value: Any, name_it: bool = False) -> Any:
  """Converts a value to dicts, lists, strings, numbers, truth values and None.

  A number that is not finite becomes None or, with `name_it`, its name ('inf',
  '-inf', 'nan'). Arrays, also jax's, become lists; paths become strings.

  Raises:
    TypeError: the value, or one inside it, cannot be converted.
  """
  if value is None or isinstance(value, (str, bool, int)):
    return value
  if isinstance(value, float):
    if math.isfinite(value):
      return float(value)
    return str(float(value)) if name_it else None
  if isinstance(value, Mapping):
    return {str(key): as_json(item, name_it) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [as_json(item, name_it) for item in value]
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if hasattr(value, '__array__'):
    array = np.asarray(value)
    # NumPy has no kind for bfloat16 and other short floats of accelerators.
    if array.dtype.kind == 'V' and array.dtype.names is None:
      array = array.astype(np.float32)
    if array.dtype.kind in 'biufUO':
      return as_json(array.tolist(), name_it)
  raise TypeError(
    f'A record cannot hold {value!r} of type {type(value).__name__}: give '
    'strings, numbers, truth values, None, real arrays, or lists and dicts '
    'of them.'
  )


def replace_document(path: Path, value: Any) -> None:
  """Replaces the file by JSON of a value that `as_json` returned."""
  text = json.dumps(value, indent=1, allow_nan=False) + '\n'
  replace(path, text.encode())


def replace_arrays(
  path: Path, arrays: Mapping[str, Any], compress: bool = True
) -> None:
  """Replaces the file by an .npz of arrays, numbers and words."""
  save = np.savez_compressed if compress else np.savez
  with io.BytesIO() as buffer:
    save(buffer, **arrays)
    replace(path, buffer.getvalue())


def read_document(path: Path) -> dict[str, Any] | None:
  """Reads the JSON object in the file; None if there is no file.

  Raises:
    ValueError: the file does not hold a JSON object.
  """
  if not path.exists():
    return None
  value = parse(path.read_bytes())
  if not isinstance(value, dict):
    raise ValueError(
      f'{path} is not a JSON object: repair it, delete it, or use '
      'another --workdir.'
    )
  return value


def parse(text: bytes) -> Any:
  """Parses JSON; None if the text is not JSON."""
  try:
    return json.loads(text)
  # RecursionError: nested more deeply than Python can read.
  except (ValueError, RecursionError):
    return None


def replace(path: Path, data: bytes) -> None:
  """Replaces the contents of the file by `data`, completely or not at all.

  Makes the folder if there is none.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{secrets.token_hex(8)}')
  try:
    with naming(path), open(temporary, 'wb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
  """Adds the file's path to an OSError; errors of writing do not name it."""
  try:
    yield
  except OSError as error:
    if error.errno is None:
      raise
    raise OSError(error.errno, error.strerror, str(path)) from error
