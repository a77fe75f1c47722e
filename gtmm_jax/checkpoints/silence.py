"""Keeps the storage library from printing what is told in plain words."""

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def storage() -> Iterator[None]:
  """Silences what orbax logs of its threads, whose errors it also raises.

  Where one of several writes fails, the others find their event loop closed;
  that is printed by no logger, but as an exception which nobody can catch.
  """
  logger, before = logging.getLogger('absl'), sys.unraisablehook

  def hook(unraisable):
    if str(unraisable.exc_value) != 'Event loop is closed':
      before(unraisable)

  logger.addFilter(_is_not_of_storage)
  sys.unraisablehook = hook
  try:
    yield
  finally:
    logger.removeFilter(_is_not_of_storage)
    sys.unraisablehook = before


def _is_not_of_storage(record: logging.LogRecord) -> bool:
  return '/orbax/' not in record.pathname.replace('\\', '/')
