"""The comparison that a grid names beforehand: ours against the best other.

In a grid it is "comparison": {"ours": LABEL, "others": [LABEL, ...], "metric":
METRIC, "margin": NUMBER}. A label is a cell's name without its task, as in the
rows of the tables. On each task the best of the others is the one with the best
mean on validation episodes; it is compared with ours on the episodes of the
final evaluation. Differences below the margin are held to mean nothing.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from studies import grid_file, markdown, statistics
from studies.outcomes import (
  HIGHER_IS_BETTER,
  METRICS,
  Row,
  label_of,
  paired_values,
  require_metric,
)

_FORM = (
  '{"ours": LABEL, "others": [LABEL, ...], "metric": METRIC, "margin": NUMBER}'
)
# The greatest adjusted p-value that counts as a difference.
_SIGNIFICANT = 0.05


class Comparison(NamedTuple):
  """A comparison, as a grid names it.

  Attributes:
    ours: the label of the model that is compared.
    others: labels of those of which the best is chosen on each task.
    metric: that is compared, one of `METRICS`.
    margin: the least difference that counts, in the metric's unit, >= 0.
  """

  ours: str
  others: tuple[str, ...]
  metric: str
  margin: float


class Compared(NamedTuple):
  """The result of a comparison on one task.

  Attributes:
    task: its name.
    other: the label of the best other, None if none could be chosen.
    difference: of ours and the other, None if they cannot be compared.
    adjusted: p-value by Holm over all tasks of the comparison, or None.
    verdict: in words; the reason where they cannot be compared.
  """

  task: str
  other: str | None
  difference: statistics.Difference | None
  adjusted: float | None
  verdict: str


def read(file: pathlib.Path) -> Comparison | None:
  """Reads the comparison of a grid; None if the grid has none.

  Raises:
    ValueError: it is not one, or names what the grid does not have.
    OSError: the grid cannot be read.
  """
  parts = grid_file.question(file, 'comparison', Comparison._fields, _FORM)
  if parts is None:
    return None
  ours, others, metric, margin = (parts[name] for name in Comparison._fields)
  cells = grid_file.read(file)
  labels = {
    label_of(name, flags.get('task', ''), flags.get('model', ''))
    for name, (flags, _) in cells.items()
  }
  if not isinstance(others, list) or not others:
    raise ValueError(f'{file}: "others" of "comparison" must be a list.')
  for label in (ours, *others):
    if label not in labels:
      raise ValueError(
        f'{file}: "comparison" names {label!r}; its cells are '
        f'{", ".join(sorted(labels))}.'
      )
  if ours in others:
    raise ValueError(f'{file}: "comparison" compares {ours!r} with itself.')
  require_metric(file, 'comparison', metric)
  is_number = isinstance(margin, (int, float)) and not isinstance(margin, bool)
  if not is_number or not 0 <= margin < math.inf:
    raise ValueError(
      f'{file}: the margin of "comparison" is {margin!r}; it must be a number '
      f'from 0 on.'
    )
  return Comparison(ours, tuple(others), metric, float(margin))


def compare(rows: Sequence[Row], comparison: Comparison) -> list[Compared]:
  """Compares ours with the best other on each task that has a cell of ours.

  Args:
    rows: of all tasks.
    comparison: what to compare.
  """
  by_task: dict[str, dict[str, Row]] = {}
  for row in rows:
    by_task.setdefault(row.task, {})[row.label] = row
  results = [
    _on_task(task, labels, comparison)
    for task, labels in by_task.items()
    if comparison.ours in labels
  ]
  adjusted = statistics.holm(
    [each.difference and each.difference.p for each in results]
  )
  return [
    each._replace(
      adjusted=p,
      verdict=each.verdict or _verdict(each.difference, p, comparison),
    )
    for each, p in zip(results, adjusted, strict=True)
  ]


def section(rows: Sequence[Row], comparison: Comparison) -> list[str]:
  """Returns the heading, the words and the table of the comparison."""
  others = ', '.join(f'`{label}`' for label in comparison.others)
  lines = []
  for each in compare(rows, comparison):
    cells = ['-'] * 5
    if each.difference is not None:
      d = each.difference
      bootstrap = '-'
      if d.bootstrap is not None:
        bootstrap = markdown.interval_text(d.bootstrap, comparison.metric)
      cells = [
        str(d.n),
        markdown.with_interval(d.mean, d.interval, comparison.metric),
        bootstrap,
        markdown.p_text(d.p),
        markdown.p_text(each.adjusted),
      ]
    other = f'`{each.other}`' if each.other else '-'
    lines.append([f'`{each.task}`', other, *cells, each.verdict])
  headings = ['task', 'best other', 'n', 'ours - other', 'BCa', 'p']
  is_better = 'More' if comparison.metric in HIGHER_IS_BETTER else 'Less'
  return [
    '## The comparison named beforehand',
    f'{METRICS[comparison.metric]} of `{comparison.ours}` against the best '
    f'of {others} on validation; margin {comparison.margin:g}. {is_better} is '
    f'better. Differences are paired by replica: mean [95% t interval], BCa '
    f'bootstrap interval from {statistics.FEWEST_FOR_BOOTSTRAP} pairs on, p of '
    f'the paired t-test (two-sided), and p by Holm over the tasks.',
    markdown.table([*headings, 'p (Holm)', 'verdict'], lines),
  ]


def _on_task(
  task: str, labels: Mapping[str, Row], comparison: Comparison
) -> Compared:
  """Compares on one task; the verdict is '' where there is a difference."""

  def without(reason: str, other: str | None = None) -> Compared:
    return Compared(task, other, None, None, reason)

  missing = [label for label in comparison.others if label not in labels]
  if missing:
    return without(f'not compared: no cell of {", ".join(missing)} yet')
  metric = comparison.metric
  sign = -1 if metric in HIGHER_IS_BETTER else 1
  means = {}
  for label in comparison.others:
    values = labels[label].validation.get(metric, np.array([]))
    if not np.isfinite(values).any():
      return without(f'not compared: no validation record of {label}')
    means[label] = sign * np.nanmean(values)
  other = min(means, key=means.get)
  ours, theirs = labels[comparison.ours], labels[other]
  if ours.seeds != theirs.seeds:
    return without('not compared: seeds or replicas differ', other)
  difference = statistics.paired_difference(
    paired_values(ours, metric), paired_values(theirs, metric)
  )
  if difference is None:
    return without('not compared: no pair of replicas', other)
  return Compared(task, other, difference, None, '')


def _verdict(
  difference: statistics.Difference,
  adjusted: float | None,
  comparison: Comparison,
) -> str:
  """Returns what an interval, a p-value and the margin tell, in words."""
  if difference.interval is None:
    return 'undecided: one pair'
  ends = difference.interval
  if comparison.metric in HIGHER_IS_BETTER:
    ends = statistics.Interval(-ends.high, -ends.low)
  if -comparison.margin <= ends.low and ends.high <= comparison.margin:
    return 'equal within the margin'
  if adjusted is not None and adjusted < _SIGNIFICANT:
    return 'better' if ends.low + ends.high < 0 else 'worse'
  if ends.high <= comparison.margin:
    return 'not worse than by the margin'
  return 'undecided'
