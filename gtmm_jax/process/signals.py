"""What a program does where a signal asks it to end; imports little.

A thread waits for SIGINT, SIGTERM and SIGHUP, since the main one may be inside
XLA's compiler for a minute, where no handler of Python's is called. It ends the
program at once, with a line and the shell's exit code, 128 and the signal's
number; or, where the program has something to save, it notes the signal, and
ends the program at the second one. Nothing is torn down then: XLA's threads may
be compiling still, and die with a segmentation fault where Python goes first.
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

_NAMES = ('SIGINT', 'SIGTERM', 'SIGHUP')
ENDING = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
# Of a program that is started again for what is left; true at any moment.
GOES_ON = 'the same command goes on with what is left'
_BROKEN_PIPE = 13
# Seconds in which a signal that comes twice is one: `timeout` and shells send
# it to a program and to its group.
_TWICE = 0.25


class Stopped(Exception):
  """A signal asked the program to end, and it has finished what was at hand.

  Attributes:
    number: of the signal.
  """

  def __init__(self, number: int, message: str = '') -> None:
    super().__init__(message)
    self.number = number


class _Watch:
  """What was received, and what to do with what will be.

  Attributes:
    is_on: whether signals are watched.
    defers: whether the program wants to finish something first.
    first: number of the signal that it is to end for, None before.
    at: when that came, seconds.
    says: what is told of the program's work where it ends at once.
    last: what is done before it does.
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
  """Watches for signals from now on; does nothing outside the main thread.

  To be called once, before what takes long to import. A signal that is ignored,
  as under nohup, stays ignored.

  Args:
    says: what is told of the program's work where a signal ends it.
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
  """Lets a signal wait until the program asks for it with `received`.

  Does nothing where signals are not watched.

  Args:
    says: what is told where a second signal ends the program at once.
    last: what is done before that, in a thread of its own.

  Raises:
    Stopped: at the end, where a signal came and nothing was raised for it.
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
  """Lets a signal end the program at once, within `deferred` too.

  Args:
    says: what is told of the program's work then.

  Raises:
    Stopped: at the start, where a signal has come already.
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
  """Returns the number of the signal to end for, None before one came."""
  return _watch.first


def receive_broken_pipe() -> bool:
  """Takes note that nobody reads what is printed, as of a signal.

  Returns:
    Whether the program will end for it; not where signals are not watched.
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
      _say(number, 'finishes what is at hand; a second signal ends it at once')
      return
    is_same = number == _watch.first and now - _watch.at < _TWICE
    if is_same or (number == _BROKEN_PIPE and not is_first):
      return
    _end(number)


def _end(number: int) -> NoReturn:
  if _watch.last is not None:
    _watch.last()
  _say(number, _watch.says)
  os._exit(128 + number)


def _forget_terminals() -> None:
  """Prints to nowhere from now on what went to a terminal, which is gone."""
  nowhere = os.open(os.devnull, os.O_WRONLY)
  for output in (1, 2):
    with contextlib.suppress(OSError):
      if os.isatty(output):
        os.dup2(nowhere, output)


def _say(number: int, what: str) -> None:
  """Prints one line; none for a broken pipe, which comes of `head` and such."""
  if number == _BROKEN_PIPE:
    return
  program = pathlib.Path(sys.argv[0]).name
  text = f'{program}: {signal.Signals(number).name}' + (what and f': {what}')
  with contextlib.suppress(OSError):
    if os.isatty(1):
      # Below what the terminal shows of the key; a bar hides the cursor.
      os.write(1, b'\x1b[?25h\n')
  with contextlib.suppress(OSError):
    os.write(2, f'{text}.\n'.encode())
