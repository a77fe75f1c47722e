"""Reads --grow=NAME=VALUES: the setting that grows, and its values."""

import copy
import re
from typing import NamedTuple

from absl import flags as absl_flags

from gtmm_jax.runs import flags
from gtmm_jax.runs.settings import Settings, about

_DEFAULT = '1,4'
# Other flags of the program, such as --seconds, do not change a run.
_SETTINGS = (*about(), *flags.EPISODE, *flags.OPTIONS)


class Growth(NamedTuple):
  """A setting that grows, and its values, the smallest first.

  Attributes:
    name: of a flag, or a size that --set sets.
    values: whole numbers from 1 on, each once.
  """

  name: str
  values: tuple[int, ...]


def read(text: str | None, replicas: int | None) -> Growth:
  """Reads the value of --grow.

  Peaks of memory are those of the program so far: in rising order the latest
  row makes them.

  Args:
    text: the value; None where the number of replicas grows.
    replicas: the value of --replicas; None for 1 and 4.

  Raises:
    ValueError: it is not a name and whole numbers from 1 on.
  """
  if text is None:
    text = f'replicas={_DEFAULT if replicas is None else replicas}'
  name, _, values = text.partition('=')
  if not name or not re.fullmatch(r'0*[1-9]\d*(,0*[1-9]\d*)*', values):
    raise ValueError(
      f'--grow is {text!r}; it must be a setting and whole numbers from 1 on '
      f'with commas between, as in --grow=batch_size=10,20,40.'
    )
  if name == 'replicas' and replicas is not None and values != str(replicas):
    raise ValueError('--replicas and --grow=replicas are both given; give one.')
  return Growth(name, tuple(sorted({int(each) for each in values.split(',')})))


def settings(growth: Growth, values: absl_flags.FlagValues) -> list[Settings]:
  """Returns the settings of the flags with each value of the growth.

  Args:
    growth: a flag's name is set as the flag, another one as with --set.
    values: the flags, parsed; they stay as they are. Without --replicas there
      is one.

  Raises:
    ValueError: there is no such setting, or it is not a number.
  """
  grown = []
  for value in growth.values:
    row = copy.deepcopy(values)
    if row['replicas'].value is None:
      row['replicas'].value = 1
    if growth.name in _SETTINGS and growth.name in row:
      try:
        row[growth.name].parse(str(value))
      except absl_flags.Error as error:
        raise ValueError(f'--grow={growth.name}: {error}') from error
    else:
      row['set'].value = [*row['set'].value, f'{growth.name}={value}']
    grown.append(flags.read(row))
  return grown
