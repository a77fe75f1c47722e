"""The operating system's error behind an error that orbax raises."""

import errno
import os

# Errors that do not mean that a file is damaged: no memory, too many open
# files, a lost server, no permission.
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
  """Finds the system's error number behind an error; None if there is none.

  orbax and its writers turn an error of the system into a ValueError with a
  long text, which contains the system's message.
  """
  while error is not None:
    if getattr(error, 'errno', None) in _KNOWN:
      return error.errno
    for code in _KNOWN:
      if os.strerror(code) in str(error):
        return code
    error = error.__cause__ or error.__context__
  return None
