"""Reads --set=NAME=VALUE: sizes, options of the core, the learning rate."""

import contextlib
import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from gtmm_jax import presets
from gtmm_jax.model import cores
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import resolve
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.settings import LARGEST, Settings, about

# Fields of a preset that are not sizes: flags set them, or the task decides.
_SCHEDULE = (
  'options',
  'store',
  'batch_size',
  'learning_rate',
  'long_learning_rate',
  'schedule',
  'warmup_steps',
  'average',
  'replicas',
  'steps',
  'episodes',
  'report_every',
)
# Sizes that may be zero.
_MAY_BE_ZERO = ('summary_size',)


def sizes() -> dict[str, Any]:
  """Returns the sizes of a preset that can be set, with their types."""
  hints = typing.get_type_hints(presets.Preset)
  return {
    name: get_args(kind)[1] if name in presets.BY_MODEL else kind
    for name, kind in hints.items()
    if name not in _SCHEDULE
  }


def apply(settings: Settings, texts: Sequence[str], kinds: Kinds) -> Settings:
  """Applies --set to settings.

  Args:
    settings: from the other flags.
    texts: values of --set, NAME=VALUE each.
    kinds: the models and tasks of the program.

  Raises:
    ValueError: a name is unknown or set twice, or a value is wrong.
  """
  if settings.model not in kinds.models:
    raise ValueError(
      f'--model is {settings.model}; there are {", ".join(kinds.models)}.'
    )
  options = cores.options(kinds.models[settings.model])
  type_of = {
    **sizes(),
    'slots': int,
    'learning_rate': float,
    **{name: option.type for name, option in options.items()},
  }
  values: dict[str, Any] = {}
  for text in texts:
    name, sign, value = text.partition('=')
    if not sign:
      raise ValueError(
        f'--set={text} has no value; write --set=NAME=VALUE, as in '
        f'--set=latent_size=64.'
      )
    if name not in type_of:
      raise ValueError(_unknown(name, settings.model, list(type_of), kinds))
    if name in values:
      raise ValueError(f'--set gives {name} twice; give it once.')
    if name in settings.options or (
      name == 'learning_rate' and settings.learning_rate is not None
    ):
      raise ValueError(
        f'{name} is given by --{name} and by --set; give it once.'
      )
    values[name] = _parse(name, value, type_of[name])
  return dataclasses.replace(
    settings,
    set=tuple(sorted(texts)),
    slots=values.pop('slots', settings.slots),
    learning_rate=values.pop('learning_rate', settings.learning_rate),
    options={
      **settings.options,
      **{name: value for name, value in values.items() if name in options},
    },
    sizes={
      name: value for name, value in values.items() if name not in options
    },
  )


def _unknown(name: str, model: str, names: list[str], kinds: Kinds) -> str:
  """Returns the error message for a name that --set does not know."""
  models = resolve.models_with(name, kinds)
  if models:
    return (
      f'--set={name} means nothing to {model}; it belongs to '
      f'{" and ".join(models)}.'
    )
  if name in (*about(), *kinds_module.all_sizes(kinds)):
    return f'--set={name}: {name} is a flag of its own; write --{name}=VALUE.'
  nearest = difflib.get_close_matches(name, names, 1)
  if nearest:
    hint = f'did you mean {nearest[0]}?'
  else:
    hint = f'there are {", ".join(sorted(names))}'
  return f'--set={name}: there is no such setting; {hint}'


def _parse(name: str, text: str, kind: Any) -> Any:
  """Reads a value of a type and checks its range; raises `ValueError`."""
  try:
    value = _value(text, kind)
    is_sensible = _is_sensible(value, name)
  except ValueError:
    is_sensible = False
  if not is_sensible:
    raise ValueError(
      f'--set={name}={text}: {name} must be {_described(name, kind)}.'
    )
  return value


def _value(text: str, kind: Any) -> Any:
  """Reads a value of a type; raises `ValueError` if it has another."""
  origin, arguments = get_origin(kind), get_args(kind)
  if origin is Literal:
    if text not in arguments:
      raise ValueError(text)
    return text
  if origin in (typing.Union, types.UnionType):
    return _first_value(text, arguments)
  if origin is tuple and arguments[-1] is Ellipsis:
    words = [] if text in ('', 'none') else text.split('+')
    return tuple(_value(word, arguments[0]) for word in words)
  if origin is tuple:
    parts = zip(text.split('x'), arguments, strict=True)
    return tuple(_value(part, each) for part, each in parts)
  if kind is bool and text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  if kind is int and not re.fullmatch(r'-?\d+', text, re.ASCII):
    raise ValueError(text)
  if kind is str and not re.fullmatch(r'[\w.,+-]+', text):
    raise ValueError(text)
  if kind not in (int, float, str):
    raise ValueError(text)
  return kind(text)


def _first_value(text: str, kinds: Sequence[Any]) -> Any:
  """Reads a value of the first of several types that fits; None is 'none'."""
  if text == 'none' and type(None) in kinds:
    return None
  for kind in kinds:
    with contextlib.suppress(ValueError):
      return _value(text, kind)
  raise ValueError(text)


def _is_sensible(value: Any, name: str) -> bool:
  """Tells whether numbers are finite, and those of sizes above zero."""
  if isinstance(value, tuple):
    return all(_is_sensible(each, name) for each in value)
  if isinstance(value, bool) or not isinstance(value, int | float):
    return True
  # NaN fails this test, too.
  if not abs(value) <= LARGEST:
    return False
  return not _is_size(name) or value > 0 or value == 0 and name in _MAY_BE_ZERO


def _is_size(name: str) -> bool:
  return name in sizes() or name == 'slots'


def _described(name: str, kind: Any) -> str:
  """Describes the allowed values of a type in words."""
  origin, arguments = get_origin(kind), get_args(kind)
  if origin is Literal:
    return ' or '.join(map(str, arguments))
  if origin in (typing.Union, types.UnionType):
    others = [_described(name, a) for a in arguments if a is not type(None)]
    or_none = ', or none' if type(None) in arguments else ''
    return f'{" or ".join(others)}{or_none}'
  if origin is tuple and arguments[-1] is Ellipsis:
    return f'none, or values joined by +, each {_described(name, arguments[0])}'
  if origin is tuple:
    return 'numbers joined by x, as in 4x32'
  if kind is bool:
    return 'true or false'
  number = {int: 'a whole number', float: 'a number'}.get(kind)
  if number is None:
    return 'letters, digits and . , + -'
  if not _is_size(name):
    return number
  least = 'from 0 on' if name in _MAY_BE_ZERO else 'above 0'
  return f'{number} {least}, at most {LARGEST}'
