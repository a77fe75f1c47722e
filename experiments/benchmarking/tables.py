"""The tables that benchmark.py prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def steps(rows: Sequence[Mapping[str, Any]], grows: str) -> Table:
  """Returns a line for each row of `step_times.measure`.

  Memory is that of the device where all rows know it, else of the process. To
  draw is to make the episodes alone, which is part of a step, too.
  """
  on_device = all(row['device_peak_bytes'] is not None for row in rows)
  memory = 'device' if on_device else 'process'
  table = _table(
    'Training steps: medians over portions of steps',
    grows.replace('_', ' '),
    'ms a step',
    'quartiles',
    'ms a replica',
    'power',
    'ms to draw',
    'compile s',
    'peak GB',
  )
  table.caption = f'peaks are of the {memory}'
  for row in rows:
    step, power = row['step_milliseconds'], row['power']
    table.add_row(
      str(row['value']),
      _number(step['median']),
      _range(step),
      _number(row['replica_milliseconds']['median']),
      '-' if power is None else f'{power:.2f}',
      _number(row['drawing_milliseconds']['median']),
      f'{row["compile_seconds"]:.1f}',
      f'{row[f"{memory}_peak_bytes"] / 1e9:,.2f}',
    )
  return table


def costs(rows: Sequence[Mapping[str, Any]], grows: str) -> Table:
  """Returns a line for each row with the costs that `training_steps` adds.

  Operations and memory are those of one replica; so is the time of PyTorch.
  """
  has_pytorch = any(row['pytorch'] is not None for row in rows)
  table = _table(
    'The same steps beside the least time that they can take',
    grows.replace('_', ' '),
    'GFLOP a replica',
    'temporary MB',
    'least ms',
    'measured ms',
    'fraction',
    *(['PyTorch, ms a replica', 'it takes'] if has_pytorch else []),
  )
  for row in rows:
    memory = row['temporary_bytes']
    line = [
      str(row['value']),
      f'{row["operations"] / 1e9:,.2f}',
      '-' if memory is None else f'{memory / 1e6:,.1f}',
      _number(row['roofline_milliseconds']),
      _number(row['step_milliseconds']['median']),
      f'{row["roofline_fraction"]:.3f}',
    ]
    if row['pytorch'] is not None:
      line += [
        _number(row['pytorch']['milliseconds']['median']),
        f'{row["pytorch_ratio"]:.2f}x',
      ]
    table.add_row(*line)
  return table


def parameters(rows: Sequence[Mapping[str, Any]]) -> Table:
  """Returns a line for each row of `parameter_counts.rows`."""
  is_paper = rows[0]['preset'] == 'paper'
  table = _table(
    f'Parameters at the preset {rows[0]["preset"]}',
    'frames',
    'model',
    'parameters',
    'share',
    *(['Table 1', 'difference'] if is_paper else []),
  )
  table.caption = "share: of the largest model's on the same frames"
  for row in rows:
    line = [
      row['frames'],
      row['model'],
      f'{row["parameters"]:,}',
      f'{row["share_percent"]:.2f}%',
    ]
    if is_paper:
      line += [f'{row["paper"]:,}', f'{row["difference_percent"]:+.2f}%']
    table.add_row(*line)
  return table


def cores(rows: Sequence[Mapping[str, Any]]) -> Table:
  """Returns a line for each core and size, from `cores.as_rows`.

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
