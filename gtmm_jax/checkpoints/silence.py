"""Silences the storage library, whose errors are reported in plain words."""

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def storage() -> Iterator[None]:
  """Silences orbax's logs of errors in its threads, which it also raises.

  If one of several writes fails, the others find their event loop closed. That
  is an exception that nobody can catch, and Python prints it without a logger.
  """
  logger, before = logging.getLogger('absl'), sys.unraisablehook

  def hook(unraisable):
    if str(unraisable.exc_value) != 'Event loop is closed':
      before(unraisable)

  logger.addFilter(_is_not_of_storage)
  sys.unraisablehook = hook
  try:
    yield
  except BaseException:
    # Threads of a failed write end later, after the program's last line.
    raise
  else:
    sys.unraisablehook = before
  finally:
    logger.removeFilter(_is_not_of_storage)


def _is_not_of_storage(record: logging.LogRecord) -> bool:
  return '/orbax/' not in record.pathname.replace('\\', '/')
