"""The machine that a program runs on; no jax."""

import os

# Assumed bytes of memory of a machine that does not tell.
_UNKNOWN_MEMORY = 4 * 2**30


def memory() -> int:
  """Returns the bytes of the machine's memory, 4 GiB if it does not tell."""
  try:
    return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (AttributeError, ValueError, OSError):  # Some systems do not tell.
    return _UNKNOWN_MEMORY


def cores() -> int:
  """Returns the number of CPU cores that this program may use."""
  try:
    return len(os.sched_getaffinity(0))
  except AttributeError:  # Not on macOS.
    return os.cpu_count() or 1
