"""Plans and reports for launch/accelerator_check.sh.

  describe SCRATCH                 records the device and the versions
  plan BENCHMARK SECONDS TRAINING  prints the flags of a run that fits
  assemble SCRATCH OUTPUT          writes accelerator.json, --figures also PNGs

SCRATCH is the folder to which the parts of the check write logs and numbers.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

# Finds gtmm_jax beside this folder, however the script is started.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import numpy as np

from gtmm_jax import presets, records
from gtmm_jax.process import command
from gtmm_jax.records import documents

_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'chex',
  'orbax-checkpoint',
  'numpy',
  'matplotlib',
)
# The line of a test in pytest's verbose output.
_TEST = re.compile(
  r'^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b', re.MULTILINE
)
_LOG_LINES = 40

# Seconds that a run needs to start, load digits and draw figures; and, per
# replica, to save checkpoints.
_STARTING = 12.0
_SAVING = 1.0
_SHORTEST_TRAINING = 3.0
_WORTHWHILE_STEPS = 1_000
_REPORTS = 12


def describe(scratch: pathlib.Path) -> None:
  """Writes device and versions to machine.json; prints jax's platform."""
  command.import_jax()
  try:
    command.require_device()
  except ValueError as error:
    command.fail(error)
  import jax

  from gtmm_jax.process import provenance

  device = jax.devices()[0]
  content = {
    **provenance.sources(),
    'device': {
      'platform': device.platform,
      'kind': device.device_kind,
      'count': jax.device_count(),
      'cores': os.cpu_count(),
      'driver': _nvidia_driver(),
    },
    'versions': {
      'python': platform.python_version(),
      **{name: importlib.metadata.version(name) for name in _PACKAGES},
    },
  }
  (scratch / 'machine.json').write_text(json.dumps(content))
  print(device.platform)


