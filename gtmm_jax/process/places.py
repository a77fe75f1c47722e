"""Folders and files that flags name: whether they can be, and be written."""

import os
import pathlib


def locate(given: str | os.PathLike[str], flag: str) -> pathlib.Path:
  """Makes a path of what a flag names.

  Args:
    given: the flag's value; `~` stands for a user's own folder.
    flag: its name, for people.

  Returns:
    The path; nothing need be there.

  Raises:
    ValueError: if it is an address, no text, or of a user who is not known.
  """
  text = os.fspath(given)
  if '://' in text:
    raise ValueError(
      f'--{flag}={text} is an address; it must be a folder or a file of this '
      f'machine, for instance one in a bucket that is mounted.'
    )
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(
      f'--{flag}={text!a} is not written in UTF-8, which records are '
      f'kept in; take another name.'
    ) from error
  try:
    return pathlib.Path(text).expanduser()
  except RuntimeError as error:
    raise ValueError(
      f'--{flag}={text} begins with a user whose own folder is not known '
      f'here; write the whole path.'
    ) from error


def require_local_data(data: str) -> None:
  """Checks the place that --data=files:PLACE names, if it names one.

  Raises:
    ValueError: as `locate`.
  """
  if data.startswith('files:'):
    locate(data.removeprefix('files:'), 'data')


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
  folder: str | os.PathLike[str], output: str | os.PathLike[str] | None
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
  folder: str | os.PathLike[str], output: str | os.PathLike[str] | None
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
  folder = locate(folder, 'folder')
  stem = locate(output or folder / 'table', 'output')
  if stem.name in ('', '..'):
    raise ValueError(f'--output={output} has no name; name files in a folder.')
  for path in (folder, stem.parent):
    require_writable(path, str(path))
  return folder, stem
