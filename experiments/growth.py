r"""Measures how the cost of a training step grows, with benchmark.py.

  python experiments/growth.py --models=introspective,dnc

One after another the length of episodes (and with it the slots, as models have
it), the slots alone, the batch and the replicas grow from a common start. Each
case is a program of its own, so that its peak of memory is its own; the same
command again goes on where it ended. OUTPUT.json and OUTPUT.md are the table.
"""

import json
import math
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)

from absl import app, flags

from gtmm_jax import presets
from gtmm_jax.process import command, places
from gtmm_jax.records import documents

FLAGS = flags.FLAGS

_BENCHMARK = pathlib.Path(__file__).with_name('benchmark.py')
_RECALL = 5
# What grows, from the common start on.
_AXES = {
  'frames': (25, 50, 100, 200, 400),
  'slots': (25, 64, 128, 256, 512),
  # Of the associative memory alone: the links of a DNC would not fit.
  'many_slots': (512, 1024, 2048, 4096, 8192, 16384),
  'batch_size': (10, 20, 40, 80),
  'replicas': (1, 4, 16, 64),
}
_START = {name: _AXES[name][0] for name in ('frames', 'batch_size', 'replicas')}


class Case(NamedTuple):
  """One measurement.

  Attributes:
    model: its name.
    axis: what grows.
    value: how far.
    top_k: slots that the associative memory reads; 0 is all.
    preset: sizes of the networks.
  """

  model: str
  axis: str
  value: int
  top_k: int = 0
  preset: str = 'small'

  @property
  def name(self) -> str:
    """Of its file."""
    few = f'-top_k={self.top_k}' if self.top_k else ''
    return f'{self.model}-{self.axis}-{self.value}{few}-{self.preset}'


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_list('models', list(presets.MODELS), 'Which models.')
  flags.DEFINE_list('axes', list(_AXES), 'What grows.')
  flags.DEFINE_enum(
    'preset', 'small', tuple(presets.PRESETS), 'Sizes of the networks.'
  )
  flags.DEFINE_integer(
    'top_k',
    0,
    'Slots that the associative memory reads by each addressing, 2 or more; 0 '
    'is all.',
    lower_bound=0,
  )
  flags.DEFINE_float('seconds', 1.0, 'To spend on the steps of a case, > 0.')
  flags.DEFINE_string('folder', 'runs/growth', 'Where cases are kept.')
  flags.DEFINE_string(
    'output',
    None,
    'The table, OUTPUT.json and OUTPUT.md. Default: FOLDER/table.',
  )


def main(_: list[str]) -> None:
  """Measures what is left to measure, and writes the table."""
  try:
    cases, folder, output = _prepare()
    if any(not _path(case, folder).exists() for case in cases):
      command.require_device_for_others()
  except (ValueError, OSError) as error:
    command.fail(error)
  rows, failed = [], []
  try:
    for case in cases:
      row = _measure(case, folder)
      if row is None:
        failed.append(case.name)
        print(f'{case.name}: failed; see {folder / case.name}.log', flush=True)
        continue
      rows.append(row)
      step = row['step_milliseconds']['median']
      print(f'{case.name}: {step:,.1f} ms a step', flush=True)
  except signals.Stopped as stopped:
    signals.leave(stopped)
  document = {'preset': FLAGS.preset, 'start': _START, 'rows': rows}
  documents.replace_document(
    pathlib.Path(f'{output}.json'), documents.as_json(document)
  )
  documents.replace(pathlib.Path(f'{output}.md'), as_markdown(rows).encode())
  print(f'{output}.json\n{output}.md')
  if failed:
    command.fail(f'{len(failed)} of {len(cases)} cases failed.')


