r"""Measures what a training step costs, for one or several numbers of replicas.

  python experiments/benchmark.py --model=introspective --replicas=1,4

Replicas are laid out, and episodes drawn, as run.py does it; what is not given
comes from the preset. --json=FILE also writes the numbers, a row at a time.
--parameters counts the models' parameters beside the paper's Table 1 instead.
"""

import dataclasses
import json
import math
import os
import pathlib
import sys
import tempfile
from typing import Any

import command
from absl import app, flags
from rich.console import Console

from gtmm_jax import presets

# jax is imported after the flags are read: --help and mistakes cost no time.

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_enum(
    'task', 'perfect_recall', presets.TASKS, 'What the model watches.'
  )
  flags.DEFINE_enum(
    'model', 'introspective', presets.MODELS, 'Which model is trained.'
  )
  flags.DEFINE_enum(
    'preset',
    'auto',
    ('auto', *presets.PRESETS),
    'Sizes: paper, small, or auto: paper where jax finds an accelerator, else '
    'small.',
  )
  flags.DEFINE_list(
    'replicas',
    ['1', '4'],
    'Numbers of models trained side by side, each >= 1, with commas between; '
    'a row of the table for each.',
  )
  for name, text in {
    'batch_size': 'Sequences in a batch, >= 1.',
    'pre_recall': "The paper's l, frames before the recall interval; >= 10 on "
    'dynamic_dependency.',
    'recall': "The paper's k, frames of the recall interval, 1 to l.",
  }.items():
    flags.DEFINE_integer(name, None, text + command.preset_default(name))
  flags.DEFINE_enum(
    'store',
    None,
    presets.STORES,
    'What the memory is given of a latent, as in run.py.'
    + command.preset_default('store'),
  )
  flags.DEFINE_string(
    'data', 'bundled', 'Digits: bundled, tfds or files:FOLDER, as in run.py.'
  )
  flags.DEFINE_string(
    'data_dir',
    None,
    'Folder in which tensorflow-datasets keeps prepared sets, for --data=tfds. '
    'Default: its own.',
  )
  flags.DEFINE_float(
    'seconds',
    5.0,
    'To spend on the steps of each row, > 0; compiling comes on top.',
  )
  flags.DEFINE_string('json', None, 'File to write the numbers to, too.')
  flags.DEFINE_bool(
    'parameters',
    False,
    'Print the number of parameters of each model at the paper preset, beside '
    "Table 1's, and time nothing.",
  )


def main(_: list[str]) -> None:
  """Checks the flags, measures, prints."""
  try:
    counts = _replica_counts(FLAGS.replicas)
    if not 0 < FLAGS.seconds < math.inf:
      raise ValueError(
        f'--seconds is {FLAGS.seconds}; it must be a number above 0.'
      )
    path = _writable(FLAGS.json)
  except ValueError as error:
    command.fail(error)
  console = command.console()
  try:
    if FLAGS.parameters:
      _count(path, console)
    else:
      _measure(counts, path, console)
  except KeyboardInterrupt:
    sys.exit(130)


def _replica_counts(given: list[str]) -> list[int]:
  """The numbers of replicas, each once, the smallest first.

  The memory peaks that are read after a row are those of the program so far:
  in this order the latest row makes them.
  """
  for text in given:
    if not text.strip().isdecimal() or int(text) < 1:
      raise ValueError(
        f'--replicas has {text!r} in it; it must be whole numbers from 1 on '
        f'with commas between, as in --replicas=1,4.'
      )
  if not given:
    raise ValueError('--replicas is empty; give one number or more, as 1,4.')
  return sorted({int(text) for text in given})


def _writable(given: str | None) -> pathlib.Path | None:
  """The file for --json; raises `ValueError` unless it can be written."""
  if given is None:
    return None
  path = pathlib.Path(given).expanduser()
  if path.is_dir():
    raise ValueError(f'--json={given} is a folder; name a file.')
  if not path.parent.is_dir():
    raise ValueError(
      f'--json={given} lies in a folder that does not exist; make '
      f'{path.parent}, or name a file elsewhere.'
    )
  if not os.access(path if path.exists() else path.parent, os.W_OK):
    raise ValueError(f'--json={given} may not be written; name another file.')
  return path


def _write(path: pathlib.Path | None, content: dict[str, Any]) -> None:
  if path is not None:
    # A reader may look while rows are still to come: it finds whole files.
    temporary = path.with_name(f'.{path.name}.{os.getpid()}')
    temporary.write_text(json.dumps(content, indent=1) + '\n')
    temporary.replace(path)


def _count(path: pathlib.Path | None, console: Console) -> None:
  import benchmark_tables
  import timing

  rows = [
    {
      'model': model,
      'parameters': count,
      'paper': presets.PAPER_PARAMETERS[model],
      'difference_percent': 100 * (count / presets.PAPER_PARAMETERS[model] - 1),
    }
    for model, count in timing.parameter_counts().items()
  ]
  console.print(benchmark_tables.parameters(rows))
  _write(path, {'parameters': rows})


def _measure(
  counts: list[int], path: pathlib.Path | None, console: Console
) -> None:
  import benchmark_tables
  import timing

  from gtmm_jax import replicas

  # As many devices as the largest row may use, before jax is first used.
  replicas.prepare_cpu_devices(counts[-1])
  timings = []
  for count in counts:
    prepared = _prepare(count)
    if not timings:
      _announce(prepared, console)
    timings.append(timing.measure(prepared, FLAGS.seconds))
    rows = timing.as_rows(timings)
    _write(path, _document(prepared, rows))
  console.print(benchmark_tables.timings(rows))


def _prepare(count: int) -> Any:
  """What run.py would run with as many replicas, in a folder of its own."""
  import preparation

  given = dict.fromkeys(
    field.name for field in dataclasses.fields(preparation.Request)
  )
  given |= {name: FLAGS[name].value for name in given if name in FLAGS}
  given |= {'replicas': count, 'binarize': False, 'seed': 0}
  with tempfile.TemporaryDirectory() as folder:
    # Nothing is written there: a folder that does not exist has no old run.
    given |= {'workdir': f'{folder}/none', 'evaluation_episodes': 1}
    try:
      return preparation.prepare(preparation.Request(**given))
    except (ValueError, OSError) as error:
      command.fail(error)


def _document(prepared: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
  """What --json holds."""
  settings, device = prepared.config['settings'], prepared.config['device']
  names = ('task', 'model', 'preset', 'batch_size', 'pre_recall', 'recall')
  return {
    'settings': {name: settings[name] for name in (*names, 'store', 'order')},
    'seconds': FLAGS.seconds,
    'versions': prepared.config['versions'],
    # How many of them are used is a matter of the row.
    'device': {name: device[name] for name in ('platform', 'kind', 'cores')},
    'data': prepared.config['data'],
    'rows': rows,
  }


def _announce(prepared: Any, console: Console) -> None:
  settings, device = prepared.settings, prepared.config['device']
  console.print(
    f'{settings.model} on {settings.task} (l {settings.pre_recall}, '
    f'k {settings.recall}), batch {settings.batch_size}, '
    f'store {settings.store}, preset {settings.preset} ({prepared.why})'
  )
  console.print(
    f'{device["kind"]} ({device["platform"]}), jax '
    f'{prepared.config["versions"]["jax"]}; {prepared.digits.source}'
  )


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
