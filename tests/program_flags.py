"""Flags and environment of the programs that tests start or call."""

import ast
import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import pytest
from absl import flags
from absl.testing import flagsaver

from gtmm_jax.process import command


def defaults(program: pathlib.Path, names: Iterable[str]) -> dict[str, Any]:
  """Reads the default values of a program's flags, in a new process.

  Args:
    program: a file with `define_flags` and `FLAGS`.
    names: of flags.
  """
  module = program.stem
  code = (
    f'import {module} as m; m.define_flags(); m.FLAGS(["x"]);'
    f'print({{name: m.FLAGS[name].value for name in {list(names)}}})'
  )
  printed = subprocess.run(
    [sys.executable, '-c', code],
    cwd=program.parent,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return ast.literal_eval(printed)


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
