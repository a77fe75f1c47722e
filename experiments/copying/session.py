"""Completes a run of the copy task: trains cores, writes records, draws."""

import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
from rich.console import Console

from copying import report, training
from gtmm_jax import folds, records
from gtmm_jax.process import command, jax_settings, locks, provenance
from gtmm_jax.runs import progress, starts

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy')
# A core has learned to copy where its error in training is below.
_LEARNED = 0.05


def require_same(workdir: pathlib.Path, settings: dict[str, Any]) -> None:
  """Raises `ValueError` where results would replace those of other settings."""
  old = records.read_config(workdir)
  if old is not None:
    before = jax_settings.BEFORE | old.get('settings', {})
    remedies = jax_settings.remedies(before)
    records.require_same_settings(before, settings, (), remedies)
  elif records.read_metrics(workdir):
    raise ValueError(
      f'{workdir} has records of something else; name another --workdir.'
    )


def complete(
  problems: Mapping[str, training.Problem],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> None:
  """Trains where results are not finished; draws, and prints the table.

  Args:
    problems: what each core trains, by the core's name.
    settings: of config.json.
    workdir: the folder of the results.
    console: to print on.

  Raises:
    CannotLock: another program runs in the folder.
    OSError: something cannot be written.
  """
  stem = workdir / 'copy_task'
  with locks.alone(workdir):
    rows = report.finished(records.read_evaluation(workdir), settings)
    figures = [stem.with_suffix(kind) for kind in ('.png', '.pdf')]
    if rows is None or all(path.exists() for path in figures):
      for path in figures:
        path.unlink(missing_ok=True)
      rows = _train(problems, settings, workdir, console)
    lines = records.read_metrics(workdir)
    written = command.attempt_drawing(
      lambda: report.draw(rows, lines, settings, stem), stem
    )
  console.print(report.table(rows, settings))
  console.print(f'results  {workdir}')
  if written:
    console.print(f'figure   {written[0]}')


def _train(
  problems: Mapping[str, training.Problem],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> list[dict[str, Any]]:
  """Trains every core with every seed; returns the results of each."""
  config = {
    'settings': settings,
    'versions': provenance.versions(_PACKAGES),
    'device': provenance.device(jax.devices()[0]),
  }
  about = {**config, **provenance.published()}
  rows: list[dict[str, Any]] = []
  # Results take the place of those of earlier starts.
  with starts.recorded(workdir, config, earlier=()):
    records.drop_metrics_after(workdir, -1)
    for name, problem in problems.items():
      program, seconds = _compile(problem)
      console.print(f'{name}: compiled in {seconds:.1f} s')
      for seed in settings['seed']:
        row = {'core': name, 'seed': seed, 'compile_seconds': seconds}
        row |= _learn(problem, program, row, settings, workdir, console)
        rows.append(row)
        records.write_evaluation(workdir, {**about, 'runs': rows})
  return rows


def _compile(problem: training.Problem) -> tuple[Any, float]:
  """Compiles the training of a core; returns the program and the seconds."""
  began = time.perf_counter()
  key = jax.random.key(0)
  state = training.initial_state(problem, key)
  program = training.train.lower(problem, state, key, 1).compile()
  return program, time.perf_counter() - began


def _learn(
  problem: training.Problem,
  program: Any,
  run: dict[str, Any],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> dict[str, Any]:
  """Trains one core with one seed; returns its results for evaluation.json."""
  key = jax_settings.key(run['seed'])
  state = training.initial_state(problem, key)
  learned_at, step, began = None, 0, time.perf_counter()
  title = f'{run["core"]}, seed {run["seed"]}'
  with progress.Training(console, step, settings['steps']) as shown:
    while step < settings['steps']:
      count = min(settings['report_every'], settings['steps'] - step)
      state, bits = program(state, key, count)
      bits, step = float(bits), step + count
      seconds = time.perf_counter() - began
      if learned_at is None and bits < _LEARNED:
        learned_at = step
      line = {'core': run['core'], 'seed': run['seed'], 'step': step}
      records.append_metrics(
        workdir, {**line, 'seconds': seconds, 'bits': bits}
      )
      shown.report(step, f'{title}: {bits:.4f} bits a bit')
  by_length = training.evaluate(
    problem.copier,
    state.variables,
    training.CopyTask(settings['bits'], settings['longest']),
    jax.random.fold_in(key, folds.EVALUATION),
    settings['evaluation_episodes'],
  ).tolist()
  trained = range(1, settings['length'] + 1)
  return {
    'parameters': sum(leaf.size for leaf in jax.tree.leaves(state.variables)),
    'seconds': seconds,
    'learned_at': learned_at,
    # As in training: of sequences of all lengths, a long one has more bits.
    'bits': sum(n * by_length[n - 1] for n in trained) / sum(trained),
    'bits_by_length': by_length,
  }
