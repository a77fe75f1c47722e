"""The program that holds a folder, as its file `lock.json` tells; no jax.

The file exists while the program runs, and stays if the program is killed. Its
content names the host and the process; its time of modification is the
heartbeat, which the program sets again and again. Whether the program still
runs is certain on its own host. On another host the heartbeat tells: one that
has stopped makes the lock stale, but the program may only be suspended, or its
host without network.
"""

import datetime
import json
import os
import pathlib
import platform
import secrets
import time
from typing import Literal, NamedTuple

FILE = 'lock.json'
# Seconds without a heartbeat after which a lock is stale: eight heartbeats.
STALE = 120.0
# Bytes of a whole file, at most.
_LARGEST = 4096

# Of the program that holds a folder: it runs, it has surely ended, or its
# heartbeat has stopped.
State = Literal['runs', 'ended', 'stale']


class Holder(NamedTuple):
  """A program that holds a folder.

  Attributes:
    host: name of its host.
    boot: identifies the start of that host's kernel; '' if unknown.
    namespace: of its process numbers, as containers have their own; '' if
      unknown.
    process: its number.
    start: when the process began, in the kernel's units; 0 if unknown.
    has_flock: whether it holds a `flock`, too.
    began: when it took the folder, in UTC.
    token: tells it from all others.
  """

  host: str
  boot: str
  namespace: str
  process: int
  start: int
  has_flock: bool
  began: str
  token: str


class Sight(NamedTuple):
  """A holder as it was seen.

  Attributes:
    holder: the program.
    beat: time of its last heartbeat, in seconds since the epoch.
  """

  holder: Holder
  beat: float

  @property
  def age(self) -> float:
    """Returns the seconds since the last heartbeat."""
    return max(0.0, time.time() - self.beat)


# Of a file that cannot be understood.
_UNKNOWN = Holder('an unknown host', '', '', 0, 0, False, 'unknown', '')


def this_program(has_flock: bool) -> Holder:
  """Returns this program as a holder.

  Args:
    has_flock: whether it holds a `flock`, too.
  """
  number = os.getpid()
  _, start = _status_of(number)
  return Holder(
    *this_host(),
    number,
    start,
    has_flock,
    datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
    secrets.token_hex(8),
  )


def this_host() -> tuple[str, str, str]:
  """Returns this host's name, its boot and the namespace of its processes."""
  try:
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    namespace = os.readlink('/proc/self/ns/pid')
  except OSError:
    boot = namespace = ''
  return platform.node(), boot, namespace


def to_bytes(holder: Holder) -> bytes:
  """Returns the content of a holder's file."""
  return (json.dumps(holder._asdict(), indent=1) + '\n').encode()


def look(folder: pathlib.Path) -> Sight | None:
  """Returns who holds a folder, None if nobody does; writes nothing.

  Raises:
    OSError: the file is there and cannot be read.
  """
  try:
    with open(folder / FILE, 'rb') as file:
      beat = os.fstat(file.fileno()).st_mtime
      return Sight(_from_bytes(file.read(_LARGEST)), beat)
  except (FileNotFoundError, NotADirectoryError):
    return None


def state(sight: Sight, has_flock: bool = False) -> State:
  """Returns whether a holder still runs.

  Args:
    sight: the holder as it was seen.
    has_flock: whether this program has the folder's `flock` now, which a
      program of this kernel that held one must have lost.
  """
  holder = sight.holder
  host, boot, namespace = this_host()
  if is_here(holder):
    if has_flock and holder.has_flock:
      return 'ended'
    if holder.namespace == namespace:
      return 'runs' if _runs(holder) else 'ended'
  elif holder.host == host and boot and sight.beat < _booted_at():
    return 'ended'
  return 'runs' if sight.age < STALE else 'stale'


def is_here(holder: Holder) -> bool:
  """Returns whether a holder is a program of this kernel, since it started."""
  host, boot, _ = this_host()
  return holder.boot == boot and (bool(boot) or holder.host == host)


def describe(sight: Sight) -> str:
  """Returns host, process and age of the heartbeat, in words."""
  holder = sight.holder
  return (
    f'process {holder.process} on {holder.host}, '
    f'heartbeat {_in_words(sight.age)} ago'
  )


def _in_words(seconds: float) -> str:
  """Returns a time in its largest unit."""
  for unit, length in (('d', 86400), ('h', 3600), ('min', 60)):
    if seconds >= 2 * length:
      return f'{seconds / length:.0f} {unit}'
  return f'{seconds:.0f} s'


def _from_bytes(content: bytes) -> Holder:
  """Returns the holder that a file's content names, or `_UNKNOWN`."""
  try:
    values = json.loads(content)
    holder = Holder(**values)
  except (ValueError, TypeError, RecursionError):
    return _UNKNOWN
  is_whole = all(
    type(value) is type(expected)
    for value, expected in zip(holder, _UNKNOWN, strict=True)
  )
  is_number = is_whole and 0 < holder.process < 2**31
  return holder if is_number else _UNKNOWN


def _runs(holder: Holder) -> bool:
  """Returns whether the process of a holder of this kernel still runs."""
  try:
    os.kill(holder.process, 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    pass  # It belongs to another user.
  state, start = _status_of(holder.process)
  # Numbers of processes are used again.
  is_same = not (start and holder.start) or start == holder.start
  return is_same and state not in ('Z', 'X')


def _status_of(process: int) -> tuple[str, int]:
  """Returns a process's state and start as Linux tells; ('', 0) if unknown."""
  try:
    text = pathlib.Path(f'/proc/{process}/stat').read_text()
  except OSError:
    return '', 0
  # The name of the program, in brackets, may have spaces and brackets in it.
  words = text.rpartition(')')[2].split()
  return words[0], int(words[19])


def _booted_at() -> float:
  """Returns when this host's kernel started; 0 where it does not tell."""
  clock = getattr(time, 'CLOCK_BOOTTIME', None)
  return 0.0 if clock is None else time.time() - time.clock_gettime(clock)
