"""Work that a thread does in the background, one task after another."""

import collections
import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

# Tasks that wait or run, at most; another one has to wait for the first.
_MOST = 2


class Background:
  """Does tasks in their order; after an error it does none any more."""

  def __init__(self, pool: futures.Executor | None) -> None:
    """Stores the thread; None does tasks at once, without one."""
    self._pool = pool
    self._tasks: collections.deque[futures.Future] = collections.deque()
    self._has_failed = False

  def do(self, task: Callable[..., Any], *arguments: Any) -> None:
    """Does a task later; waits where two others are left.

    Args:
      task: to do.
      *arguments: of the task, which must not change any more.

    Raises:
      Exception: that of an earlier task; this one is not done.
    """
    while self._tasks and (self._tasks[0].done() or len(self._tasks) >= _MOST):
      self._tasks.popleft().result()
    if self._pool is None:
      task(*arguments)
    else:
      self._tasks.append(self._pool.submit(self._run, task, arguments))

  def finish(self) -> None:
    """Waits until all tasks are done.

    Raises:
      Exception: that of a task; those after it are not done.
    """
    while self._tasks:
      self._tasks.popleft().result()

  def _run(self, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if self._has_failed:
      return
    try:
      task(*arguments)
    except BaseException:
      self._has_failed = True
      raise


@contextlib.contextmanager
def opened(is_inline: bool = False) -> Iterator[Background]:
  """Opens a thread for tasks, which are all done in the end.

  Args:
    is_inline: whether tasks are done at once, without a thread.

  Raises:
    Exception: that of a task, at the end of the context.
  """
  if is_inline:
    yield Background(None)
    return
  with futures.ThreadPoolExecutor(1) as pool:
    background = Background(pool)
    yield background
    background.finish()
