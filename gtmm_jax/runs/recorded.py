"""The settings of a run, read back from the `config.json` of its folder."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_origin

import gtmm_jax
from gtmm_jax import records
from gtmm_jax.model import cores
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import own_frames, resolve, set_flag, workdirs
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources import frame_files

# Of all digits and characters.
_SHAPE = (28, 28, 1)


class Recorded(NamedTuple):
  """A run as its folder describes it.

  Attributes:
    settings: resolved; `data` is the flag of the run.
    task: the task.
    frame_shape: (H, W, C).
    checksum: of the data; None where these may be others.
  """

  settings: Settings
  task: Any
  frame_shape: tuple[int, int, int]
  checksum: str | None


def read(workdir: pathlib.Path, kinds: Kinds) -> Recorded:
  """Reads the settings of a run, also of one with an earlier version.

  Args:
    workdir: of the run.
    kinds: the models and tasks that there are.

  Raises:
    ValueError: the folder is not that of a run; its model or task is not among
      `kinds`; another version wrote it; or the file of its episodes is needed
      and missing.
  """
  config = records.read_config(workdir) if workdir.is_dir() else None
  if config is None:
    raise ValueError(
      f'There is no run in {workdir}: it has no config.json. Name the workdir '
      f'of a run.'
    )
  saved, data = config.get('settings'), config.get('data')
  if not (isinstance(saved, dict) and isinstance(data, dict)):
    raise ValueError(f'{workdir}/config.json is not that of a run.')
  try:
    _require_known(saved, config, workdir, kinds)
    settings = _settings(saved, str(data['flag']), workdir, kinds)
    resolve.check(settings, kinds)
    header = _header(settings, data)
    task = resolve.make_task(settings, header, kinds)
    return Recorded(
      settings, task, frame_shape(settings), str(data['checksum'])
    )
  except (KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{workdir}/config.json is damaged, or lacks a setting: {error!r}.'
    ) from error


def _require_known(
  saved: Mapping[str, Any],
  config: Mapping[str, Any],
  workdir: pathlib.Path,
  kinds: Kinds,
) -> None:
  """Raises `ValueError` for a model, task or setting that is not known."""
  for what, known in (('model', kinds.models), ('task', kinds.tasks)):
    if saved[what] not in known:
      raise ValueError(
        f'The {what} of {workdir} is {saved[what]!r}, which is not built in; '
        f"in Python, give {what}s={{'{saved[what]}': ...}} to gtmm_jax.load, "
        f'as the program that trained it does.'
      )
  names = {
    *workdirs.BEFORE,
    *workdirs.ONCE_OF_ALL,
    *(field.name for field in dataclasses.fields(Settings)),
    *kinds_module.all_sizes(kinds),
    *cores.options(kinds.models[saved['model']]),
    *set_flag.sizes(),
  }
  for name, value in saved.items():
    if name not in names and value is not None:
      version = (config.get('versions') or {}).get('gtmm_jax', 'another')
      raise ValueError(
        f'{workdir} was made by version {version} of gtmm_jax with the setting '
        f'{name}={value}, which this one, {gtmm_jax.__version__}, does not '
        f'know; load it with the version that made it.'
      )


def _settings(
  saved: Mapping[str, Any], flag: str, workdir: pathlib.Path, kinds: Kinds
) -> Settings:
  """Returns resolved settings, whose sizes are all that were recorded."""
  saved = {**workdirs.BEFORE, **saved}
  fields = {
    field.name: _immutable(saved[field.name])
    for field in dataclasses.fields(Settings)
    if field.metadata['about'].is_recorded and field.name in saved
  }
  sizes = kinds_module.sizes(kinds.tasks[saved['task']])
  settings = Settings(
    **fields,
    workdir=str(workdir),
    data=flag,
    device_megabytes=saved.get('device_megabytes'),
    slots=saved.get('slots'),
    episode={
      name: saved[name] for name in sizes if saved.get(name) is not None
    },
    sizes={
      name: _immutable(saved[name])
      for name in set_flag.sizes()
      # A core without keys has none of their strength.
      if name in saved and (name, saved[name]) != ('key_strength', None)
    },
  )
  options = resolve.first_options(settings, kinds)
  types = cores.options(kinds.models[settings.model])
  options |= {
    name: _option(saved[name], types[name].type)
    for name in types
    if name in saved
  }
  return dataclasses.replace(settings, options=options)


def _immutable(value: Any) -> Any:
  """Returns a value with tuples in place of JSON's lists."""
  if isinstance(value, list):
    return tuple(map(_immutable, value))
  return value


def _option(value: Any, kind: Any) -> Any:
  """Returns the value of an option; names are recorded joined by commas."""
  if get_origin(kind) is tuple and str in get_args(kind):
    words = str(value)
    return () if words == 'none' else tuple(words.split(','))
  return _immutable(value)


def _header(
  settings: Settings, data: Mapping[str, Any]
) -> frame_files.Header | None:
  """Returns the sizes of own episodes; None for other tasks."""
  if settings.task != 'frames':
    return None
  # Earlier versions did not record the width of the condition.
  if 'condition_size' not in data:
    return own_frames.inspect(settings.task, settings.data)
  length = settings.episode['length']
  # As many as there are is known only where the file is.
  return frame_files.Header(
    0, length, settings.shape, int(data['condition_size'])
  )


def frame_shape(settings: Settings) -> tuple[int, int, int]:
  """Returns (H, W, C) of the frames, without reading any data."""
  if settings.shape is not None:
    return settings.shape
  if settings.task == 'rotation':
    side = settings.episode['size']
    return side, side, 3
  return _SHAPE
