"""Resolves settings: fills in the preset's values, and checks all others."""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

from gtmm_jax import presets
from gtmm_jax.model import build, cores
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs.kinds import BUILT_IN, Kinds
from gtmm_jax.runs.settings import LARGEST, Settings, about
from gtmm_jax.tasks.sources import frame_files

# Episodes with more frames have the paper's lower learning rate.
_LONG_EPISODE = 100


def resolve(
  unresolved: Settings,
  preset: str,
  header: frame_files.Header | None = None,
  kinds: Kinds = BUILT_IN,
) -> Settings:
  """Fills in the values that the settings leave to a preset.

  Args:
    unresolved: settings from flags.
    preset: 'paper' or 'small'.
    header: of the file of recorded episodes, if there is one.
    kinds: the models and tasks of the program.

  Returns:
    The resolved settings.

  Raises:
    ValueError: a setting is wrong; names it and what is allowed.
  """
  check(unresolved, kinds)
  settings = dataclasses.replace(
    unresolved, preset=preset, shape=header.shape if header else None
  )
  chosen = sized(settings, kinds)
  settings = dataclasses.replace(
    settings,
    episode=_episode(settings, chosen, header, kinds),
    options=_options(settings, kinds),
  )
  length = make_task(settings, header, kinds).length
  task = kinds.tasks[settings.task]
  defaults = {
    'steps': chosen.steps.get(settings.task, kinds_module.steps(task)),
    'replicas': chosen.replicas,
    'batch_size': chosen.batch_size,
    'store': presets.for_model(chosen, 'store', settings.model),
    'report_every': chosen.report_every,
    'learning_rate': (
      chosen.long_learning_rate
      if length > _LONG_EPISODE
      else chosen.learning_rate
    ),
    'schedule': chosen.schedule,
    'average': chosen.average,
  }
  return dataclasses.replace(
    settings,
    **{
      name: value
      for name, value in defaults.items()
      if getattr(settings, name) is None
    },
  )


def sized(settings: Settings, kinds: Kinds = BUILT_IN) -> presets.Preset:
  """Returns the preset that settings name, with the sizes that they change."""
  channels = kinds_module.channels(kinds.tasks[settings.task])
  if settings.shape is not None:
    channels = settings.shape[-1]
  chosen = presets.choose(settings.preset, channels)
  return presets.change(chosen, settings.model, settings.sizes)


def make_task(
  settings: Settings,
  header: frame_files.Header | None = None,
  kinds: Kinds = BUILT_IN,
) -> Any:
  """Makes the task with its sizes.

  Args:
    settings: with resolved sizes of episodes.
    header: of the file of recorded episodes, if there is one.
    kinds: the models and tasks of the program.

  Raises:
    ValueError: a size is wrong, or the task cannot be binarized.
  """
  task = kinds.tasks[settings.task]
  values = dict(settings.episode)
  channels = settings.shape[-1] if header else kinds_module.channels(task)
  if settings.binarize:
    if channels > 1:
      raise ValueError(
        f'--binarize means nothing to {settings.task}; its frames are coloured.'
      )
    if 'binarize' not in task.__dataclass_fields__:
      raise ValueError(f'--binarize means nothing to {settings.task}.')
    values['binarize'] = True
  if header:
    values['condition_size'] = header.condition_size
  return task(**values)


def make_model(
  settings: Settings,
  task: Any,
  shape: tuple[int, int, int],
  kinds: Kinds = BUILT_IN,
) -> TemporalVAE:
  """Makes the model, without parameters.

  Args:
    settings: resolved.
    task: from `make_task`.
    shape: (H, W, C) of its frames.
    kinds: the models and tasks of the program.

  Raises:
    ValueError: its networks cannot have this size of frames.
  """
  return build.temporal_vae(
    settings.model,
    sized(settings, kinds),
    shape,
    frames=task.length,
    store=settings.store,
    slots=settings.slots,
    options=settings.options,
    models=kinds.models,
  )


