"""Default flags and environment of the programs that tests start."""

import ast
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any


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


def environment() -> dict[str, str]:
  """Returns this process's variables without its number of devices.

  A program that is started sets that number itself.
  """
  words = os.environ.get('XLA_FLAGS', '').split()
  flags = ' '.join(word for word in words if 'device_count' not in word)
  return {**os.environ, 'XLA_FLAGS': flags}
