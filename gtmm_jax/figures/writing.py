"""Pages, the width of text, and writing figures to files."""

from __future__ import annotations

import contextlib
import io
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from PIL import Image

from gtmm_jax.figures import appearance

DPI = 150


def literal(text: str) -> str:
  """Escapes dollar signs, which would mark formulas."""
  return text.replace('$', r'\$')


def width_of(text: str, size: float) -> int:
  """Returns the width in pixels of a line of text with a size in points."""
  if not text.strip():
    return 0
  extents = TextPath((0, 0), literal(text), size=size).get_extents()
  # Hinting at this size makes letters a little wider than their outlines.
  return math.ceil(1.07 * extents.width * DPI / 72)


def page(width: int, height: int) -> tuple[Figure, Axes]:
  """Makes a figure of a size in pixels, and axes that fill it."""
  # A little more, because a quotient rounded down would lose a whole pixel.
  inches = [(pixels + 1e-6) / DPI for pixels in (width, height)]
  figure = Figure(figsize=inches, dpi=DPI)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_axis_off()
  return figure, axes


@appearance.fixed()
def save(figure: Figure, stem: str | os.PathLike[str]) -> list[Path]:
  """Writes a figure to `<stem>.png` and `<stem>.pdf`.

  The PNG of a figure that shows no images, only lines and areas, is reduced to
  256 colours, which makes it smaller.

  Returns:
    The two paths. Their folder is created if it does not exist.
  """
  # Not with_suffix, which would cut a stem at its last dot.
  paths = [Path(f'{os.fspath(stem)}.{kind}') for kind in ('png', 'pdf')]
  paths[0].parent.mkdir(parents=True, exist_ok=True)
  with io.BytesIO() as buffer:
    figure.savefig(buffer, format='png', dpi=DPI)
    picture = Image.open(buffer).convert('RGB')
  if not any(axes.images for axes in figure.axes):
    picture = _with_palette(picture)
  with replaced(paths[0]) as temporary:
    picture.save(temporary, format='png', dpi=(DPI, DPI), optimize=True)
  with replaced(paths[1]) as temporary:
    # Without a date, the same records give the same file.
    figure.savefig(
      temporary, format='pdf', dpi=DPI, metadata={'CreationDate': None}
    )
  return paths


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
  """Yields a temporary file, which replaces `path` once it is complete."""
  temporary = path.with_name(f'.{path.name}.{secrets.token_hex(8)}')
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def _with_palette(picture: Image.Image) -> Image.Image:
  """Reduces a picture to its 256 most frequent colours.

  Other colours become the nearest of these. Lines and areas so keep their
  colours, and only their soft edges change.
  """
  pixels = np.asarray(picture, np.int64) @ (65536, 256, 1)
  codes, index, count = np.unique(
    pixels, return_inverse=True, return_counts=True
  )
  # Sorted stably, so that the same picture gives the same palette.
  frequent = np.argsort(-count, kind='stable')[:256]
  colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
  distance = np.square(colours[:, None] - colours[frequent]).sum(axis=2)
  nearest = distance.argmin(axis=1).astype(np.uint8)
  reduced = Image.fromarray(nearest[index].reshape(pixels.shape))
  reduced.putpalette(colours[frequent].astype(np.uint8).tobytes())
  return reduced
