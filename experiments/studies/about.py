"""The words of a grid about itself: its aim, and how long it takes; no jax."""

import math
import pathlib
from typing import NamedTuple

from studies import grid_file


class About(NamedTuple):
  """The words of a grid about itself, each None if it has none.

  Attributes:
    text: what it varies, or what for.
    minutes: of the whole study on two CPU cores, two runs at a time.
  """

  text: str | None = None
  minutes: float | None = None

  def lines(self) -> list[str]:
    """Returns what is printed when a study begins."""
    lines = [] if self.text is None else [self.text]
    if self.minutes is not None:
      lines.append(f'About {self.minutes:g} minutes on two CPU cores.')
    return lines


def read(file: pathlib.Path) -> About:
  """Reads the fields "about" and "minutes" of a grid.

  Raises:
    ValueError: the file is not a grid, or a field is wrong.
    OSError: the grid cannot be read.
  """
  content = grid_file.content(file)
  text, minutes = content.get('about'), content.get('minutes')
  is_text = isinstance(text, str) and text.strip() and text.isprintable()
  if 'about' in content and not is_text:
    raise ValueError(f'{file}: "about" must be a text of one line.')
  is_number = isinstance(minutes, (int, float)) and minutes is not True
  if 'minutes' in content and not (is_number and 0 < minutes < math.inf):
    raise ValueError(f'{file}: "minutes" must be a number above 0.')
  return About(text, minutes)
