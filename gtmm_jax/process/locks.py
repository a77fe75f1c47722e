"""Locks a folder against other programs, of this host and of others; no jax.

A program that runs in a folder holds a `flock` of the file `lock`, where the
file system has one, and the file `lock.json`, which says who it is
(`holders.py`). The first excludes programs of the same kernel and leaves no
trace when a program is killed; not all file systems share it between hosts. The
second is made with O_EXCL, which they do share.
"""

import contextlib
import os
import pathlib
import secrets
import threading
import time
from collections.abc import Iterator

from gtmm_jax.process import command, holders
from gtmm_jax.process.holders import Holder, Sight

try:
  import fcntl
except ImportError:  # Not on Windows.
  fcntl = None

# Begins the line on a folder in which another program runs.
TAKEN = 'Another program runs in'
# Seconds between two heartbeats.
_BEAT = 15.0
# Seconds after which a program that took a lock over sees whether another one
# did so at the same time.
_SETTLE = 1.0


class CannotLock(ValueError):
  """A folder cannot be locked, or its lock was lost."""


class Lost(CannotLock):
  """Another program took over the folder, or somebody deleted its lock."""


class Lock:
  """The lock of a folder that this program holds, and its heartbeat."""

  def __init__(self, folder: pathlib.Path, program: Holder) -> None:
    """Stores the folder and this program, its holder; starts no heartbeat."""
    self._folder, self._program = folder, program
    self._ends, self._is_lost = threading.Event(), False

  def require(self) -> None:
    """Checks that no other program has taken the folder since.

    Raises:
      Lost: the heartbeat has found that one has.
    """
    if self._is_lost:
      raise Lost(
        f'The lock of {self._folder} is no longer that of this program: '
        f'{holders.FILE} was deleted or replaced while it ran. It has ended '
        f'and writes nothing more there.'
      )

  def _is_there(self) -> bool:
    """Returns whether the file still names this program."""
    sight = holders.look(self._folder)
    return sight is not None and sight.holder == self._program

  def _beat(self) -> None:
    """Beats until the end, or until the lock is lost."""
    pause = _SETTLE
    while not self._ends.wait(pause) and not self._is_lost:
      pause = _BEAT
      # A file server may be away for a while.
      with contextlib.suppress(OSError):
        self._is_lost = not self._is_there()
        if not self._is_lost:
          os.utime(self._folder / holders.FILE)

  @contextlib.contextmanager
  def beating(self) -> Iterator[None]:
    """Beats meanwhile, and releases the folder in the end."""
    thread = threading.Thread(target=self._beat, daemon=True)
    thread.start()
    try:
      yield
    finally:
      self._ends.set()
      thread.join(_BEAT)
      with contextlib.suppress(OSError):
        if self._is_there():
          (self._folder / holders.FILE).unlink()


def is_taken(folder: pathlib.Path) -> bool:
  """Returns whether another program runs in a folder; writes nothing."""
  try:
    sight = holders.look(folder)
  except OSError:  # A run reports what is wrong.
    return False
  return sight is not None and holders.state(sight) == 'runs'


@contextlib.contextmanager
def alone(folder: pathlib.Path, take_over: bool = False) -> Iterator[Lock]:
  """Locks a folder against other programs, and makes it if it is missing.

  The lock of a program that was killed on this host is replaced. That of a
  program on another host is never replaced unless `take_over` says so.

  Args:
    folder: to lock.
    take_over: whether to take the folder over from a program on another host
      whose heartbeat has stopped; it is printed, and waits for two minutes
      without a heartbeat.

  Raises:
    CannotLock: another program runs in the folder; or its lock is stale; or the
      folder cannot be made and locked.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / 'lock', 'ab')  # noqa: SIM115
  except OSError as error:
    raise CannotLock(
      f'{folder} cannot be made and locked ({error}); name another --workdir.'
    ) from error
  with file:
    program = holders.this_program(_flock(file.fileno(), folder))
    _claim(folder, program, take_over)
    lock = Lock(folder, program)
    with lock.beating():
      yield lock


def _flock(descriptor: int, folder: pathlib.Path) -> bool:
  """Takes a `flock`; returns whether the file system has them."""
  if fcntl is None:
    return False
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise _taken(folder, holders.look(folder)) from None
  except OSError:
    return False
  return True


def _claim(folder: pathlib.Path, program: Holder, take_over: bool) -> None:
  """Makes the file that names this program the holder of a folder.

  Raises:
    CannotLock: as `alone`.
    OSError: the file cannot be written.
  """
  while not _is_created(folder / holders.FILE, program):
    sight = holders.look(folder)
    if sight is None:
      continue  # It was released just now.
    is_here = holders.is_here(sight.holder)
    state = holders.state(sight, program.has_flock)
    if state != 'ended':
      if is_here or not take_over:
        raise (_taken if state == 'runs' else _stale)(folder, sight)
      _wait_for_a_beat(folder, sight)
      command.complain(
        f'Takes {folder} over from {holders.describe(sight)}, as --take_over '
        f'asks.'
      )
    _replace(folder, program, is_contested=not (is_here and program.has_flock))
    return


def _is_created(file: pathlib.Path, program: Holder) -> bool:
  """Makes the file of a holder; returns False if there is one already."""
  try:
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
  except FileExistsError:
    return False
  try:
    with open(descriptor, 'wb') as opened:
      opened.write(holders.to_bytes(program))
  except OSError:
    file.unlink()
    raise
  return True


def _replace(folder: pathlib.Path, program: Holder, is_contested: bool) -> None:
  """Replaces the file of an earlier holder.

  Args:
    folder: that it held.
    program: this program.
    is_contested: whether another program may do so at the same time, since no
      `flock` excludes it.

  Raises:
    CannotLock: another program did.
  """
  temporary = folder / f'.{holders.FILE}.{secrets.token_hex(8)}'
  try:
    _is_created(temporary, program)
    os.replace(temporary, folder / holders.FILE)
  finally:
    temporary.unlink(missing_ok=True)
  if is_contested:
    time.sleep(_SETTLE)
    sight = holders.look(folder)
    if sight is None or sight.holder != program:
      raise _taken(folder, sight)


def _wait_for_a_beat(folder: pathlib.Path, sight: Sight) -> None:
  """Waits until a lock of another host is stale.

  Raises:
    CannotLock: there is a heartbeat meanwhile.
  """
  left = holders.STALE - sight.age
  if left > 0:
    command.complain(
      f'Waits {left:.0f} s for another heartbeat of '
      f'{holders.describe(sight)}, in {folder}.'
    )
  while sight.age < holders.STALE:
    time.sleep(min(1.0, holders.STALE / 10))
    latest = holders.look(folder)
    if latest is not None and latest != sight:
      raise _taken(folder, latest)
    if latest is None:
      return


def _taken(folder: pathlib.Path, sight: Sight | None) -> CannotLock:
  """Returns the error for a folder in which another program runs."""
  words = '' if sight is None else f': {holders.describe(sight)}'
  return CannotLock(
    f'{TAKEN} {folder}{words}; wait for it, or name another --workdir.'
  )


def _stale(folder: pathlib.Path, sight: Sight) -> CannotLock:
  """Returns the error for a lock whose heartbeat has stopped."""
  return CannotLock(
    f'The lock of {folder} is stale: {holders.describe(sight)}. If that '
    f'program has surely ended, add --take_over or delete '
    f'{folder / holders.FILE}.'
  )
