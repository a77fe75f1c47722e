"""Concludes a run: held-out evaluation, figures, the table of results."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gtmm_jax import records
from gtmm_jax.evaluation.episodes import EpisodeValues
from gtmm_jax.process import exchange
from gtmm_jax.runs import exam, held_out, pictures, progress, workdirs
from gtmm_jax.runs.retries import Retried
from gtmm_jax.runs.run import Run
from gtmm_jax.runs.settings import Settings

_ROWS = {
  'negative_bound': 'negative bound, nats a sequence',
  'kl_new': 'KL of new frames, nats a frame',
  'kl_predictable': 'KL of predictable frames, nats a frame',
  'kl_floor': '  of a perfect read of the memory',
  'ratio': 'KL predictable / new',
  'kl_last': 'KL of the last frame, nats',
  'retrieval_ahead': 'retrieved one step ahead',
  'retrieval_ahead_chance': '  by chance',
  'retrieval_free': 'retrieved free-running',
  'retrieval_free_chance': '  by chance',
  'dream_error': 'squared error of dreamed views, a pixel',
  'copy_error': '  of the nearest frame seen',
  'dream_similarity': 'structural similarity of dreamed views',
  'copy_similarity': '  of the nearest frame seen',
  'dream_error_all': 'squared error of all dreamed frames, a pixel',
  'last_error_all': '  of the last frame seen, repeated',
  'copy_error_all': '  of the nearest frame seen',
  'dream_psnr_all': 'PSNR of all dreamed frames, dB',
  'last_psnr_all': '  of the last frame seen, repeated',
  'copy_psnr_all': '  of the nearest frame seen',
  'dream_similarity_all': 'structural similarity of all dreamed frames',
  'last_similarity_all': '  of the last frame seen, repeated',
  'copy_similarity_all': '  of the nearest frame seen',
}

# Shown even where there is no value; other rows are left out then.
_ALWAYS = ('negative_bound', 'kl_new', 'kl_predictable', 'kl_last', 'ratio')


def conclude(
  run: Run,
  retried: Retried,
  evaluation: held_out.Evaluation,
  console: Console,
) -> None:
  """Evaluates a trained run, draws its figures, and prints its results.

  Nothing that is there already is made again. The evaluation is written before
  the figures; one that cannot be drawn costs a line on standard error. Of
  several processes the first one decides and writes.

  Args:
    run: the run.
    retried: the state of all replicas, and which of them were trained again.
    evaluation: of the run's states.
    console: to print on.
  """
  workdir, settings = run.workdir, run.settings
  episodes, split = settings.evaluation_episodes, settings.evaluate_on
  state, first_failed_at = retried
  if not exchange.agree(
    workdirs.is_evaluated(workdir, settings.steps, episodes, split)
    and first_failed_at == _first_failed_at(workdir)
  ):
    what = f'evaluating on {episodes:,} {split} episodes'
    with progress.saying(what, console):
      values, arrays = evaluation.at_the_end(exam.weights_of(state), split)
    if first_failed_at is not None:
      values = {**values, 'first_failed_at': first_failed_at}
    if exchange.is_first():
      _write(workdir, settings, values, arrays)
  missing = exchange.agree(workdirs.missing_figures(workdir, settings))
  if missing:
    with progress.saying(f'drawing {", ".join(missing)}', console):
      pictures.draw(run, state, missing, evaluation)
  if exchange.is_first():
    show(workdir, settings, console)


def _write(
  workdir: pathlib.Path,
  settings: Settings,
  values: Mapping[str, Any],
  arrays: EpisodeValues,
) -> None:
  """Writes an evaluation, and deletes the figures of the one before."""
  for path in workdirs.figure_paths(workdir, settings):
    with contextlib.suppress(OSError):
      path.unlink()
  records.write_episodes(workdir, arrays._asdict())
  records.write_evaluation(workdir, values)


def _first_failed_at(workdir: pathlib.Path) -> list[int | None] | None:
  """Returns when first tries failed that the evaluation has a second try of."""
  return (records.read_evaluation(workdir) or {}).get('first_failed_at')


def show(workdir: pathlib.Path, settings: Settings, console: Console) -> None:
  """Prints the table of results and the paths of the figures."""
  evaluation = records.read_evaluation(workdir)
  lines = records.read_metrics(workdir)
  has_settled = records.settled_at(lines) is not None
  console.print(
    f'{settings.model} on {settings.task} after {evaluation["step"]:,} steps'
  )
  console.print(
    f'{evaluation["episodes"]:,} {evaluation["split"]} episodes, '
    f'{settings.replicas - len(_not_finite(evaluation))} replicas: '
    f'{progress.headline(evaluation, has_settled)}'
  )
  summary = records.summarise(evaluation, has_settled)
  heading = f'on {evaluation["split"]} episodes'
  console.print(_table(summary, heading))
  for task, part in evaluation.get('by_task', {}).items():
    heading = f'those of {task.replace("_", " ")}'
    console.print(_table(records.summarise(part, has_settled), heading))
  for note in [*_notes(evaluation, has_settled), *_left_out(evaluation)]:
    console.print(note)
  for path in workdirs.figure_paths(workdir, settings):
    if path.exists():
      console.print(str(path))


def _notes(evaluation: Mapping[str, Any], has_settled: bool) -> Iterator[str]:
  """Yields sentences on what the values of an evaluation mean."""
  if not has_settled:
    yield (
      'No KL ratio is shown: it says nothing before the KL of new frames has '
      'changed by less than 10% between two reports at least 100 steps apart.'
    )
  if evaluation['entropy_floor'] is not None:
    yield (
      f'The entropy of grey pixels alone makes '
      f'{evaluation["entropy_floor"]:,.1f} nats of the negative bound.'
    )
  if evaluation['classifier_accuracy'] is not None:
    yield (
      f'Retrieved means: a classifier finds the class, one of two whose '
      f'places are known; it is right on '
      f'{evaluation["classifier_accuracy"]:.1%} of {evaluation["split"]} '
      f'digits.'
    )


def _not_finite(evaluation: Mapping[str, Any]) -> set[int]:
  """Returns the numbers of the replicas whose bound is not finite."""
  bounds = records.by_replica(evaluation)['negative_bound']
  return set(np.flatnonzero(np.isnan(bounds)).tolist())


def _left_out(evaluation: Mapping[str, Any]) -> Iterator[str]:
  """Yields sentences on replicas that were left out, or trained again."""
  for replica, step in enumerate(evaluation.get('first_failed_at') or ()):
    if step is not None:
      yield (
        f'Replica {replica} stopped being finite at step {step:,}, and was '
        f'trained again from another key.'
      )
  failed = dict(records.failed_replicas(evaluation))
  for replica, step in failed.items():
    yield (
      f'Replica {replica} stopped being finite at step {step:,} and is left '
      f'out.'
    )
  for replica in sorted(_not_finite(evaluation) - failed.keys()):
    yield (
      f'Replica {replica} is left out: its bound is not finite on '
      f'{evaluation["split"]} episodes.'
    )


def _table(
  summary: Mapping[str, records.MeanAndError | None], heading: str
) -> Table:
  """Returns the table of means and standard errors over replicas."""
  table = Table()
  table.add_column(heading)
  table.add_column('mean', justify='right')
  table.add_column('standard error', justify='right')
  for name, label in _ROWS.items():
    # An earlier version may have written fewer.
    if summary.get(name) is not None or name in _ALWAYS:
      table.add_row(label, *_cells(summary[name]))
  return table


def _cells(value: records.MeanAndError | None) -> tuple[str, str]:
  if value is None:
    return '-', '-'
  error = value.standard_error
  return f'{value.mean:,.3f}', '-' if error is None else f'{error:,.3f}'
