"""What every program here does with its command line; no jax."""

import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from absl import flags
from rich.console import Console

from gtmm_jax import presets

# What a program ends with that was asked for what cannot be.
MISTAKE = 2

# So that --helpshort of a program shows the flags that are defined for it here.
flags.disclaim_key_flags()


def parse_flags(arguments: list[str]) -> list[str]:
  """Reads the flags; a mistake ends the program with one line, code 2."""
  try:
    rest = flags.FLAGS(arguments)
  except flags.Error as error:
    fail(error)
  if len(rest) > 1:
    fail(f'{rest[1]!r} is not a flag; flags are written --name=value.')
  return rest


def fail(message: str | Exception) -> NoReturn:
  """Ends the program with one line on standard error, code 2."""
  complain(message)
  sys.exit(MISTAKE)


def complain(message: str | Exception) -> None:
  """Prints one line on standard error."""
  program = pathlib.Path(sys.argv[0]).name
  print(f'{program}: {" ".join(str(message).split())}', file=sys.stderr)


def require_writable(folder: pathlib.Path, given: str) -> None:
  """Checks that a folder can be written, or made where there is none.

  Args:
    folder: that is to hold what is written.
    given: the flag and its value, for people.

  Raises:
    ValueError: if it cannot.
  """
  paths = (folder, *folder.absolute().parents)
  # A link that leads nowhere is there, and no folder can be made in its place.
  existing = next(p for p in paths if p.exists() or p.is_symlink())
  if not (existing.is_dir() and os.access(existing, os.W_OK)):
    raise ValueError(f'{given} cannot be written in {existing}; name another.')


def make_folders(
  folder: str | os.PathLike[str], output: str | None
) -> tuple[pathlib.Path, pathlib.Path]:
  """Makes what `locate_folders` locates, and returns it; raises as it does.

  Raises:
    OSError: if a folder cannot be made.
  """
  folder, stem = locate_folders(folder, output)
  for path in (folder, stem.parent):
    path.mkdir(parents=True, exist_ok=True)
  return folder, stem


def locate_folders(
  folder: str | os.PathLike[str], output: str | None
) -> tuple[pathlib.Path, pathlib.Path]:
  """Locates the folder of several runs, and the files of the table of them.

  Args:
    folder: of the runs.
    output: --output, the table's files without their endings; by default
      `table` in the folder.

  Returns:
    The folder, and the files without their endings.

  Raises:
    ValueError: if these cannot be written, or --output has no name.
  """
  folder = pathlib.Path(folder).expanduser()
  stem = pathlib.Path(output or folder / 'table').expanduser()
  if stem.name in ('', '..'):
    raise ValueError(f'--output={output} has no name; name files in a folder.')
  for path in (folder, stem.parent):
    require_writable(path, str(path))
  return folder, stem


def require_seconds(seconds: float) -> None:
  """Raises `ValueError` unless --seconds is a finite number above 0."""
  if not 0 < seconds < math.inf:
    raise ValueError(f'--seconds is {seconds}; it must be a number above 0.')


def run_logged(
  program: pathlib.Path, given: Mapping[str, Any], log: pathlib.Path
) -> int:
  """Runs another program; what it prints is added to a log.

  Args:
    program: a file of Python.
    given: its flags and their values.
    log: the file.

  Returns:
    Its exit code.
  """
  with log.open('a') as file:
    return subprocess.run(
      [sys.executable, str(program), *words(given)],
      stdout=file,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      check=False,
    ).returncode


def words(given: Mapping[str, Any]) -> list[str]:
  """Returns flags and their values as a command line has them, a word each."""
  return [f'--{name}={value}' for name, value in given.items()]


def preset_default(name: str) -> str:
  """A sentence for a flag's help: what each preset takes where it is absent."""
  parts = []
  for preset in presets.PRESETS:
    grey, colour = (_default(presets.choose(preset, c), name) for c in (1, 3))
    parts.append(f'{preset} {grey}')
    if colour != grey:
      parts.append(f'{preset}, colour frames, {colour}')
  return f' Default: {"; ".join(parts)}.'


def _default(preset: presets.Preset, name: str) -> str:
  """What a preset takes, for people."""
  if name in presets.EPISODE_SETTINGS:
    own = preset.episodes.items()
    value = {task: sizes[name] for task, sizes in own if name in sizes}
  else:
    value = getattr(preset, name)
  if not isinstance(value, Mapping):
    return str(value)
  # By task or by model.
  if len(set(value.values())) == 1:
    return str(next(iter(value.values())))
  return ', '.join(f'{chosen} on {key}' for key, chosen in value.items())


def define_episode_flags() -> None:
  """Defines the flags of what episodes are made of, None by default."""
  for name, text in {
    'pre_recall': "The paper's l, frames before the recall interval; >= 10 on "
    'dynamic_dependency.',
    'recall': "The paper's k, frames of the recall interval, 1 to l; >= 2 on "
    'similarity_cued_recall.',
    'rows': "Rows of navigation's grid, >= 1; with columns, two cells or more.",
    'columns': "Columns of navigation's grid, >= 1.",
    'length': 'Frames of a walk on navigation, >= 3, or of two turns on '
    'rotation, >= 14; on frames those of the file.',
    'size': 'Height and width of frames on rotation, in pixels, >= 8.',
  }.items():
    flags.DEFINE_integer(name, None, text + preset_default(name))


def define_associative_flags() -> None:
  """Defines the flags of the associative memory alone."""
  flags.DEFINE_integer(
    'top_k',
    0,
    'Slots that each read head of the associative memory reads by each '
    'addressing, 2 or more, at most as many as there are; 0 reads all.',
    lower_bound=0,
  )
  flags.DEFINE_enum(
    'nearest',
    'exact',
    presets.NEAREST,
    'How those are found: exact, or approximate, which is faster on TPUs.',
  )
  flags.DEFINE_string(
    'without',
    'none',
    'Parts that the associative memory goes without, with commas between: '
    f'{", ".join(presets.ASSOCIATIVE_PARTS)}; or none.',
  )


def define_memory_flag() -> None:
  """Defines the flag of what training episodes of a file may take."""
  flags.DEFINE_float(
    'device_megabytes',
    None,
    'On frames: megabytes that training episodes may take on each device, '
    'above 0. More of them are trained on in windows, another after each '
    "report. Default: half of an accelerator's memory; on the CPU half of the "
    "machine's, shared by the replicas.",
  )


def define_computing_flags() -> None:
  """Defines the flags of how things are computed."""
  flags.DEFINE_enum(
    'recompute',
    'nothing',
    presets.RECOMPUTE,
    'What gradients compute again rather than keep, to save memory: nothing, '
    'the inside of time steps, or everything, networks of frames included.',
  )
  flags.DEFINE_enum(
    'precision',
    'default',
    presets.PRECISIONS,
    'Of products, whose sums are float32 always; by default what jax takes '
    'on the device. CPUs multiply in float32 whatever is said.',
  )


def console() -> Console:
  """Where programs print: what is printed is text, brackets and all."""
  return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
