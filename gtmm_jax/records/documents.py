"""Any value as JSON, and files that are replaced wholly or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def as_json(value: Any, name_it: bool = False) -> Any:
  """The same value in dicts, lists, strings, numbers, truth values and None.

  What is not finite becomes None, or, with `name_it`, its name.

  Raises:
    TypeError: the value, or one inside it, is none of these and no real array.
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
    # The short floats of accelerators are of no kind that numpy knows.
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
  """Writes JSON, as `as_json` returns it, in the place of the file."""
  text = json.dumps(value, indent=1, allow_nan=False) + '\n'
  replace(path, text.encode())


def read_document(path: Path) -> dict[str, Any] | None:
  """Returns the JSON object in the file, None where there is no file.

  Raises:
    ValueError: the file holds something else.
  """
  if not path.exists():
    return None
  value = parsed(path.read_bytes())
  if not isinstance(value, dict):
    raise ValueError(
      f'{path} is not a JSON object: mend it by hand, delete it, or use '
      'another --workdir.'
    )
  return value


def parsed(text: bytes) -> Any:
  """What the text says in JSON, None where it is not JSON."""
  try:
    return json.loads(text)
  # Nested deeper than Python reads, too.
  except (ValueError, RecursionError):
    return None


def replace(path: Path, data: bytes) -> None:
  """Puts `data` in the place of the file: wholly, or not at all.

  The folder is made where there is none.
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
  """Names the file in an error of the system; one of writing names none."""
  try:
    yield
  except OSError as error:
    if error.errno is None:
      raise
    raise OSError(error.errno, error.strerror, str(path)) from error
