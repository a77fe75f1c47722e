"""Reads figures back: their texts, their layout and their pixels."""

import io

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image


def pixels(figure: Figure) -> np.ndarray:
  """Renders a figure, RGB in [0, 1], [Y, X, 3]."""
  with io.BytesIO() as buffer:
    figure.savefig(buffer, format='png', dpi=figure.dpi)
    return np.asarray(Image.open(buffer).convert('RGB')) / 255


def texts(figure: Figure) -> list[Text]:
  """Lists the texts that are seen, without ticks beyond their axis."""
  figure.draw_without_rendering()
  hidden = set()
  for axes in figure.axes:
    for axis in (axes.xaxis, axes.yaxis):
      low, high = sorted(axis.get_view_interval())
      for tick in axis.get_major_ticks():
        if not axes.axison or not low <= tick.get_loc() <= high:
          hidden |= {id(tick.label1), id(tick.label2)}
  return [
    text
    for text in figure.findobj(Text)
    if text.get_visible() and text.get_text().strip() and id(text) not in hidden
  ]


def words(figure: Figure) -> list[str]:
  """Lists what the texts say, dollar signs as the reader sees them."""
  return [text.get_text().replace(r'\$', '$') for text in texts(figure)]


def legend(figure: Figure) -> list[str]:
  """Lists the labels of a figure's legend."""
  return [text.get_text() for text in figure.legends[0].get_texts()]


def check_layout(figure: Figure) -> None:
  """Checks that no text is cut off, on another text, or read as a formula."""
  seen = texts(figure)
  boxes = np.array([text.get_window_extent().extents for text in seen])
  assert boxes[:, :2].min() >= 0
  assert (boxes[:, 2:] <= figure.bbox.size).all()
  apart = (boxes[:, None, :2] >= boxes[None, :, 2:] - 0.5).any(-1)
  together = ~(apart | apart.T) & ~np.eye(len(boxes), dtype=bool)
  assert not [
    (seen[i].get_text(), seen[j].get_text()) for i, j in np.argwhere(together)
  ]
  for text in seen:
    assert not text._preprocess_math(text.get_text())[1], text
