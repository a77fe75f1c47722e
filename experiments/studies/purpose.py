"""The questions that a grid asks, named in it before it runs."""

import pathlib
from typing import NamedTuple

from studies import choice as choice_module
from studies import claims as claims_module
from studies import comparison as comparison_module
from studies.choice import Choice
from studies.claims import Claims
from studies.comparison import Comparison


class Purpose(NamedTuple):
  """The questions that a grid names beforehand, each None if it has none.

  Attributes:
    comparison: of one model with the best of others.
    choice: of one value of a setting for all models.
    claims: with what their rows must show.
  """

  comparison: Comparison | None = None
  choice: Choice | None = None
  claims: Claims | None = None


def read(file: pathlib.Path) -> Purpose:
  """Reads the purpose of a grid.

  Raises:
    ValueError: a part of it is wrong.
    OSError: the grid cannot be read.
  """
  return Purpose(
    comparison_module.read(file),
    choice_module.read(file),
    claims_module.read(file),
  )
