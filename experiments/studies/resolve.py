"""Resolves the cells of a study as run.py would, in a process of its own.

study.py starts it before its first run and waits for its end, so that no
device is held while runs take them. Standard input is JSON, {"folder": FOLDER,
"cells": {NAME: {FLAG: VALUE}}}; standard output is JSON, too: for each name
what `resolve` gives.
"""

import contextlib
import copy
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from absl import flags

import run
from gtmm_jax import presets, records, replicas
from gtmm_jax.checkpoints import CheckpointMismatch
from gtmm_jax.process import command
from gtmm_jax.runs import prepare, workdirs
from gtmm_jax.runs.settings import MOST_REPLICAS


def resolve(
  cells: Mapping[str, Mapping[str, Any]], folder: pathlib.Path
) -> dict[str, dict[str, Any]]:
  """Resolves cells as run.py would before it compiles.

  Data are read once for cells of one task that differ in other things. To be
  called once in a process, before jax has a device.

  Args:
    cells: for each name, flags of run.py and their values.
    folder: of the study; a cell's workdir has its name.

  Returns:
    For each name either `problem`, what run.py would say is wrong, or `config`,
    what its config.json would hold, `steps`, `episodes` of its evaluation,
    `is_evaluated`, `is_complete`, which has figures, too, and `doubts` about
    its data.
  """
  foreign = set(flags.FLAGS)
  run.define_flags()
  known = set(flags.FLAGS) - foreign
  requests, found = {}, {}
  for name, own in cells.items():
    try:
      requests[name] = _parse({**own, 'workdir': folder / name}, known)
    except (ValueError, flags.Error) as error:
      found[name] = {'problem': str(error)}
  # As many as the run with most replicas takes; others then have theirs, too.
  counts = [preset.replicas for preset in presets.PRESETS.values()]
  counts += [each.replicas or 0 for each in requests.values()]
  # More are a mistake, which is found when the cell is resolved.
  replicas.prepare_cpu_devices(max(n for n in counts if n <= MOST_REPLICAS))
  load = _remembering(prepare.load_images)
  # Cells that read the same data follow on each other.
  for name in sorted(requests, key=lambda name: _data(requests[name])):
    try:
      found[name] = _resolve(requests[name], load)
    except (ValueError, OSError, CheckpointMismatch) as error:
      found[name] = {'problem': str(error)}
  return {name: found[name] for name in cells}


def _parse(own: Mapping[str, Any], known: set[str]) -> Any:
  """The request of a cell's flags, read as run.py reads its command line."""
  values = copy.deepcopy(flags.FLAGS)
  rest = values(['run.py', *command.words(own)])
  strange = [*(own.keys() - known), *rest[1:]]
  if strange:
    raise ValueError(f'--{strange[0]} is not a setting of a run; leave it out.')
  return run.request(values)


def _data(request: Any) -> tuple[str, ...]:
  """Returns what decides on the data of a request, as texts to sort by."""
  parts = (
    request.task,
    request.data,
    request.data_dir,
    request.size,
    request.replicas,
  )
  return tuple(map(str, parts))


def _remembering(load: Callable[..., Any]) -> Callable[..., Any]:
  """`load_images` that has at hand what it loaded last."""
  kept: dict[Any, Any] = {}

  def loaded(settings: Any, *given: Any) -> Any:
    # Episodes of a file may be cut to what devices have room for.
    alike = (settings.task, settings.size, settings.replicas, *given)
    if alike not in kept:
      kept.clear()
      kept[alike] = load(settings, *given)
    return kept[alike]

  return loaded


def _resolve(request: Any, load: Callable[..., Any]) -> dict[str, Any]:
  """Resolves one request; raises where run.py would."""
  run = prepare.prepare(request, load)
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


def main() -> None:
  """Resolves what standard input asks for."""
  asked = json.load(sys.stdin)
  # What libraries print is no part of the answer.
  with contextlib.redirect_stdout(sys.stderr):
    found = resolve(asked['cells'], pathlib.Path(asked['folder']))
  json.dump(found, sys.stdout)


if __name__ == '__main__':
  main()
