"""The paper's figures; strips of frames; maps of walks; memories at work.

Every picture is written as PNG and as PDF. They need no display and neither
pyplot nor a backend, can be drawn from any thread, and look the same whatever
the user's settings of matplotlib are.
"""

# First, for it imports matplotlib where the user's settings prevent that.
from gtmm_jax.figures import appearance  # noqa: F401

# isort: split
from gtmm_jax.figures.curves import Run
from gtmm_jax.figures.dots import Dot, dots_figure, draw_dots
from gtmm_jax.figures.memory import draw_memory, memory_figure
from gtmm_jax.figures.overlay import draw_overlay, overlay_figure
from gtmm_jax.figures.panels import Panel
from gtmm_jax.figures.results import draw_results, results_figure
from gtmm_jax.figures.strips import Row, blocks, draw_strip, strip_figure
from gtmm_jax.figures.words import in_print

__all__ = [
  'Dot',
  'Panel',
  'Row',
  'Run',
  'blocks',
  'dots_figure',
  'draw_dots',
  'draw_memory',
  'draw_overlay',
  'draw_results',
  'draw_strip',
  'in_print',
  'memory_figure',
  'overlay_figure',
  'results_figure',
  'strip_figure',
]
