"""The settings of a run: what flags and preset come to; no jax."""

import dataclasses
from collections.abc import Mapping

from gtmm_jax import presets


@dataclasses.dataclass(frozen=True)
class Settings:
  """Everything that was chosen, as `config.json` records it.

  Attributes:
    task: name of the task.
    model: name of the model.
    preset: 'paper' or 'small'.
    replicas: trained side by side.
    batch_size: sequences in a batch.
    steps: updates in all.
    learning_rate: Adam's.
    seed: of the run; replica r uses (seed, r).
    pre_recall: the paper's l, frames; like those up to `shape` None where the
      task has no such thing.
    recall: the paper's k, frames.
    rows: of navigation's grid.
    columns: likewise.
    length: frames of a walk, of two turns, or of episodes that are given.
    size: height and width of frames that are rendered.
    shape: (H, W, C) of frames that are given; None for other tasks.
    store: what the memory is given of a latent.
    order: of the introspection network's slots.
    top_k: slots that the associative memory reads at a time; 0 is all.
    nearest: how it finds them, 'exact' or 'approximate'.
    without: parts that it goes without, with commas between, or 'none'.
    binarize: whether pixels are sampled from their grey values.
    recompute: what gradients compute again rather than keep.
    precision: of products, as it is in force; what they are summed in is
      float32.
    report_every: steps between two lines of the records.
    evaluate_every: how many of these lines there are for each that tells of
      held-out episodes; 0 where none does.
    evaluation_episodes: held-out episodes at the end.
  """

  task: str
  model: str
  preset: str
  replicas: int
  batch_size: int
  steps: int
  learning_rate: float
  seed: int
  pre_recall: int | None
  recall: int | None
  rows: int | None
  columns: int | None
  length: int | None
  size: int | None
  shape: tuple[int, int, int] | None
  store: str
  order: str
  top_k: int
  nearest: str
  without: str
  binarize: bool
  recompute: str
  precision: str
  report_every: int
  evaluate_every: int
  evaluation_episodes: int


# Smallest value of each numeric setting; a rate has to be above its own.
_AT_LEAST = {
  'replicas': 1,
  'batch_size': 1,
  'steps': 1,
  'seed': 0,
  'report_every': 1,
  'evaluate_every': 0,
  'evaluation_episodes': 1,
}
_LARGEST_SEED = 2**32 - 1
# Devices count in 32 bits.
_LARGEST = 2**31 - 1
# On the CPU each has a device of its own.
MOST_REPLICAS = 1024
# Of the associative memory: all slots are read, by all of its parts.
_WHOLE = {'top_k': 0, 'nearest': 'exact', 'without': 'none'}
# Frames from which on the paper's lower learning rate applies.
_LONG_EPISODE = 100


def resolve(
  preset: str, found: Mapping[str, object], **given: object
) -> Settings:
  """Fills what was not given from the preset.

  Args:
    preset: 'paper' or 'small'.
    found: settings that the task's data settle, if any.
    **given: fields of `Settings`; None takes the preset's value.

  Returns:
    The settings.

  Raises:
    ValueError: names the setting that makes no sense, and what does.
  """
  task = given['task']
  chosen = presets.choose(preset, _channels(task, found.get('shape')))
  _require_of_task(task, chosen.episodes[task], given)
  if given['order'] is not None and given['model'] != 'introspective':
    raise ValueError(
      f'--order means nothing to {given["model"]}; it is of introspective.'
    )
  defaults = {
    'replicas': chosen.replicas,
    'batch_size': chosen.batch_size,
    'steps': chosen.steps[task],
    **chosen.episodes[task],
    'store': chosen.store[given['model']],
    'order': chosen.order[task],
    **_WHOLE,
    'report_every': chosen.report_every,
    'evaluate_every': 0,
  }
  values = {
    name: defaults.get(name) if value is None else value
    for name, value in given.items()
  }
  values = {**values, 'shape': None, **found}
  if values['learning_rate'] is None:
    frames = (
      values['pre_recall'] + values['recall']
      if values.get('length') is None
      else values['length']
    )
    is_long = frames > _LONG_EPISODE
    values['learning_rate'] = (
      chosen.long_learning_rate
      if is_long
      else chosen.learning_rate[values['model']]
    )
  settings = Settings(preset=preset, **values)
  _check(settings)
  return settings


def episodes(settings: Settings) -> dict[str, int]:
  """What the task's episodes are made of: the settings that it has."""
  own = presets.PRESETS[settings.preset].episodes[settings.task]
  return {name: getattr(settings, name) for name in own}


def channels(settings: Settings) -> int:
  """Of the task's frames: 1, grey, or 3."""
  return _channels(settings.task, settings.shape)


def parts(settings: Settings) -> tuple[str, ...]:
  """The parts that the associative memory goes without."""
  is_whole = settings.without == 'none'
  return () if is_whole else tuple(settings.without.split(','))


def describe(settings: Settings) -> str:
  """The sizes of episodes, for people."""
  if settings.task == 'frames':
    shape = ' x '.join(map(str, settings.shape))
    return f'T {settings.length}, {shape}'
  if settings.size is not None:
    return f'T {settings.length}, {settings.size} x {settings.size} pixels'
  if settings.length is None:
    return f'l {settings.pre_recall}, k {settings.recall}'
  return f'{settings.rows} x {settings.columns}, T {settings.length}'


def may_differ(is_windowed: bool) -> tuple[str, ...]:
  """What a run that goes on may change: how long, and how it is looked at.

  Args:
    is_windowed: whether reports change what is trained on.
  """
  always = ('steps', 'evaluate_every', 'evaluation_episodes', 'recompute')
  return always if is_windowed else (*always, 'report_every')


def _channels(task: str, shape: tuple[int, int, int] | None) -> int:
  if shape is not None:
    return shape[-1]
  return 3 if task == 'rotation' else 1


def _require_of_task(
  task: str, own: Mapping[str, int], given: Mapping[str, object]
) -> None:
  """Raises where a setting is given that the task's episodes do not have."""
  for name in presets.EPISODE_SETTINGS:
    if name not in own and given[name] is not None:
      flags = ' and '.join(f'--{each}' for each in own)
      raise ValueError(
        f'--{name} means nothing to {task}; its episodes are set by '
        f'{flags or "the file that --data names"}.'
      )


def _check_associative(settings: Settings) -> None:
  """Raises where a part of the associative memory is asked of another."""
  for name, value in _WHOLE.items():
    if settings.model != 'associative' and getattr(settings, name) != value:
      raise ValueError(
        f'--{name} means nothing to {settings.model}; it is of associative.'
      )
  if settings.nearest != 'exact' and not settings.top_k:
    raise ValueError(
      f'--nearest={settings.nearest} needs --top_k: all slots are read.'
    )


def _check(settings: Settings) -> None:
  _check_associative(settings)
  for name, least in _AT_LEAST.items():
    value = getattr(settings, name)
    if value < least:
      raise ValueError(f'--{name} is {value}; it must be at least {least}.')
  for name, value in dataclasses.asdict(settings).items():
    most = MOST_REPLICAS if name == 'replicas' else _LARGEST
    if isinstance(value, int) and name != 'seed' and value > most:
      raise ValueError(f'--{name} is {value}; it must be at most {most}.')
  if settings.seed > _LARGEST_SEED:
    raise ValueError(
      f'--seed is {settings.seed}; it must be at most {_LARGEST_SEED}.'
    )
  # Written so that "not a number" fails, too.
  if not 0 < settings.learning_rate < 1:
    raise ValueError(
      f'--learning_rate is {settings.learning_rate}; it must lie between 0 and '
      f'1.'
    )
