"""The command line of a program: flags and errors; no jax."""

import contextlib
import math
import os
import pathlib
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from absl import flags, logging
from rich.console import Console

from gtmm_jax.process import signals

# Exit code after a mistake on the command line.
MISTAKE = 2

# Makes --helpshort of a program show the flags that are defined here.
flags.disclaim_key_flags()

# Greatest number of characters that are quoted from a library's error.
_LONGEST_REASON = 200


def parse_flags(arguments: list[str], has_words: bool = False) -> list[str]:
  """Reads the flags; a mistake ends the program with one line, code 2.

  Args:
    arguments: the program's name, and what follows it.
    has_words: whether words that are not flags are allowed.

  Returns:
    The program's name, and the words that are not flags.
  """
  try:
    rest = flags.FLAGS(arguments)
  except flags.Error as error:
    fail(error)
  except BrokenPipeError:
    # `head` has read enough of --help.
    forget_output()
    sys.exit(1)
  if len(rest) > 1 and not has_words:
    fail(f'{rest[1]!r} is not a flag; flags are written --name=value.')
  return rest


def fail(message: str | Exception) -> NoReturn:
  """Ends the program with one line on standard error, code 2."""
  complain(message)
  sys.exit(MISTAKE)


def complain(message: str | Exception) -> None:
  """Prints one line on standard error."""
  program = pathlib.Path(sys.argv[0]).name
  with contextlib.suppress(BrokenPipeError):
    print(f'{program}: {" ".join(str(message).split())}', file=sys.stderr)


def import_jax() -> None:
  """Imports jax; ends the program with one line if that fails."""
  # Silences jax about accelerators that it does not find, and matplotlib about
  # its search for fonts.
  logging.set_verbosity(logging.ERROR)
  try:
    import jax  # noqa: F401
  except (ImportError, ValueError, RuntimeError) as error:
    fail(
      f'jax cannot be imported ({_brief(error)}); repair its installation or '
      f"the environment's variables."
    )


def require_device() -> None:
  """Checks that jax can use its devices, which starts them.

  The number of CPU devices must be set before.

  Raises:
    ValueError: there is no such device, or its driver does not work.
  """
  import jax

  try:
    jax.devices()
  # Plugins and drivers can raise anything.
  except Exception as error:
    platforms = jax.config.jax_platforms
    if platforms:
      raise ValueError(
        f'JAX_PLATFORMS is {platforms!r}, and jax finds no such device here '
        f'({_brief(error)}); leave it unset, or set JAX_PLATFORMS=cpu.'
      ) from error
    raise ValueError(
      f'jax cannot use the devices of this machine ({_brief(error)}); repair '
      f'their driver, or set JAX_PLATFORMS=cpu.'
    ) from error


def _brief(error: Exception) -> str:
  """Returns the first line of an error's message, shortened."""
  lines = str(error).splitlines() or ['without a reason']
  return textwrap.shorten(lines[0], _LONGEST_REASON, placeholder=' ...')


def require_seconds(seconds: float) -> None:
  """Raises `ValueError` unless --seconds is a finite number above 0."""
  if not 0 < seconds < math.inf:
    raise ValueError(f'--seconds is {seconds}; it must be a number above 0.')


def attempt_drawing(
  draw: Callable[[], list[pathlib.Path]],
  stem: str | os.PathLike[str],
  remedy: str = 'The same command draws it again and repeats nothing else.',
) -> list[pathlib.Path]:
  """Draws a picture; prints one line on standard error if that fails.

  Catches any error, because results are more important than pictures.

  Args:
    draw: draws and writes one picture, and returns the paths of its files.
    stem: path of its files without their suffixes, for the message.
    remedy: a sentence that tells how to draw it later.

  Returns:
    The paths from `draw`, none if it fails.
  """
  try:
    return draw()
  except Exception as error:
    if isinstance(error, OSError) and error.strerror:
      where = f' ({error.filename})' if error.filename else ''
      reason = f'{error.strerror}{where}'
    else:
      line = ' '.join(str(error).split('\n')[0].split())
      reason = f'{type(error).__name__}: {line}'.rstrip('.: ')
    print(
      f'The picture {os.fspath(stem)} could not be drawn: {reason}. {remedy}',
      file=sys.stderr,
    )
    return []


def words(values: Mapping[str, Any]) -> list[str]:
  """Writes flags and their values as words of a command line.

  Args:
    values: by flag; a list gives the flag once for each of its values.
  """
  return [
    f'--{name}={value}'
    for name, each in values.items()
    for value in (each if isinstance(each, list) else [each])
  ]


def forget_output() -> None:
  """Redirects standard output, which nobody reads, to the null device."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Console(Console):
  """A console that ends the program once nobody reads its output."""

  def on_broken_pipe(self) -> None:
    forget_output()
    if not signals.receive_broken_pipe():
      super().on_broken_pipe()


def console(is_quiet: bool = False) -> Console:
  """Makes the console to which programs print plain text, without markup."""
  return _Console(
    markup=False,
    emoji=False,
    highlight=False,
    soft_wrap=True,
    quiet=is_quiet,
  )
