"""Markdown of numbers, intervals and tables."""

from collections.abc import Sequence

from studies.statistics import Interval


def with_interval(mean: float, interval: Interval | None, metric: str) -> str:
  """Returns a mean and its interval with the places of the metric."""
  text = f'{mean:,.{_places(metric)}f}'
  return (
    text if interval is None else f'{text} {interval_text(interval, metric)}'
  )


def interval_text(interval: Interval, metric: str) -> str:
  """Returns an interval with the places of the metric."""
  low, high = (f'{end:,.{_places(metric)}f}' for end in interval)
  return f'[{low}, {high}]'


def _places(metric: str) -> int:
  return 1 if metric == 'negative_bound' else 3


def table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
  """Returns a table; headings and the lines of `body` are as long."""
  lines = [headings, ['---'] * len(headings), *body]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def p_text(p: float | None) -> str:
  """Returns a p-value with three places, '-' for None."""
  if p is None:
    return '-'
  return f'{p:.3f}' if p >= 0.001 else '< 0.001'
