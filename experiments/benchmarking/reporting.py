"""The tables that benchmark.py prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

_ROADS = {'eager': 'PyTorch, eager', 'compiled': 'PyTorch, compiled'}


def timings(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each number of replicas, from `timing.as_rows`.

  Memory is that of the device where all rows know it, else of the process. To
  draw is to make the episodes alone, which is part of a step, too.
  """
  on_device = all(row['device_peak_bytes'] is not None for row in rows)
  memory = 'device' if on_device else 'process'
  table = _table(
    'Training steps: medians over portions of steps',
    'R',
    'ms a step',
    'quartiles',
    'ms a replica',
    'to R = 1',
    'ms to draw',
    'compile s',
    f'{memory} peak GB',
  )
  for row in rows:
    step, ratio = row['step_milliseconds'], row['replica_cost_ratio']
    table.add_row(
      str(row['replicas']),
      _number(step['median']),
      _range(step),
      _number(row['replica_milliseconds']['median']),
      '-' if ratio is None else f'{ratio:.2f}',
      _number(row['drawing_milliseconds']['median']),
      f'{row["compile_seconds"]:.1f}',
      f'{row[f"{memory}_peak_bytes"] / 1e9:,.2f}',
    )
  return table


def parameters(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each model: its parameters beside the paper's, in percent."""
  table = _table(
    'Parameters at the paper preset',
    'frames',
    'model',
    'parameters',
    'Table 1',
    'difference',
  )
  for row in rows:
    table.add_row(
      row['frames'],
      row['model'],
      f'{row["parameters"]:,}',
      f'{row["paper"]:,}',
      f'{row["difference_percent"]:+.2f}%',
    )
  return table


def cores(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each core and size, from `benchmark_cores.as_rows`.

  Of PyTorch's package the number of threads that suits it best is shown.
  """
  table = _table(
    'One pass forward and backward: medians over rounds',
    'N x W x R',
    'core',
    'ms',
    'quartiles',
    'PyTorch takes',
    'temporary MB',
  )
  sizes = None
  for row in rows:
    if row['threads'] is not None and row['pytorch_ratio'] != 1.0:
      continue
    before, sizes = sizes, _sizes(row)
    if sizes != before:
      table.add_section()
    spread, ratio = row['milliseconds'], row['pytorch_ratio']
    memory = row['temporary_bytes']
    table.add_row(
      '' if sizes == before else sizes,
      row['core'],
      _number(spread['median']),
      _range(spread),
      '-' if ratio is None else f'{ratio:.1f}x',
      '-' if memory is None else f'{memory / 1e6:,.1f}',
    )
    if row['threads'] is not None:
      table.caption = 'PyTorch on 1 or 2 threads, whichever is faster'
  return table


def roofline(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each measured step, from `roofline.as_row`."""
  table = _table(
    'Training steps beside the least that they can take',
    'model',
    'R',
    'GFLOP',
    'roofline ms',
    'measured ms',
    'fraction',
  )
  for row in rows:
    table.add_row(
      row['model'],
      str(row['replicas']),
      f'{row["operations"] / 1e9:,.2f}',
      _number(row['roofline_milliseconds']),
      _number(row['milliseconds']),
      f'{row["fraction"]:.3f}',
    )
  return table


def memory(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each model and way, from `benchmark_steps.memory`."""
  table = _table(
    'Estimated memory of gradients, of all replicas',
    'model',
    'computed again',
    'kept GiB',
    'at hand GiB',
    'together GiB',
  )
  model = None
  for row in rows:
    if row['model'] != model:
      table.add_section()
    before, model = model, row['model']
    sizes = [row[f'{name}_bytes'] / 2**30 for name in ('through', 'inside')]
    table.add_row(
      '' if model == before else model,
      row['recompute'],
      *(f'{size:,.2f}' for size in (*sizes, sum(sizes))),
    )
  return table


def others(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each other road, from `benchmark_steps.measure`."""
  ratios = list(rows[0]['ratios'])
  table = _table(
    'The same step on other roads, one replica after another',
    'road',
    'threads',
    'ms a replica',
    'quartiles',
    'compile s',
    *(f'to ours, R = {count}' for count in ratios),
  )
  for row in rows:
    spread, compiling = row['replica_milliseconds'], row['compile_seconds']
    table.add_row(
      _ROADS.get(row['mode'], row['mode']),
      '-' if row['threads'] is None else str(row['threads']),
      _number(spread['median']),
      _range(spread),
      '-' if compiling is None else f'{compiling:.0f}',
      *(f'{row["ratios"][count]:.2f}x' for count in ratios),
    )
  return table


def _sizes(row: Mapping[str, Any]) -> str:
  return 'x'.join(str(row[n]) for n in ('slots', 'word_size', 'read_heads'))


def _range(spread: Mapping[str, float]) -> str:
  lower, upper = spread['lower_quartile'], spread['upper_quartile']
  return f'{_number(lower)}-{_number(upper)}'


def _table(title: str, first: str, *others: str) -> Table:
  table = Table(title=title)
  table.add_column(first)
  for name in others:
    # Headings may take a second line where it is narrow, a range may not.
    table.add_column(name, justify='right', no_wrap=name == 'quartiles')
  return table


def _number(milliseconds: float) -> str:
  return f'{milliseconds:,.{2 if milliseconds < 10 else 1}f}'
