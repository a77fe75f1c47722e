"""Animations: rows of frames that move side by side, as a GIF."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from gtmm_jax.figures import pixels, writing
from gtmm_jax.figures.strips import Row, Span

# In pixels: about the least side of a picture, its border, space around it,
# below it for the name, and above all for the number of the frame.
_SIDE, _BORDER, _GAP, _NAME, _TOP = 112, 3, 10, 20, 34
# In pixels: sizes of fonts.
_LARGE, _SMALL = 15, 12
# Of a place without a frame.
_EMPTY = '#ebebeb'
# Milliseconds that a frame is seen, and the last one.
_EACH, _LAST = 500, 2000


class _Cell(NamedTuple):
  """A row in its place.

  Attributes:
    pictures: [T, H, W, 3], scaled; NaN where there is no frame.
    texts: T lines to write below it.
    colour: of its border.
  """

  pictures: np.ndarray
  texts: list[str]
  colour: str


def save_animation(
  grid: Sequence[Sequence[Row]],
  spans: Sequence[Span],
  path: str | os.PathLike[str],
) -> pathlib.Path:
  """Writes a GIF that shows rows of frames side by side, frame after frame.

  Args:
    grid: lines of rows, as they stand side by side; all of one shape. A frame
      of NaN is an empty place. Captions follow the names; marks are not shown.
    spans: names of frames, written above. The border of a row has the colour of
      the span in which its frames begin.
    path: of the file.

  Returns:
    The path. Its folder is created if it does not exist.

  Raises:
    ValueError: there are no frames, their shapes differ, or a row is not as
      `Row` describes.
  """
  shapes = {np.shape(row.frames) for line in grid for row in line}
  if len(shapes) != 1 or 0 in next(iter(shapes)):
    raise ValueError(
      f'The rows of an animation have the shapes {sorted(shapes)}; they must '
      f'have one, with at least one frame.'
    )
  cells = [[_cell(row, spans) for row in line] for line in grid]
  length = len(cells[0][0].texts)
  images = [_draw(cells, spans, t) for t in range(length)]
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  with writing.replaced(path) as temporary:
    images[0].save(
      temporary,
      format='gif',
      save_all=True,
      append_images=images[1:],
      duration=[_EACH] * (length - 1) + [_LAST],
      loop=0,
    )
  return path


def _cell(row: Row, spans: Sequence[Span]) -> _Cell:
  """Scales the frames of a row, and joins its name and captions."""
  pictures = pixels.as_rgb(row.name, row.frames, _SIDE)
  captions = row.captions or [''] * len(pictures)
  texts = [f'{row.name}  {each}'.strip() for each in captions]
  first = int(np.argmin(np.isnan(pictures).all(axis=(1, 2, 3))))
  return _Cell(pictures, texts, _span(spans, first).colour)


def _span(spans: Sequence[Span], t: int) -> Span:
  """Returns the span of frame t, one without a name if there is none."""
  nameless = Span('', range(t, t + 1), 'black')
  return next((span for span in spans if t in span.frames), nameless)


def _draw(
  cells: Sequence[Sequence[_Cell]], spans: Sequence[Span], t: int
) -> Image.Image:
  """Draws all rows at frame t."""
  length, height, width, _ = cells[0][0].pictures.shape
  texts = {text for line in cells for cell in line for text in cell.texts}
  widest = max(_font(_SMALL).getlength(text) for text in texts)
  step_x = max(width, round(widest)) + 2 * _GAP
  step_y = height + _NAME + 2 * _GAP
  span = _span(spans, t)
  words = ': '.join(filter(None, (f'frame {t + 1} of {length}', span.name)))
  size = (
    max(
      step_x * max(map(len, cells)),
      2 * _GAP + round(_font(_LARGE).getlength(f'{words}  ')),
    ),
    _TOP + step_y * len(cells),
  )
  image = Image.new('RGB', size, 'white')
  pen = ImageDraw.Draw(image)
  pen.text((_GAP, _GAP), words, span.colour, _font(_LARGE))
  for i, line in enumerate(cells):
    for j, cell in enumerate(line):
      x, y = j * step_x + _GAP, _TOP + i * step_y + _GAP
      ends = x + width + _BORDER - 1, y + height + _BORDER - 1
      picture = cell.pictures[t]
      is_empty = np.isnan(picture).all()
      pen.rectangle(
        (x - _BORDER, y - _BORDER, *ends), _EMPTY if is_empty else cell.colour
      )
      if not is_empty:
        values = np.round(np.nan_to_num(picture, nan=1.0) * 255)
        image.paste(Image.fromarray(values.astype(np.uint8)), (x, y))
      pen.text((x, y + height + _BORDER), cell.texts[t], 'black', _font(_SMALL))
  return image


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
  """Returns the font of all figures, which has arrows."""
  return ImageFont.truetype(font_manager.findfont('DejaVu Sans'), size)
