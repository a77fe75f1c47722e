"""The tables that benchmark.py prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def timings(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each number of replicas, from `timing.as_rows`.

  Memory is that of the device where all rows know it, else of the process.
  """
  on_device = all(row['device_peak_bytes'] is not None for row in rows)
  memory = 'device' if on_device else 'process'
  table = _table(
    'Training steps: medians over portions of steps',
    'R',
    'devices',
    'ms a step',
    'quartiles',
    'ms a replica',
    'to R = 1',
    'compile s',
    f'{memory} peak GB',
  )
  for row in rows:
    step, ratio = row['step_milliseconds'], row['replica_cost_ratio']
    table.add_row(
      str(row['replicas']),
      str(row['devices']),
      _number(step['median']),
      f'{_number(step["lower_quartile"])}-{_number(step["upper_quartile"])}',
      _number(row['replica_milliseconds']['median']),
      '-' if ratio is None else f'{ratio:.2f}',
      f'{row["compile_seconds"]:.1f}',
      f'{row[f"{memory}_peak_bytes"] / 1e9:,.2f}',
    )
  return table


def parameters(rows: Sequence[Mapping[str, Any]]) -> Table:
  """One row for each model: its parameters beside the paper's, in percent."""
  table = _table(
    'Parameters at the paper preset, l = 20, k = 5',
    'model',
    'parameters',
    'Table 1',
    'difference',
  )
  for row in rows:
    table.add_row(
      row['model'],
      f'{row["parameters"]:,}',
      f'{row["paper"]:,}',
      f'{row["difference_percent"]:+.2f}%',
    )
  return table


def _table(title: str, first: str, *others: str) -> Table:
  table = Table(title=title)
  table.add_column(first)
  for name in others:
    # Headings may take a second line where it is narrow, a range may not.
    table.add_column(name, justify='right', no_wrap=name == 'quartiles')
  return table


def _number(milliseconds: float) -> str:
  return f'{milliseconds:,.{2 if milliseconds < 10 else 1}f}'
