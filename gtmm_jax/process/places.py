"""Checks of the folders and files that flags name."""

import os
import pathlib


def locate(value: str | os.PathLike[str], flag: str) -> pathlib.Path:
  """Converts the value of a flag to a path, which need not exist.

  Args:
    value: of the flag; `~` stands for the user's home folder.
    flag: its name, for error messages.

  Raises:
    ValueError: the value is a URL, cannot be encoded in UTF-8, or begins with
      the home folder of an unknown user.
  """
  text = os.fspath(value)
  if '://' in text:
    raise ValueError(
      f'--{flag}={text} is an address; it must be a folder or a file on this '
      f'machine, for example in a mounted bucket.'
    )
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(
      f'--{flag}={text!a} is not valid UTF-8, as records must be; use another '
      f'name.'
    ) from error
  try:
    return pathlib.Path(text).expanduser()
  except RuntimeError as error:
    raise ValueError(
      f'--{flag}={text} begins with the home folder of an unknown user; write '
      f'the whole path.'
    ) from error


def require_local_data(data: str) -> None:
  """Checks the PLACE of --data=files:PLACE; accepts other values.

  Raises:
    ValueError: as `locate`.
  """
  if data.startswith('files:'):
    locate(data.removeprefix('files:'), 'data')


def require_writable(folder: pathlib.Path, flag: str) -> None:
  """Checks that a folder can be written to, or made if it does not exist.

  Args:
    folder: to write to.
    flag: the flag with its value, for error messages.

  Raises:
    ValueError: the folder cannot be written or made.
  """
  paths = (folder, *folder.absolute().parents)
  # A broken link counts: no folder can be made in its place.
  existing = next(p for p in paths if p.exists() or p.is_symlink())
  if not (existing.is_dir() and os.access(existing, os.W_OK)):
    raise ValueError(f'{flag} cannot be written in {existing}; name another.')


def make_folders(folder: pathlib.Path, stem: pathlib.Path) -> None:
  """Makes the folders of `locate_folders`.

  Raises:
    OSError: a folder cannot be made.
  """
  for path in (folder, stem.parent):
    path.mkdir(parents=True, exist_ok=True)


def locate_folders(
  folder: str | os.PathLike[str], output: str | os.PathLike[str] | None
) -> tuple[pathlib.Path, pathlib.Path]:
  """Locates the folder of several runs, and the files of their table.

  Args:
    folder: of the runs.
    output: value of --output, the table's files without their suffixes; None
      means `table` in the folder.

  Returns:
    The folder, and the path of the table's files without their suffixes.

  Raises:
    ValueError: a path is wrong, or --output has no file name.
  """
  folder = locate(folder, 'folder')
  stem = locate(output or folder / 'table', 'output')
  if stem.name in ('', '..'):
    raise ValueError(f'--output={output} has no name; name files in a folder.')
  return folder, stem
