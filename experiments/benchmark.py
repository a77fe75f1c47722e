r"""Measures what a training step costs, for one or several numbers of replicas.

  python experiments/benchmark.py --model=introspective --replicas=1,4

Replicas are laid out, and episodes drawn, as run.py does it; what is not given
comes from the preset. --json=FILE also writes the numbers, a row at a time.
--parameters counts the models' parameters beside the paper's Table 1 instead,
--cores times the memory cores alone as they grow, beside PyTorch's package dnc.
"""

import dataclasses
import json
import math
import os
import pathlib
import sys
import tempfile
from typing import Any

import benchmark_flags
import command
from absl import app, flags
from rich.console import Console
from settings import describe

from gtmm_jax import presets

# jax is imported after the flags are read: --help and mistakes cost no time.

FLAGS = flags.FLAGS


def main(_: list[str]) -> None:
  """Checks the flags, measures, prints."""
  try:
    counts = benchmark_flags.replica_counts(FLAGS.replicas)
    sizes = benchmark_flags.sizes(FLAGS.sizes)
    if not 0 < FLAGS.seconds < math.inf:
      raise ValueError(
        f'--seconds is {FLAGS.seconds}; it must be a number above 0.'
      )
    if sizes and not FLAGS.cores:
      raise ValueError('--sizes are those of memory cores; add --cores.')
    if FLAGS.cores and FLAGS.parameters:
      raise ValueError('--cores and --parameters are two tables; ask for one.')
    path = benchmark_flags.writable(FLAGS.json)
  except ValueError as error:
    command.fail(error)
  console = command.console()
  try:
    if FLAGS.parameters:
      _count(path, console)
    elif FLAGS.cores:
      _time_cores(sizes, path, console)
    else:
      _measure(counts, path, console)
  except KeyboardInterrupt:
    sys.exit(130)


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
      'frames': frames,
      'model': model,
      'parameters': count,
      'paper': paper[model],
      'difference_percent': 100 * (count / paper[model] - 1),
    }
    for frames, paper in presets.PAPER_PARAMETERS.items()
    for model, count in timing.parameter_counts(frames).items()
  ]
  console.print(benchmark_tables.parameters(rows))
  _write(path, {'parameters': rows})


def _time_cores(
  given: list[tuple[int, int, int]],
  path: pathlib.Path | None,
  console: Console,
) -> None:
  import benchmark_cores
  import benchmark_pytorch
  import benchmark_tables
  from absl import logging

  # Else jax tells which accelerators it does not find.
  logging.set_verbosity(logging.ERROR)
  pytorch = benchmark_pytorch.load()
  content = {
    **benchmark_cores.about(pytorch),
    'seconds': FLAGS.seconds,
    'rows': [],
  }
  console.print(benchmark_cores.announce(content))
  if isinstance(pytorch, str):
    console.print(pytorch)
  sizes = [benchmark_cores.Sizes(*each) for each in given]
  measured = benchmark_cores.measure(
    sizes or benchmark_cores.growth(), FLAGS.seconds, pytorch
  )
  for rows in measured:
    content['rows'] += rows
    _write(path, content)
  console.print(benchmark_tables.cores(content['rows']))


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
  names = ('task', 'model', 'preset', 'batch_size', *presets.EPISODE_SETTINGS)
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
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'batch {settings.batch_size}, '
    f'store {settings.store}, preset {settings.preset} ({prepared.why})'
  )
  console.print(
    f'{device["kind"]} ({device["platform"]}), jax '
    f'{prepared.config["versions"]["jax"]}; {prepared.images.source}'
  )


if __name__ == '__main__':
  benchmark_flags.define_flags()
  app.run(main, flags_parser=command.parse_flags)
