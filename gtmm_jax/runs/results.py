"""The end of a run: held-out evaluation, figures, and the table of results."""

import contextlib
import pathlib
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gtmm_jax import records, train
from gtmm_jax.runs import held_out, pictures, progress, workdirs
from gtmm_jax.runs.run import Run

_ROWS = {
  'negative_bound': 'negative bound, nats a sequence',
  'kl_new': 'KL of new frames, nats a frame',
  'kl_predictable': 'KL of predictable frames, nats a frame',
  'kl_last': 'KL of the last frame, nats',
  'ratio': 'KL predictable / new',
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

# Said to be absent where they are; of others nothing is said.
_ALWAYS = ('negative_bound', 'kl_new', 'kl_predictable', 'kl_last', 'ratio')

# What a headline tells of evaluations beside bound and ratio, each with what it
# stands beside, where there is such a thing.
_BESIDE = {
  'retrieval_ahead': ('retrieved ahead', 'retrieval_ahead_chance', 'by chance'),
  'retrieval_free': ('retrieved free', 'retrieval_free_chance', 'by chance'),
  'dream_error': ('error of dreams', 'copy_error', 'of the nearest frame'),
}


def headlines(line: dict[str, Any], has_settled: bool) -> tuple[str, str]:
  """Returns the headlines of a line of metrics and of its `held_out`."""
  told = headline(line, has_settled)
  if 'held_out' not in line:
    return told, ''
  return told, headline(line['held_out'], has_settled)


def headline(line: dict[str, Any], has_settled: bool) -> str:
  """Tells means over replicas: of a line of metrics, or of an evaluation.

  Args:
    line: names and arrays, as `records.by_replica` takes them.
    has_settled: whether the KL ratio counts; `records.settled_at` says.

  Returns:
    Negative bound and KL ratio; of held-out episodes also retrieval beside
    chance. A '-' stands for what there is none of.
  """
  summary = records.summarise(line, has_settled)
  parts = [
    f'negative bound {_short(summary["negative_bound"], ",.1f")}',
    f'KL ratio {_short(summary["ratio"], ".3f")}',
  ]
  for name, (told, other, told_of_other) in _BESIDE.items():
    if summary.get(name) is not None:
      parts.append(
        f'{told} {_short(summary[name], ".3f")} '
        f'({_short(summary[other], ".3f")} {told_of_other})'
      )
  return '  '.join(parts)


def _short(value: records.MeanAndError | None, form: str) -> str:
  return '-' if value is None else format(value.mean, form)


def is_complete(workdir: pathlib.Path, settings: Any) -> bool:
  """Whether the workdir holds all results of a run with these settings.

  Raises:
    ValueError: if evaluation.json is damaged.
  """
  return _is_evaluated(workdir, settings) and not _missing(workdir, settings)


def _is_evaluated(workdir: pathlib.Path, settings: Any) -> bool:
  return workdirs.is_evaluated(
    workdir, settings.steps, settings.evaluation_episodes
  )


def _missing(workdir: pathlib.Path, settings: Any) -> list[str]:
  """Lists the figures that are missing, as PNG or as PDF."""
  paths = figure_paths(workdir, settings)
  absent = {path.stem for path in paths if not path.exists()}
  return [name for name in pictures.names(settings) if name in absent]


def figure_paths(workdir: pathlib.Path, settings: Any) -> list[pathlib.Path]:
  """Where the figures of a run with these settings are."""
  return [
    workdir / 'figures' / f'{name}.{kind}'
    for name in pictures.names(settings)
    for kind in ('png', 'pdf')
  ]


def conclude(
  run: Run,
  state: train.TrainState,
  evaluation: held_out.Evaluation,
  console: Console,
) -> None:
  """Evaluates, draws, and prints the table of results.

  What of it is done already is not done again. Results do not wait for
  figures, and one that cannot be drawn is told of on standard error.

  Args:
    run: the run.
    state: of all replicas, on the devices.
    evaluation: of the run's states.
    console: to print on.
  """
  workdir, settings = run.workdir, run.settings
  if not _is_evaluated(workdir, settings):
    what = f'evaluating on {settings.evaluation_episodes:,} held-out episodes'
    with progress.saying(what, console):
      found = evaluation.at_the_end(state)
    for path in figure_paths(workdir, settings):
      with contextlib.suppress(OSError):
        path.unlink()
    records.write_evaluation(workdir, found)
  missing = _missing(workdir, settings)
  if missing:
    with progress.saying(f'drawing {", ".join(missing)}', console):
      pictures.draw(run, state, missing)
  show(workdir, settings, console)


def show(workdir: pathlib.Path, settings: Any, console: Console) -> None:
  """Prints the table of results and where the figures are."""
  evaluation = records.read_evaluation(workdir)
  lines = records.read_metrics(workdir)
  has_settled = records.settled_at(lines) is not None
  summary = records.summarise(evaluation, has_settled)
  failed = records.failed_replicas(evaluation)
  bounds = records.by_replica(evaluation)['negative_bound']
  left_out = set(np.flatnonzero(np.isnan(bounds)).tolist())
  console.print(
    f'{settings.model} on {settings.task} after {evaluation["step"]:,} steps'
  )
  console.print(
    f'{evaluation["episodes"]:,} held-out episodes, '
    f'{settings.replicas - len(left_out)} replicas: '
    f'{headline(evaluation, has_settled)}'
  )
  table = Table()
  table.add_column('')
  table.add_column('mean', justify='right')
  table.add_column('standard error', justify='right')
  for name, label in _ROWS.items():
    # An earlier version may have written fewer.
    if summary.get(name) is not None or name in _ALWAYS:
      table.add_row(label, *_cells(summary[name]))
  console.print(table)
  if not has_settled:
    console.print(
      'No KL ratio is shown: it says nothing before the KL of new frames has '
      'changed by less than 10% between two reports at least 100 steps apart.'
    )
  if evaluation['entropy_floor'] is not None:
    console.print(
      f'The entropy of grey pixels alone makes '
      f'{evaluation["entropy_floor"]:,.1f} nats of the negative bound.'
    )
  if evaluation['classifier_accuracy'] is not None:
    console.print(
      f'Retrieved means: a classifier finds the class, one of two whose '
      f'places are known; it is right on '
      f'{evaluation["classifier_accuracy"]:.1%} of held-out digits.'
    )
  for replica, step in failed:
    console.print(
      f'Replica {replica} stopped being finite at step {step:,} and is left '
      f'out.'
    )
  for replica in sorted(left_out - {replica for replica, _ in failed}):
    console.print(
      f'Replica {replica} is left out: its bound is not finite on held-out '
      f'episodes.'
    )
  for path in figure_paths(workdir, settings):
    if path.exists():
      console.print(str(path))


def _cells(value: records.MeanAndError | None) -> tuple[str, str]:
  if value is None:
    return '-', '-'
  error = value.standard_error
  return f'{value.mean:,.3f}', '-' if error is None else f'{error:,.3f}'
