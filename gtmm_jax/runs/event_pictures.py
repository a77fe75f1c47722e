"""Pictures for a run's event files: episodes, and where the memory is read.

They are arrays of pixels, which cost less than figures.
"""

import functools
from collections.abc import Sequence

import jax
import numpy as np

from gtmm_jax import figures, train
from gtmm_jax.runs import drawn_episodes, held_out, pictures, workdirs
from gtmm_jax.runs.run import Run
from gtmm_jax.tasks.episode import lengths

# Sides in pixels: frames are enlarged to at least this, a slot or step is this.
_FRAME, _CELL = 48, 8
# Pixels between frames and rows; their grey, that of a place without a frame,
# and that of a mark below a predictable frame.
_GAP, _BLANK, _MARK = 4, 96, 255


class Pictures:
  """Pictures of a run's validation episodes; compiles at the first one."""

  def __init__(self, run: Run, evaluation: held_out.Evaluation | None) -> None:
    """Stores the run and its evaluation; compiles and moves nothing yet."""
    self._run, self._evaluation = run, evaluation
    self._has_reads = 'memory' in workdirs.figure_names(run.settings)
    self._dream = jax.jit(
      functools.partial(
        drawn_episodes.dream,
        run.problem,
        run.task.prefix,
        run.settings.binarize,
      )
    )
    self._watch = jax.jit(functools.partial(drawn_episodes.watch, run.problem))

  def draw(self, state: train.TrainState) -> dict[str, np.ndarray]:
    """Returns the pictures of the first finite replica.

    Args:
      state: of all replicas, on the devices; it is not changed.

    Returns:
      uint8 [H, W, 3] by tag. `episode_reconstruction_dream` has three rows for
      each episode: its frames, with bars below those that are predictable; as
      the posterior reconstructs them; as the prior generates them after the
      task's prefix. `read_weights`, of models with a memory: of the first
      episode, for each read head a row for each slot and a column for each
      frame; white is the greatest weight.
    """
    subject = pictures.subject(self._run, state, 'validation')
    drawn = subject.variables, subject.key, subject.images
    if pictures.shares_dreams(self._run):
      dream = pictures.dream_of(self._evaluation, state, 'validation')
    else:
      dream = self._dream(*drawn)
    rows = pictures.episode_rows(dream, self._run.task)
    shown = {'episode_reconstruction_dream': strip(rows)}
    if self._has_reads:
      episode, cores = self._watch(*drawn)
      length = lengths(episode)[0]
      shown['read_weights'] = heatmaps(np.asarray(cores.read_weights[:length]))
    return shown


def strip(rows: Sequence[figures.Row]) -> np.ndarray:
  """Returns rows of frames as one picture, uint8 [H, W, 3].

  Args:
    rows: of frames of one size; those that are NaN are left grey.
  """
  height, width = rows[0].frames.shape[1:3]
  scale = -(-_FRAME // min(height, width))
  columns = max(len(row.frames) for row in rows)
  tall, wide = scale * height + _GAP, scale * width + _GAP
  picture = np.full((len(rows) * tall, columns * wide, 3), _BLANK, np.uint8)
  for number, row in enumerate(rows):
    marks = np.zeros(len(row.frames), bool) if row.marks is None else row.marks
    for step, (frame, is_marked) in enumerate(
      zip(np.asarray(row.frames), marks, strict=True)
    ):
      if np.isnan(frame).all():
        continue
      top, left = number * tall, step * wide
      bottom, right = top + scale * height, left + scale * width
      large = frame.repeat(scale, 0).repeat(scale, 1)
      picture[top:bottom, left:right] = np.round(255 * np.clip(large, 0, 1))
      if is_marked:
        picture[bottom : bottom + _GAP // 2, left:right] = _MARK
  return picture


def heatmaps(weights: np.ndarray) -> np.ndarray:
  """Returns weights as grey cells, one head below the other, uint8 [H, W, 3].

  Args:
    weights: [T, heads, slots], at least 0.
  """
  end = np.nan_to_num(weights).max(initial=0) or 1
  shades = np.round(255 * np.nan_to_num(weights) / end).astype(np.uint8)
  cells = np.transpose(shades, (1, 2, 0)).repeat(_CELL, 1).repeat(_CELL, 2)
  gap = np.full((len(cells), _GAP, cells.shape[2]), _BLANK, np.uint8)
  picture = np.concatenate([cells, gap], 1).reshape(-1, cells.shape[2])
  return np.repeat(picture[:, :, None], 3, axis=2)
