"""The jobs of a study in Slurm's queue: asked by squeue, in one call; no jax.

A study keeps what it hands to Slurm in FOLDER/slurm, with a folder for each
cell. submitit pickles a job there, in the file ID_submitted.pkl; its name tells
the job's number, and its content is read by the job alone. The job leaves
ended.json when its run has ended.
"""

import pathlib
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gtmm_jax.records import documents

# Of jobs that come to the queue no more.
_OVER = {
  'BOOT_FAIL',
  'CANCELLED',
  'COMPLETED',
  'DEADLINE',
  'FAILED',
  'NODE_FAIL',
  'OUT_OF_MEMORY',
  'PREEMPTED',
  'REVOKED',
  'TIMEOUT',
}
_WAITING = {'PENDING', 'REQUEUED', 'REQUEUE_HOLD', 'SPECIAL_EXIT', 'SUSPENDED'}
_SUBMITTED = '_submitted.pkl'
# Seconds that squeue has to answer.
_PATIENCE = 60.0


class Queued(NamedTuple):
  """A job as squeue reports it.

  Attributes:
    name: that of its cell.
    state: Slurm's word, such as PENDING.
  """

  name: str
  state: str

  @property
  def is_over(self) -> bool:
    """Returns whether it has ended, and comes to the queue no more."""
    return self.state in _OVER

  @property
  def waits(self) -> bool:
    """Returns whether it is in the queue and does not run."""
    return self.state in _WAITING


def folder(study_folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder of what a study hands to Slurm."""
  return study_folder / 'slurm'


def ended_file(study_folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the file in which the job of a cell tells how its run ended."""
  return folder(study_folder) / name / 'ended.json'


def ask() -> dict[str, Queued]:
  """Returns the user's jobs by number, also those that ended just now.

  Raises:
    ValueError: squeue is missing, or does not answer.
  """
  command = [
    'squeue',
    '--me',
    '--noheader',
    '--states=all',
    '--format=%i %T %j',
  ]
  try:
    answer = subprocess.run(
      command,
      capture_output=True,
      text=True,
      errors='replace',
      timeout=_PATIENCE,
      check=True,
    ).stdout
  except FileNotFoundError as error:
    raise ValueError(
      'squeue is not installed here; use a machine of the cluster.'
    ) from error
  except subprocess.CalledProcessError as error:
    lines = error.stderr.strip().splitlines() or ['no reason given']
    raise ValueError(f'squeue failed: {lines[0]}') from error
  except subprocess.TimeoutExpired as error:
    raise ValueError(
      f'squeue did not answer in {_PATIENCE:g} seconds.'
    ) from error
  jobs = {}
  for line in answer.splitlines():
    number, state, name = [*line.split(' ', 2), '', ''][:3]
    jobs[number] = Queued(name, state)
  return jobs


def alive(
  study_folder: pathlib.Path, names: Iterable[str], queue: Mapping[str, Queued]
) -> dict[str, str]:
  """Returns the number of the job of each cell that has one which is not over.

  Args:
    study_folder: of the study.
    names: of cells.
    queue: what `ask` returned.
  """
  jobs = {}
  for name in names:
    files = (folder(study_folder) / name).glob(f'*{_SUBMITTED}')
    for number in sorted(file.name.removesuffix(_SUBMITTED) for file in files):
      job = queue.get(number)
      # Slurm may have given the number of an old job to a new one.
      if job is not None and job.name == name and not job.is_over:
        jobs[name] = number
  return jobs


def states(
  study_folder: pathlib.Path, names: Iterable[str]
) -> dict[str, Queued]:
  """Returns the jobs of a study's cells that are not over, by the cell's name.

  Asks squeue at most once, and not at all where the study has no jobs.

  Raises:
    ValueError: squeue is missing, or does not answer.
  """
  try:
    if not any(folder(study_folder).iterdir()):
      return {}
  except OSError:
    # There is no such folder, or it is another user's.
    return {}
  queue = ask()
  numbers = alive(study_folder, names, queue)
  return {name: queue[number] for name, number in numbers.items()}


def read_ended(file: pathlib.Path, number: str) -> dict[str, Any] | None:
  """Returns how the run of a job ended, None if the job has not told.

  Args:
    file: ended.json.
    number: of the job.

  Returns:
    'code', the exit code, and 'log_start', bytes of the log before the run.
  """
  try:
    ended = documents.read_document(file)
  except (ValueError, OSError):
    return None
  is_whole = ended is not None and all(
    isinstance(ended.get(name), int) for name in ('code', 'log_start')
  )
  return ended if is_whole and ended.get('job') == number else None
