"""Hands jobs to Slurm, by submitit; no jax.

submitit pickles a job in a folder, and a node runs what it reads there, so that
the folder must be the user's alone. Nothing else reads these pickles.
"""

import contextlib
import os
import pathlib
import shlex
import stat
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

from studies.slurm_flags import Options

# Seconds that a job needs beside its run: to be queued again.
MARGIN = 15
# Jobs are queued again as often as they make progress.
_ALWAYS = 1_000_000
# Folders where a node finds the parts of study.py, and the package.
_SOURCES = pathlib.Path(__file__).resolve().parents[1:3]


class Job(NamedTuple):
  """A job, in plain values.

  Attributes:
    program: that runs the cell.
    words: its arguments.
    workdir: of the run.
    log: file that gets the run's output.
    ended: file that gets the run's exit code.
    minutes: time limit of the job.
    grace: seconds before that limit at which the run is asked to end.
  """

  program: str
  words: tuple[str, ...]
  workdir: str
  log: str
  ended: str
  minutes: int
  grace: float


def require(options: Options) -> None:
  """Checks that jobs can be submitted, without submitting any.

  Raises:
    ValueError: submitit or Slurm is missing, or Slurm refuses such a job.
  """
  try:
    import submitit  # noqa: F401
  except ImportError as error:
    raise ValueError(
      '--executor=slurm needs submitit; pip install "gtmm_jax[slurm]".'
    ) from error
  words = [
    f'--{name.replace("_", "-")}={value}'
    for name, value in options.parameters().items()
  ]
  try:
    result = subprocess.run(
      ['sbatch', '--test-only', '--wrap=true', *words],
      capture_output=True,
      text=True,
      errors='replace',
    )
  except FileNotFoundError as error:
    raise ValueError(
      '--executor=slurm needs sbatch, which is not installed here; use a '
      'machine of the cluster, or --executor=local.'
    ) from error
  if result.returncode:
    lines = result.stderr.strip().splitlines() or ['no reason given']
    raise ValueError(f'Slurm refuses such jobs: {lines[-1]}')


def submit(job: Job, name: str, folder: pathlib.Path, options: Options) -> str:
  """Submits a job; returns its number.

  Args:
    job: of the cell.
    name: of the cell.
    folder: that gets the job's files.
    options: of the job.

  Raises:
    ValueError: Slurm refuses it.
    OSError: its files cannot be written.
  """
  import submitit

  from studies import slurm_job

  delay = int(job.grace) + MARGIN
  try:
    with _outside_jobs():
      slurm = submitit.SlurmExecutor(folder, max_num_timeout=_ALWAYS)
      slurm.update_parameters(**_parameters(name, options, delay))
      return slurm.submit(slurm_job.Run(job)).job_id
  except RuntimeError as error:
    lines = str(error).strip().splitlines()
    raise ValueError(f'Slurm refuses its job: {lines[-1]}') from error


def make_private(folder: pathlib.Path) -> None:
  """Makes a folder that only its owner can enter, or checks that it is one.

  Raises:
    ValueError: others can enter it, or replace it, or a name cannot be told
      to Slurm.
  """
  path = os.fspath(folder.absolute())
  if '%' in path or not path.isprintable():
    raise ValueError(
      f'{folder} has a %, which Slurm replaces in names of files, or what '
      f'cannot be printed; use another --folder.'
    )
  folder.mkdir(mode=0o700, exist_ok=True)
  here, above = folder.lstat(), folder.parent.stat()
  if (
    not stat.S_ISDIR(here.st_mode)
    or here.st_uid != os.geteuid()
    or here.st_mode & 0o077
  ):
    raise ValueError(
      f'{folder} is not a folder of yours alone, and jobs run what is pickled '
      f'there; remove it, or use another --folder.'
    )
  if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
    raise ValueError(
      f'{folder.parent} can be written by everybody, who could replace the '
      f'jobs in it; use chmod o-w, or another --folder.'
    )


def _parameters(name: str, options: Options, delay: int) -> dict[str, Any]:
  """Returns the parameters of submitit's job.

  Args:
    name: of the cell.
    options: of the job.
    delay: seconds before the time limit at which Slurm sends its warning.
  """
  parameters = options.parameters()
  cpus = parameters.get('cpus_per_task')
  paths = shlex.quote(os.pathsep.join(map(os.fspath, _SOURCES)))
  return {
    **parameters,
    'job_name': name,
    'signal_delay_s': delay,
    'stderr_to_stdout': True,
    'additional_parameters': {'requeue': True},
    # From Slurm 22.05 on, srun does not take it from sbatch.
    'srun_args': [] if cpus is None else [f'--cpus-per-task={cpus}'],
    'setup': [f'export PYTHONPATH={paths}"${{PYTHONPATH:+:$PYTHONPATH}}"'],
  }


@contextlib.contextmanager
def _outside_jobs() -> Iterator[None]:
  """Hides the variables of a job in which this program runs itself."""
  if 'SLURM_JOB_ID' not in os.environ:
    yield
    return
  from submitit import helpers

  settings = {
    name: value
    for name, value in os.environ.items()
    if name == 'SLURM_CONF' or name.startswith('SBATCH_')
  }
  with helpers.clean_env():
    os.environ.update(settings)
    yield
