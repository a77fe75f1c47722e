r"""Draws a sheet of a task's episodes; nothing is trained.

  python experiments/show_task.py --task=navigation

Each row is an episode, predictable frames are underlined, and what stands below
a frame tells how it came about. What is not given comes from the preset.
"""

import dataclasses
import functools
import operator
import os
import pathlib
import sys
from typing import Any

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('nothing was drawn')
  command.import_jax()

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from gtmm_jax import figures, presets
from gtmm_jax.process import compilation_cache, jax_settings, places
from gtmm_jax.runs import flags as settings_flags
from gtmm_jax.runs import own_frames, room
from gtmm_jax.runs import prepare as preparation
from gtmm_jax.runs.resolve import make_task, resolve
from gtmm_jax.runs.settings import Settings, describe
from gtmm_jax.tasks.episode import Episode

FLAGS = flags.FLAGS

# Settings of a run that have a flag here.
_SETTINGS = (
  'task',
  *settings_flags.EPISODE,
  'data',
  'data_dir',
  'binarize',
  'seed',
)
# Where the sheet cannot be drawn or written.
_NOTHING = 'Nothing was written; make room, or name another --output.'
# Frames side by side, and rows of them on one sheet, at most.
_COLUMNS, _ROOM = 25, 60
# Arrows of navigation's actions, in their order.
_ARROWS = '↑↓←→'
_REPEAT = '=n: frame n again'
# Notes on the captions of a task's frames.
NOTES = {
  'perfect_recall': f'{_REPEAT}, in the same order',
  'parity_recall': 'a 0, a 1: any image of that class; the first one tells '
  'whether the first digit is even (0) or odd (1), and so on',
  'one_shot_recall': f'{_REPEAT}, in the same order',
  'dynamic_dependency': f'{_REPEAT}; from the last new digit on, digit d sends '
  'to frame d + 1',
  'similarity_cued_recall': f'{_REPEAT}; the first one is the cue, which '
  'nothing predicts, and what followed it before follows it',
  'rotation': 'views of the second turn lie between those of the first',
  'frames': 'episodes of your own file, marked as it has them',
  'navigation': 'arrow: the action that led here; ·: the start; =n: the cell '
  'of frame n again, which was its last visit',
}


def define_flags() -> None:
  """Defines every flag of this program."""
  settings_flags.define(_SETTINGS)
  flags.DEFINE_enum(
    'preset', 'paper', tuple(presets.PRESETS), "The episodes' sizes."
  )
  compilation_cache.define_flag()
  flags.DEFINE_bool(
    'held_out', False, 'Draw from the images that no training episode shows.'
  )
  flags.DEFINE_integer('episodes', 4, 'How many are drawn, >= 1.')
  flags.DEFINE_string(
    'output',
    None,
    'What is written: OUTPUT.png and OUTPUT.pdf. Default: the name of the '
    'task, in the current folder.',
  )


@dataclasses.dataclass(frozen=True)
class Sheet:
  """A sheet that can be drawn; nothing was compiled or written for it yet.

  Attributes:
    settings: the sizes of the episodes, as resolved, and the seed.
    task: the task.
    images: what frames are drawn from.
    source: a sentence on them.
    doubts: what may be wrong with them, in sentences.
    title: the task, its sizes and whether images are held out.
    episodes: how many.
    stem: of the files.
  """

  settings: Settings
  task: Any
  images: Any
  source: str
  doubts: tuple[str, ...]
  title: str
  episodes: int
  stem: pathlib.Path


def main(_: list[str]) -> None:
  """Prepares the sheet, draws it, and prints what is on it."""
  try:
    sheet = prepare(
      settings_flags.read(), FLAGS.held_out, FLAGS.episodes, FLAGS.output
    )
    compilation_cache.use(FLAGS.compilation_cache)
    paths = command.attempt_drawing(lambda: draw(sheet), sheet.stem, _NOTHING)
  except (ValueError, OSError) as error:
    command.fail(error)
  if not paths:
    sys.exit(2)
  console = command.console()
  console.print(f'{sheet.title}, seed {sheet.settings.seed}')
  console.print(f'data     {sheet.source}')
  for doubt in sheet.doubts:
    console.print(f'warning  {doubt}')
  console.print(f'written  {" and ".join(map(str, paths))}')