def check(settings: Settings, kinds: Kinds = BUILT_IN) -> None:
  """Checks the settings that do not depend on the preset.

  None is allowed: the preset decides the value.

  Raises:
    ValueError: a setting is wrong; names it and what is allowed.
  """
  for name, known in (('model', kinds.models), ('task', kinds.tasks)):
    value = getattr(settings, name)
    if value not in known:
      raise ValueError(f'--{name} is {value}; there are {", ".join(known)}.')
  for name, (_, known) in about().items():
    value = getattr(settings, name)
    if value is None or isinstance(value, str | bool):
      continue
    if value < known.least:
      raise ValueError(
        f'--{name} is {value}; it must be at least {known.least}.'
      )
    if value > known.most:
      raise ValueError(f'--{name} is {value}; it must be at most {known.most}.')
  for name, value in settings.episode.items():
    if value > LARGEST:
      raise ValueError(f'--{name} is {value}; it must be at most {LARGEST}.')
  # NaN fails these tests, too.
  rate, average = settings.learning_rate, settings.average
  if rate is not None and not 0 < rate < 1:
    raise ValueError(f'--learning_rate is {rate}; it must be between 0 and 1.')
  if average is not None and not 0 <= average < 1:
    raise ValueError(f'--average is {average}; it must be from 0 to below 1.')


def _episode(
  settings: Settings,
  preset: presets.Preset,
  header: frame_files.Header | None,
  kinds: Kinds,
) -> dict[str, int]:
  """Returns the sizes of episodes; raises if the task does not have a size."""
  sizes = kinds_module.sizes(kinds.tasks[settings.task])
  if header:
    sizes = {}
  sizes |= preset.episodes.get(settings.task, {})
  # The file decides the length; the prefix has a default of its own.
  settable = ('prefix',) if header else sizes
  require_sizes(settings.task, settings.episode, settable)
  sizes |= settings.episode
  for name, value in sizes.items():
    if value is dataclasses.MISSING:
      raise ValueError(f'--{name} is missing; {settings.task} has no default.')
  return sizes | ({'length': header.length} if header else {})


def require_sizes(
  task: str, names: Iterable[str], sizes: Collection[str]
) -> None:
  """Raises `ValueError` for a size that episodes of a task do not have.

  Args:
    task: its name.
    names: of sizes that are to be set.
    sizes: names of the task's sizes that can be set.
  """
  for name in names:
    if name not in sizes:
      setters = [f'--{each}' for each in sizes]
      if task == 'frames':
        setters.append('the file that --data names')
      raise ValueError(
        f'--{name} means nothing to {task}; its episodes are set by '
        f'{" and ".join(setters)}.'
      )


def _options(settings: Settings, kinds: Kinds) -> dict[str, Any]:
  """Returns the options of the core; raises if it does not have an option."""
  options = default_options(settings, kinds)
  for name in settings.options:
    if name not in options:
      others = models_with(name, kinds)
      raise ValueError(
        f'--{name} means nothing to {settings.model}; it belongs to '
        f'{" and ".join(others)}.'
      )
  return options | settings.options


def default_options(settings: Settings, kinds: Kinds) -> dict[str, Any]:
  """Returns the options of a core: the model's, the preset's, the task's.

  Later ones replace earlier ones.
  """
  return {
    **first_options(settings, kinds),
    **sized(settings, kinds).options.get(settings.model, {}),
    **presets.OPTIONS.get((settings.model, settings.task), {}),
  }


def first_options(settings: Settings, kinds: Kinds) -> dict[str, Any]:
  """Returns the options of a core in runs that are older than the options.

  No preset changed an option when it was new.
  """
  options = cores.options(kinds.models[settings.model])
  return {
    **{name: option.default for name, option in options.items()},
    **presets.OPTIONS.get((settings.model, settings.task), {}),
  }


def models_with(option: str, kinds: Kinds) -> list[str]:
  """Returns the names of the models whose core has an option."""
  return [
    model
    for model, make in kinds.models.items()
    if option in cores.options(make)
  ]
