"""Programs that this one starts, and that never run on without it.

Run as a program, it becomes another one that Linux ends with its parent:

  python children.py PARENT PROGRAM ARGUMENTS ...
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

# Seconds between two looks at what runs.
LOOK = 0.1
# Of Linux's <sys/prctl.h>: the signal that a process is sent when its parent
# ends.
_PR_SET_PDEATHSIG = 1


def start(
  program: pathlib.Path, words: Sequence[str], **given: Any
) -> subprocess.Popen:
  """Starts a program of Python that a terminal's Ctrl-C does not reach.

  Where this program is killed, Linux sends the other SIGTERM; to be called from
  the main thread, whose end counts.

  Args:
    program: a file.
    words: its arguments.
    **given: to `subprocess.Popen`.
  """
  own = (__file__, str(os.getpid()), str(program))
  return subprocess.Popen(
    [sys.executable, *own, *words], start_new_session=True, **given
  )


def send(child: subprocess.Popen, number: int) -> None:
  """Sends a signal to a child and to what it has started."""
  with contextlib.suppress(ProcessLookupError, PermissionError):
    os.killpg(child.pid, number)


def end(
  children: Collection[subprocess.Popen], number: int, grace: float
) -> int:
  """Sends a signal to children, waits until they have ended, or kills them.

  Args:
    children: that run.
    number: of the signal.
    grace: seconds that they have.

  Returns:
    How many were killed.
  """
  for child in children:
    send(child, number)
  until = time.monotonic() + grace
  left = [child for child in children if child.poll() is None]
  while left and time.monotonic() < until:
    time.sleep(LOOK)
    left = [child for child in left if child.poll() is None]
  for child in left:
    send(child, signal.SIGKILL)
    child.wait()
  return len(left)


def _become(parent: str, program: str, *words: str) -> None:
  """Becomes another program of Python, one that ends with its parent."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have ended before that.
    if os.getppid() != int(parent):
      sys.exit(128 + signal.SIGTERM)
  os.execv(sys.executable, [sys.executable, program, *words])


if __name__ == '__main__':
  _become(*sys.argv[1:])
