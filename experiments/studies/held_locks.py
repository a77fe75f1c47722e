"""Tells which files other programs have locked, without locking them.

Linux lists the locks of all programs in /proc/locks; filelock's are `flock`s. A
lock that another machine holds, or a program in another container, is not
there.
"""

import pathlib

_LIST = pathlib.Path('/proc/locks')


def inodes(file: pathlib.Path = _LIST) -> set[int] | None:
  """Returns the inodes of locked files; None where the system does not tell.

  Args:
    file: the system's list of locks.
  """
  try:
    lines = file.read_text().splitlines()
  except OSError:
    return None
  # "1: FLOCK  ADVISORY  WRITE 6000 fe:00:5694057 0 EOF", or "1: -> FLOCK ..."
  # for a program that waits.
  words = [line.split() for line in lines]
  return {
    int(each[5].rpartition(':')[2])
    for each in words
    if len(each) > 5 and each[1] == 'FLOCK'
  }


def is_held(lock: pathlib.Path, held: set[int]) -> bool:
  """Returns whether a file is among those that are locked."""
  try:
    return lock.stat().st_ino in held
  except OSError:
    return False
