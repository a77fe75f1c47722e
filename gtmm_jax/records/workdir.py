"""Writing, reading and cutting back the files of a run's workdir."""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gtmm_jax.records import documents

_Workdir = str | os.PathLike[str]

_CONFIG = 'config.json'
_METRICS = 'metrics.jsonl'
_EVALUATION = 'evaluation.json'


class SettingsDiffer(ValueError):
  """The settings of a workdir are not those that it is opened with."""


def write_config(workdir: _Workdir, config: Mapping[str, Any]) -> None:
  """Writes `config.json`, replacing an older one in one step.

  Makes the folder if there is none. A float that is not finite is written as
  its name ('inf', '-inf', 'nan'), so that a setting without a limit is not
  mistaken for one that was not set.

  Raises:
    TypeError: a value is neither JSON nor an array, a tuple or a path.
  """
  documents.replace_document(
    Path(workdir) / _CONFIG, documents.as_json(config, name_it=True)
  )


def read_config(workdir: _Workdir) -> dict[str, Any] | None:
  """Reads `config.json`; None if there is no such file.

  Raises:
    ValueError: the file is not a JSON object.
  """
  return documents.read_document(Path(workdir) / _CONFIG)


def require_same_settings(
  old: Mapping[str, Any],
  new: Mapping[str, Any],
  may_differ: Collection[str],
  remedies: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
  """Checks that a run resumes with the settings that it was started with.

  Values are compared as JSON holds them: a tuple equals the list of the same
  values, and 1 equals 1.0. A setting that only one side has differs.

  Args:
    old: the workdir's settings.
    new: the settings of this call.
    may_differ: names of settings that may change, such as the number of steps.
    remedies: by name, how to get the workdir's value of a setting that has no
      flag of that name.

  Raises:
    SettingsDiffer: names every setting that differs, with both values.
  """
  sides = [documents.as_json(side, name_it=True) for side in (old, new)]
  differing = []
  for name in dict.fromkeys([*sides[0], *sides[1]]):
    values = [[side[name]] if name in side else [] for side in sides]
    if name not in may_differ and values[0] != values[1]:
      then, now = (repr(*value) if value else 'not set' for value in values)
      remedy = f'; {remedies[name]}' if name in remedies else ''
      differing.append(f'{name} ({then} in the workdir, {now} now{remedy})')
  if differing:
    raise SettingsDiffer(
      f'The workdir was begun with other settings: {", ".join(differing)}. '
      'Use the same values, or another --workdir.'
    )


def append_metrics(workdir: _Workdir, line: Mapping[str, Any]) -> None:
  """Adds one line to `metrics.jsonl` and waits until it is on the disk.

  Makes the folder if there is none. Removes a torn last line, which a crash may
  have left, first.

  Args:
    workdir: the run's folder.
    line: `step`, and scalars or arrays by name (`negative_bound [R]`,
      `kl [R, T]`, ...; nats). Numbers that are not finite are written as null.

  Raises:
    ValueError: `step` is not an integer, or a torn last line cannot be removed
      because another line is not a record either.
    TypeError: a value is neither JSON nor an array.
  """
  record = documents.as_json(line)
  if not _has_step(record):
    raise ValueError(
      f'A line of metrics has step = {record.get("step")!r}, which must be a '
      'whole number: give the training step that the line reports on.'
    )
  text = json.dumps(record, allow_nan=False).encode() + b'\n'
  path = Path(workdir) / _METRICS
  path.parent.mkdir(parents=True, exist_ok=True)
  if not _ends_in_newline(path):
    drop_metrics_after(workdir, math.inf)
  with documents.naming(path), open(path, 'ab') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def read_metrics(workdir: _Workdir) -> list[dict[str, Any]]:
  """Reads the lines of `metrics.jsonl`, without a torn last one.

  Returns:
    The record of each line, [] if there is no such file.

  Raises:
    ValueError: a line before the last is not a record.
  """
  return [record for _, record in _whole_lines(Path(workdir) / _METRICS)]


def drop_metrics_after(workdir: _Workdir, step: float) -> None:
  """Removes lines of `metrics.jsonl` after `step`, and a torn last one.

  A run that resumes from a checkpoint at `step` reports the later steps again.
  The file is replaced in one step; without a file nothing happens.

  Raises:
    ValueError: a line before the last is not a record.
  """
  path = Path(workdir) / _METRICS
  if path.exists():
    lines = _whole_lines(path)
    texts = [text + b'\n' for text, record in lines if record['step'] <= step]
    documents.replace(path, b''.join(texts))


def write_evaluation(workdir: _Workdir, evaluation: Mapping[str, Any]) -> None:
  """Writes `evaluation.json`, replacing an older one in one step.

  Makes the folder if there is none. Numbers that are not finite, in arrays
  named as in a line of metrics (nats), are written as null.

  Raises:
    TypeError: a value is neither JSON nor an array.
  """
  documents.replace_document(
    Path(workdir) / _EVALUATION, documents.as_json(evaluation)
  )


def read_evaluation(workdir: _Workdir) -> dict[str, Any] | None:
  """Reads `evaluation.json`; None if there is no such file.

  Raises:
    ValueError: the file is not a JSON object.
  """
  return documents.read_document(Path(workdir) / _EVALUATION)


def _has_step(record: Any) -> bool:
  step = record.get('step') if isinstance(record, dict) else None
  return isinstance(step, int) and not isinstance(step, bool)


def _whole_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
  """Reads each complete line, without its newline, and parses its record."""
  if not path.exists():
    return []
  lines = path.read_bytes().split(b'\n')
  records = []
  for number, text in enumerate(lines, start=1):
    record = documents.parse(text)
    if _has_step(record):
      records.append((text, record))
    elif number < len(lines):  # The text after the last newline may be torn.
      raise ValueError(
        f'{path}, line {number}, is not a JSON object with a whole-numbered '
        'step: repair or delete that line.'
      )
  return records


def _ends_in_newline(path: Path) -> bool:
  """Tells whether the file ends in a newline, is empty or does not exist."""
  if not path.exists() or not path.stat().st_size:
    return True
  with open(path, 'rb') as file:
    file.seek(-1, os.SEEK_END)
    return file.read() == b'\n'
