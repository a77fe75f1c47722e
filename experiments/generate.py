r"""Dreams with a trained run: draws what the model expects after N frames.

  python experiments/generate.py --workdir=RUN --observe=10 --samples=3

The frames are those of validation or test episodes, or your own; --observe=0
dreams from nothing. On navigation --actions=rrdl walks on from the last frame,
so that the dreams show what the model remembers of the map. Writes dreams.png
and dreams.pdf (a sheet), dreams.gif and dreams.npz; the run stays as it is. A
run of your own core or task dreams in Python, by gtmm_jax.trained.dreams.
"""

import dataclasses
import pathlib
from typing import Any

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('nothing was written')
  command.import_jax()

import jax
from absl import app, flags

import gtmm_jax
from gtmm_jax import figures
from gtmm_jax.process import compilation_cache, jax_settings, places
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks.episode import Episode
from gtmm_jax.trained import Trained, dreams, from_file, sheets

FLAGS = flags.FLAGS

# Greatest number of rows on a sheet.
_ROOM = 60
_LARGEST_SEED = 2**32 - 1


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('workdir', None, 'Folder of the trained run.')
  flags.DEFINE_integer(
    'observe',
    None,
    'N, frames that the model sees before it dreams; 0 dreams from nothing. '
    "Default: the task's own prefix, such as the first turn of rotation.",
  )
  flags.DEFINE_integer('samples', 3, 'S, dreams of each episode, >= 1.')
  flags.DEFINE_integer(
    'length', None, 'L, frames of a dream, >= 1. Default: to the end.'
  )
  flags.DEFINE_integer('episodes', 1, 'Number of episodes, >= 1.')
  flags.DEFINE_string(
    'actions',
    None,
    'On navigation, the actions after frame N: letters u, d, l, r.',
  )
  flags.DEFINE_string(
    'frames',
    None,
    'An .npz file of your own frames to observe, [T, H, W, C] or [E, T, H, W, '
    'C], bytes or from 0 to 1; and of condition, [T, A] or [E, T, A], if the '
    'task has one. Default: episodes of the task.',
  )
  flags.DEFINE_integer('replica', 0, 'Number of the replica, from 0.')
  flags.DEFINE_integer(
    'step', None, 'Step of the checkpoint. Default: the latest.'
  )
  flags.DEFINE_integer(
    'seed', 0, 'Seed of the episodes and of the dreams, 0 to 2^32 - 1.'
  )
  flags.DEFINE_enum(
    'evaluate_on',
    None,
    ('validation', 'test'),
    'Part of the data that episodes are drawn from. Default: that of the run.',
  )
  flags.DEFINE_string(
    'output',
    None,
    'Folder to write to. Default: WORKDIR/dreams/NAME, named after the flags.',
  )
  compilation_cache.define_flag()


@dataclasses.dataclass(frozen=True)
class Request:
  """The values of the flags."""

  workdir: str | None
  observe: int | None = None
  samples: int = 3
  length: int | None = None
  episodes: int = 1
  actions: str | None = None
  frames: str | None = None
  replica: int = 0
  step: int | None = None
  seed: int = 0
  evaluate_on: str | None = None
  output: str | None = None


def main(_: list[str]) -> None:
  """Makes the dreams, writes pictures and arrays, and prints their paths."""
  request = Request(
    **{
      each.name: FLAGS[each.name].value for each in dataclasses.fields(Request)
    }
  )
  try:
    workdir, folder = check(request)
    compilation_cache.use(FLAGS.compilation_cache)
    command.require_device()
    run = gtmm_jax.load(workdir, request.step, request.replica)
    dreamt, what = dream(run, request)
    with signals.deferred(f'{folder} may lack a file'):
      paths = write(run, dreamt, folder, request)
  except signals.Stopped as stopped:
    signals.leave(stopped)
  except (ValueError, OSError) as error:
    command.fail(error)
  console = command.console()
  settings = run.settings
  console.print(
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'{run.step:,} steps, replica {run.replica}'
  )
  samples, length = dreamt.frames.shape[:2]
  console.print(
    f'observed {dreamt.observed} frames of {what}; dreamt {length} more, '
    f'{samples} times'
  )
  trained = run.task.length
  if dreamt.observed + length > trained:
    console.print(f'warning  trained on {trained} frames, these are more')
  for path in paths:
    console.print(f'written  {path}')


