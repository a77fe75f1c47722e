r"""Measures what a training step costs, as replicas or another size grow.

  python experiments/benchmark.py --model=introspective --grow=replicas=1,4
  python experiments/benchmark.py --model=dnc --grow=slots=25,64,128,256
  python experiments/benchmark.py --cores
  python experiments/benchmark.py --parameters --preset=small

Each row of the table is a separate run, prepared as run.py does; the preset
decides flags that are not set. A row has the time, the memory and the compile
seconds of its steps, beside the least time that their arithmetic can take on
this machine and, with --pytorch, beside the same model in PyTorch. --grow takes
any integer flag or size of --set. `power` is p if a step's time grows as the
p-th power of the value. --cores times the memory cores alone, beside PyTorch's
package dnc; --parameters counts the parameters of all models at a preset,
beside the paper's Table 1 at the preset paper.
--json=FILE also writes the numbers to a file.
"""

import os
import pathlib
import sys
from typing import Any

# Finds its parts beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('rows that were measured are in --json, if given')
  command.import_jax()

from absl import app
from absl import flags as absl_flags
from rich.console import Console

from benchmarking import cores, growth, parameter_counts, tables, training_steps
from benchmarking.pytorch import dnc
from gtmm_jax import replicas
from gtmm_jax.process import places
from gtmm_jax.records import documents
from gtmm_jax.runs import flags, prepare

FLAGS = absl_flags.FLAGS

# Flags of a run that matter to its steps.
_OF_RUNS = (
  'task',
  'model',
  'preset',
  'replicas',
  'batch_size',
  *flags.EPISODE,
  'store',
  *flags.OPTIONS,
  'set',
  'data',
  'data_dir',
  'device_megabytes',
  'recompute',
  'precision',
)


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.define(_OF_RUNS)
  absl_flags.DEFINE_string(
    'grow',
    None,
    'NAME=VALUES: the flag or size of --set that grows from row to row, and '
    'its values, integers from 1 on separated by commas. Default: '
    'replicas=1,4; there is one replica if something else grows.',
  )
  absl_flags.DEFINE_float(
    'seconds',
    5.0,
    'Seconds for the steps of each row, or for the passes of all cores of a '
    'size, > 0, without compiling.',
  )
  absl_flags.DEFINE_string('json', None, 'File for the numbers, in JSON.')
  absl_flags.DEFINE_bool(
    'pytorch',
    False,
    'Also time the same model in PyTorch: vrnn and introspective on grey '
    'frames; pip install "gtmm_jax[benchmark]".',
  )
  absl_flags.DEFINE_bool(
    'parameters',
    False,
    'Print the number of parameters of each model at --preset (auto is paper, '
    "beside the paper's Table 1), and time nothing.",
  )
  absl_flags.DEFINE_bool(
    'cores',
    False,
    'Time the memory cores alone, forward and backward, beside the PyTorch '
    'package dnc if it is installed, pip install "gtmm_jax[benchmark]". Only '
    'the flags seconds, sizes, plain and json apply.',
  )
  absl_flags.DEFINE_bool(
    'plain',
    False,
    "For --cores: take JAX's own derivatives, as for a core outside of "
    'training, not the written-out backward passes of training.',
  )
  absl_flags.DEFINE_list(
    'sizes',
    [],
    'For --cores: slots, word size and read heads as NxWxR, each >= 1 and R at '
    'most N, separated by commas. Default: 25x32x5, and larger and smaller '
    'values of each of the three.',
  )


def main(_: list[str]) -> None:
  """Checks the flags, measures, and prints tables."""
  try:
    sizes = cores.read_sizes(FLAGS.sizes)
    command.require_seconds(FLAGS.seconds)
    for name in ('sizes', 'plain'):
      if FLAGS[name].value and not FLAGS.cores:
        raise ValueError(f'--{name} is for memory cores alone; add --cores.')
    if FLAGS.cores and FLAGS.parameters:
      raise ValueError('--cores and --parameters exclude each other; give one.')
    path = _writable(FLAGS.json)
    if FLAGS.cores or FLAGS.parameters:
      command.require_device()
  except ValueError as error:
    command.fail(error)
  console = command.console()
  if FLAGS.parameters:
    preset = 'paper' if FLAGS.preset == 'auto' else FLAGS.preset
    rows = parameter_counts.rows(preset)
    console.print(tables.parameters(rows))
    _write(path, {'parameters': rows})
  elif FLAGS.cores:
    _time_cores(sizes, path, console)
  else:
    _time_steps(path, console)


def _writable(text: str | None) -> pathlib.Path | None:
  """Returns the file of --json; raises `ValueError` if it cannot be written."""
  if text is None:
    return None
  path = places.locate(text, 'json')
  if path.is_dir():
    raise ValueError(f'--json={text} is a folder; name a file.')
  if not path.parent.is_dir():
    raise ValueError(
      f'--json={text} is in a folder that does not exist; make {path.parent}, '
      f'or name a file elsewhere.'
    )
  if not os.access(path if path.exists() else path.parent, os.W_OK):
    raise ValueError(f'--json={text} may not be written; name another file.')
  return path


def _write(path: pathlib.Path | None, content: dict[str, Any]) -> None:
  """Writes the numbers, replacing a file of fewer rows in one step."""
  if path is not None:
    documents.replace_document(path, documents.as_json(content))


def _time_cores(
  sizes: list[cores.Sizes], path: pathlib.Path | None, console: Console
) -> None:
  pytorch = dnc.load()
  content = {
    **cores.about(pytorch, FLAGS.plain),
    'seconds': FLAGS.seconds,
    'rows': [],
  }
  console.print(cores.announce(content))
  if isinstance(pytorch, str):
    console.print(pytorch)
  measured = cores.measure(
    sizes or cores.growth(), FLAGS.seconds, pytorch, FLAGS.plain
  )
  for rows in measured:
    content['rows'] += rows
    _write(path, content)
  console.print(tables.cores(content['rows']))


def _time_steps(path: pathlib.Path | None, console: Console) -> None:
  try:
    grows = growth.read(FLAGS.grow, FLAGS.replicas)
    settings = growth.settings(grows, FLAGS)
    # As many devices as the largest row needs, before jax is first used.
    replicas.prepare_cpu_devices(max(each.replicas for each in settings))
    runs = [prepare.prepare(each, has_workdir=False) for each in settings]
  except (ValueError, OSError) as error:
    command.fail(error)
  console.print(training_steps.announce(runs[0]))
  for content in training_steps.measure(
    runs, grows, FLAGS.seconds, FLAGS.pytorch
  ):
    _write(path, content)
  console.print(tables.steps(content['rows'], grows.name))
  console.print(tables.costs(content['rows'], grows.name))
  for remark in content['remarks']:
    console.print(remark)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
