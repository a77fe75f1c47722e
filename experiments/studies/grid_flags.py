"""Flags that extend a grid: values to vary, and values of all cells; no jax."""

import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Additions(NamedTuple):
  """The additions of flags to each block of a grid.

  Attributes:
    over: lists of values of further flags.
    fixed: flags of every cell, instead of the grid's values.
  """

  over: Mapping[str, list[Any]] = types.MappingProxyType({})
  fixed: Mapping[str, Any] = types.MappingProxyType({})


def read_over(texts: Sequence[str]) -> dict[str, list[str]]:
  """Returns the lists of values that --over names, by flag.

  Args:
    texts: each NAME=VALUE,VALUE,...

  Raises:
    ValueError: a text has another form, or a name is there twice.
  """
  over: dict[str, list[str]] = {}
  for text in texts:
    name, _, listed = text.partition('=')
    values = listed.split(',')
    if not name or not all(values):
      raise ValueError(
        f'--over={text} must be NAME=VALUE,VALUE,..., such as '
        f'--over=model=vrnn,dnc.'
      )
    if name in over:
      raise ValueError(
        f'--over has {name} twice; name all of its values in one list.'
      )
    over[name] = values
  return over


def extend(
  where: str,
  flags: Mapping[str, Any],
  over: Mapping[str, list[Any]],
  additions: Additions,
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
  """Returns flags and varied lists of a block with additions.

  Args:
    where: names the block, for error messages.
    flags: of the block.
    over: lists of the block.
    additions: to both.

  Raises:
    ValueError: an addition is about a flag that the block varies, or one to
      `over` about a flag that the block or another addition sets.
  """
  varied = {*over, *additions.over}
  for name in additions.fixed:
    if name in varied:
      raise ValueError(
        f'{where} varies {name}, so that --{name} cannot set it for all cells; '
        f'leave --{name} out.'
      )
  for name in additions.over:
    # What is varied of --set comes on top of what all cells have.
    if name in over or (name in flags and name != 'set'):
      raise ValueError(
        f'{where} sets {name} already, so that --over cannot vary it; vary '
        f'only flags that it leaves open.'
      )
  return {**flags, **additions.fixed}, {**over, **additions.over}


def suffix(additions: Additions) -> str:
  """Returns the names and values that tell a folder's study from its grid's.

  Values of `over` are left out: a study that gets more of them goes on in its
  folder.
  """
  parts = ['over', *additions.over] if additions.over else []
  parts += [f'{name}={value}' for name, value in additions.fixed.items()]
  return '-'.join(parts)
