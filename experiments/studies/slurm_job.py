"""A job of Slurm: a run, which is saved and queued again before its time ends.

submitit pickles a `Run` on the machine of the study, and calls it on a node.
"""

import os
import pathlib
import signal
import subprocess
import time
from typing import NoReturn

from submitit.helpers import DelayedSubmission

from gtmm_jax.process import children
from gtmm_jax.records import documents
from gtmm_jax.runs import workdirs
from studies import executor, logs
from studies.slurm_submit import MARGIN, Job

# Seconds by which Slurm's warning may come too early.
_EARLY = 60


class Run:
  """A function that runs a job; submitit calls `checkpoint` at Slurm's warning.

  The warning is SIGUSR2. It comes before the time limit, and at a preemption
  where Slurm is told so. SIGTERM reaches the run without help.
  """

  def __init__(self, job: Job) -> None:
    self._job = job
    self._child: subprocess.Popen | None = None
    self._log_start, self._saved, self._began = 0, 0, 0.0

  def __call__(self) -> NoReturn:
    """Runs the job, and ends this process with the exit code of the run."""
    job = self._job
    pathlib.Path(job.ended).unlink(missing_ok=True)
    self._began, self._saved = time.monotonic(), self._newest()
    with pathlib.Path(job.log).open('ab') as log:
      self._log_start = log.seek(0, os.SEEK_END)
      self._child = children.start(
        pathlib.Path(job.program),
        [*job.words, *_further_words()],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )
    self._end(_code(self._child.pid))

  def checkpoint(self) -> DelayedSubmission:
    """Asks the run to save and end, and returns what is queued again.

    Ends this process instead if the run is over, or if it saved nothing in all
    of its time, as it would each time.
    """
    code = self._warn()
    if code == 0:
      self._end(code)
    late = 60 * self._job.minutes - self._job.grace - MARGIN - _EARLY
    if time.monotonic() - self._began >= late and self._newest() <= self._saved:
      with pathlib.Path(self._job.log).open('a') as log:
        log.write(
          f'no checkpoint was saved in {self._job.minutes} minutes; use a '
          f'longer --time\n'
        )
      self._end(code)
    return DelayedSubmission(Run(self._job))

  def _warn(self) -> int:
    """Passes the warning on; returns the exit code of the run."""
    if self._child is None:
      return 128 + signal.SIGUSR2
    children.send(self._child, signal.SIGUSR2)
    until = time.monotonic() + self._job.grace
    while (code := _code(self._child.pid, os.WNOHANG)) is None:
      if time.monotonic() > until:
        children.send(self._child, signal.SIGKILL)
        return _code(self._child.pid)
      time.sleep(children.LOOK)
    return code

  def _newest(self) -> int:
    """Returns the step of the run's newest checkpoint, 0 without any."""
    steps = workdirs.saved_steps(pathlib.Path(self._job.workdir))
    return max(steps, default=0)

  def _end(self, code: int) -> NoReturn:
    """Tells how the run ended, and ends this process."""
    log = pathlib.Path(self._job.log)
    if code:
      # A study that watches notes it, too, but there may be none.
      lines = logs.output(log, self._log_start)
      logs.note_failure(log, executor.reason(code, lines))
    documents.replace_document(
      pathlib.Path(self._job.ended),
      {
        'job': os.environ['SLURM_JOB_ID'],
        'code': code,
        'log_start': self._log_start,
      },
    )
    raise SystemExit(code if code >= 0 else 128 - code)


def _further_words() -> list[str]:
  """Returns the flag of a run whose job was begun before, on any node.

  If a node was lost, its run left the lock of the workdir. Where it still shows
  signs of life, the lock is not taken over.
  """
  again = os.environ.get('SLURM_RESTART_COUNT', '0') != '0'
  return ['--take_over=True'] if again else []


def _code(pid: int, flags: int = 0) -> int | None:
  """Waits for a child; returns its exit code, or minus a signal's number.

  Unlike `Popen.wait`, which holds a lock, it may be called in the handler of a
  signal that interrupts another call of it.

  Args:
    pid: of the child.
    flags: `os.WNOHANG` returns None at once if the child has not ended.
  """
  ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | flags)
  if ended is None:
    return None
  code = ended.si_status
  return code if ended.si_code == os.CLD_EXITED else -code
