"""The table of worst-task regret."""

from collections.abc import Mapping, Sequence

import numpy as np

from studies import markdown, statistics
from studies.outcomes import HIGHER_IS_BETTER, METRICS, Row

# Metrics of which there is a regret.
_REGRETTED = ('negative_bound', 'kl_predictable', 'retrieval_free')
NOTE = """\
Largest over tasks of own mean less the best mean of all rows that have every
task [95% percentile interval of 10,000 bootstrap resamples of replicas, drawn
anew for each task, the same ones for all rows]. Intervals of few replicas are
too narrow. A replica that failed in one row is left out of all rows of its
task; n counts the others. Nats, and for retrieval shares."""


def table(by_task: Mapping[str, Sequence[Row]]) -> str:
  """Returns the table of regret; '' where there is nothing to compare."""
  labels = list(
    dict.fromkeys(row.label for rows in by_task.values() for row in rows)
  )
  columns, counts = {}, set()
  for metric in _REGRETTED:
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    found = {
      task: {
        row.label: sign * row.values[metric]
        for row in rows
        if np.isfinite(row.values.get(metric, np.nan)).any()
      }
      for task, rows in by_task.items()
    }
    columns[metric], complete = _regrets_of(found, labels, metric)
    counts |= complete
  n = ' to '.join(
    map(str, sorted({min(counts, default=0), *sorted(counts)[-1:]}))
  )
  lines = [
    [f'`{label}`', n, *(each.get(label, '-') for each in columns.values())]
    for label in labels
    if any(label in each for each in columns.values())
  ]
  headings = ['', 'n', *(METRICS[metric] for metric in columns)]
  return markdown.table(headings, lines) if lines else ''


def _regrets_of(
  losses: Mapping[str, Mapping[str, np.ndarray]],
  labels: Sequence[str],
  metric: str,
) -> tuple[dict[str, str], set[int]]:
  """Returns the regret of each label that has values on all tasks.

  Args:
    losses: [R], by task and label.
    labels: of all rows.
    metric: its name.

  Returns:
    The regrets in words, and the numbers of replicas that count on the tasks.
  """
  tasks = [each for each in losses.values() if each]
  common = [label for label in labels if all(label in each for each in tasks)]
  stacks = []
  for each in tasks:
    # Replicas of the same number share seed and episodes.
    least = min((len(each[label]) for label in common), default=0)
    stacks.append(np.array([each[label][:least] for label in common]))
  counts = {int(np.isfinite(each).all(axis=0).sum()) for each in stacks}
  if len(tasks) < 2 or len(common) < 2 or 0 in counts:
    return {}, set()
  regrets = statistics.worst_task_regrets(stacks)
  return {
    label: markdown.with_interval(regret.regret, regret.interval, metric)
    for label, regret in zip(common, regrets, strict=True)
  }, counts