def cases_of(
  models: Sequence[str],
  axes: Sequence[str],
  top_k: int = 0,
  preset: str = 'small',
) -> Iterator[Case]:
  """All cases; a model without a memory has no slots."""
  for model in models:
    own = top_k if model == 'associative' else 0
    for axis in axes:
      if axis == 'many_slots' and model != 'associative':
        continue
      if not (model == 'vrnn' and axis == 'slots'):
        for value in _AXES[axis]:
          yield Case(model, axis, value, own, preset)


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """A table for each model and axis, with the power of each growth.

  A cost that is multiplied by c where the size is by s has grown with the power
  log c / log s: 1 is a straight line.
  """
  lines, before = [], None
  for row in rows:
    heading = row['model'], row['axis']
    if before is None or heading != (before['model'], before['axis']):
      before = None
      lines += [
        '',
        f'### {row["model"]}, {row["axis"].replace("_", " ")}',
        '',
        '| | ms a step | quartiles | power | peak MB | power | compile s |',
        '| --- | --- | --- | --- | --- | --- | --- |',
      ]
    step = row['step_milliseconds']
    quartiles = f'{step["lower_quartile"]:,.1f}-{step["upper_quartile"]:,.1f}'
    lines.append(
      f'| {row["value"]} | {step["median"]:,.1f} | {quartiles} | '
      f'{_power(before, row, lambda r: r["step_milliseconds"]["median"])} | '
      f'{row["process_peak_bytes"] / 1e6:,.0f} | '
      f'{_power(before, row, lambda r: r["process_peak_bytes"])} | '
      f'{row["compile_seconds"]:.1f} |'
    )
    before = row
  return '\n'.join(lines[1:]) + '\n'


def _power(before: Mapping[str, Any] | None, row: Any, cost: Any) -> str:
  if before is None:
    return ''
  grown = math.log(row['value'] / before['value'])
  return f'{math.log(cost(row) / cost(before)) / grown:.2f}'


def _prepare() -> tuple[list[Case], pathlib.Path, pathlib.Path]:
  """The cases, their folder, and the stem of the table.

  Raises:
    ValueError: if a flag makes no sense, or nothing can be written.
  """
  for flag, allowed in (('models', presets.MODELS), ('axes', _AXES)):
    wrong = [name for name in FLAGS[flag].value if name not in allowed]
    if wrong or not FLAGS[flag].value:
      raise ValueError(
        f'--{flag} has {", ".join(wrong) or "nothing"} in it; there are '
        f'{", ".join(allowed)}.'
      )
  command.require_seconds(FLAGS.seconds)
  if FLAGS.top_k == 1:
    raise ValueError('--top_k is 1; it must be 0, which is all, or 2 or more.')
  cases = cases_of(FLAGS.models, FLAGS.axes, FLAGS.top_k, FLAGS.preset)
  return list(cases), *places.make_folders(FLAGS.folder, FLAGS.output)


def _path(case: Case, folder: pathlib.Path) -> pathlib.Path:
  return folder / f'{case.name}.json'


def _measure(case: Case, folder: pathlib.Path) -> dict[str, Any] | None:
  """The row of a case, measured unless it is there; None where that failed."""
  path = _path(case, folder)
  if not path.exists():
    axis = 'slots' if case.axis == 'many_slots' else case.axis
    sizes = {**_START, 'slots': None, axis: case.value}
    own = {
      'task': 'perfect_recall',
      'model': case.model,
      'preset': case.preset,
      'pre_recall': sizes['frames'] - _RECALL,
      'recall': _RECALL,
      'batch_size': sizes['batch_size'],
      'replicas': sizes['replicas'],
      'slots': sizes['slots'],
      'top_k': case.top_k,
      'seconds': FLAGS.seconds,
      'json': path,
    }
    own = {name: value for name, value in own.items() if value is not None}
    if command.run_logged(_BENCHMARK, own, folder / f'{case.name}.log'):
      path.unlink(missing_ok=True)
      return None
  (row,) = json.loads(path.read_text())['rows']
  return {**case._asdict(), **row}


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
