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

import captions
from gtmm_jax import figures, presets
from gtmm_jax.process import compilation_cache, jax_settings, places
from gtmm_jax.runs import flags as settings_flags
from gtmm_jax.runs import own_frames, room
from gtmm_jax.runs import prepare as preparation
from gtmm_jax.runs.resolve import make_task, resolve
from gtmm_jax.runs.settings import Settings, describe

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
# Frames side by side, and rows of them that one sheet has room for.
_COLUMNS, _ROOM = 25, 60


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
class Request:
  """What the flags say.

  Attributes:
    settings: of a run with such episodes, as flags say; the rest is any.
    held_out: whether episodes are of images that no training episode shows.
    episodes: how many.
    output: the files, if they are named.
  """

  settings: Settings
  held_out: bool
  episodes: int
  output: str | None


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
  """Prepares, draws, says what was drawn."""
  try:
    sheet = prepare(
      Request(
        settings_flags.read(), FLAGS.held_out, FLAGS.episodes, FLAGS.output
      )
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


def prepare(request: Request) -> Sheet:
  """Checks everything that can be wrong, before anything costs time.

  Raises:
    ValueError: in one sentence, what is wrong and what to do.
  """
  stem = _stem(request.output or request.settings.task)
  places.require_local_data(request.settings.data)
  header = own_frames.inspect(request.settings.task, request.settings.data)
  settings = resolve(request.settings, request.settings.preset, header)
  command.require_device()
  task = make_task(settings, header)
  rows = len(figures.blocks(task.length, _COLUMNS, task.prefix))
  if request.episodes < 1 or request.episodes * rows > _ROOM:
    raise ValueError(
      f'--episodes is {request.episodes} of {task.length} frames each; it must '
      f'be at least 1 and come to at most {_ROOM} rows; each has {rows}.'
    )
  loaded, _ = preparation.load_images(settings)
  shape = loaded.training.shape[-3:]
  room.require_for_drawing(request.episodes, task.length, shape)
  kind = 'held-out' if request.held_out else 'training'
  name = f'{settings.task.replace("_", " ")}, '
  return Sheet(
    settings=settings,
    task=task,
    images=loaded.held_out if request.held_out else own_frames.first(loaded),
    source=loaded.source,
    doubts=loaded.doubts,
    title=f'{name}{describe(settings)}, {kind} images',
    episodes=request.episodes,
    stem=stem,
  )


def _stem(given: str) -> pathlib.Path:
  """The files to write, without their suffix.

  Raises:
    ValueError: unless they can be written.
  """
  path = places.locate(given, 'output')
  if given.endswith(os.sep) or path.is_dir() or not path.name:
    raise ValueError(f'--output={given} is a folder; name a file in it.')
  if path.suffix in ('.png', '.pdf'):
    path = path.with_suffix('')
  places.require_writable(path.absolute().parent, f'--output={given}')
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
      # Whatever it says, it is no action.
      episode = episode._replace(condition=episode.condition[:, :0])
    rows.append(
      figures.Row(
        f'episode {index + 1}',
        episode.frames,
        episode.predictable,
        captions.below(episode),
      )
    )
  note = captions.NOTES[sheet.settings.task]
  figure = figures.strip_figure(
    rows, sheet.title, note, _COLUMNS, sheet.task.prefix
  )
  return figures.save(figure, sheet.stem)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
