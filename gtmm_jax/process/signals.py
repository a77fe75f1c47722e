"""Ends a program when it receives a signal; imports little.

A thread waits for SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, because the
main thread may be inside XLA's compiler for a minute, where Python calls no
signal handlers. It ends the program at once, with one line and the shell's exit
code, 128 plus the signal's number. If the program has something to save, it
records the first signal and ends the program at the second one. It ends the
process without tearing Python down: XLA's threads may still be compiling and
would then crash with a segmentation fault.

SIGUSR1 and SIGUSR2 are a cluster's warning that it will soon end the program.
Several processes may pass on the same warning, so that one of them never counts
as a second signal.
"""

import contextlib
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn


def _numbers(*names: str) -> list[int]:
  """Returns the numbers of those signals that the system has."""
  return [getattr(signal, name) for name in names if hasattr(signal, name)]


_WARNINGS = _numbers('SIGUSR1', 'SIGUSR2')
ENDING = [*_numbers('SIGINT', 'SIGTERM', 'SIGHUP'), *_WARNINGS]
# For programs whose command can be repeated at any time.
GOES_ON = 'the same command continues where it stopped'
_BROKEN_PIPE = 13
# Two equal signals within these seconds count as one: `timeout` and shells send
# one to the program and one to its group.
_TWICE = 0.25


class Stopped(Exception):
  """A signal asked the program to end, and its current work is finished.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int, message: str = '') -> None:
    super().__init__(message)
    self.number = number


class _Watch:
  """The signal that was received, and how to handle the next one.

  Attributes:
    is_on: whether signals are watched.
    defers: whether the program finishes its current work first.
    first: number of the first signal, None before there is one.
    at: time of that signal, seconds.
    says: message about the program's work if it ends at once.
    last: called before it ends at once.
  """

  is_on = False
  defers = False
  first: int | None = None
  at = 0.0
  says = ''
  last: Callable[[], None] | None = None


_watch = _Watch()
_lock = threading.Lock()


def watch(says: str) -> None:
  """Starts to watch for signals; does nothing outside the main thread.

  Must be called once, before slow imports. A signal that is ignored, as under
  nohup, stays ignored.

  Args:
    says: message about the program's work if a signal ends it.
  """
  is_main = threading.current_thread() is threading.main_thread()
  if _watch.is_on or not is_main or os.name != 'posix':
    return
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  for number in ENDING:
    if signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, _leave_it_to_the_thread)
  signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  threading.Thread(target=_listen, args=(reader,), daemon=True).start()
  _watch.is_on, _watch.says = True, says


@contextlib.contextmanager
def deferred(
  says: str, last: Callable[[], None] | None = None
) -> Iterator[None]:
  """Defers a signal: the program checks for it with `received`.

  Does nothing if signals are not watched.

  Args:
    says: message if a second signal ends the program at once.
    last: called before that, in another thread.

  Raises:
    Stopped: at the end of the context, if a signal was received.
  """
  before = _watch.defers, _watch.says, _watch.last
  with _lock:
    _watch.defers, _watch.says, _watch.last = True, says, last
  try:
    yield
  finally:
    with _lock:
      _watch.defers, _watch.says, _watch.last = before
  _require_none(says)


@contextlib.contextmanager
def at_once(says: str) -> Iterator[None]:
  """Lets a signal end the program at once, even inside `deferred`.

  Args:
    says: message about the program's work.

  Raises:
    Stopped: at the start of the context, if a signal was received before.
  """
  before = _watch.defers, _watch.says
  with _lock:
    _watch.defers, _watch.says = False, says
  try:
    _require_none(says)
    yield
  finally:
    with _lock:
      _watch.defers, _watch.says = before


def received() -> int | None:
  """Returns the number of the signal that was received, None if none was."""
  return _watch.first


def receive_broken_pipe() -> bool:
  """Handles a broken pipe, whose reader has gone, like a signal.

  Returns:
    Whether the program will end because of it: only if signals are watched.
  """
  if _watch.is_on:
    _receive(_BROKEN_PIPE)
  return _watch.is_on


def leave(stopped: Stopped) -> NoReturn:
  """Ends the program with a line and the exit code of a signal."""
  _say(stopped.number, str(stopped))
  sys.exit(128 + stopped.number)


def _require_none(says: str) -> None:
  if _watch.first is not None:
    raise Stopped(_watch.first, says)


def _leave_it_to_the_thread(*_: object) -> None:
  pass


def _listen(reader: int) -> None:
  while True:
    for number in os.read(reader, 64):
      if number in ENDING:
        _receive(number)


def _receive(number: int) -> None:
  with _lock:
    now, is_first = time.monotonic(), _watch.first is None
    if number == getattr(signal, 'SIGHUP', None):
      _forget_terminals()
    if is_first and _watch.defers:
      _watch.first, _watch.at = number, now
      _say(number, 'finishes its current work; a second signal ends it at once')
      return
    is_same = number == _watch.first and now - _watch.at < _TWICE
    is_mild = number in (_BROKEN_PIPE, *_WARNINGS)
    if is_same or (is_mild and not is_first):
      return
    _end(number)


def _end(number: int) -> NoReturn:
  if _watch.last is not None:
    _watch.last()
  _say(number, _watch.says)
  os._exit(128 + number)


def _forget_terminals() -> None:
  """Redirects output from a closed terminal to the null device."""
  nowhere = os.open(os.devnull, os.O_WRONLY)
  for output in (1, 2):
    with contextlib.suppress(OSError):
      if os.isatty(output):
        os.dup2(nowhere, output)


def _say(number: int, what: str) -> None:
  """Prints one line; none for a broken pipe, which `head` and others cause."""
  if number == _BROKEN_PIPE:
    return
  program = pathlib.Path(sys.argv[0]).name
  text = f'{program}: {signal.Signals(number).name}' + (what and f': {what}')
  with contextlib.suppress(OSError):
    if os.isatty(1):
      # Starts a new line after the terminal's ^C, and shows the cursor, which a
      # progress bar hides.
      os.write(1, b'\x1b[?25h\n')
  with contextlib.suppress(OSError):
    os.write(2, f'{text}.\n'.encode())
