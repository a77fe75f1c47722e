"""Prints how far a study is, from its workdirs and records; no jax, no locks.

It starts no check of settings, so that it can be asked at any time: settings
are those that the grid and the workdirs tell. That a run is under way is told
by the file of its lock, also of a run on another host.
"""

import collections
import itertools
import pathlib
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from gtmm_jax import records
from gtmm_jax.process import holders, locks
from studies import grid_file, logs, reports, results_file, slurm_queue
from studies.request import Study

STATES = ('done', 'running', 'waiting', 'failed')
_HEADINGS = ('cell', 'state', 'step', 'of', 'minutes left', 'KL ratio')
# Columns that are no numbers.
_TEXTS = ('cell', 'state')
# Reports at the end of a run that are looked at.
_REPORTS = 8


class State(NamedTuple):
  """The progress of a cell.

  Attributes:
    name: one of `STATES`. A cell waits if it is not begun, or left undone.
    step: of its last report.
    steps: of training, None if neither the grid nor the workdir tells.
    minutes: of training that are left, None if unknown.
    ratio: last KL of predictable frames by that of new ones, a mean over
      replicas, None if unknown.
    reason: why it failed, '' if it did not.
    holder: the program of another host that runs it, or left a stale lock, in
      words; '' without.
  """

  name: str
  step: int
  steps: int | None
  minutes: float | None = None
  ratio: float | None = None
  reason: str = ''
  holder: str = ''


def show(study: Study, console: Console) -> None:
  """Prints the state of each cell, and how many are in each state.

  Raises:
    ValueError: the results file is damaged.
    OSError: the results file cannot be read.
  """
  try:
    jobs, silence = slurm_queue.states(study.folder, study.grid), ''
  except ValueError as error:
    jobs, silence = {}, f'Jobs of Slurm are shown as waiting: {error}'
  states = read(study, jobs)
  for line in study.about.lines():
    console.print(line)
  rows = [_HEADINGS, *(_row(name, state) for name, state in states.items())]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  # rich's tables take seconds for a thousand cells.
  for row in rows:
    texts = [
      text.ljust(width) if heading in _TEXTS else text.rjust(width)
      for heading, text, width in zip(_HEADINGS, row, widths, strict=True)
    ]
    console.out('  '.join(texts).rstrip(), highlight=False)
  if silence:
    console.print(silence)
  for name, state in states.items():
    for words in (state.reason, state.holder):
      if words:
        console.print(f'{name}: {words}')
  counts = collections.Counter(state.name for state in states.values())
  words = ', '.join(f'{counts[name]} {name}' for name in STATES)
  console.print(f'{words}; {study.folder}')


def _row(name: str, state: State) -> tuple[str, ...]:
  """Returns the words of a cell's line."""
  return (
    name,
    state.name,
    f'{state.step:,}',
    '-' if state.steps is None else f'{state.steps:,}',
    '-' if state.minutes is None else f'{state.minutes:,.0f}',
    '-' if state.ratio is None else f'{state.ratio:.3f}',
  )


def read(
  study: Study,
  jobs: Mapping[str, slurm_queue.Queued] = types.MappingProxyType({}),
) -> dict[str, State]:
  """Returns the state of each cell by its name.

  Args:
    study: whose cells are looked at.
    jobs: of Slurm, by the cell's name, those that are not over.

  Raises:
    ValueError: the results file is damaged.
    OSError: the results file cannot be read.
  """
  recorded = results_file.read(study.results)
  return {
    name: _state(study.folder / name, cell, recorded.get(name), jobs.get(name))
    for name, cell in study.grid.items()
  }


def _state(
  workdir: pathlib.Path,
  cell: grid_file.Cell,
  record: Mapping[str, Any] | None,
  job: slurm_queue.Queued | None,
) -> State:
  """Returns the state of a cell.

  Args:
    workdir: of its run; what is there counts more than the record.
    cell: of the grid.
    record: in the results file, None if there is none.
    job: of Slurm, None if it has none that is not over.
  """
  if record is not None and not workdir.exists():
    steps = _steps(cell, record['settings'])
    if not _is_asked(cell, record, steps):
      return State('waiting', record['step'], steps)
    return State('done', record['step'], steps, 0.0, _recorded_ratio(record))
  try:
    state = _state_of_workdir(workdir, cell, record, job)
    return state._replace(holder=_holder(workdir))
  except (ValueError, LookupError, TypeError, OSError) as error:
    reason = f'damaged records: {error}'
    return State('failed', 0, _steps(cell, {}), reason=reason)


