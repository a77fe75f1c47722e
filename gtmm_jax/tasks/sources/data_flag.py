"""The value of the flag `--data`: bundled, tfds, files:FOLDER or files:FILE."""

import os
import pathlib

from gtmm_jax.tasks.sources.dataset import DataError


def read(
  data: str, allowed: str, words: tuple[str, ...] = ('bundled', 'tfds')
) -> str | pathlib.Path:
  """Reads the value of `--data`: one of `words`, or files:PATH.

  Args:
    data: the value.
    allowed: ends the error message: what the value may be.
    words: values that a task takes besides files:PATH.

  Returns:
    The word, or the path, its `~` expanded; nothing looks whether it exists.

  Raises:
    DataError: the value is none of these.
  """
  if data in words:
    return data
  kind, _, path = data.partition(':')
  if kind == 'files' and path:
    return pathlib.Path(os.path.expanduser(path))
  raise DataError(f'--data is {data!r}; {allowed}')
