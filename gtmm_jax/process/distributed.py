"""Several processes of one program: how they join, and how they leave.

Each process runs the same program, on one machine or several, and they keep in
step by exchanging bytes (`gtmm_jax.process.exchange`). A process cannot go on
without the others: when one ends early, each of the others ends with one line.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import NoReturn

import jax
from absl import flags

from gtmm_jax.process import machine

# Makes --helpshort of a program show the flags that are defined here.
flags.disclaim_key_flags()

# Exit code of a process that has lost another one.
LOST = 1
# Seconds without a sign of life after which a process counts as ended.
_HEARTBEAT = 30
# Seconds that a process which has finished waits for the others.
_LEAVING = 60
# Seconds that the first process, on which the others depend, waits after an
# error, since the others may be about to report the same.
_REPORTING = 5
_NAMES = ('coordinator', 'process_id', 'process_count')
# Above XLA's greatest level, that of fatal errors.
_SILENT = 4
# In errors of connections, which come just before the end of the client.
_OF_CONNECTION = ('oordination', 'Gloo', 'NCCL')


class _State:
  """The other processes, as this one knows them.

  Attributes:
    count: processes of the program.
    number: of this process, from 0.
    leaves_together: whether all of them are about to end.
    on_abort: called by the system; kept, since ctypes does not keep it.
  """

  count = 1
  number = 0
  leaves_together = False
  on_abort: object = None


_state = _State()
_is_ending = threading.Lock()


def define_flags() -> None:
  """Defines the flags by which several processes find each other."""
  flags.DEFINE_bool(
    'distributed',
    False,
    'Run as one of several processes, which share the replicas and find each '
    'other as jax.distributed does: in Slurm (started by srun), on a TPU pod, '
    'in Kubernetes or with Open MPI. Each has the same command.',
  )
  flags.DEFINE_string(
    'coordinator',
    None,
    'HOST:PORT of the first of several processes, which listens there. In '
    'place of --distributed, with --process_id and --process_count.',
  )
  flags.DEFINE_integer(
    'process_id', None, 'Number of this process, from 0; the first one writes.'
  )
  flags.DEFINE_integer('process_count', None, 'Number of processes, >= 1.')


def count() -> int:
  """Returns the number of processes, 1 before `join`."""
  return _state.count


def number() -> int:
  """Returns the number of this process, from 0; the first one writes."""
  return _state.number


def join(values: flags.FlagValues = flags.FLAGS) -> None:
  """Joins the other processes, if flags ask for it, and waits for them.

  Must be called before jax has devices.

  Args:
    values: parsed flags that `define_flags` defined.

  Raises:
    ValueError: flags do not fit together, or processes do not find each other.
  """
  place = {name: values[name].value for name in _NAMES}
  _require_consistent(values['distributed'].value, place)
  if not values['distributed'].value and place['process_count'] in (None, 1):
    return
  # Its handler of SIGTERM would replace that of `signals`.
  jax.config.update('jax_enable_preemption_service', False)
  _end_with_one_line()
  try:
    jax.distributed.initialize(
      place['coordinator'],
      place['process_count'],
      place['process_id'],
      heartbeat_timeout_seconds=_HEARTBEAT,
      shutdown_timeout_seconds=_LEAVING,
    )
  # JAX raises a ValueError without a cluster, and RuntimeErrors of connections.
  except (ValueError, RuntimeError) as error:
    raise ValueError(_why(place['coordinator'], error)) from error
  # Nothing public tells them before devices are started.
  joined = jax._src.distributed.global_state
  _state.count, _state.number = joined.num_processes, joined.process_id


def set_threads(devices: int) -> None:
  """Gives the CPU of a process as many threads as one process would have.

  XLA has a thread for each core or CPU device of a process, whichever are more,
  and how it divides large sums depends on that number. So several processes
  have the same bits as a single one with all of their devices. Does nothing for
  a single process, or if the user has chosen.

  Args:
    devices: CPU devices of this process, before jax has them.
  """
  if _state.count > 1:
    threads = max(machine.cores(), devices * _state.count)
    os.environ.setdefault('PJRT_NPROC', str(threads))


def _require_consistent(
  is_found: bool, place: dict[str, str | int | None]
) -> None:
  """Raises `ValueError` unless flags describe a process of several, or none."""
  chosen = [name for name, value in place.items() if value is not None]
  if is_found and chosen:
    raise ValueError(
      f'--distributed finds the processes by itself; leave out --{chosen[0]}, '
      f'or --distributed.'
    )
  missing = [name for name in _NAMES if name not in chosen]
  if chosen and missing:
    raise ValueError(
      f'--{chosen[0]} needs --{missing[0]}: a process of several has '
      f'--coordinator, --process_id and --process_count.'
    )
  if not chosen:
    return
  address, number, processes = place.values()
  host, colon, port = str(address).rpartition(':')
  if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
    raise ValueError(
      f'--coordinator is {address!r}; it must be HOST:PORT, as in '
      f'127.0.0.1:9876, and be reached from all processes.'
    )
  if processes < 1 or not 0 <= number < processes:
    raise ValueError(
      f'--process_id is {number} and --process_count is {processes}; numbers '
      f'are from 0 to the count - 1.'
    )


def _why(address: str | None, error: Exception) -> str:
  """Tells in one line why processes did not join."""
  if address is None and isinstance(error, ValueError):
    return (
      '--distributed: jax finds no cluster here. Start the processes by srun, '
      'on a TPU pod, or with --coordinator, --process_id and --process_count.'
    )
  where = '' if address is None else f' at {address}'
  return (
    f'The processes could not join{where} ({str(error).splitlines()[0]}); '
    f'start all of them within 5 minutes, each with its own number, and with '
    f'an address where the first one can listen.'
  )


def _end_with_one_line() -> None:
  """Replaces the abort of jax's client, which prints a stack, by one line.

  The client aborts the process from a thread of its own when it learns that
  another process has ended. Python calls handlers in the main thread, which may
  be waiting for that other process, so that the handler is one of C.
  """
  if os.name != 'posix':
    return
  if jax.config.jax_logging_level in (None, 'NOTSET'):
    # Nothing public silences a fatal error. Without this its lines are printed.
    with contextlib.suppress(ImportError, AttributeError):
      from jaxlib import utils

      utils.absl_set_min_log_level(_SILENT)
  _state.on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: end_lost())
  ctypes.CDLL(None).signal(int(signal.SIGABRT), _state.on_abort)


def end_lost() -> NoReturn:
  """Ends this process at once, with one line, since it has lost another one."""
  if not _is_ending.acquire(blocking=False):
    # Another thread is just ending the process.
    time.sleep(_HEARTBEAT)
  program = pathlib.Path(sys.argv[0]).name
  text = (
    f'{program}: Another process of this run has ended, or cannot be reached. '
    f'The last complete checkpoint is kept: the same commands continue from '
    f'there.\n'
  )
  with contextlib.suppress(OSError):
    os.write(2, text.encode())
  os._exit(LOST)


def leave_together() -> None:
  """Notes that all processes have agreed to end, also if by an error."""
  _state.leaves_together = True


@contextlib.contextmanager
def together() -> Iterator[None]:
  """Ends a program of several processes; does nothing for a single one.

  A process that has finished waits for the others. One that fails alone ends at
  once, so that the others notice.
  """
  try:
    yield
  except BaseException as error:
    if _state.count == 1:
      raise
    _end_after(error)
  if _state.count > 1:
    jax.distributed.shutdown()


def _end_after(error: BaseException) -> NoReturn:
  """Ends this process after an error, without waiting for others to end."""
  if _is_of_connection(error):
    end_lost()
  code = error.code if isinstance(error, SystemExit) else 1
  if not isinstance(error, SystemExit):
    traceback.print_exception(error)
  if _state.leaves_together:
    # An end that is agreed is no loss.
    with contextlib.suppress(RuntimeError):
      jax.distributed.shutdown()
  elif _state.number == 0:
    time.sleep(_REPORTING)
  for output in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):
      output.flush()
  os._exit(code if isinstance(code, int) else bool(code))


def _is_of_connection(error: BaseException | None) -> bool:
  """Returns whether an error, or one behind it, is that of a connection."""
  while error is not None:
    if isinstance(error, jax.errors.JaxRuntimeError) and any(
      word in str(error) for word in _OF_CONNECTION
    ):
      return True
    error = error.__cause__ or error.__context__
  return False
