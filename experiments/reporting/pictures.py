"""The pictures of a report, in a folder beside its page."""

import functools
import io
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib
from PIL import Image

from gtmm_jax import figures
from gtmm_jax.figures import appearance
from gtmm_jax.records import documents
from reporting.reading import Run, Study
from studies import drawing
from studies.outcomes import Row, has_values

FOLDER = 'pictures'
# Names of files that reports write.
_OWN = re.compile(r'(figure|run)-\d+(-\d+)?\.(svg|png)')
# Pixels of a page in an inch of matplotlib's.
_INCH = 96
# Resolution in which runs draw.
_SCALE = 150 / 96
# Curves in a figure: as many as there are colours.
_MOST = 7
_METRICS = ('ratio', 'negative_bound')


class Picture(NamedTuple):
  """A picture that was written.

  Attributes:
    source: its address, from the page.
    words: what it shows.
    width: in pixels of the page, as is height.
    height: of the whole.
  """

  source: str
  words: str
  width: int
  height: int


class Pictures:
  """Writes pictures, and knows which could not be written.

  Attributes:
    problems: sentences about these.
  """

  def __init__(self, output: pathlib.Path) -> None:
    """Takes the folder of the page; writes nothing yet."""
    self.problems: list[str] = []
    self._folder = output / FOLDER
    self._written: set[str] = set()
    self._count = 0

  def of_task(self, study: Study, task: str) -> list[Picture]:
    """Draws the comparison figures of a task: the paper's panels, and dots."""
    rows = [row for row in study.rows.values() if row.task == task]
    here = [row for row in rows if row.name in study.workdirs]
    drawn = []
    for group in together(here):
      draw = functools.partial(
        drawing.results_figure, group, study.workdirs, task
      )
      words = f"{task}: the paper's three panels"
      drawn += self._figure(draw, words)
    for metric in _METRICS if len(rows) > 1 else ():
      if any(has_values(row, metric) for row in rows):
        draw = functools.partial(_dots, rows, metric)
        drawn += self._figure(draw, f'{task}: {metric} of each replica')
    return drawn

  def of_run(self, run: Run) -> list[Picture]:
    """Copies the pictures that are in a run's folder, dreams among them."""
    if run.workdir is None:
      return []
    files = [
      *sorted(run.workdir.glob('figures/*.png')),
      *sorted(run.workdir.glob('dreams/*/*.png')),
    ]
    copied = []
    self._count += 1
    for number, file in enumerate(files, 1):
      words = (
        file.stem
        if file.parent.name == 'figures'
        else (f'dreams, {file.parent.name}')
      )
      try:
        data = file.read_bytes()
        with Image.open(io.BytesIO(data), formats=['PNG']) as picture:
          size = picture.size
          picture.verify()
      # What damaged pictures raise is not documented.
      except Exception as error:
        self.problems.append(f'{file} is not shown: {error}')
        continue
      source = self._write(f'run-{self._count}-{number}.png', data)
      width, height = (round(each / _SCALE) for each in size)
      copied.append(Picture(source, f'{run.name}: {words}', width, height))
    return copied

  def remove_others(self) -> None:
    """Removes pictures that an earlier report left in the folder."""
    for file in self._folder.glob('*'):
      if _OWN.fullmatch(file.name) and file.name not in self._written:
        file.unlink()

  def _figure(
    self, draw: Callable[[], figures.Figure], words: str
  ) -> list[Picture]:
    """Draws a figure as SVG; one that cannot be drawn is a problem."""
    try:
      figure = draw()
      data = as_svg(figure)
    # Any records may be drawn, and the rest of the page is worth more.
    except Exception as error:
      self.problems.append(f'The figure "{words}" is not drawn: {error!r}')
      return []
    self._count += 1
    source = self._write(f'figure-{self._count}.svg', data)
    width, height = (round(_INCH * each) for each in figure.get_size_inches())
    return [Picture(source, words, width, height)]

  def _write(self, name: str, data: bytes) -> str:
    documents.replace(self._folder / name, data)
    self._written.add(name)
    return f'{FOLDER}/{name}'


def together(rows: Sequence[Row]) -> list[list[Row]]:
  """Groups rows of a task that one figure can show, at most seven.

  Rows that differ in their model alone stay together, if there are any.
  """
  if len(rows) <= _MOST:
    return [list(rows)] if rows else []
  alike: dict[str, list[Row]] = {}
  for row in rows:
    alike.setdefault(row.label.replace(row.model, ''), []).append(row)
  groups = list(alike.values())
  if len(groups) == len(rows):
    groups = [list(rows)]
  return [
    group[start : start + _MOST]
    for group in groups
    for start in range(0, len(group), _MOST)
  ]


def as_svg(figure: figures.Figure) -> bytes:
  """Returns a figure as SVG, its letters as outlines; always the same."""
  with (
    appearance.fixed(),
    matplotlib.rc_context({'svg.hashsalt': 'gtmm_jax', 'svg.fonttype': 'path'}),
    io.BytesIO() as buffer,
  ):
    figure.savefig(buffer, format='svg', metadata={'Date': None})
    return buffer.getvalue()


def _dots(rows: list[Row], metric: str) -> figures.Figure:
  return drawing.dots_figure({row.name: row for row in rows}, metric)
