"""The paper's figures, drawn from the records of runs; strips of frames.

Every picture is written as PNG and as PDF. Nothing here touches pyplot's
global state, so figures can be drawn without a display and from any thread.
"""

from gtmm_jax.figures.curves import Run
from gtmm_jax.figures.results import draw_results, results_figure
from gtmm_jax.figures.strips import draw_strip, strip_figure

__all__ = [
  'Run',
  'draw_results',
  'draw_strip',
  'results_figure',
  'strip_figure',
]
