"""A fixed appearance of figures, independent of the user's settings."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pathlib
import sys
import threading
from collections.abc import Iterator


def _import_matplotlib() -> None:
  """Imports matplotlib, without the user's settings if they make it fail.

  The import fails for a matplotlibrc that cannot be read and for a backend that
  is not installed, such as the one that a notebook sets in MPLBACKEND for every
  program that it starts.
  """
  try:
    importlib.import_module('matplotlib')
    return
  except ImportError:
    raise
  except Exception:
    # Some of its modules are loaded and keep the failed state.
    for name in list(sys.modules):
      if name.partition('.')[0] == 'matplotlib':
        del sys.modules[name]
  changed = {'MPLBACKEND': 'agg', 'MATPLOTLIBRC': os.devnull}
  before = {name: os.environ.get(name) for name in changed}
  os.environ.update(changed)
  try:
    with contextlib.ExitStack() as stack:
      # A matplotlibrc in this folder takes precedence over MATPLOTLIBRC.
      if pathlib.Path('matplotlibrc').exists():
        stack.enter_context(contextlib.chdir(pathlib.Path(__file__).parent))
      importlib.import_module('matplotlib')
  finally:
    for name, value in before.items():
      os.environ.pop(name)
      if value is not None:
        os.environ[name] = value


_import_matplotlib()

import matplotlib  # noqa: E402

# Matplotlib's defaults, without settings that do not change a picture but have
# side effects; and embedded fonts that can be edited and searched, which
# publishers ask for.
_SETTINGS = {
  name: value
  for name, value in dict(matplotlib.rcParamsDefault).items()
  if not name.startswith(('backend', 'interactive', 'date.'))
} | {'pdf.fonttype': 42}
# fontTools logs every step of embedding a font at INFO, a level that absl's
# programs print.
logging.getLogger('fontTools').setLevel(logging.WARNING)
# Threads share matplotlib's settings.
_LOCK = threading.RLock()


@contextlib.contextmanager
def fixed() -> Iterator[None]:
  """Sets matplotlib's settings to its defaults, inside `with` or `@fixed()`.

  Restores the user's settings at the end. Only one thread at a time is inside.
  The backend is not changed: figures here need neither a backend nor pyplot.
  """
  with _LOCK, matplotlib.rc_context(_SETTINGS):
    yield
