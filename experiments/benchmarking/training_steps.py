"""Measures training steps of runs: time, arithmetic, memory, and PyTorch's."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from benchmarking import flops, roofline, step_times
from benchmarking.growth import Growth
from benchmarking.pytorch import twin
from gtmm_jax import train
from gtmm_jax.process import jax_settings, provenance
from gtmm_jax.runs import own_frames
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import as_text, describe

# Settings of every run that --json records.
_RECORDED = ('task', 'model', 'preset', 'batch_size', 'store')
_RECORDED += ('recompute', 'precision', 'key_generator', 'x64')


def announce(run: Run) -> str:
  """Describes the run, the device and the data in words."""
  settings, device = run.settings, run.config['device']
  return (
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'batch {settings.batch_size}, '
    f'store {settings.store}, preset {settings.preset} ({run.why})\n'
    f'{device["kind"]} ({device["platform"]}), jax '
    f'{run.config["versions"]["jax"]}; {run.images.source}'
  )


def measure(
  runs: Sequence[Run], growth: Growth, seconds: float, in_pytorch: bool = False
) -> Iterator[dict[str, Any]]:
  """Times the steps of runs; then the machine, the arithmetic, and PyTorch.

  Args:
    runs: one for each value of `growth`.
    growth: what they differ in.
    seconds: to spend on the steps of each, > 0.
    in_pytorch: whether the same models are timed in PyTorch.

  Yields:
    What --json holds, with one row more each time, see `step_times`; at last
    with `machine`, from `roofline`, with `remarks` on what was not timed, and
    with what `_beside` adds to each row.
  """
  content = document(runs[0], growth, seconds)
  rows = content['rows']
  jax_settings.set_precision(runs[0].settings.precision)
  for value, run in zip(growth.values, runs, strict=True):
    row = {'value': value, **step_times.measure(run, seconds)}
    row['power'] = _power(rows[-1], row) if rows else None
    rows.append(row)
    yield content
  machine = roofline.measure()
  content['machine'] = machine._asdict()
  cost = None
  for run, row in zip(runs, rows, strict=True):
    # The cost of one replica does not depend on their number.
    if cost is None or growth.name != 'replicas':
      cost, remark = _cost(run, seconds, in_pytorch)
      if remark and remark not in content['remarks']:
        content['remarks'].append(remark)
    row |= _beside(cost, row, machine)
    yield content


def document(run: Run, growth: Growth, seconds: float) -> dict[str, Any]:
  """Returns the content of --json without rows."""
  settings, device = run.config['settings'], run.config['device']
  return {
    # Of the first row; each row has the value that grows.
    'settings': {
      **{name: settings[name] for name in _RECORDED},
      **run.settings.episode,
      **{name: as_text(v) for name, v in run.settings.options.items()},
      'set': list(run.settings.set),
    },
    'grows': growth.name,
    'seconds': seconds,
    'versions': run.config['versions'],
    # Each row has the number of devices that it uses.
    'device': {name: device[name] for name in ('platform', 'kind', 'cores')},
    'data': run.config['data'],
    **provenance.published(),
    'rows': [],
    'remarks': [],
  }


def _power(before: dict[str, Any], row: dict[str, Any]) -> float:
  """Returns p if a step's time grows as the p-th power of the row's value.

  If T grows, p is the power of T.
  """
  size = 'value' if row['frames'] == before['frames'] else 'frames'
  times = [each['step_milliseconds']['median'] for each in (before, row)]
  return math.log(times[1] / times[0]) / math.log(row[size] / before[size])


def _cost(
  run: Run, seconds: float, in_pytorch: bool
) -> tuple[dict[str, Any], str | None]:
  """Returns the cost of one replica's step, and a remark, if any."""
  cost = {
    'operations': flops.training_step(
      run.problem.model,
      run.images.training.shape[-3:],
      run.task.length,
      run.settings.batch_size,
      run.task.condition_size,
    ),
    'temporary_bytes': _temporary_bytes(run),
    'pytorch': None,
  }
  remark = None
  if in_pytorch:
    cost['pytorch'], remark = twin.measure(run, step_times.slots(run), seconds)
  return cost, remark


def _temporary_bytes(run: Run) -> int | None:
  """Compiles one replica's step; returns its bytes of temporary memory."""
  arguments = replica_keys(run.settings)[0], own_frames.first(run.images)
  state = jax.eval_shape(
    functools.partial(train.init_state, run.problem, run.recipe), *arguments
  )
  step = functools.partial(train.train_step, run.problem, run.recipe)
  lowered = jax.jit(step, donate_argnums=0).lower(state, *arguments)
  compiled = flops.compile_soon(lowered, run.layout.devices[0].platform)
  # Devices that do not tell have no such analysis.
  return getattr(compiled.memory_analysis(), 'temp_size_in_bytes', None)


def _beside(
  cost: dict[str, Any], row: dict[str, Any], machine: roofline.Machine
) -> dict[str, Any]:
  """Returns the values that a row gets besides its times, from `_cost`.

  `operations`, and `temporary_bytes` that the step needs beside its state, of
  one replica; `roofline_milliseconds` and `roofline_fraction`, from `roofline`,
  of all; `pytorch`, from `twin.measure`, or None; `pytorch_ratio`, how many
  times as long as a replica's step here that one takes.
  """
  # Devices of the CPU share its rate.
  is_cpu = machine.platform == 'cpu'
  count = row['replicas' if is_cpu else 'replicas_per_device']
  least = roofline.least(
    count * cost['operations'], machine, row['step_milliseconds']['median']
  )
  ratio = None
  if cost['pytorch']:
    ratio = (
      cost['pytorch']['milliseconds']['median']
      / row['replica_milliseconds']['median']
    )
  return {
    **cost,
    'roofline_milliseconds': least.milliseconds,
    'roofline_fraction': least.fraction,
    'pytorch_ratio': ratio,
  }
