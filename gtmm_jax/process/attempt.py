"""What becomes of a picture that cannot be drawn: a line, and no more."""

import os
import pathlib
import sys
from collections.abc import Callable


def attempt(
  draw: Callable[[], list[pathlib.Path]],
  stem: str | os.PathLike[str],
  again: str = 'The same command draws it again, and does nothing else again.',
) -> list[pathlib.Path]:
  """Draws a picture; what prevents that is told in a line on standard error.

  Whatever it is: results do not depend on pictures, and come before them.

  Args:
    draw: draws and writes one picture, and returns the paths of its files.
    stem: its files without their endings, to tell.
    again: a sentence on how it is drawn later.

  Returns:
    What `draw` returns, nothing where it fails.
  """
  try:
    return draw()
  except Exception as error:
    print(
      f'The picture {os.fspath(stem)} could not be drawn: {_reason(error)}. '
      f'{again}',
      file=sys.stderr,
    )
    return []


def _reason(error: Exception) -> str:
  """Tells what went wrong, in one line."""
  if isinstance(error, OSError) and error.strerror:
    where = f' ({error.filename})' if error.filename else ''
    return f'{error.strerror}{where}'
  lines = str(error).split('\n')
  return f'{type(error).__name__}: {" ".join(lines[0].split())}'.rstrip('.: ')
