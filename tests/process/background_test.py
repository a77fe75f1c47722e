"""Tasks that are done in the background: their order, and their errors."""

import threading

import pytest

from gtmm_jax.process import background


def test_tasks_are_done_in_order_by_another_thread():
  done = []
  with background.opened() as tasks:
    for number in range(9):
      tasks.do(
        lambda number=number: done.append((number, threading.get_ident()))
      )
  numbers, threads = zip(*done, strict=True)
  assert numbers == tuple(range(9))
  assert len(set(threads)) == 1 and threads[0] != threading.get_ident()


def test_two_tasks_are_left_at_most():
  may_go_on, begun = threading.Event(), []

  def task(number):
    begun.append(number)
    may_go_on.wait(10)

  def go_on():
    may_go_on.set()

  with background.opened() as tasks:
    tasks.do(task, 0)
    tasks.do(task, 1)
    threading.Timer(0.1, go_on).start()
    # Waits for the first.
    tasks.do(task, 2)
    assert may_go_on.is_set()
  assert begun == [0, 1, 2]


class Interruption(BaseException):
  """Stands for errors that nobody expects."""


@pytest.mark.parametrize('error', [OSError('full'), Interruption()])
def test_an_error_is_raised_later_and_nothing_is_done_after_it(error):
  done, may_fail = [], threading.Event()

  def fail():
    may_fail.wait(10)
    raise error

  with background.opened() as tasks:
    tasks.do(fail)
    tasks.do(done.append, 1)
    may_fail.set()
    with pytest.raises(type(error)):
      tasks.finish()
    tasks.do(done.append, 2)
  with pytest.raises(type(error)), background.opened() as tasks:
    tasks.do(fail)
  assert done == []


def test_an_error_of_the_caller_counts_and_waits_for_the_tasks():
  done, may_go_on = [], threading.Event()
  with pytest.raises(ValueError, match='mine'), background.opened() as tasks:
    tasks.do(may_go_on.wait, 10)
    tasks.do(done.append, 1)
    may_go_on.set()
    raise ValueError('mine')
  assert done == [1]


def test_without_a_thread_tasks_are_done_at_once():
  done = []
  with background.opened(is_inline=True) as tasks:
    tasks.do(done.append, 1)
    assert done == [1]
    tasks.finish()
