"""A curriculum: training begins with short episodes and goes on with longer.

With `--curriculum=10:1000,15:2000` the task's main size, l of recall tasks and
T of walks and turns, is 10 until step 1,000, 15 until step 2,000, and then the
run's own. Short episodes let a memory be read early (Bengio et al. 2009,
https://doi.org/10.1145/1553374.1553380).

Parameters, carry and sums over frames have the shapes of the run's own length
from the first step. A run is evaluated at its own length alone.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from gtmm_jax.problem import Problem
from gtmm_jax.runs import resolve
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.settings import Settings, describe

NONE = 'none'
_PAIR = '[1-9][0-9]{0,8}:[1-9][0-9]{0,8}'
_FORM = re.compile(f'{_PAIR}(,{_PAIR})*')
# Names of the size that a curriculum changes; the first that a task has.
_MAIN = ('pre_recall', 'length')


class Stage(NamedTuple):
  """Steps of training whose episodes are shorter than the run's own.

  Attributes:
    until: the last of these steps.
    task: with the sizes of these episodes.
    words: the sizes in words.
  """

  until: int
  task: Any
  words: str


def make_stages(
  settings: Settings, task: Any, kinds: Kinds
) -> tuple[Stage, ...]:
  """Returns the stages before the run's own length; none without a curriculum.

  The recall interval of a stage is the run's own, or as long as l if that is
  shorter.

  Args:
    settings: resolved, with the horizon.
    task: of the run's own length.
    kinds: the models and tasks of the program.

  Raises:
    ValueError: the curriculum is wrong, or means nothing to the task.
  """
  if settings.curriculum == NONE:
    return ()
  if not _FORM.fullmatch(settings.curriculum):
    raise ValueError(
      f'--curriculum is {settings.curriculum!r}; it must be {NONE}, or '
      f'SIZE:STEP,..., as in 10:1000,15:2000.'
    )
  name = _main_size(settings, task)
  pairs = [
    tuple(map(int, pair.split(':'))) for pair in settings.curriculum.split(',')
  ]
  _require_rising(settings, name, pairs)
  return tuple(
    _stage(settings, task, name, size, until, kinds) for size, until in pairs
  )


def number_at(stages: Sequence[Stage], step: int) -> int:
  """Returns the number of the stage, from 0, of the step after `step` steps.

  Steps of the run's own length have the number of stages.
  """
  return sum(stage.until <= step for stage in stages)


def next_end(stages: Sequence[Stage], step: int, last: int) -> int:
  """Returns the first end of a stage after `step`, `last` if there is none."""
  return min([last, *(each.until for each in stages if each.until > step)])


def problems(stages: Sequence[Stage], problem: Problem) -> list[Problem]:
  """Returns the problem of each stage, and that of the run's own length."""
  shorter = [
    dataclasses.replace(problem, sample=stage.task.sample) for stage in stages
  ]
  return [*shorter, problem]


def _main_size(settings: Settings, task: Any) -> str:
  """Returns the name of the size that a curriculum of the task changes."""
  names = [name for name in _MAIN if name in settings.episode]
  why = ''
  if getattr(task, 'parts', ()):
    why = 'whose episodes have several lengths in any case'
  elif settings.shape is not None:
    why = 'whose file decides the length'
  elif not names:
    why = f'which has none of the sizes {", ".join(_MAIN)}'
  if why:
    raise ValueError(
      f'--curriculum means nothing to {settings.task}, {why}; leave it out.'
    )
  return names[0]


def _require_rising(
  settings: Settings, name: str, pairs: Sequence[tuple[int, ...]]
) -> None:
  """Raises `ValueError` unless sizes and steps rise to those of the run."""
  is_falling = settings.decay_steps is not None
  end = 'decay_steps' if is_falling else 'steps'
  limits = settings.episode[name], getattr(settings, end)
  for before, after in zip(pairs, [*pairs[1:], limits], strict=True):
    if not (before[0] < after[0] and before[1] < after[1]):
      raise ValueError(
        f'--curriculum is {settings.curriculum}; its sizes must rise and be '
        f'below --{name}={limits[0]}, and its steps must rise and be below '
        f'--{end}={limits[1]}.'
      )


def _stage(
  settings: Settings, task: Any, name: str, size: int, until: int, kinds: Kinds
) -> Stage:
  """Returns a stage; raises `ValueError` if the task cannot have its size."""
  episode = {**settings.episode, name: size}
  if name == 'pre_recall' and 'recall' in episode:
    episode['recall'] = min(size, episode['recall'])
  shorter = dataclasses.replace(settings, episode=episode)
  try:
    short_task = resolve.make_task(shorter, kinds=kinds)
  except ValueError as error:
    raise ValueError(f'--curriculum={settings.curriculum}: {error}') from error
  frames, width = short_task.length, short_task.condition_size
  if frames >= task.length or width != task.condition_size:
    raise ValueError(
      f'--curriculum={settings.curriculum}: with {name} {size} episodes of '
      f'{settings.task} have {frames} frames and a condition of {width}; they '
      f'must have fewer than {task.length} and a condition of '
      f'{task.condition_size}.'
    )
  return Stage(until, short_task, describe(shorter))
