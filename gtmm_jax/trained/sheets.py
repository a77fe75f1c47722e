"""Pictures of dreams: a sheet, and an animation; and their arrays in a file."""

import pathlib
from typing import Any

import jax
import numpy as np

from gtmm_jax import figures
from gtmm_jax.records import documents
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks import captions, navigation
from gtmm_jax.tasks.episode import Episode
from gtmm_jax.trained.dreams import Dreams
from gtmm_jax.trained.trained import Trained

# Greatest number of frames side by side.
COLUMNS = 25
_OBSERVED, _DREAMT = '#777777', '#0072B2'


def sheet(run: Trained, dreams: Dreams) -> figures.Figure:
  """Draws each episode, and its dreams below it.

  Frames that a perfect memory could predict are underlined, and captions tell
  how they arose, as on the sheets of `show_task.py`.
  """
  rows = [row for line in _lines(run, dreams, names_task=True) for row in line]
  return figures.strip_figure(
    rows,
    _title(run, dreams),
    captions.NOTES.get(run.settings.task),
    COLUMNS,
    dreams.observed or None,
    _spans(dreams),
  )


def save_animation(
  run: Trained, dreams: Dreams, path: pathlib.Path
) -> pathlib.Path:
  """Writes a GIF of each episode, and its dreams beside it.

  Returns:
    The path.
  """
  lines = _lines(run, dreams, names_task=False)
  return figures.save_animation(lines, _spans(dreams), path)


def save_arrays(
  run: Trained, dreams: Dreams, path: pathlib.Path, **known: Any
) -> pathlib.Path:
  """Writes the arrays of dreams, and of what they go on from, as .npz.

  It has `frames` [E, S, L, H, W, C]; of the whole episodes `truth` [E, N + L,
  H, W, C], NaN where an episode has ended, `condition` [E, N + L, A] and
  `predictable` [E, N + L]; on navigation `actions` [E], letters from the second
  frame on; `observed`, N; `replica` and `step` of the model.

  Args:
    run: the trained run.
    dreams: of the run.
    path: of the file.
    **known: arrays, numbers or words to write, too.

  Returns:
    The path.
  """
  episode = dreams.episode
  if isinstance(run.task, navigation.Navigation):
    moves = np.argmax(episode.condition[1:], axis=-1).T
    words = [''.join(navigation.LETTERS[n] for n in each) for each in moves]
    known = {'actions': np.array(words), **known}
  arrays = {
    'frames': np.moveaxis(dreams.frames, 2, 0),
    'truth': np.swapaxes(episode.frames, 0, 1),
    'condition': np.swapaxes(episode.condition, 0, 1),
    'predictable': np.swapaxes(episode.predictable, 0, 1),
    'observed': dreams.observed,
    'replica': run.replica,
    'step': run.step,
    **known,
  }
  documents.replace_arrays(path, arrays, compress=False)
  return path


def _title(run: Trained, dreams: Dreams) -> str:
  """Names the model, the task and where the dreams begin."""
  settings = run.settings
  task = f'{_words(settings.task)}, {describe(settings)}'
  start = (
    f'after frame {dreams.observed}' if dreams.observed else 'from nothing'
  )
  return f'{figures.in_print(settings.model)} on {task}: dreams {start}'


def _words(task: str) -> str:
  """Returns the name of a task in print."""
  return figures.in_print(task).replace('_', ' ')


def _spans(dreams: Dreams) -> list[figures.Span]:
  """Names the frames that are observed, and those that are dreamt."""
  observed, total = dreams.observed, len(dreams.episode.frames)
  dreamt = 'dreamt' if observed else 'dreamt, with no frame observed'
  spans = [figures.Span(dreamt, range(observed, total), _DREAMT)]
  if observed:
    spans = [figures.Span('observed', range(observed), _OBSERVED), *spans]
  return spans


def _lines(
  run: Trained, dreams: Dreams, names_task: bool
) -> list[list[figures.Row]]:
  """Returns the rows of each episode: the truth, then its dreams.

  Args:
    run: the trained run.
    dreams: of the run.
    names_task: whether rows name the task of each episode of a mixture.
  """
  names = list(getattr(run.task, 'parts', ()))
  samples, _, count = dreams.frames.shape[:3]
  lines = []
  for index in range(count):
    episode = jax.tree.map(
      lambda leaf, index=index: leaf[:, index], dreams.episode
    )
    task = run.settings.task
    # Nothing that was observed makes this one the truth of a dream.
    name = 'truth' if dreams.observed else 'true episode'
    if count > 1:
      name += f' {index + 1}'
    if episode.part is not None:
      task = names[episode.part[0]]
      name += f', {_words(task)}' if names_task else ''
    texts = captions.of_frames(episode, is_walk=task == 'navigation')
    truth = episode.frames, episode.predictable, texts
    line = [figures.Row(name, *truth, is_apart=True)]
    for sample in range(samples):
      frames = _placed(episode, dreams.frames[sample, :, index])
      line.append(figures.Row(f'dream {sample + 1}', frames))
    lines.append(line)
  return lines


def _placed(episode: Episode, frames: np.ndarray) -> np.ndarray:
  """Puts dreamt frames after observed ones, which are NaN; padding is, too."""
  placed = np.full_like(episode.frames, np.nan)
  placed[len(placed) - len(frames) :] = frames
  if episode.mask is not None:
    placed[~episode.mask] = np.nan
  return placed