def plan(benchmark: pathlib.Path, seconds: float, training: float) -> None:
  """Prints the flags of a run that fits, or 'skipped: ' and the reason.

  The run has the most replicas that leave time for 1,000 steps; if none do, the
  number of replicas that leaves time for most steps.

  Args:
    benchmark: path of the file that benchmark.py wrote.
    seconds: limit of the whole run.
    training: limit of its training steps, in seconds.
  """
  content = _read(benchmark)
  if content is None or not content['rows']:
    print('skipped: the benchmark measured nothing to plan with')
    return
  fitting = {}
  for row in content['rows']:
    # Evaluation and figures compile about as much as training did.
    compiling = row['initialise_seconds'] + 2 * row['compile_seconds']
    around = _STARTING + _SAVING * row['replicas'] + compiling
    left = min(training, seconds - around)
    if left >= _SHORTEST_TRAINING:
      step = row['step_milliseconds']['median'] / 1e3
      fitting[row['replicas']] = max(1, int(left / step))
  if not fitting:
    print(f'skipped: {seconds:.0f} s are too few to start, train and evaluate')
    return
  enough = [r for r, steps in fitting.items() if steps >= _WORTHWHILE_STEPS]
  count = max(enough) if enough else max(fitting, key=fitting.get)
  steps = fitting[count]
  every = -(-steps // _REPORTS)
  print(
    f'--replicas={count} --steps={steps} --report_every={every} '
    f'--evaluate_every=0'
  )


def assemble(
  scratch: pathlib.Path, output: pathlib.Path, figures: bool
) -> None:
  """Writes accelerator.json from the finished parts, and optionally figures."""
  content = {
    **(_read(scratch / 'machine.json') or {}),
    'parts': _parts(scratch),
    'tests': _tests(scratch / 'tests.log'),
    'benchmarks': _by_model(lambda m: _read(scratch / f'benchmark-{m}.json')),
    'runs': _by_model(lambda model: _run(scratch / f'run-{model}')),
  }
  path = output / 'accelerator.json'
  documents.replace_document(path, documents.as_json(content))
  if figures:
    _draw(scratch, output)


def _nvidia_driver() -> str | None:
  """Returns GPU, driver version and memory by nvidia-smi; None without it."""
  program = ('nvidia-smi', '--format=csv,noheader')
  query = '--query-gpu=name,driver_version,memory.total'
  try:
    result = subprocess.run(
      (*program, query), capture_output=True, text=True, timeout=20
    )
  except (OSError, subprocess.TimeoutExpired):
    return None
  return result.stdout.strip() or None


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  return json.loads(path.read_text()) if path.exists() else None


def _by_model(
  read: Callable[[str], dict[str, Any] | None],
) -> dict[str, dict[str, Any]]:
  """Reads the results of each model that has any."""
  results = {model: read(model) for model in presets.MODELS}
  return {model: each for model, each in results.items() if each is not None}


def _parts(scratch: pathlib.Path) -> list[dict[str, Any]]:
  """Lists the parts' outcomes, with the end of the log of incomplete ones."""
  path = scratch / 'parts'
  parts = []
  for line in path.read_text().splitlines() if path.exists() else []:
    name, seconds, outcome = line.split('\t')
    parts.append({'name': name, 'seconds': int(seconds), 'outcome': outcome})
    log = scratch / f'{name}.log'
    if outcome != 'complete' and log.exists():
      lines = log.read_text(errors='replace').splitlines()
      parts[-1]['log'] = lines[-_LOG_LINES:]
  return parts


def _tests(log: pathlib.Path) -> dict[str, Any] | None:
  """Counts tests by outcome and lists those that failed; None without a log.

  Reads the line of each test, not pytest's summary, so that an interrupted run
  of the tests can be read, too.
  """
  if not log.exists():
    return None
  text = log.read_text(errors='replace')
  ended = _TEST.findall(text)
  outcomes = [outcome for _, outcome in ended]
  last = text.strip().splitlines()
  return {
    **{
      name: outcomes.count(name.upper())
      for name in ('passed', 'failed', 'error', 'skipped')
    },
    'failures': [name for name, how in ended if how in ('FAILED', 'ERROR')],
    'summary': last[-1].strip('= ') if last else '',
  }


def _run(workdir: pathlib.Path) -> dict[str, Any] | None:
  """Reads settings, training curve and held-out results of a run."""
  config = records.read_config(workdir)
  if config is None:
    return None
  lines = records.read_metrics(workdir)
  evaluation = records.read_evaluation(workdir)
  settled_at = records.settled_at(lines) or math.inf
  run = {
    'settings': config['settings'],
    'data': config['data'],
    'training': [
      {
        'step': line['step'],
        'seconds': line['seconds'],
        **_values(records.summarise(line, line['step'] >= settled_at)),
      }
      for line in lines
    ],
    'evaluation': None,
  }
  if evaluation is not None:
    run['evaluation'] = {
      'step': evaluation['step'],
      'episodes': evaluation['episodes'],
      'entropy_floor': evaluation['entropy_floor'],
      'failed_replicas': records.failed_replicas(evaluation),
      **_values(records.summarise(evaluation, settled_at < math.inf)),
      'kl_per_frame': _mean_of_finite(evaluation['kl']),
    }
  return run


def _values(summary: dict[str, Any]) -> dict[str, Any]:
  return {
    name: None if value is None else value._asdict()
    for name, value in summary.items()
  }


def _mean_of_finite(kl: list[list[float | None]]) -> list[float | None]:
  """Averages finite values over replicas, [R, T] -> [T], nats; None without."""
  columns = np.array(kl, np.float64).T
  means = [column[np.isfinite(column)] for column in columns]
  return [float(left.mean()) if left.size else None for left in means]


def _draw(scratch: pathlib.Path, output: pathlib.Path) -> None:
  """Draws the results of all runs, and copies each run's episodes; PNG only."""
  from gtmm_jax import figures

  runs = []
  for model in presets.MODELS:
    workdir = scratch / f'run-{model}'
    lines = records.read_metrics(workdir)
    if lines:
      evaluation = records.read_evaluation(workdir)
      runs.append(figures.Run(model, lines, evaluation))
    episode = workdir / 'figures' / 'episodes.png'
    if episode.exists():
      shutil.copy(episode, output / f'episodes-{model}.png')
  if runs:
    stem = scratch / 'results'
    paths = command.attempt_drawing(
      lambda: figures.save(
        figures.results_figure(runs, title='perfect recall'), stem
      ),
      stem,
      'The report is whole without it.',
    )
    if paths:
      shutil.copy(paths[0], output / 'results.png')


def main(arguments: list[str]) -> None:
  """Runs the command that the first argument names."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  commands = parser.add_subparsers(dest='command', required=True)
  describing = commands.add_parser('describe')
  planning = commands.add_parser('plan')
  planning.add_argument('benchmark', type=pathlib.Path)
  planning.add_argument('seconds', type=float)
  planning.add_argument('training', type=float)
  assembling = commands.add_parser('assemble')
  for each in (describing, assembling):
    each.add_argument('scratch', type=pathlib.Path)
  assembling.add_argument('output', type=pathlib.Path)
  assembling.add_argument('--figures', action='store_true')
  options = vars(parser.parse_args(arguments))
  functions = {'describe': describe, 'plan': plan, 'assemble': assemble}
  functions[options.pop('command')](**options)


if __name__ == '__main__':
  main(sys.argv[1:])
