r"""Evaluates a trained run on other episodes, such as longer ones.

  python experiments/evaluate.py --workdir=RUN --pre_recall=10,15,20,50

Flags that are not set are as in the run, so that without any of them the values
are those of its evaluation.json. A flag with several values, separated by
commas, gives a row of the table for each of them, and several such flags one
for each combination. Results are in RUN/evaluations/NAME: a folder for each row
with evaluation.json and evaluation.npz as a run has them, and a figure of the
KL of each frame. The same command goes on where it stopped, and other settings
of the same name are refused. A run of your own core or task is evaluated in
Python, by gtmm_jax.trained.evaluate.
"""

import warnings

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch(
    'rows that are complete are kept; the same command goes on with the others'
  )
  command.import_jax()

import jax
from absl import app, flags

from gtmm_jax import replicas, trained
from gtmm_jax.process import compilation_cache, places
from gtmm_jax.runs import recorded
from gtmm_jax.runs import settings as settings_module
from gtmm_jax.runs.kinds import BUILT_IN
from gtmm_jax.trained import bounds, evaluations, variants

FLAGS = flags.FLAGS

# Sizes of episodes; a task has some of them.
_SIZES = {
  'pre_recall': "The paper's l, frames before the recall interval",
  'recall': "The paper's k, frames of the recall interval",
  'rows': "Rows of navigation's grid",
  'columns': "Columns of navigation's grid",
  'length': 'Frames of an episode of navigation, rotation or mixture',
  'prefix': 'On frames: true frames before those that are generated',
}
# Flags that decide the default of --name, in this order.
_OF_NAME = (*_SIZES, 'evaluate_on', 'episodes', 'seed', 'slots', 'step')
_SAMPLES = 100


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('workdir', None, 'Folder of the run; must be given.')
  flags.DEFINE_integer('step', None, 'Of the checkpoint. Default: the latest.')
  for name, text in _SIZES.items():
    flags.DEFINE_list(name, None, f'{text}; one or more, separated by commas.')
  flags.DEFINE_list(
    'evaluate_on',
    None,
    'validation, test, or both, separated by a comma. Default: as the run.',
  )
  flags.DEFINE_integer(
    'episodes', None, 'Least number of them, >= 1. Default: as the run.'
  )
  flags.DEFINE_integer(
    'seed', None, 'Seed of the episodes, 0 to 2^32 - 1. Default: of the run.'
  )
  flags.DEFINE_string(
    'data', None, 'Other digits, characters or episodes, as of run.py.'
  )
  flags.DEFINE_enum(
    'slots',
    None,
    variants.SLOTS,
    'For episodes with more frames than in training: grow gives the memory '
    'more slots in proportion, if its weights are not for a number of slots '
    '(ntm, lru, dnc, transformer, and others with positions=fourier); trained '
    'leaves it as it is, and the oldest are overwritten. Default: grow where '
    'possible.',
  )
  flags.DEFINE_list(
    'bound',
    [],
    f'Tighter bounds beside the negative bound: {" or ".join(bounds.ESTIMATES)}'
    f' (of a particle filter), or both, separated by a comma.',
  )
  flags.DEFINE_integer(
    'samples',
    None,
    f'Samples of each episode for --bound, >= 1. Default: {_SAMPLES}.',
  )
  flags.DEFINE_string(
    'name',
    None,
    'Of the folder of the results in WORKDIR/evaluations. Default: the flags '
    'and their values.',
  )
  compilation_cache.define_flag()


def main(_: list[str]) -> None:
  """Checks the flags, evaluates, and prints a table."""
  compilation_cache.use(FLAGS.compilation_cache)
  try:
    evaluations.complete(_prepare(), command.console())
  except (ValueError, OSError) as error:
    command.fail(error)
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    command.fail(
      'The device has too little memory; evaluate shorter episodes, or with '
      'fewer --samples.'
    )


def _prepare() -> evaluations.Evaluations:
  """Reads the flags and loads the run.

  Raises:
    ValueError: something is wrong; tells in one line what, and what to do.
    OSError: a file cannot be read.
  """
  if FLAGS.workdir is None:
    raise ValueError('--workdir is missing; name the folder of a run.')
  sizes = {name: _numbers(name) for name in _SIZES if FLAGS[name].present}
  for name in ('episodes', 'samples'):
    if FLAGS[name].value is not None and FLAGS[name].value < 1:
      raise ValueError(f'--{name} is {FLAGS[name].value}; it must be >= 1.')
  if FLAGS.samples is not None and not FLAGS.bound:
    raise ValueError(
      f'--samples is of tighter bounds; add --bound='
      f'{",".join(bounds.ESTIMATES)}, or leave it out.'
    )
  folder = places.locate(FLAGS.workdir, 'workdir')
  count = recorded.read(folder, BUILT_IN).settings.replicas
  if not 1 <= count <= settings_module.MOST_REPLICAS:
    raise ValueError(f'{folder}/config.json has {count} replicas.')
  # Before jax is first used.
  replicas.prepare_cpu_devices(count)
  command.require_device()
  with warnings.catch_warnings():
    # The table tells which replicas failed.
    warnings.simplefilter('ignore', UserWarning)
    run = trained.load(folder, FLAGS.step)
  if FLAGS.data is not None:
    run = variants.with_data(run, FLAGS.data)
  settings = run.settings
  request = evaluations.Request(
    sizes,
    _words('evaluate_on') or (settings.evaluate_on,),
    FLAGS.episodes or settings.evaluation_episodes,
    settings.seed if FLAGS.seed is None else FLAGS.seed,
    FLAGS.slots,
    _words('bound'),
    FLAGS.samples or _SAMPLES,
  )
  return evaluations.prepare(run, request, _name())


def _numbers(name: str) -> tuple[int, ...]:
  """Returns the whole numbers of a flag, each once."""
  texts = _words(name)
  if not texts or not all(text.isdecimal() for text in texts):
    raise ValueError(
      f'--{name} is {",".join(FLAGS[name].value)!r}; it must be whole numbers '
      f'with commas between, as in --{name}=10,20.'
    )
  return tuple(dict.fromkeys(map(int, texts)))


def _words(name: str) -> tuple[str, ...]:
  """Returns the words of a flag, each once."""
  return tuple(dict.fromkeys(FLAGS[name].value or ()))


def _name() -> str:
  """Returns the name of the folder of the results."""
  if FLAGS.name is not None:
    return FLAGS.name
  words = []
  for name in _OF_NAME:
    value = FLAGS[name].value
    if value is not None:
      joined = ','.join(value) if isinstance(value, list) else value
      words.append(f'{name}={joined}')
  if FLAGS.bound:
    words.append(f'bound={",".join(FLAGS.bound)}')
    words.append(f'samples={FLAGS.samples or _SAMPLES}')
  return '-'.join(words) or 'as_trained'


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
