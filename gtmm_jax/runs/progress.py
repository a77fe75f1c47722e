"""Shows how far a run is: a bar on a terminal, else a line now and then."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
  BarColumn,
  MofNCompleteColumn,
  Progress,
  TextColumn,
  TimeRemainingColumn,
)

from gtmm_jax import records

# Seconds between two lines if the output is not a terminal.
_QUIET = 15.0
# Metrics in the headline of an evaluation beside bound and ratio, each with its
# words, and the metric to compare it with.
_BESIDE = {
  'retrieval_ahead': ('retrieved ahead', 'retrieval_ahead_chance', 'by chance'),
  'retrieval_free': ('retrieved free', 'retrieval_free_chance', 'by chance'),
  'dream_error': ('error of dreams', 'copy_error', 'of the nearest frame'),
}


@contextlib.contextmanager
def saying(what: str, console: Console) -> Iterator[None]:
  """Prints the current activity: beside a spinner on a terminal, or in a line.

  Args:
    what: takes more than a second or two, in words.
    console: to print on; no bar may be shown there.
  """
  if console.is_terminal:
    with console.status(f'{what} ...'):
      yield
  else:
    console.print(f'{what} ...')
    yield


class Training:
  """Shows steps, metrics, speed and time left of a training run.

  Use as a context manager; `advance` after each portion of steps, `report` when
  new metrics are there.
  """

  def __init__(self, console: Console, first: int, last: int) -> None:
    self._console = console
    self._first, self._last = first, last
    self._started = self._spoken = time.perf_counter()
    self._text = self._held_out = ''
    self._bar = Progress(
      TextColumn('step'),
      MofNCompleteColumn(),
      BarColumn(bar_width=24),
      TextColumn('{task.description}'),
      TimeRemainingColumn(),
      console=console,
      disable=not console.is_terminal,
    )
    self._task = self._bar.add_task('', total=last, completed=first)

  def __enter__(self) -> 'Training':
    if self._console.is_terminal:
      self._bar.start()
    return self

  def __exit__(self, *_: Any) -> None:
    # rich 13 prints an empty line for a bar that was not shown.
    if self._console.is_terminal:
      self._bar.stop()

  def advance(self, step: int) -> None:
    """Moves on to `step`."""
    self._bar.update(
      self._task, completed=step, description=self._describe(step)
    )

  def say(self, what: str) -> None:
    """Shows the current activity between two steps."""
    if self._console.is_terminal:
      self._bar.update(self._task, description=f'{what} ...')
    else:
      self._console.print(f'{what} ...')

  def report(self, step: int, metrics: str, held_out: str = '') -> None:
    """Takes new metrics, in words; prints lines if it is time.

    Args:
      step: that they are of.
      metrics: of training; on a terminal they stand beside the bar.
      held_out: of validation episodes, if these were evaluated; on a terminal
        they have a line of their own.
    """
    self._text = f'{metrics}  '
    if held_out:
      self._held_out = f'step {step:,}, validation  {held_out}'
    now = time.perf_counter()
    if now - self._spoken >= _QUIET or step == self._last:
      self._spoken = now
      if not self._console.is_terminal:
        left = (self._last - step) / max(self._speed(step), 1e-9)
        self._console.print(
          f'step {step:,} of {self._last:,}  {self._describe(step)}  '
          f'{left:,.0f} s left'
        )
      if self._held_out:
        self._console.print(self._held_out)
        self._held_out = ''
    self.advance(step)

  def _speed(self, step: int) -> float:
    return (step - self._first) / (time.perf_counter() - self._started)

  def _describe(self, step: int) -> str:
    return f'{self._text}{self._speed(step):.1f} steps/s'


def headlines(line: dict[str, Any], has_settled: bool) -> tuple[str, str]:
  """Returns the headlines of a line of metrics and of its `held_out`."""
  trained = headline(line, has_settled)
  if 'held_out' not in line:
    return trained, ''
  return trained, headline(line['held_out'], has_settled)


def headline(line: dict[str, Any], has_settled: bool) -> str:
  """Returns the headline of a line of metrics, or of an evaluation.

  Args:
    line: names and arrays, as `records.by_replica` takes them.
    has_settled: whether the KL ratio counts; `records.settled_at` says.

  Returns:
    Negative bound and KL ratio; of held-out episodes also retrieval beside
    chance. A '-' stands for a missing value.
  """
  summary = records.summarise(line, has_settled)
  parts = [
    f'negative bound {_short(summary["negative_bound"], ",.1f")}',
    f'KL ratio {_short(summary["ratio"], ".3f")}',
  ]
  for name, (words, other, words_of_other) in _BESIDE.items():
    if summary.get(name) is not None:
      parts.append(
        f'{words} {_short(summary[name], ".3f")} '
        f'({_short(summary.get(other), ".3f")} {words_of_other})'
      )
  return '  '.join(parts)


def _short(value: records.MeanAndError | None, form: str) -> str:
  return '-' if value is None else format(value.mean, form)
