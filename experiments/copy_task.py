r"""Teaches memory cores to copy a sequence, and draws how fast and how well.

  python experiments/copy_task.py --core=ntm,dnc --seed=0,1,2

A core reads random vectors and a delimiter, then recalls the vectors from blank
input (Graves et al. 2014, section 4.1). Results are in the workdir and replace
earlier ones of the same command only: config.json, metrics.jsonl (one line per
report), evaluation.json (on new sequences, also longer ones than in training),
copy_task.png and copy_task.pdf. The workdir is locked against other programs.
If only the figure is missing, it is drawn and nothing is trained. All errors
are in bits per bit to recall: guessing costs 1.
"""

import pathlib
import sys
from typing import Any, NamedTuple

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('unfinished results are lost; the same command starts again')
  command.import_jax()

from absl import app, flags

from copying import session, training
from gtmm_jax import folds
from gtmm_jax.process import jax_settings, locks
from gtmm_jax.runs import workdirs

FLAGS = flags.FLAGS

_LARGEST_SEED = 2**32 - 1
# Devices count in 32 bits; larger numbers of steps belong to other keys.
_MOST = folds.DREAMS - 1
_NUMBERS = {
  'length': (10, 'Greatest number of vectors in training; the least is 1.'),
  'bits': (6, 'Bits of a vector.'),
  'steps': (2000, 'Number of training steps.'),
  'batch_size': (32, 'Sequences in a batch.'),
  'slots': (32, 'Slots of the memory, N; the LSTM has none.'),
  'word_size': (16, 'Size of a slot, W; introspective stores its inputs.'),
  'controller_size': (100, "Units of each core's LSTM."),
  'report_every': (100, 'Steps between two lines of metrics.jsonl.'),
  'evaluation_episodes': (200, 'New sequences of each length at the end.'),
}


class Run(NamedTuple):
  """A checked run, before anything is compiled or written.

  Attributes:
    settings: of config.json.
    problems: the problem of each core, by the core's name.
    workdir: folder of the results.
  """

  settings: dict[str, Any]
  problems: dict[str, training.Problem]
  workdir: pathlib.Path


def define_flags(values: flags.FlagValues = FLAGS) -> None:
  """Defines every flag of this program."""
  cores = ', '.join(training.CORES)
  flags.DEFINE_list(
    'core',
    ['ntm'],
    f'One or more of {cores}, separated by commas.',
    flag_values=values,
  )
  flags.DEFINE_list(
    'seed',
    ['0'],
    'One or more seeds, 0 to 2^32 - 1, separated by commas.',
    flag_values=values,
  )
  for name, (default, text) in _NUMBERS.items():
    flags.DEFINE_integer(
      name,
      default,
      text,
      lower_bound=1,
      upper_bound=_MOST,
      flag_values=values,
    )
  flags.DEFINE_integer(
    'longest',
    None,
    'Greatest number of vectors in the evaluation. Default: twice --length.',
    lower_bound=1,
    upper_bound=_MOST,
    flag_values=values,
  )
  flags.DEFINE_float(
    'learning_rate',
    3e-3,
    "Adam's rate, above 0 and below 1; it falls to 0 over the last third of "
    'the steps.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'workdir', 'runs/copy_task', 'Folder of the results.', flag_values=values
  )


def main(_: list[str]) -> None:
  """Checks the flags; trains each core with each seed; writes and draws."""
  try:
    settings, problems, workdir = prepare(FLAGS)
  except (ValueError, OSError) as error:
    command.fail(error)
  try:
    session.complete(problems, settings, workdir, command.console())
  except (locks.CannotLock, OSError) as error:
    command.fail(error)


def prepare(values: flags.FlagValues) -> Run:
  """Prepares a run, and checks everything before anything costs time.

  Args:
    values: parsed flags of `define_flags`.

  Raises:
    ValueError: something is wrong; tells in one line what, and what to do.
    OSError: a file in the workdir cannot be read.
  """
  settings = _settings(values)
  workdir = workdirs.usable(values.workdir)
  command.require_device()
  settings |= jax_settings.in_force()
  problems = {name: _problem(name, settings) for name in settings['core']}
  session.require_same(workdir, settings)
  return Run(settings, problems, workdir)


def _settings(values: flags.FlagValues) -> dict[str, Any]:
  """Returns the settings in flags; raises `ValueError` for impossible ones."""
  for name in values.core:
    if name not in training.CORES:
      raise ValueError(
        f'--core has {name!r} in it; there are {", ".join(training.CORES)}.'
      )
  for text in values.seed:
    if not text.isdecimal() or int(text) > _LARGEST_SEED:
      raise ValueError(
        f'--seed has {text!r} in it; it must be whole numbers from 0 to '
        f'2^32 - 1 with commas between, as in --seed=0,1,2.'
      )
  for name in ('core', 'seed'):
    if not values[name].value:
      raise ValueError(f'--{name} is empty; give one or more.')
  longest = values.longest or 2 * values.length
  if longest < values.length:
    raise ValueError(
      f'--longest is {longest}; it must be at least --length, {values.length}.'
    )
  # NaN fails this test, too.
  if not 0 < values.learning_rate < 1:
    raise ValueError(
      f'--learning_rate is {values.learning_rate}; it must be between 0 and 1.'
    )
  return {
    # Without duplicates, in the order of the flags.
    'core': list(dict.fromkeys(values.core)),
    'seed': list(dict.fromkeys(int(text) for text in values.seed)),
    **{name: values[name].value for name in _NUMBERS},
    'longest': longest,
    'learning_rate': values.learning_rate,
  }


def _problem(name: str, settings: dict[str, Any]) -> training.Problem:
  """Returns the problem of one core; raises `ValueError` for wrong sizes."""
  sizes = ('bits', 'slots', 'word_size', 'controller_size')
  core = training.build_core(name, **{size: settings[size] for size in sizes})
  problem = training.Problem(
    training.Copier(core, settings['bits']),
    training.CopyTask(settings['bits'], settings['length']),
    settings['batch_size'],
    settings['steps'],
    settings['learning_rate'],
  )
  training.require_room(problem, settings['longest'])
  return problem


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
