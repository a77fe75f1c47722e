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
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType
from typing import Any

# Ask a program to end. Windows has no SIGHUP.
ENDING = tuple(
  getattr(signal, name)
  for name in ('SIGINT', 'SIGTERM', 'SIGHUP')
  if hasattr(signal, name)
)
# Seconds between two looks at what runs.
LOOK = 0.1
# Of Linux's <sys/prctl.h>: the signal that a process is sent when its parent
# ends.
_PR_SET_PDEATHSIG = 1


class Ended(BaseException):
  """This program was asked to end.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int) -> None:
    super().__init__(number)
    self.number = number


class Asked:
  """The signals that have asked this program to end, as they come.

  Attributes:
    number: of the first, None where there was none.
    times: how many there were.
  """

  def __init__(self) -> None:
    self.number: int | None = None
    self.times = 0

  def hear(self, number: int, _: FrameType | None) -> None:
    """Notes a signal."""
    self.number = self.number or number
    self.times += 1


def end_on_signals() -> None:
  """Makes each signal of `ENDING` raise `Ended`, unless it is ignored."""

  def end(number: int, _: FrameType | None) -> None:
    raise Ended(number)

  for number in ENDING:
    # As nohup has it, or a shell that runs a program in the background.
    if signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, end)


@contextlib.contextmanager
def listening() -> Iterator[Asked]:
  """Notes signals of `ENDING` that are not ignored, rather than end on them."""
  asked, before = Asked(), {}
  for number in ENDING:
    if signal.getsignal(number) is not signal.SIG_IGN:
      before[number] = signal.signal(number, asked.hear)
  try:
    yield asked
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


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
  children: Collection[subprocess.Popen],
  asked: Asked,
  grace: float,
  say: Callable[[str], None],
) -> None:
  """Passes a signal on to children, waits until they have ended, or kills them.

  Args:
    children: that run.
    asked: the signal; where another comes meanwhile, no child is waited for.
    grace: seconds that they have.
    say: is told which were killed, and why.
  """
  number = asked.number or signal.SIGTERM
  for child in children:
    send(child, number)
  until, heard = time.monotonic() + grace, asked.times
  left = [child for child in children if child.poll() is None]
  while left and time.monotonic() < until and asked.times == heard:
    time.sleep(LOOK)
    left = [child for child in left if child.poll() is None]
  for child in left:
    send(child, signal.SIGKILL)
    child.wait()
  if left:
    again = asked.times > heard
    why = 'a second signal came' if again else f'{grace:g} s were over'
    say(f'{len(left)} did not end before {why}, and were killed.')


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
