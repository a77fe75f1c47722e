"""Flags and environment of the programs that tests start or call."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from absl import flags
from absl.testing import flagsaver

from gtmm_jax.process import command


@contextlib.contextmanager
def defined(define: Callable[[], None]) -> Iterator[None]:
  """Defines a program's flags in this process, within the context."""
  before = set(flags.FLAGS)
  try:
    define()
    yield
  finally:
    for name in set(flags.FLAGS) - before:
      delattr(flags.FLAGS, name)


def exit_code(arguments: list[str], main: Callable[[list[str]], None]) -> int:
  """Calls a program's main function, whose flags are defined, as it would be.

  Args:
    arguments: the program's name and its flags.
    main: what the program does after it has read them.

  Returns:
    The exit code of the program.
  """
  with flagsaver.flagsaver(), mock.patch.object(sys, 'argv', arguments):
    try:
      main(command.parse_flags(arguments))
    except SystemExit as ended:
      return ended.code
  return 0


def refused(
  capsys: pytest.CaptureFixture[str],
  arguments: list[str],
  main: Callable[[list[str]], None],
) -> str:
  """Checks that a program ends with one line of error; returns the line."""
  code = exit_code(arguments, main)
  out, err = capsys.readouterr()
  assert (code, out, err.count('\n')) == (2, '', 1), err
  assert err.startswith(f'{pathlib.Path(arguments[0]).name}: ')
  return err


def environment() -> dict[str, str]:
  """Returns this process's variables without its number of devices.

  A program that is started sets that number itself.
  """
  words = os.environ.get('XLA_FLAGS', '').split()
  flags = ' '.join(word for word in words if 'device_count' not in word)
  return {**os.environ, 'XLA_FLAGS': flags}
