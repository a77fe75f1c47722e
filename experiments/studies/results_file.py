"""The results file of a study: a JSON object with a record of each cell.

It grows by a record whenever a cell has finished, so that it can be kept, by
git for example, while the study goes on. A cell that has its record there is
done, also on a machine without its workdir (finished.py). No jax.
"""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from gtmm_jax.records import documents

_NEEDED = {'settings', 'data', 'step', 'episodes', 'replicas'}
# Ends the line on a file that a study cannot use.
REMEDY = 'delete the file, or name another --output'

Records = Mapping[str, Mapping[str, Any]]


def read(file: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Reads the records of a results file, {} if there is none.

  Raises:
    ValueError: the file is not a results file.
    OSError: the file cannot be read.
  """
  if not file.exists():
    return {}
  found = documents.parse(file.read_bytes())
  is_whole = isinstance(found, dict) and all(
    isinstance(each, dict)
    and each.keys() >= _NEEDED
    and {'task', 'model'} <= each['settings'].keys()
    for each in found.values()
  )
  if not is_whole:
    raise ValueError(f'{file} is not a results file of study.py; {REMEDY}.')
  return found


def write(file: pathlib.Path, runs: Records) -> None:
  """Replaces a results file by these records, or makes it.

  Raises:
    OSError: the file cannot be written.
  """
  documents.replace_document(file, documents.as_json(runs))


def add(
  file: pathlib.Path, name: str, run: Mapping[str, Any], order: Iterable[str]
) -> None:
  """Adds a record to a results file, or replaces that of the same name.

  Args:
    file: of the results; made if it is missing.
    name: of the cell.
    run: its record.
    order: names of all cells, as the file is to list them.

  Raises:
    ValueError: the file is not a results file.
    OSError: the file cannot be read or written.
  """
  runs = {**read(file), name: run}
  write(file, {each: runs[each] for each in order if each in runs})
