r"""Records two turns of a camera, again and again, in a level of ViZDoom.

  python experiments/record_rotation.py --episodes=200

The camera stands at a random free place of the level, in a random direction,
and turns as in the task rotation: from rest, twice, to the right. Nothing else
moves, but for the animated textures of some levels. The file holds `frames
[N, T, H, W, 3]`, uint8, and `predictable [N, T]`, bool, true in the second
turn. It is written whole or not at all, and the same flags give the same file.
Needs ViZDoom: pip install "gtmm_jax[vizdoom]".
"""

import dataclasses
import os
import pathlib
import signal
import sys
import time

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import numpy as np
from absl import app, flags, logging
from rich.console import Console
from rich.progress import track

from gtmm_jax.process import command, places
from gtmm_jax.tasks.sources import vizdoom_level as level_module

# jax and ViZDoom are imported after the flags are read: --help and mistakes
# cost no time.

FLAGS = flags.FLAGS

_LARGEST_SEED = 2**32 - 1


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_string('output', 'episodes.npz', 'The file that is written.')
  flags.DEFINE_integer('episodes', 200, 'N, how many are recorded, >= 1.')
  flags.DEFINE_integer('length', 30, 'T, frames of two turns, >= 14.')
  flags.DEFINE_integer(
    'size',
    32,
    f'Height and width of frames in pixels, a multiple of 4, 8 to '
    f'{level_module.SIDE}.',
  )
  flags.DEFINE_string(
    'level',
    'my_way_home',
    f'Where the camera stands: {level_module.LEVELS}; all come with ViZDoom.',
  )
  flags.DEFINE_integer('seed', 0, 'Seed of places and turns, 0 to 2^32 - 1.')


@dataclasses.dataclass(frozen=True)
class Request:
  """What the flags say."""

  output: str
  episodes: int
  length: int
  size: int
  level: str
  seed: int


def main(_: list[str]) -> None:
  """Checks the flags, records, writes, says what was recorded."""
  logging.set_verbosity(logging.ERROR)
  fields = dataclasses.fields(Request)
  request = Request(**{each.name: FLAGS[each.name].value for each in fields})
  # Angles are made on the CPU, on every machine alike.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  # Else the game would stay when this program is ended.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  console = command.console()
  began = time.perf_counter()
  try:
    path = check(request)
    frames, predictable, error = record(request, console)
    write(path, frames, predictable)
  except (ValueError, OSError, MemoryError) as mistake:
    command.fail(mistake)
  except KeyboardInterrupt:
    sys.exit(130)
  console.print(
    f'{request.level}, {request.episodes:,} episodes of {request.length} '
    f'frames, {request.size} x {request.size}, seed {request.seed}'
  )
  console.print(
    f'headings within {error:.4f} degrees; {time.perf_counter() - began:.1f} s'
  )
  console.print(f'written  {path}')


def check(request: Request) -> pathlib.Path:
  """The file to write, where nothing is wrong.

  Raises:
    ValueError: in one sentence, what is wrong and what to do.
  """
  level_module.resolve(request.level)
  if request.episodes < 1:
    raise ValueError(
      f'--episodes is {request.episodes}; it must be at least 1.'
    )
  if request.length < 14:
    raise ValueError(f'--length is {request.length}; it must be at least 14.')
  if request.size % 4 or not 8 <= request.size <= level_module.SIDE:
    raise ValueError(
      f'--size is {request.size}; it must be a multiple of 4 from 8 to '
      f'{level_module.SIDE}.'
    )
  if not 0 <= request.seed <= _LARGEST_SEED:
    raise ValueError(f'--seed is {request.seed}; it must be 0 to 2^32 - 1.')
  path = places.locate(request.output, 'output')
  if path.suffix != '.npz' or path.is_dir():
    raise ValueError(
      f'--output={request.output} is not the name of an .npz file.'
    )
  places.require_writable(path.absolute().parent, f'--output={request.output}')
  level_module.import_vizdoom()
  command.import_jax()
  return path


def record(
  request: Request, console: Console
) -> tuple[np.ndarray, np.ndarray, float]:
  """Frames, flags, and the largest error of a heading, in degrees.

  Raises:
    ValueError: if ViZDoom fails, or the level has no free place.
  """
  # First, since too many would not fit.
  shape = (request.episodes, request.length, request.size, request.size, 3)
  frames = np.empty(shape, np.uint8)
  turned, predictable = motion(request)
  rng = np.random.default_rng(request.seed)
  errors = []
  with level_module.open_level(request.level, request.seed) as level:
    for index in track(
      range(request.episodes),
      'episodes',
      console=console,
      transient=True,
      disable=not console.is_terminal,
    ):
      frames[index], error = level.record(rng, turned[index], request.size)
      errors.append(error)
  return frames, predictable, max(errors)


def motion(request: Request) -> tuple[np.ndarray, np.ndarray]:
  """How far the camera has turned, in degrees, and the second turn, `[N, T]`.

  Episode n is that of (seed, n), however many are recorded.
  """
  import jax
  import jax.numpy as jnp

  from gtmm_jax.tasks import Rotation

  task = Rotation(request.length, request.size)
  with jax.default_device(jax.local_devices(backend='cpu')[0]):
    # The same flags give the same file, whatever jax is told.
    key = jax.random.key(request.seed, impl='threefry2x32')
    keys = jax.vmap(lambda n: jax.random.fold_in(key, n))(
      jnp.arange(request.episodes)
    )
    angles = np.asarray(jax.vmap(task.angles)(keys))
  return np.degrees(angles.astype(np.float64)), angles >= 2 * np.pi


def write(
  path: pathlib.Path, frames: np.ndarray, predictable: np.ndarray
) -> None:
  """Writes the file under another name first: it is whole or not there.

  Raises:
    OSError: if it cannot be written.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    # Uncompressed, so that readers can map it.
    with part.open('wb') as file:
      np.savez(file, frames=frames, predictable=predictable)
    part.replace(path)
  finally:
    part.unlink(missing_ok=True)


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
