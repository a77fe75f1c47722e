"""Resolves the cells of a study, in another process.

Before its first run, study.py starts the program of its runs with
`--check_cells` as the only argument and waits for its end, so that no device is
occupied when runs need them. Standard input is JSON, {"folder": FOLDER,
"cells": {NAME: {FLAG: VALUE}}}; standard output is the result of
`resolve_cells` in JSON.
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

# Settings on which the data depend. Replicas and device_megabytes decide how
# many episodes of a file fit on a device.
_OF_DATA = ('task', 'data', 'data_dir', 'replicas', 'device_megabytes')


def answer(define: Callable[[], None], kinds: Kinds) -> None:
  """Resolves the cells from standard input, and writes to standard output.

  Args:
    define: defines the flags of the program.
    kinds: its models and tasks.
  """
  question = json.load(sys.stdin)
  # The output of libraries must not be mixed with the answer.
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
  """Resolves cells as their runs do before they compile.

  Cells with the same data share them. Must be called only once per process,
  before jax has a device.

  Args:
    cells: the flags of each run and their values, by name.
    folder: of the study; a cell's name is that of its workdir.
    define: defines the flags of the program.
    kinds: its models and tasks.

  Returns:
    For each name either `problem`, the error message of the run, or `config`
    (the content of config.json), `steps`, `episodes` and `split` (of the
    evaluation), `is_evaluated`, `is_complete` (with figures) and `doubts`
    (about the data).
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
  # As many devices as the run with most replicas needs; fewer serve the others.
  counts = [preset.replicas for preset in presets.PRESETS.values()]
  counts += [each.replicas or 0 for each in settings.values()]
  # A larger number is a mistake, which resolving the cell reports.
  replicas.prepare_cpu_devices(max(n for n in counts if n <= MOST_REPLICAS))
  load = _remembering(prepare.load_images)
  # Sorted, so that cells with the same data are neighbours.
  for name in sorted(settings, key=lambda name: str(_data(settings[name]))):
    try:
      resolved[name] = _resolve(settings[name], kinds, load)
    except (ValueError, OSError, CheckpointMismatch) as error:
      resolved[name] = {'problem': str(error)}
  return {name: resolved[name] for name in cells}


def _parse(cell: Mapping[str, Any], known: set[str], kinds: Kinds) -> Settings:
  """Parses a cell's flags as on a command line."""
  values = copy.deepcopy(flags.FLAGS)
  rest = values(['run.py', *command.words(cell)])
  strange = [*(cell.keys() - known), *rest[1:]]
  if strange:
    raise ValueError(f'--{strange[0]} is not a setting of a run; leave it out.')
  return flags_module.read(values, kinds)


def _data(settings: Settings) -> tuple[Any, ...]:
  """Returns the settings on which a run's data depend."""
  return (
    *(getattr(settings, name) for name in _OF_DATA),
    settings.episode.get('size'),
  )


def _remembering(
  load: Callable[[Settings, Kinds], tuple[Dataset, str]],
) -> Callable[[Settings, Kinds], tuple[Dataset, str]]:
  """Adds a cache of the latest data to `load_images`."""
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
  """Resolves the settings of one run; raises the errors of the run."""
  run = prepare.prepare(settings, kinds, load)
  settings, workdir = run.settings, run.workdir
  is_complete = workdirs.is_complete(workdir, settings)
  if not is_complete:
    workdirs.require_checkpoint(workdir, settings.steps)
  return {
    'config': records.documents.as_json(run.config, name_it=True),
    'steps': settings.steps,
    'episodes': settings.evaluation_episodes,
    'split': settings.evaluate_on,
    'is_evaluated': workdirs.is_evaluated(
      workdir,
      settings.steps,
      settings.evaluation_episodes,
      settings.evaluate_on,
    ),
    'is_complete': is_complete,
    'doubts': list(run.images.doubts),
  }
