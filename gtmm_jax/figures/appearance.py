"""How figures look: one way, whatever the user's settings of matplotlib are."""

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
  """Imports matplotlib, without the user's settings where they prevent that.

  Importing it fails for a backend that is not installed, such as that which a
  notebook names in MPLBACKEND for every program that it starts, and for a
  matplotlibrc that cannot be read.
  """
  try:
    importlib.import_module('matplotlib')
    return
  except ImportError:
    raise
  except Exception:
    # Some of its modules are loaded, and hold on to what failed.
    for name in list(sys.modules):
      if name.partition('.')[0] == 'matplotlib':
        del sys.modules[name]
  changed = {'MPLBACKEND': 'agg', 'MATPLOTLIBRC': os.devnull}
  kept = {name: os.environ.get(name) for name in changed}
  os.environ.update(changed)
  try:
    with contextlib.ExitStack() as stack:
      # It would come before the one that is named.
      if pathlib.Path('matplotlibrc').exists():
        stack.enter_context(contextlib.chdir(pathlib.Path(__file__).parent))
      importlib.import_module('matplotlib')
  finally:
    for name, value in kept.items():
      os.environ.pop(name)
      if value is not None:
        os.environ[name] = value


_import_matplotlib()

import matplotlib  # noqa: E402

# Matplotlib's defaults, but those that are of no picture's looks and whose
# setting does more than that; and embedded fonts that can be edited and
# searched, which publishers ask for.
_SETTINGS = {
  name: value
  for name, value in dict(matplotlib.rcParamsDefault).items()
  if not name.startswith(('backend', 'interactive', 'date.'))
} | {'pdf.fonttype': 42}
# What embeds the fonts logs each of its steps, which programs whose loggers
# begin at INFO, as absl's do, would print.
logging.getLogger('fontTools').setLevel(logging.WARNING)
# Settings of matplotlib are those of all threads.
_LOCK = threading.RLock()


@contextlib.contextmanager
def fixed() -> Iterator[None]:
  """Draws and writes figures in one way; for `with`, or as `@fixed()`.

  Inside, matplotlib's settings are its defaults; afterwards they are the user's
  again. Threads wait for one another. The backend is left alone: figures here
  need neither it nor pyplot.
  """
  with _LOCK, matplotlib.rc_context(_SETTINGS):
    yield
