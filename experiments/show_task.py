r"""Draws a sheet of a task's episodes; nothing is trained.

  python experiments/show_task.py --task=navigation

Each row is an episode. Predictable frames are underlined, and a caption below a
frame tells how it arose. The preset decides sizes that are not set.
"""

import dataclasses
import functools
import operator
import os
import pathlib
import sys
from typing import Any

# Finds its parts beside it, however it is started.
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
from gtmm_jax.tasks import captions
from gtmm_jax.tasks.episode import lengths

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
# Printed if the sheet cannot be drawn or written.
_NOTHING = 'Nothing was written; make room, or name another --output.'
# Greatest numbers of frames side by side, and of rows on a sheet.
_COLUMNS, _ROOM = 25, 60


def define_flags() -> None:
  """Defines every flag of this program."""
  settings_flags.define(_SETTINGS)
  flags.DEFINE_enum(
    'preset', 'paper', tuple(presets.PRESETS), 'Preset of the sizes.'
  )
  compilation_cache.define_flag()
  flags.DEFINE_enum(
    'part',
    'training',
    ('training', 'validation', 'test'),
    'Part of the data to draw from.',
  )
  flags.DEFINE_integer('episodes', 4, 'Number of episodes, >= 1.')
  flags.DEFINE_string(
    'output',
    None,
    'Files to write, OUTPUT.png and OUTPUT.pdf. Default: the name of the task, '
    'in the current folder.',
  )


@dataclasses.dataclass(frozen=True)
class Sheet:
  """A checked sheet, before anything is compiled or written.

  Attributes:
    settings: resolved settings, with the seed.
    task: the task.
    images: from which frames are drawn.
    source: a sentence on the images.
    doubts: sentences on what may be wrong with the images.
    title: names the task, its sizes and the part of the data.
    episodes: number of episodes.
    stem: path of the files without their suffixes.
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
      settings_flags.read(), FLAGS.part, FLAGS.episodes, FLAGS.output
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
  settings: Settings, part: str, episodes: int, output: str | None
) -> Sheet:
  """Prepares a sheet, and checks everything before anything costs time.

  Args:
    settings: task, preset, sizes, data and seed of the episodes, unresolved.
    part: of the data to draw from: training, validation or test.
    episodes: number of episodes.
    output: path of the files; None means the name of the task.

  Raises:
    ValueError: something is wrong; tells in one line what, and what to do.
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
      f'--episodes is {episodes} of {task.length} frames each; it must be at '
      f'least 1 and need at most {_ROOM} rows; each needs {rows}.'
    )
  loaded, _ = preparation.load_images(settings)
  shape = loaded.training.shape[-3:]
  room.require_for_drawing(episodes, task.length, shape)
  name = f'{settings.task.replace("_", " ")}, '
  return Sheet(
    settings=settings,
    task=task,
    images=own_frames.first(loaded)
    if part == 'training'
    else loaded.held_out(part),
    source=loaded.source,
    doubts=loaded.doubts,
    title=f'{name}{describe(settings)}, {part} images',
    episodes=episodes,
    stem=stem,
  )


def _stem(output: str) -> pathlib.Path:
  """Returns the files to write, without their endings.

  Raises:
    ValueError: they cannot be written.
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
    OSError: they cannot be written.
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
    name, task = f'episode {index + 1}', sheet.settings.task
    if episode.part is not None:
      task = list(sheet.task.parts)[episode.part[0]]
      name += f', {task.replace("_", " ")}'
    shown = slice(int(lengths(episode)))
    episode = jax.tree.map(operator.itemgetter(shown), episode)
    texts = captions.of_frames(episode, is_walk=task == 'navigation')
    rows.append(figures.Row(name, episode.frames, episode.predictable, texts))
  note = captions.NOTES[sheet.settings.task]
  figure = figures.strip_figure(
    rows, sheet.title, note, _COLUMNS, sheet.task.prefix
  )
  return figures.save(figure, sheet.stem)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
