"""The files of a workdir: written, read, and cut back for a resumed run."""

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
  """A workdir was begun with settings other than those it is opened with."""


def write_config(workdir: _Workdir, config: Mapping[str, Any]) -> None:
  """Writes `config.json`, replacing an older one in one step.

  The folder is made where there is none. A float that is not finite is written
  as its name ('inf', '-inf', 'nan'), so that a setting without a limit is not
  mistaken for one that was not given.

  Raises:
    TypeError: a value is neither JSON nor an array, a tuple or a path.
  """
  documents.replace_document(
    Path(workdir) / _CONFIG, documents.as_json(config, name_it=True)
  )


def read_config(workdir: _Workdir) -> dict[str, Any] | None:
  """Returns what `config.json` holds, None where there is no such file.

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
  """Checks that a run goes on with the settings that it was begun with.

  Values are compared as JSON would hold them: a tuple equals the list of the
  same values, 1 equals 1.0. A setting that one side lacks differs.

  Args:
    old: the workdir's settings.
    new: the settings as given now.
    may_differ: names that are free to change, such as the number of steps.
    remedies: by name, how a setting that no flag of that name sets becomes the
      workdir's.

  Raises:
    SettingsDiffer: naming every setting that differs, with both values.
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

  The folder is made where there is none. A torn last line, which a crash may
  have left, is cut off first.

  Args:
    workdir: the run's folder.
    line: `step`, and scalars or arrays by name (`negative_bound [R]`,
      `kl [R, T]`, ...; nats). What is not finite is written as null.

  Raises:
    ValueError: the line has no whole-numbered `step`, or a torn end cannot be
      cut off, since another line is not a whole record either.
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
  if not _ends_whole(path):
    drop_metrics_after(workdir, math.inf)
  with documents.naming(path), open(path, 'ab') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def read_metrics(workdir: _Workdir) -> list[dict[str, Any]]:
  """Returns the lines of `metrics.jsonl`, [] where there is no such file.

  Raises:
    ValueError: a line before the last is not a whole record; a last line that
      a crash tore is left out instead.
  """
  return [record for _, record in _whole_lines(Path(workdir) / _METRICS)]


def drop_metrics_after(workdir: _Workdir, step: float) -> None:
  """Keeps the whole lines of `metrics.jsonl` up to `step`, in one step.

  A run that goes on from a checkpoint at `step` reports the later steps
  anew. Nothing happens where there is no such file.

  Raises:
    ValueError: a line before the last is not a whole record.
  """
  path = Path(workdir) / _METRICS
  if path.exists():
    lines = _whole_lines(path)
    kept = [text + b'\n' for text, record in lines if record['step'] <= step]
    documents.replace(path, b''.join(kept))


def write_evaluation(workdir: _Workdir, evaluation: Mapping[str, Any]) -> None:
  """Writes `evaluation.json`, replacing an older one in one step.

  The folder is made where there is none. What is not finite, in arrays named
  as in a line of metrics (nats), is written as null.

  Raises:
    TypeError: a value is neither JSON nor an array.
  """
  documents.replace_document(
    Path(workdir) / _EVALUATION, documents.as_json(evaluation)
  )


def read_evaluation(workdir: _Workdir) -> dict[str, Any] | None:
  """Returns what `evaluation.json` holds, None where there is no such file.

  Raises:
    ValueError: the file is not a JSON object.
  """
  return documents.read_document(Path(workdir) / _EVALUATION)


def _has_step(record: Any) -> bool:
  step = record.get('step') if isinstance(record, dict) else None
  return isinstance(step, int) and not isinstance(step, bool)


def _whole_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
  """Each whole line, without its end, and the record it holds."""
  if not path.exists():
    return []
  lines = path.read_bytes().split(b'\n')
  whole = []
  for number, text in enumerate(lines, start=1):
    record = documents.parsed(text)
    if _has_step(record):
      whole.append((text, record))
    elif number < len(lines):  # What follows the last line's end may be torn.
      raise ValueError(
        f'{path}, line {number}, is not a JSON object with a whole-numbered '
        'step: mend or delete that line.'
      )
  return whole


def _ends_whole(path: Path) -> bool:
  """Whether a line added to the file would start a line of its own."""
  if not path.exists() or not path.stat().st_size:
    return True
  with open(path, 'rb') as file:
    file.seek(-1, os.SEEK_END)
    return file.read() == b'\n'
