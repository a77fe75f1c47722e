"""The figure of KL by frame for episodes of several lengths."""

import numpy as np
import pytest

from gtmm_jax import figures
from read_figures import check_layout, legend, words

pytestmark = pytest.mark.filterwarnings('error')


def _run(label, length, seed, failed_at=(None, None, None)):
  """Makes the evaluation of three replicas; the last two frames come back."""
  random = np.random.default_rng(seed)
  evaluation = {
    'kl': (length + random.random((3, length))).tolist(),
    'failed_at': list(failed_at),
    'predictable': [float(t >= length - 2) for t in range(length)],
  }
  return figures.Run(label, (), evaluation)


def test_every_length_has_a_panel_with_its_frames_on_one_scale():
  panels = {
    f'l {length}, 9 slots': [
      _run('validation', length, 0),
      _run('test', length, 1, (None, 4, None)),
    ]
    for length in (5, 7, 9, 12, 30)
  }
  figure = figures.lengths_figure(panels, 'DNC, trained with T 5')
  assert [axes.get_title() for axes in figure.axes] == list(panels)
  assert len({axes.get_ylim() for axes in figure.axes}) == 1
  for axes, runs in zip(figure.axes, panels.values(), strict=True):
    one, other = axes.lines
    for line, run, alive in (
      (one, runs[0], [0, 1, 2]),
      (other, runs[1], [0, 2]),
    ):
      kl = np.array(run.evaluation['kl'])
      np.testing.assert_array_equal(
        line.get_xdata(), np.arange(1, kl.shape[1] + 1)
      )
      np.testing.assert_allclose(line.get_ydata(), kl[alive].mean(0))
    (shade,) = axes.patches
    span = shade.get_extents().transformed(axes.transData.inverted())
    length = len(one.get_xdata())
    np.testing.assert_allclose(span.intervalx, (length - 1.5, length + 0.5))
  assert list(legend(figure)) == [
    'validation',
    'test (2 of 3 replicas)',
    '± standard error over replicas',
    'predictable frames',
  ]
  assert 'DNC, trained with T 5' in words(figure)
  check_layout(figure)


def test_a_single_panel_and_nothing_to_draw():
  figure = figures.lengths_figure({'l 5': [_run('test', 5, 0)]})
  assert len(figure.axes) == 1
  check_layout(figure)
  for nothing in ({}, {'l 5': []}):
    with pytest.raises(ValueError, match='nothing to draw'):
      figures.lengths_figure(nothing)
