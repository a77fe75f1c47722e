"""The models and tasks of a program: the built-in ones, and the user's own."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from gtmm_jax import presets, tasks
from gtmm_jax.model import cores
from gtmm_jax.records import documents
from gtmm_jax.runs.settings import Settings, about
from gtmm_jax.tasks import episode

# Attributes of a task besides its sizes (see `gtmm_jax.tasks.episode`).
_CONTRACT = ('sample', 'length', 'prefix', 'condition_size', 'asks')
# Names of settings, which neither options nor sizes of episodes may have.
_SETTINGS = {
  field.name
  for kind in (Settings, presets.Preset)
  for field in dataclasses.fields(kind)
}
# Default number of training steps on a user's task.
_STEPS = 2_000


class Kinds(NamedTuple):
  """The models and tasks of a program.

  Attributes:
    models: functions that make a core, by name (see `cores.Make`).
    tasks: classes, by name (see `gtmm_jax.tasks.episode`).
  """

  models: Mapping[str, cores.Make]
  tasks: Mapping[str, type]


BUILT_IN = Kinds(cores.MODELS, MappingProxyType(tasks.TASKS))


def with_own(
  models: Mapping[str, cores.Make], tasks: Mapping[str, type]
) -> Kinds:
  """Adds the user's models and tasks to the built-in ones.

  Args:
    models: functions (sizes, slots, *, option=default, ...) -> core.
    tasks: frozen dataclasses. Integer fields are the sizes of an episode; a
      class attribute `steps` is the default number of training steps.

  Raises:
    ValueError: a name is taken, or a model or task does not keep its contract.
  """
  for what, user_defined, built_in in (
    ('model', models, BUILT_IN.models),
    ('task', tasks, BUILT_IN.tasks),
  ):
    for name in user_defined:
      if name in built_in:
        raise ValueError(
          f'There is a built-in {what} {name!r}; give yours another name.'
        )
      if not (name.isidentifier() and name.isascii()):
        raise ValueError(
          f'{name!r} cannot name a {what}; use letters, digits and _.'
        )
  for name, task in tasks.items():
    _require_task(name, task)
  kinds = Kinds({**BUILT_IN.models, **models}, {**BUILT_IN.tasks, **tasks})
  for name, task in tasks.items():
    _require_free(f'size of the task {name}', sizes(task), _SETTINGS)
  for name, make in models.items():
    _require_model(name, make)
    names = {*_SETTINGS, *all_sizes(kinds)}
    _require_free(f'option of the model {name}', cores.options(make), names)
  return kinds


def _require_free(
  what: str, names: Iterable[str], taken: Collection[str]
) -> None:
  """Raises `ValueError` if a name is taken."""
  for name in names:
    if name in taken:
      raise ValueError(
        f'The {what} is called {name}, the name of another setting; rename it.'
      )


def _require_model(name: str, make: cores.Make) -> None:
  """Raises `ValueError` unless a model can be called with sizes and slots."""
  if not callable(make):
    raise ValueError(
      f'The model {name} is {make!r}; it must be a function of sizes and slots '
      f'that returns a core.'
    )
  try:
    inspect.signature(make).bind(None, 1)
  except TypeError as error:
    raise ValueError(
      f'The model {name} cannot be called with sizes and slots ({error}); its '
      f'options come after *, with defaults.'
    ) from error
  try:
    options = cores.options(make)
  except Exception as error:
    raise ValueError(
      f'The types of the options of the model {name} cannot be read ({error}); '
      f'import what they name.'
    ) from error
  for option, (kind, default) in options.items():
    _require_option(f'The option {option} of the model {name}', kind, default)


def _require_option(what: str, kind: Any, default: Any) -> None:
  """Raises `ValueError` unless --set can read an option's type."""
  if not _is_readable(kind):
    raise ValueError(
      f'{what} has the type {kind}; it must be bool, int, float, str, a '
      f'Literal, a tuple of these, or one of them or None.'
    )
  try:
    documents.as_json(default)
  except TypeError as error:
    raise ValueError(
      f'{what} has the default {default!r}, which is no {kind}; take another.'
    ) from error


def _is_readable(kind: Any) -> bool:
  """Returns whether --set can read values of a type."""
  origin, arguments = get_origin(kind), get_args(kind)
  if origin in (typing.Union, types.UnionType, tuple):
    parts = [a for a in arguments if a not in (type(None), Ellipsis)]
    return bool(parts) and all(map(_is_readable, parts))
  return origin is Literal or kind in (bool, int, float, str)


def _require_task(name: str, task: type) -> None:
  """Raises `ValueError` unless a class has the attributes of a task."""
  if not (isinstance(task, type) and dataclasses.is_dataclass(task)):
    raise ValueError(f'The task {name} is {task!r}; it must be a dataclass.')
  has = {*dir(task), *task.__dataclass_fields__}
  asks = getattr(task, 'asks', None)
  contract = (*_CONTRACT, *(('classes',) if asks == 'class' else ()))
  lacking = [each for each in contract if each not in has]
  if lacking:
    raise ValueError(
      f'The task {name} lacks {" and ".join(lacking)}; a task has '
      f'{", ".join(contract)}.'
    )
  if isinstance(asks, str) and asks not in get_args(episode.Asks):
    raise ValueError(
      f'The task {name} asks {asks!r}; it must be one of '
      f'{", ".join(get_args(episode.Asks))}.'
    )
  number, most = steps(task), about()['steps'][1].most
  if not (isinstance(number, int) and 1 <= number <= most):
    raise ValueError(
      f'The task {name} has {number!r} steps; it must be 1 to {most}.'
    )
  _require_fields(name, task)


def _require_fields(name: str, task: type) -> None:
  """Raises `ValueError` unless flags can set all fields without a default."""
  try:
    flags = sizes(task)
  except Exception as error:
    raise ValueError(
      f'The types of the fields of the task {name} cannot be read ({error}); '
      f'import what they name.'
    ) from error
  for field in dataclasses.fields(task):
    defaults = field.default, field.default_factory
    is_missing = defaults == (dataclasses.MISSING, dataclasses.MISSING)
    if field.init and is_missing and field.name not in flags:
      raise ValueError(
        f'The field {field.name} of the task {name} has no default; only '
        f'integers, which have a flag, may have none.'
      )


def sizes(task: type) -> dict[str, Any]:
  """Returns the sizes of a task's episodes, with the defaults of its class.

  Args:
    task: its class. Integer fields are sizes, except for the width of the
      condition, which the data decide.

  Returns:
    Defaults by name, `dataclasses.MISSING` for sizes without a default.
  """
  hints = typing.get_type_hints(task)
  return {
    field.name: field.default
    for field in dataclasses.fields(task)
    if hints[field.name] is int
    and field.init
    and field.name != 'condition_size'
  }


def all_sizes(kinds: Kinds) -> list[str]:
  """Returns the names of the sizes of all tasks' episodes, each once."""
  names = [name for task in kinds.tasks.values() for name in sizes(task)]
  return list(dict.fromkeys(names))


def steps(task: type) -> int:
  """Returns the default number of training steps on a user's task."""
  return getattr(task, 'steps', _STEPS)


def channels(task: type) -> int:
  """Returns the channels of a task's frames: 1 (grey) or 3."""
  return getattr(task, 'channels', 1)
