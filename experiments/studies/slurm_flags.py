"""The flags of jobs of Slurm, and the options that they ask for; no jax."""

from typing import Any, NamedTuple

from absl import flags

FLAGS = flags.FLAGS
flags.disclaim_key_flags()

_NAMES = ('partition', 'account', 'time', 'gpus', 'cpus', 'memory')
# Seconds of a job beside those of --grace, at least: Slurm's warning may come
# a minute too early, and a job is queued again after its run has ended.
_LEAST = 90.0


class Options(NamedTuple):
  """The resources that each job asks Slurm for.

  Attributes:
    minutes: that it may take, before it is saved and waits in the queue again.
    partition: of nodes, None for Slurm's default.
    account: that pays, None for Slurm's default.
    gpus: of each run, None for Slurm's default, as for the other numbers.
    cpus: of each run.
    memory: of each run, in GB.
  """

  minutes: int = 60
  partition: str | None = None
  account: str | None = None
  gpus: int | None = None
  cpus: int | None = None
  memory: int | None = None

  def parameters(self) -> dict[str, Any]:
    """Returns the options that are set, with sbatch's names."""
    options = {
      'time': self.minutes,
      'partition': self.partition,
      'account': self.account,
      'gpus_per_node': self.gpus,
      'cpus_per_task': self.cpus,
      'mem': None if self.memory is None else f'{self.memory}G',
    }
    return {name: each for name, each in options.items() if each is not None}


def define_flags() -> None:
  """Defines the flags of --executor=slurm."""
  flags.DEFINE_enum(
    'executor',
    'local',
    ['local', 'slurm'],
    'Where runs go: to processes of this machine, or to the queue of a Slurm '
    'cluster, a job each.',
  )
  flags.DEFINE_integer(
    'time',
    60,
    'With --executor=slurm: minutes of a job, >= 2. At their end a run is '
    'saved, and its job waits in the queue again, as often as it takes.',
  )
  for name, meaning in (
    ('partition', 'partition of the nodes'),
    ('account', 'account that pays'),
  ):
    flags.DEFINE_string(name, None, f'With --executor=slurm: {meaning}.')
  for name, meaning in (
    ('gpus', 'GPUs of each run'),
    ('cpus', 'CPU cores of each run'),
    ('memory', 'memory of each run, in GB'),
  ):
    flags.DEFINE_integer(name, None, f'With --executor=slurm: {meaning}, >= 1.')


def read() -> Options | None:
  """Returns the options of jobs, None where runs are local.

  Raises:
    ValueError: a flag is out of its range, or means nothing locally.
  """
  present = [name for name in _NAMES if FLAGS[name].present]
  if FLAGS.executor == 'local':
    if present:
      raise ValueError(
        f'--{present[0]} is about jobs of a cluster; add --executor=slurm, or '
        f'leave it out.'
      )
    return None
  for name in ('time', 'gpus', 'cpus', 'memory'):
    least = 2 if name == 'time' else 1
    if FLAGS[name].value is not None and FLAGS[name].value < least:
      raise ValueError(
        f'--{name} is {FLAGS[name].value}; it must be at least {least}.'
      )
  if FLAGS.time * 60 < FLAGS.grace + _LEAST:
    raise ValueError(
      f'--time={FLAGS.time} leaves no minute for a run before the {FLAGS.grace}'
      f' seconds of --grace in which it ends; use a longer --time.'
    )
  return Options(
    FLAGS.time,
    FLAGS.partition,
    FLAGS.account,
    FLAGS.gpus,
    FLAGS.cpus,
    FLAGS.memory,
  )
