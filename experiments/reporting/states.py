"""The state of a run that has no record yet, from what it left on the disk.

Nothing is locked or written: a report may look at runs that are under way, and
at copies of them on another machine.
"""

import datetime
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gtmm_jax import records
from studies import logs

_LONGEST = 400
# Lines with which programs end: by a mistake, by a signal, by an error.
_MISTAKE = re.compile(r'(\S+\.py|gtmm-run): ')
_SIGNAL = re.compile(r'\S+: SIG[A-Z0-9]+\b')
_ERROR = re.compile(r'[\w.]*(Error|Exception|Interrupt|Exit)\b')
# Colours and other commands to a terminal.
_TERMINAL = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')


class State(NamedTuple):
  """The state of a run.

  Attributes:
    word: 'finished', 'unfinished', 'stopped', 'failed' or 'damaged'.
    why: a sentence, '' for a finished run.
  """

  word: str
  why: str = ''


def of_unfinished(
  config: Mapping[str, Any], workdir: pathlib.Path, log: pathlib.Path
) -> State:
  """Returns the state of a run without a whole evaluation.

  Args:
    config: content of its `config.json`, {} if there is none.
    workdir: its folder, which may be missing.
    log: of its output, which may be missing.

  Raises:
    ValueError: a line of its metrics is damaged.
    OSError: a file cannot be read.
  """
  last = last_line(log)
  where = _progress(config, workdir)
  if _SIGNAL.match(last):
    return State('stopped', f'{last} ({where})')
  if _MISTAKE.match(last) or _ERROR.match(last):
    return State('failed', f'{last} ({where})')
  starts = config.get('starts') or [{}]
  ended = starts[-1].get('ended')
  said = f'; its log ends with: {last}' if last else ''
  if ended:
    return State('stopped', f'ended at {ended}, {where}{said}')
  return State('unfinished', f'it runs, or was killed; {where}{said}')


def last_line(log: pathlib.Path) -> str:
  """Returns the last line of a log, shortened; '' without any."""
  lines = [_TERMINAL.sub('', line).strip() for line in logs.last_lines(log)]
  return next((line for line in reversed(lines) if line), '')[:_LONGEST]


def _progress(config: Mapping[str, Any], workdir: pathlib.Path) -> str:
  """Returns the last reported step, of how many, and when, in words."""
  lines = records.read_metrics(workdir)
  if not lines:
    return 'no step was reported'
  steps = (config.get('settings') or {}).get('steps')
  of = f' of {steps:,}' if isinstance(steps, int) else ''
  seconds = (workdir / 'metrics.jsonl').stat().st_mtime
  at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
  return f'step {lines[-1]["step"]:,}{of} at {at:%Y-%m-%d %H:%M} UTC'
