"""Animations, read back from their files."""

import numpy as np
import pytest
from PIL import Image

from gtmm_jax import figures


def _read(path):
  """Returns the images [T, Y, X, 3] of a GIF, and their milliseconds."""
  with Image.open(path) as file:
    images, times = [], []
    for index in range(file.n_frames):
      file.seek(index)
      images.append(np.asarray(file.convert('RGB')))
      times.append(file.info['duration'])
  return np.stack(images), times


def _filled(image, colour):
  """Counts the pixels of a colour."""
  return int((abs(image.astype(int) - colour).max(axis=-1) <= 2).sum())


def test_frames_follow_one_another_beside_their_dream(tmp_path):
  truth = np.zeros((4, 8, 8, 3))
  truth[np.arange(4), ..., 0] = np.linspace(0.25, 1, 4)[:, None, None]
  dream = np.full_like(truth, np.nan)
  dream[2:, ..., 1] = dream[2:, ..., 2] = 1
  dream[2:, ..., 0] = 0
  rows = [
    figures.Row('truth', truth, captions=['·', '→', '←', '↑']),
    figures.Row('dream 1', dream),
  ]
  spans = [
    figures.Span('observed', range(2), '#777777'),
    figures.Span('dreamt', range(2, 4), '#0072B2'),
  ]
  path = figures.save_animation([rows], spans, tmp_path / 'new' / 'a.gif')
  images, times = _read(path)
  assert len(images) == 4 and times[-1] > times[0] > 0
  side = 8 * 14
  for t, image in enumerate(images):
    red = round(255 * (t + 1) / 4)
    assert _filled(image, (red, 0, 0)) == side**2
    # Nothing is dreamt while frames are observed.
    assert _filled(image, (0, 255, 255)) == (side**2 if t >= 2 else 0)
    border = (side + 6) ** 2 - side**2
    # The truth keeps its colour; a dream has one from its first frame on.
    assert _filled(image, (0x77, 0x77, 0x77)) >= border
    blue = _filled(image, (0, 0x72, 0xB2))
    assert (blue >= border) == (t >= 2)
  assert not (images[0] == images[1]).all()


def test_rows_of_other_shapes_are_refused(tmp_path):
  for lengths in ((3, 4), (0, 0)):
    rows = [figures.Row('a', np.zeros((n, 8, 8, 1))) for n in lengths]
    with pytest.raises(ValueError, match='rows of an animation'):
      figures.save_animation([rows], [], tmp_path / 'a.gif')
  assert not list(tmp_path.iterdir())
