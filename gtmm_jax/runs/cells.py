"""Resolves the cells of a study, in a process of its own.

study.py starts a program of runs with `--check_cells` alone before its first
run, and waits for its end, so that no device is held while runs take them.
Standard input is JSON, {"folder": FOLDER, "cells": {NAME: {FLAG: VALUE}}};
standard output is JSON, too: for each name what `resolve_cells` returns.
"""

import contextlib
import copy
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

from gtmm_jax import presets, records, replicas
from gtmm_jax.checkpoints import CheckpointMismatch
from gtmm_jax.process import command
from gtmm_jax.runs import flags as flags_module
from gtmm_jax.runs import prepare, workdirs
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.settings import MOST_REPLICAS, Settings
from gtmm_jax.tasks.sources.dataset import Dataset

# Of the settings, what decides on the data; episodes of a file may be cut to
# what devices have room for.
_OF_DATA = ('task', 'data', 'data_dir', 'replicas', 'device_megabytes')


def answer(define: Callable[[], None], kinds: Kinds) -> None:
  """Resolves the cells that standard input holds, to standard output.

  Args:
    define: defines the flags of the program.
    kinds: its models and tasks.
  """
  question = json.load(sys.stdin)
  # What libraries print is no part of the answer.
  with contextlib.redirect_stdout(sys.stderr):
    resolved = resolve_cells(
      question['cells'], pathlib.Path(question['folder']), define, kinds
    )
  json.dump(resolved, sys.stdout)


def resolve_cells(
  cells: Mapping[str, Mapping[str, Any]],
  folder: pathlib.Path,
  define: Callable[[], None],
  kinds: Kinds,
) -> dict[str, dict[str, Any]]:
  """Resolves cells as their runs would before they compile.

  Data are read once for cells of one task that differ in other things. To be
  called once in a process, before jax has a device.

  Args:
    cells: for each name, flags of a run and their values.
    folder: of the study; a cell's workdir has its name.
    define: defines the flags of the program.
    kinds: its models and tasks.

  Returns:
    For each name either `problem`, what the run would say is wrong, or
    `config`, what its config.json would hold, `steps`, `episodes` of its
    evaluation, `is_evaluated`, `is_complete`, which has figures, too, and
    `doubts` about its data.
  """
  foreign = set(flags.FLAGS)
  define()
  known = set(flags.FLAGS) - foreign
  settings, resolved = {}, {}
  for name, values in cells.items():
    try:
      settings[name] = _parse(
        {**values, 'workdir': folder / name}, known, kinds
      )
    except (ValueError, flags.Error) as error:
      resolved[name] = {'problem': str(error)}
  # As many as the run with most replicas takes; others then have theirs, too.
  counts = [preset.replicas for preset in presets.PRESETS.values()]
  counts += [each.replicas or 0 for each in settings.values()]
  # More are a mistake, which is found when the cell is resolved.
  replicas.prepare_cpu_devices(max(n for n in counts if n <= MOST_REPLICAS))
  load = _remembering(prepare.load_images)
  # Cells that read the same data follow on each other.
  for name in sorted(settings, key=lambda name: str(_data(settings[name]))):
    try:
      resolved[name] = _resolve(settings[name], kinds, load)
    except (ValueError, OSError, CheckpointMismatch) as error:
      resolved[name] = {'problem': str(error)}
  return {name: resolved[name] for name in cells}


def _parse(cell: Mapping[str, Any], known: set[str], kinds: Kinds) -> Settings:
  """Returns the settings of a cell's flags, read as on a command line."""
  values = copy.deepcopy(flags.FLAGS)
  rest = values(['run.py', *command.words(cell)])
  strange = [*(cell.keys() - known), *rest[1:]]
  if strange:
    raise ValueError(f'--{strange[0]} is not a setting of a run; leave it out.')
  return flags_module.read(values, kinds)


def _data(settings: Settings) -> tuple[Any, ...]:
  """Returns what decides on the data of a run."""
  return (
    *(getattr(settings, name) for name in _OF_DATA),
    settings.episode.get('size'),
  )


def _remembering(
  load: Callable[[Settings, Kinds], tuple[Dataset, str]],
) -> Callable[[Settings, Kinds], tuple[Dataset, str]]:
  """Returns `load_images` with the data at hand that it loaded last."""
  latest: dict[tuple[Any, ...], tuple[Dataset, str]] = {}

  def loaded(settings: Settings, kinds: Kinds) -> tuple[Dataset, str]:
    key = _data(settings)
    if key not in latest:
      latest.clear()
      latest[key] = load(settings, kinds)
    return latest[key]

  return loaded


def _resolve(
  settings: Settings,
  kinds: Kinds,
  load: Callable[[Settings, Kinds], tuple[Dataset, str]],
) -> dict[str, Any]:
  """Resolves the settings of one run; raises where the run would."""
  run = prepare.prepare(settings, kinds, load)
  settings, workdir = run.settings, run.workdir
  is_complete = workdirs.is_complete(workdir, settings)
  if not is_complete:
    workdirs.require_checkpoint(workdir, settings.steps)
  return {
    'config': records.documents.as_json(run.config, name_it=True),
    'steps': settings.steps,
    'episodes': settings.evaluation_episodes,
    'is_evaluated': workdirs.is_evaluated(
      workdir, settings.steps, settings.evaluation_episodes
    ),
    'is_complete': is_complete,
    'doubts': list(run.images.doubts),
  }
