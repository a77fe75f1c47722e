r"""Measures what a training step costs, for one or several numbers of replicas.

  python experiments/benchmark.py --model=introspective --replicas=1,4

Replicas are laid out, and episodes drawn, as run.py does it; what is not given
comes from the preset. Steps stand beside the least time that their arithmetic
and traffic can take on this machine, with --pytorch beside the same model in
PyTorch, and with --naive beside what one would write first. --json=FILE also
writes the numbers, a row at a time; with --compare=FILE, those of an earlier
--json that moved beyond the noise are listed. --parameters counts the models'
parameters beside the paper's Table 1 instead, --cores times the memory cores
alone as they grow, beside PyTorch's package dnc, --memory estimates what
gradients need.
"""

import pathlib
import sys
from typing import Any

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('rows that were measured are in --json, if given')
  command.import_jax()

from absl import app, flags
from rich.console import Console

import benchmark_comparison
from benchmarking import own_flags
from gtmm_jax import presets
from gtmm_jax.runs.settings import describe

# jax is imported after the flags are read: --help and mistakes cost no time.

FLAGS = flags.FLAGS


def main(_: list[str]) -> None:
  """Checks the flags, measures, prints."""
  try:
    counts = own_flags.replica_counts(FLAGS.replicas)
    sizes = own_flags.sizes(FLAGS.sizes)
    command.require_seconds(FLAGS.seconds)
    if sizes and not FLAGS.cores:
      raise ValueError('--sizes are those of memory cores; add --cores.')
    if FLAGS.plain and not FLAGS.cores:
      raise ValueError('--plain is for memory cores alone; add --cores.')
    tables = [n for n in ('cores', 'parameters', 'memory') if FLAGS[n].value]
    if len(tables) > 1:
      both = ' and '.join(f'--{name}' for name in tables)
      raise ValueError(f'{both} are tables of their own; ask for one.')
    if tables and tables != ['cores'] and FLAGS.compare:
      raise ValueError(f'--compare is for times; leave out --{tables[0]}.')
    if FLAGS.memory:
      own_flags.require_none_of_one_model(FLAGS)
    path = own_flags.writable(FLAGS.json)
    before = None
    if FLAGS.compare is not None:
      before = benchmark_comparison.read(FLAGS.compare)
    command.import_jax()
    if FLAGS.parameters or FLAGS.cores:
      # The others first tell how many devices of the CPU they take.
      command.require_device()
  except ValueError as error:
    command.fail(error)
  console = command.console()
  if FLAGS.parameters:
    _count(path, console)
    return
  if FLAGS.memory:
    _estimate(counts[-1], path, console)
    return
  if FLAGS.cores:
    content = _time_cores(sizes, path, console)
  else:
    content = _time_steps(counts, path, console)
  if before is not None:
    _compare(before, content, console)


def _write(path: pathlib.Path | None, content: dict[str, Any]) -> None:
  if path is not None:
    from gtmm_jax.records import documents

    # A reader may look while rows are still to come: it finds whole files.
    documents.replace_document(path, documents.as_json(content))


def _count(path: pathlib.Path | None, console: Console) -> None:
  from benchmarking import reporting, timing

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
  console.print(reporting.parameters(rows))
  _write(path, {'parameters': rows})


def _estimate(count: int, path: pathlib.Path | None, console: Console) -> None:
  from benchmarking import reporting, training_steps

  try:
    prepared = training_steps.prepare(FLAGS, count)
  except (ValueError, OSError) as error:
    command.fail(error)
  rows = training_steps.memory(prepared)
  settings = prepared.settings
  console.print(
    f'{settings.task} ({describe(settings)}), batch {settings.batch_size}, '
    f'preset {settings.preset}, {count} replicas'
  )
  console.print(reporting.memory(rows))
  content = {**training_steps.document(prepared, 0.0), 'memory': rows}
  content['settings'] = {
    name: value
    for name, value in content['settings'].items()
    if name not in own_flags.OF_ONE_MODEL
  }
  _write(path, content)


def _time_cores(
  given: list[tuple[int, int, int]],
  path: pathlib.Path | None,
  console: Console,
) -> dict[str, Any]:
  from benchmarking import cores, reporting
  from benchmarking.pytorch import dnc

  pytorch = dnc.load()
  content = {
    **cores.about(pytorch, FLAGS.plain),
    'seconds': FLAGS.seconds,
    'rows': [],
  }
  console.print(cores.announce(content))
  if isinstance(pytorch, str):
    console.print(pytorch)
  sizes = [cores.Sizes(*each) for each in given]
  measured = cores.measure(
    sizes or cores.growth(), FLAGS.seconds, pytorch, FLAGS.plain
  )
  for rows in measured:
    content['rows'] += rows
    _write(path, content)
  console.print(reporting.cores(content['rows']))
  return content


def _time_steps(
  counts: list[int], path: pathlib.Path | None, console: Console
) -> dict[str, Any]:
  from benchmarking import reporting, training_steps
  from gtmm_jax import replicas

  # As many devices as the largest row may use, before jax is first used.
  replicas.prepare_cpu_devices(counts[-1])
  try:
    prepared = [training_steps.prepare(FLAGS, count) for count in counts]
  except (ValueError, OSError) as error:
    command.fail(error)
  console.print(training_steps.announce(prepared[0]))
  for content in training_steps.measure(
    prepared, FLAGS.seconds, FLAGS.pytorch, FLAGS.naive
  ):
    _write(path, content)
  console.print(reporting.timings(content['rows']))
  console.print(reporting.roofline(content['roofline']))
  if content['others']:
    console.print(reporting.others(content['others']))
  for remark in content['remarks']:
    console.print(remark)
  return content


def _compare(
  before: dict[str, Any], content: dict[str, Any], console: Console
) -> None:
  try:
    changes, count, notes = benchmark_comparison.compare(before, content)
  except ValueError as error:
    command.fail(error)
  for note in notes:
    console.print(note)
  if changes:
    console.print(benchmark_comparison.as_table(changes))
  rows = 'row' if count == 1 else 'rows'
  console.print(
    f'{len(changes)} numbers of {count} {rows} moved beyond the noise.'
  )


if __name__ == '__main__':
  own_flags.define_flags()
  app.run(main, flags_parser=command.parse_flags)
