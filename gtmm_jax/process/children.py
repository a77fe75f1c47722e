"""Child processes that end when this program ends.

Run as a program, this file replaces itself by a program that Linux ends with
its parent:

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

# Seconds between two checks of the children.
LOOK = 0.1
# From Linux's <sys/prctl.h>: sets the signal that a process gets when its
# parent ends.
_PR_SET_PDEATHSIG = 1


def start(
  program: pathlib.Path, words: Sequence[str], **options: Any
) -> subprocess.Popen:
  """Starts a Python program that does not receive a terminal's Ctrl-C.

  If this program is killed, Linux sends SIGTERM to the child. Must be called
  from the main thread, because Linux counts the end of the calling thread.

  Args:
    program: path of its file.
    words: its arguments.
    **options: of `subprocess.Popen`.
  """
  command = (sys.executable, __file__, str(os.getpid()), str(program), *words)
  return subprocess.Popen(command, start_new_session=True, **options)


def send(child: subprocess.Popen, number: int) -> None:
  """Sends a signal to a child and to the processes it has started."""
  with contextlib.suppress(ProcessLookupError, PermissionError):
    os.killpg(child.pid, number)


def end(
  children: Collection[subprocess.Popen], number: int, grace: float
) -> int:
  """Ends children with a signal, and kills those that do not end in time.

  Args:
    children: that run.
    number: of the signal.
    grace: seconds to wait before killing.

  Returns:
    The number of children that were killed.
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
  """Replaces this process by a Python program that ends with its parent."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may already have ended.
    if os.getppid() != int(parent):
      sys.exit(128 + signal.SIGTERM)
  os.execv(sys.executable, [sys.executable, program, *words])


if __name__ == '__main__':
  _become(*sys.argv[1:])