def _state_of_workdir(
  workdir: pathlib.Path,
  cell: grid_file.Cell,
  record: Mapping[str, Any] | None,
  job: slurm_queue.Queued | None,
) -> State:
  """Returns the state of a cell by its workdir, which may be missing."""
  config = records.read_config(workdir) or {}
  steps = _steps(cell, config.get('settings', {}))
  # A job that has begun just now has no lock yet.
  is_running = locks.is_taken(workdir) or (job is not None and not job.waits)
  evaluation = records.read_evaluation(workdir)
  if not is_running and evaluation and _is_asked(cell, evaluation, steps):
    if record is not None and record['step'] == evaluation['step']:
      ratio = _recorded_ratio(record)
    else:
      ratio = _ratio([evaluation], _has_settled(workdir))
    return State('done', evaluation['step'], steps, 0.0, ratio)
  latest = list(itertools.islice(reports.backwards(workdir), _REPORTS))
  step = latest[0]['step'] if latest else 0
  validations = [line['held_out'] for line in latest if line.get('held_out')]
  has_settled = records.settled_at(latest[::-1]) is not None
  ratio = _ratio([*validations, *latest], has_settled)
  if is_running:
    return State('running', step, steps, _minutes(latest, steps), ratio)
  reason = logs.failure(workdir.with_name(f'{workdir.name}.log'))
  if reason is not None and job is None:
    return State('failed', step, steps, None, ratio, reason)
  return State('waiting', step, steps, None, ratio)


def _holder(workdir: pathlib.Path) -> str:
  """Describes the program of another host that holds a workdir, or did."""
  sight = holders.look(workdir)
  if sight is None or holders.is_here(sight.holder):
    return ''
  state = holders.state(sight)
  if state == 'ended':
    return ''
  is_stale = ', a stale lock' if state == 'stale' else ''
  return f'{holders.describe(sight)}{is_stale}'


def _has_settled(workdir: pathlib.Path) -> bool:
  """Returns whether the KL ratio of a run counts by its last reports."""
  latest: list[dict[str, Any]] = []
  # Two reports do, most times, and are read sooner than all.
  for report in itertools.islice(reports.backwards(workdir), _REPORTS):
    latest.insert(0, report)
    if records.settled_at(latest) is not None:
      return True
  return False


def _steps(cell: grid_file.Cell, settings: Mapping[str, Any]) -> int | None:
  """Returns the steps that a cell asks for, or else those of its run."""
  steps = cell.flags.get('steps', settings.get('steps'))
  return None if steps is None else int(steps)


def _is_asked(
  cell: grid_file.Cell, evaluation: Mapping[str, Any], steps: int | None
) -> bool:
  """Returns whether an evaluation is as late and as large as a cell asks."""
  split = cell.flags.get('evaluate_on', evaluation.get('split'))
  return (
    evaluation['step'] == (evaluation['step'] if steps is None else steps)
    and evaluation['episodes'] >= int(cell.flags.get('evaluation_episodes', 0))
    and evaluation.get('split') == split
  )


def _minutes(latest: list[dict[str, Any]], steps: int | None) -> float | None:
  """Returns the minutes that are left at the speed of the last reports."""
  if steps is None or not latest:
    return None
  first, last = latest[-1], latest[0]
  spent = last['step'] - first['step']
  if spent <= 0:
    return None
  speed = (last['seconds'] - first['seconds']) / spent
  return (steps - last['step']) * speed / 60


def _recorded_ratio(record: Mapping[str, Any]) -> float | None:
  """Returns the mean KL ratio of a record."""
  return _mean(record['replicas'].get('ratio', ()))


def _ratio(
  values: Iterable[Mapping[str, Any]], has_settled: bool
) -> float | None:
  """Returns the mean KL ratio of the first values, None without any.

  Args:
    values: an evaluation, or validations and reports, the latest first.
    has_settled: whether the ratio counts.
  """
  for each in values:
    return _mean(records.by_replica(each, has_settled)['ratio'])
  return None


def _mean(values: Iterable[float | None]) -> float | None:
  """Returns the mean of finite values, None without any."""
  array = np.array(list(values), np.float64)
  finite = array[np.isfinite(array)]
  return float(finite.mean()) if finite.size else None
