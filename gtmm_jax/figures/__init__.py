"""The paper's figures, strips of frames, maps of walks and memory panels.

Each figure is a function that returns matplotlib's `Figure`; `save` writes it
as PNG and as PDF. Drawing needs no display, no pyplot and no backend, works in
any thread, and gives the same picture whatever the user's matplotlib settings
are.
"""

# First, because it can import matplotlib even if the user's settings are wrong.
from gtmm_jax.figures import appearance  # noqa: F401

# isort: split
from matplotlib.figure import Figure

from gtmm_jax.figures.animation import save_animation
from gtmm_jax.figures.curves import Run
from gtmm_jax.figures.dots import Dot, dots_figure
from gtmm_jax.figures.lengths import lengths_figure
from gtmm_jax.figures.memory import memory_figure
from gtmm_jax.figures.overlay import overlay_figure
from gtmm_jax.figures.panels import Panel
from gtmm_jax.figures.results import results_figure
from gtmm_jax.figures.strips import Row, Span, blocks, strip_figure
from gtmm_jax.figures.words import in_print
from gtmm_jax.figures.writing import save

__all__ = [
  'Dot',
  'Figure',
  'Panel',
  'Row',
  'Run',
  'Span',
  'blocks',
  'dots_figure',
  'in_print',
  'lengths_figure',
  'memory_figure',
  'overlay_figure',
  'results_figure',
  'save',
  'save_animation',
  'strip_figure',
]
