"""The provenance of a record: sources, command, versions, device; no jax."""

import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import gtmm_jax

# Flags that name folders or files.
_PATHS = (
  'workdir',
  'folder',
  'output',
  'data_dir',
  'json',
  'grid',
  'flagfile',
)


def sources() -> dict[str, Any]:
  """Returns `commit` and `clean` of the sources that run, by git.

  `commit` is that of the repository which tracks this package. `clean` tells
  whether the package, and the experiments beside it where there are such, are
  as committed and have no new files of Python. A program elsewhere does not
  count. Both are None where git does not track the package, as in a wheel: a
  repository that only surrounds it, or the current folder's, does not count.
  """
  package = pathlib.Path(gtmm_jax.__file__).resolve().parent
  programs = package.with_name('experiments')
  folders = [package, programs] if programs.is_dir() else [package]
  commit, status = None, None
  if _git(package, 'ls-files', '--error-unmatch', package):
    commit = _git(package, 'rev-parse', 'HEAD')
    status = _git(package, 'status', '--porcelain', '-uall', '--', *folders)
  if commit is None or status is None:
    return {'commit': None, 'clean': None}
  # Odd names are in quotes; results beside programs are no sources.
  changed = [line.strip('"').endswith('.py') for line in status.splitlines()]
  return {'commit': commit.strip(), 'clean': not any(changed)}


def _git(folder: pathlib.Path, *arguments: str | pathlib.Path) -> str | None:
  """Returns git's output in a folder; None if git fails or is not installed."""
  # Variables such as GIT_DIR would name another repository.
  variables = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
  try:
    return subprocess.run(
      ['git', '-C', str(folder), *map(str, arguments)],
      env={**variables, 'GIT_OPTIONAL_LOCKS': '0'},
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      timeout=20,
      check=True,
    ).stdout
  except (OSError, ValueError, subprocess.SubprocessError):
    return None


def command() -> str:
  """Returns this program's command line, quoted for a shell."""
  return shlex.join(['python', *sys.argv])


def versions(packages: Sequence[str]) -> dict[str, str]:
  """Returns the versions of Python, of this library, and of packages."""
  return {
    'python': platform.python_version(),
    'gtmm_jax': gtmm_jax.__version__,
    **{name: metadata.version(name) for name in packages},
  }


def device(jax_device: Any) -> dict[str, Any]:
  """Describes a `jax.Device`, and counts the machine's CPU cores."""
  return {
    'platform': jax_device.platform,
    'kind': jax_device.device_kind,
    'cores': os.cpu_count(),
  }


def published() -> dict[str, Any]:
  """Returns the part of `sources` and `command` that may be published.

  These are `commit`, `clean`, and `command` without folders of this machine.
  """
  return {**sources(), 'command': without_folders(command())}


def without_folders(command: str) -> str:
  """Returns a command line without the folders of this machine.

  The program is named by its last two parts; values that are paths, or that
  name a folder or a file, become FOLDER.
  """
  python, program, *arguments = shlex.split(command)
  published = [python, '/'.join(pathlib.Path(program).parts[-2:])]
  is_value = False
  for word in arguments:
    flag, equals, value = word.partition('=')
    is_flag = word.startswith('-')
    names_path = flag.lstrip('-') in _PATHS
    if is_flag and equals:
      word = f'{flag}={_without_folder(value, names_path)}'
    elif not is_flag:
      word = _without_folder(word, is_value)
    is_value = is_flag and names_path and not equals
    published.append(word)
  return shlex.join(published)


def _without_folder(value: str, is_path: bool) -> str:
  if value.startswith('files:'):
    return 'files:FOLDER'
  return 'FOLDER' if is_path or os.sep in value else value
