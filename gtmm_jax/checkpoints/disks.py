"""What a system says of a disk, found among the words of orbax."""

import errno
import os

# What says nothing of a file: no memory, too many open, their server gone, a
# user who may not read.
PASSING = (
  errno.EMFILE,
  errno.ENFILE,
  errno.ENOMEM,
  errno.ESTALE,
  errno.EACCES,
)
_KNOWN = (
  *PASSING,
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EFBIG,
  errno.EROFS,
  errno.EPERM,
  errno.EIO,
)


def code_of(error: BaseException | None) -> int | None:
  """Finds the system's number of what went wrong, None where there is none.

  orbax and its writers make an error of the system a ValueError with a long
  text, in which the system's words remain.
  """
  while error is not None:
    if getattr(error, 'errno', None) in _KNOWN:
      return error.errno
    for code in _KNOWN:
      if os.strerror(code) in str(error):
        return code
    error = error.__cause__ or error.__context__
  return None