def check(request: Request) -> tuple[pathlib.Path, pathlib.Path]:
  """Checks flags that need no run; returns its folder and that of the output.

  Raises:
    ValueError: a flag is wrong; tells in one line what, and what to do.
  """
  if not request.workdir:
    raise ValueError('--workdir is missing; name the folder of a trained run.')
  for name in ('samples', 'episodes', 'length'):
    value = getattr(request, name)
    if value is not None and value < 1:
      raise ValueError(f'--{name} is {value}; it must be at least 1.')
  if not 0 <= request.seed <= _LARGEST_SEED:
    raise ValueError(f'--seed is {request.seed}; it must be 0 to 2^32 - 1.')
  if request.actions is not None and request.length is not None:
    raise ValueError(
      '--length means nothing with --actions, whose frames are dreamt; leave '
      'one out.'
    )
  if request.frames is not None:
    for name in ('actions', 'evaluate_on'):
      if getattr(request, name) is not None:
        raise ValueError(f'--{name} means nothing to --frames; leave it out.')
    if request.episodes != 1:
      raise ValueError(
        '--episodes means nothing to --frames, which are all observed.'
      )
  workdir = places.locate(request.workdir, 'workdir')
  folder = workdir / 'dreams' / _name(request)
  if request.output is not None:
    folder = places.locate(request.output, 'output')
  parts = [workdir, workdir / 'checkpoints', workdir / 'figures']
  is_of_run = folder.resolve() in [part.resolve() for part in parts]
  if is_of_run or (folder / 'config.json').exists():
    raise ValueError(
      f'--output={folder} is the folder of a run; name another one, such as '
      f'{workdir / "dreams" / "first"}.'
    )
  places.require_writable(folder, f'--output={folder}')
  return workdir, folder


def _name(request: Request) -> str:
  """Names the folder of dreams after the flags that were set."""
  pieces = []
  for field in dataclasses.fields(Request):
    value = getattr(request, field.name)
    if field.name in ('workdir', 'output') or value == field.default:
      continue
    if field.name == 'frames':
      value = pathlib.Path(value).stem
    pieces.append(f'{field.name}={value}')
  return '-'.join(pieces) or 'default'


def dream(run: Trained, request: Request) -> tuple[dreams.Dreams, str]:
  """Draws or reads the episodes, and dreams.

  Returns:
    The dreams, and words for what was observed.

  Raises:
    ValueError: a flag does not fit the run.
    OSError: a file cannot be read.
  """
  episode_key, dream_key = jax.random.split(jax_settings.key(request.seed))
  split = request.evaluate_on or run.settings.evaluate_on
  observed, count = request.observe, request.episodes
  prefix = run.task.prefix if observed is None else observed
  if request.frames is not None:
    file = places.locate(request.frames, 'frames')
    episode, what = from_file.read(run, file), str(file)
    if observed is None:
      prefix = min(prefix, len(episode.frames))
  else:
    what = f'{count} {split} {"episode" if count == 1 else "episodes"}'
    drawn = (run, episode_key)
    if request.actions is None:
      episode = dreams.draw(*drawn, count, split)
    else:
      actions = request.actions
      episode = dreams.walk(*drawn, prefix, actions, count, split)
  _require_room(episode, prefix, request)
  dreamt = dreams.dream(
    run, dream_key, episode, prefix, request.samples, request.length
  )
  return dreamt, what


def _require_room(episode: Episode, observed: int, request: Request) -> None:
  """Raises `ValueError` for more rows than a sheet has room for."""
  total, count = episode.frames.shape[:2]
  if request.length is not None:
    total = observed + request.length
  blocks = len(figures.blocks(total, sheets.COLUMNS, observed))
  rows = count * (1 + request.samples) * blocks
  if rows > _ROOM:
    raise ValueError(
      f'{count} episodes of {total} frames with {request.samples} dreams need '
      f'{rows} rows, and a sheet has room for {_ROOM}; ask for fewer, or call '
      f'gtmm_jax.trained.dreams from Python.'
    )


def write(
  run: Trained, dreamt: dreams.Dreams, folder: pathlib.Path, request: Request
) -> list[pathlib.Path]:
  """Writes the sheet, the animation and the arrays; returns their paths.

  Raises:
    OSError: one cannot be written.
  """
  figure = sheets.sheet(run, dreamt)
  stem = folder / 'dreams'
  known: dict[str, Any] = {'seed': request.seed, 'workdir': str(run.workdir)}
  return [
    *figures.save(figure, stem),
    sheets.save_animation(run, dreamt, stem.with_suffix('.gif')),
    sheets.save_arrays(run, dreamt, stem.with_suffix('.npz'), **known),
  ]


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
