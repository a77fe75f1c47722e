r"""Records episodes of two turns of a camera in a level of ViZDoom.

  python experiments/record_rotation.py --episodes=200

The camera stands at a random free place of the level, in a random direction,
and turns as in the task rotation: from rest, twice, to the right. Nothing else
moves, except for animated textures in some levels. The file has `frames
[N, T, H, W, 3]`, uint8, and `predictable [N, T]`, bool, true in the second
turn. It is written completely or not at all, and the same flags give the same
file. Needs ViZDoom: pip install "gtmm_jax[vizdoom]".
"""

import dataclasses
import os
import pathlib
import time

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('nothing was written')
  command.import_jax()

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from rich.console import Console
from rich.progress import track

from gtmm_jax.process import places
from gtmm_jax.tasks import Rotation
from gtmm_jax.tasks.sources import vizdoom_level

FLAGS = flags.FLAGS

_LARGEST_SEED = 2**32 - 1
# Printed if a signal ends the program.
_LOST = 'nothing was written'


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('output', 'episodes.npz', 'File to write.')
  flags.DEFINE_integer('episodes', 200, 'N, number of episodes, >= 1.')
  flags.DEFINE_integer('length', 30, 'T, frames of two turns, >= 14.')
  flags.DEFINE_integer(
    'size',
    32,
    f'Height and width of frames in pixels, a multiple of 4, 8 to '
    f'{vizdoom_level.SIDE}.',
  )
  flags.DEFINE_string(
    'level',
    'my_way_home',
    f'Level of ViZDoom: {vizdoom_level.LEVELS}.',
  )
  flags.DEFINE_integer('seed', 0, 'Seed of places and turns, 0 to 2^32 - 1.')


@dataclasses.dataclass(frozen=True)
class Request:
  """The values of the flags."""

  output: str
  episodes: int
  length: int
  size: int
  level: str
  seed: int


def main(_: list[str]) -> None:
  """Checks the flags, records, writes, and prints what was recorded."""
  fields = dataclasses.fields(Request)
  request = Request(**{each.name: FLAGS[each.name].value for each in fields})
  # Angles are computed on the CPU, so that all machines give the same file.
  jax.config.update('jax_platforms', 'cpu')
  console = command.console()
  began = time.perf_counter()
  try:
    path = check(request)
    # A signal waits for the current episode, so that the game is closed.
    with signals.deferred(_LOST):
      frames, predictable, error = record(request, console)
    with signals.deferred(f'{path} is written whole or not at all'):
      write(path, frames, predictable)
  except signals.Stopped as stopped:
    signals.leave(stopped)
  except (ValueError, OSError, MemoryError) as mistake:
    command.fail(mistake)
  console.print(
    f'{request.level}, {request.episodes:,} episodes of {request.length} '
    f'frames, {request.size} x {request.size}, seed {request.seed}'
  )
  console.print(
    f'headings within {error:.4f} degrees; {time.perf_counter() - began:.1f} s'
  )
  console.print(f'written  {path}')


def check(request: Request) -> pathlib.Path:
  """Checks the flags, and returns the file to write.

  Raises:
    ValueError: a flag is wrong; tells in one line what, and what to do.
  """
  vizdoom_level.resolve(request.level)
  if request.episodes < 1:
    raise ValueError(
      f'--episodes is {request.episodes}; it must be at least 1.'
    )
  if request.length < 14:
    raise ValueError(f'--length is {request.length}; it must be at least 14.')
  if request.size % 4 or not 8 <= request.size <= vizdoom_level.SIDE:
    raise ValueError(
      f'--size is {request.size}; it must be a multiple of 4 from 8 to '
      f'{vizdoom_level.SIDE}.'
    )
  if not 0 <= request.seed <= _LARGEST_SEED:
    raise ValueError(f'--seed is {request.seed}; it must be 0 to 2^32 - 1.')
  path = places.locate(request.output, 'output')
  if path.suffix != '.npz' or path.is_dir():
    raise ValueError(
      f'--output={request.output} is not the name of an .npz file.'
    )
  places.require_writable(path.absolute().parent, f'--output={request.output}')
  vizdoom_level.import_vizdoom()
  return path


def record(
  request: Request, console: Console
) -> tuple[np.ndarray, np.ndarray, float]:
  """Records all episodes.

  Returns:
    Frames `[N, T, H, W, 3]`, whether each is predictable `[N, T]`, and the
    largest error of a heading, in degrees.

  Raises:
    ValueError: ViZDoom fails, or the level has no free place.
    signals.Stopped: a signal came.
  """
  # Allocated first, because too many episodes would not fit.
  shape = (request.episodes, request.length, request.size, request.size, 3)
  frames = np.empty(shape, np.uint8)
  turned, predictable = motion(request)
  rng = np.random.default_rng(request.seed)
  errors = []
  with vizdoom_level.open_level(request.level, request.seed) as level:
    for index in track(
      range(request.episodes),
      'episodes',
      console=console,
      transient=True,
      disable=not console.is_terminal,
    ):
      frames[index], error = level.record(rng, turned[index], request.size)
      errors.append(error)
      if signals.received() is not None:
        raise signals.Stopped(signals.received(), _LOST)
  return frames, predictable, max(errors)


def motion(request: Request) -> tuple[np.ndarray, np.ndarray]:
  """Returns the camera's angles in degrees, and whether they are predictable.

  Both are `[N, T]`. Episode n depends on the seed and n alone.
  """
  task = Rotation(request.length, request.size)
  with jax.default_device(jax.local_devices(backend='cpu')[0]):
    # The same angles for every setting of jax's random generator.
    key = jax.random.key(request.seed, impl='threefry2x32')
    keys = jax.vmap(lambda n: jax.random.fold_in(key, n))(
      jnp.arange(request.episodes)
    )
    angles = np.asarray(jax.vmap(task.angles)(keys))
  return np.degrees(angles.astype(np.float64)), angles >= 2 * np.pi


def write(
  path: pathlib.Path, frames: np.ndarray, predictable: np.ndarray
) -> None:
  """Writes the file; if that fails, an earlier file stays.

  Raises:
    OSError: it cannot be written.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    # Uncompressed, so that frames are read from the file when they are used.
    with part.open('wb') as file:
      np.savez(file, frames=frames, predictable=predictable)
    part.replace(path)
  finally:
    part.unlink(missing_ok=True)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
