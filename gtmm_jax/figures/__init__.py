"""The paper's figures, strips of frames, maps of walks and memory panels.

Every picture is written as PNG and as PDF. Drawing needs no display, no pyplot
and no backend, works in any thread, and gives the same picture whatever the
user's matplotlib settings are.
"""

# First, because it can import matplotlib even if the user's settings are wrong.
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