def prepare(
  settings: Settings, held_out: bool, episodes: int, output: str | None
) -> Sheet:
  """Checks everything that can be wrong, before anything costs time.

  Args:
    settings: task, preset, sizes, data and seed of the episodes, unresolved.
    held_out: whether episodes show images that no training episode shows.
    episodes: how many.
    output: the files; None for the name of the task.

  Raises:
    ValueError: in one sentence, what is wrong and what to do.
  """
  stem = _stem(output or settings.task)
  places.require_local_data(settings.data)
  header = own_frames.inspect(settings.task, settings.data)
  settings = resolve(settings, settings.preset, header)
  command.require_device()
  task = make_task(settings, header)
  rows = len(figures.blocks(task.length, _COLUMNS, task.prefix))
  if episodes < 1 or episodes * rows > _ROOM:
    raise ValueError(
      f'--episodes is {episodes} of {task.length} frames each; it must '
      f'be at least 1 and come to at most {_ROOM} rows; each has {rows}.'
    )
  loaded, _ = preparation.load_images(settings)
  shape = loaded.training.shape[-3:]
  room.require_for_drawing(episodes, task.length, shape)
  kind = 'held-out' if held_out else 'training'
  name = f'{settings.task.replace("_", " ")}, '
  return Sheet(
    settings=settings,
    task=task,
    images=loaded.held_out if held_out else own_frames.first(loaded),
    source=loaded.source,
    doubts=loaded.doubts,
    title=f'{name}{describe(settings)}, {kind} images',
    episodes=episodes,
    stem=stem,
  )


def _stem(output: str) -> pathlib.Path:
  """Returns the files to write, without their endings.

  Raises:
    ValueError: if they cannot be written.
  """
  path = places.locate(output, 'output')
  if output.endswith(os.sep) or path.is_dir() or not path.name:
    raise ValueError(f'--output={output} is a folder; name a file in it.')
  if path.suffix in ('.png', '.pdf'):
    path = path.with_suffix('')
  places.require_writable(path.absolute().parent, f'--output={output}')
  return path


def draw(sheet: Sheet) -> list[pathlib.Path]:
  """Draws the episodes of (seed, 0), (seed, 1), ... and writes the sheet.

  Returns:
    The two files.

  Raises:
    OSError: if they cannot be written.
  """
  fold = functools.partial(
    jax.random.fold_in, jax_settings.key(sheet.settings.seed)
  )
  keys = jax.vmap(fold)(jnp.arange(sheet.episodes))
  sample = jax.jit(jax.vmap(sheet.task.sample, in_axes=(0, None)))
  drawn = jax.tree.map(np.asarray, sample(keys, sheet.images))
  rows = []
  for index in range(sheet.episodes):
    episode = jax.tree.map(operator.itemgetter(index), drawn)
    if sheet.settings.task != 'navigation':
      # Conditions of other tasks are no actions.
      episode = episode._replace(condition=episode.condition[:, :0])
    rows.append(
      figures.Row(
        f'episode {index + 1}',
        episode.frames,
        episode.predictable,
        captions(episode),
      )
    )
  note = NOTES[sheet.settings.task]
  figure = figures.strip_figure(
    rows, sheet.title, note, _COLUMNS, sheet.task.prefix
  )
  return figures.save(figure, sheet.stem)


def captions(episode: Episode) -> list[str]:
  """Returns the captions of the frames of an episode of arrays [T, ...].

  A caption has the action that led to the frame, where the condition [T, A]
  has actions; '=n' for a repeat of frame n, counted from 1; 'a c' where any
  image of class c is right.
  """
  texts = []
  for action, source, label in zip(
    episode.condition, episode.source, episode.label, strict=True
  ):
    words = []
    if len(action):
      words.append(_ARROWS[int(action.argmax())] if action.any() else '·')
    if source >= 0:
      words.append(f'={source + 1}')
    if label >= 0:
      words.append(f'a {label}')
    texts.append(' '.join(words))
  return texts


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
