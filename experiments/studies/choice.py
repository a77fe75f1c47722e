"""The choice of a setting that a grid names beforehand: one value for all.

In a grid it is "choice": {"setting": NAME, "metric": METRIC}, where the grid
varies NAME. On each task a model loses, by a value, the difference between its
mean of the metric and its best mean by any value; its loss is the mean over the
tasks. The value with the least loss of the worst model is chosen. Only records
on validation episodes take part.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from studies import grid_file, markdown
from studies.outcomes import HIGHER_IS_BETTER, METRICS, Row, require_metric

_FORM = '{"setting": NAME, "metric": METRIC}'


class Choice(NamedTuple):
  """A choice, as a grid names it.

  Attributes:
    setting: whose value is chosen.
    metric: one of `METRICS`.
  """

  setting: str
  metric: str


def read(file: pathlib.Path) -> Choice | None:
  """Reads the choice of a grid; None if the grid has none.

  Raises:
    ValueError: it is not one, or names what the grid does not have.
    OSError: the grid cannot be read.
  """
  parts = grid_file.question(file, 'choice', Choice._fields, _FORM)
  if parts is None:
    return None
  setting, metric = parts['setting'], parts['metric']
  cells = grid_file.read(file).values()
  if not all(isinstance(each, str) for each in parts.values()):
    raise ValueError(f'{file}: the parts of "choice" must be texts.')
  if not all(setting in cell.flags for cell in cells):
    raise ValueError(
      f'{file}: "choice" names the setting {setting!r}, which not all of its '
      f'cells set.'
    )
  require_metric(file, 'choice', metric)
  return Choice(setting, metric)


def losses(
  rows: Sequence[Row], choice: Choice
) -> dict[Any, dict[str, float | None]]:
  """Returns each model's loss by each value of the setting.

  Args:
    rows: of all tasks.
    choice: whose setting the rows vary.

  Returns:
    Losses by value and model, in the metric's unit, >= 0; None where a cell is
    missing, was evaluated on other episodes, or has no finite replica.
  """
  sign = -1 if choice.metric in HIGHER_IS_BETTER else 1
  means: dict[tuple[str, str], dict[Any, float]] = {}
  for row in rows:
    values = row.values.get(choice.metric, np.array([]))
    if row.split == 'validation' and np.isfinite(values).any():
      of_model = means.setdefault((row.model, row.task), {})
      of_model[row.settings[choice.setting]] = sign * float(np.nanmean(values))
  tasks = {row.task for row in rows}
  models = list(dict.fromkeys(row.model for row in rows))
  every = list(dict.fromkeys(row.settings[choice.setting] for row in rows))

  def loss(model: str, value: Any) -> float | None:
    of_tasks = [means.get((model, task), {}) for task in tasks]
    if not all(each.keys() >= set(every) for each in of_tasks):
      return None
    return sum(each[value] - min(each.values()) for each in of_tasks) / len(
      tasks
    )

  return {
    value: {model: loss(model, value) for model in models} for value in every
  }


def chosen(of_values: Mapping[Any, Mapping[str, float | None]]) -> Any:
  """Returns the value with the least worst loss; None if a loss is missing."""
  worst = {value: list(each.values()) for value, each in of_values.items()}
  if not worst or any(None in each for each in worst.values()):
    return None
  return min(worst, key=lambda value: max(worst[value]))


def section(rows: Sequence[Row], choice: Choice) -> list[str]:
  """Returns the heading, the words and the table of the choice."""
  of_values = losses(rows, choice)
  best = chosen(of_values)
  models = list(next(iter(of_values.values()), {}))
  lines = []
  for value, each in of_values.items():
    every = [each[model] for model in models]
    worst = None if None in every else max(every)
    name = f'**{value}**' if value == best else str(value)
    lines.append([name, *map(_text, every), _text(worst)])
  if best is None:
    result = 'No value is chosen before all cells have finished.'
  else:
    result = f'Chosen: {choice.setting} = {best}.'
  return [
    '## The choice named beforehand',
    f'{METRICS[choice.metric]}: what a model loses by one value of '
    f'`{choice.setting}` for all models, beside its own best value; the mean '
    f'over tasks, on validation episodes. The value with the least loss of the '
    f'worst model is chosen. {result}',
    markdown.table(
      [f'`{choice.setting}`', *(f'`{model}`' for model in models), 'worst'],
      lines,
    ),
  ]


def _text(loss: float | None) -> str:
  return '-' if loss is None else f'{loss:,.2f}'
