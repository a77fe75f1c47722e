"""The models and tasks of a program: the built-in ones, and the user's own."""

import dataclasses
import inspect
import typing
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax import presets, tasks
from gtmm_jax.model import build
from gtmm_jax.runs.settings import Settings

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
    models: functions that make a core, by name (see `build.Make`).
    tasks: classes, by name (see `gtmm_jax.tasks.episode`).
  """

  models: Mapping[str, build.Make]
  tasks: Mapping[str, type]


BUILT_IN = Kinds(build.MODELS, MappingProxyType(tasks.TASKS))


def with_own(
  models: Mapping[str, build.Make], tasks: Mapping[str, type]
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
    _require_free(f'option of the model {name}', build.options(make), names)
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


def _require_model(name: str, make: build.Make) -> None:
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


def _require_task(name: str, task: type) -> None:
  """Raises `ValueError` unless a class has the attributes of a task."""
  if not (isinstance(task, type) and dataclasses.is_dataclass(task)):
    raise ValueError(f'The task {name} is {task!r}; it must be a dataclass.')
  has = {*dir(task), *task.__dataclass_fields__}
  lacking = [each for each in _CONTRACT if each not in has]
  if lacking:
    raise ValueError(
      f'The task {name} lacks {" and ".join(lacking)}; a task has '
      f'{", ".join(_CONTRACT)}.'
    )


def sizes(task: type) -> dict[str, Any]:
  """Returns the sizes of a task's episodes, with the defaults of its class.

  Args:
    task: its class. Integer fields are sizes, except for the width of the
      condition, which the data decide.

  Returns:
    Defaults by name, `dataclasses.MISSING` for sizes without a default.
  """
  types = typing.get_type_hints(task)
  return {
    field.name: field.default
    for field in dataclasses.fields(task)
    if types[field.name] is int and field.name != 'condition_size'
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


def require_core(model: str, core: nn.Module, features: int) -> None:
  """Checks that a core keeps the contract; computes shapes only.

  Args:
    model: its name, for the message.
    core: without parameters.
    features: size of an input.

  Raises:
    ValueError: the core fails, or returns wrong shapes or types.
  """
  for batch in ((), (2,), (2, 3)):
    try:
      carry, (new, context) = _shapes(core, (*batch, features))
    except Exception as error:
      reason = (str(error).splitlines() or [type(error).__name__])[0]
      raise ValueError(
        f'The core of {model} fails on inputs of shape {(*batch, features)}: '
        f'{reason}'
      ) from error
    leaves = jax.tree.leaves(carry)
    if any(leaf.shape[: len(batch)] != batch for leaf in leaves):
      wrong = 'a carry whose leaves do not all begin with the batch axes'
    elif jax.tree.map(_kind, carry) != jax.tree.map(_kind, new):
      wrong = 'a carry of other shapes or types than the one that it got'
    elif not hasattr(context, 'shape') or context.shape[:-1] != batch:
      wrong = 'a context that is not one array [..., P] with the batch axes'
    else:
      continue
    raise ValueError(
      f'The core of {model} returns {wrong}, for inputs of shape '
      f'{(*batch, features)}; see gtmm_jax/memory/contract.py.'
    )


def _shapes(core: nn.Module, shape: tuple[int, ...]) -> tuple[Any, Any]:
  """Returns the shapes of a core's first carry, and of its call's results."""
  key = jax.random.key(0)
  carry = jax.eval_shape(lambda: core.initialize_carry(key, shape))
  inputs = jax.ShapeDtypeStruct(shape, jnp.float32)
  returned, _ = jax.eval_shape(
    lambda carry, inputs: core.init_with_output(key, carry, inputs),
    carry,
    inputs,
  )
  return carry, returned


def _kind(leaf: Any) -> tuple[Any, ...]:
  return leaf.shape, leaf.dtype
