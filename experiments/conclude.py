"""The end of a run: held-out evaluation, figures, and the table of results."""

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import preparation
from rich.console import Console
from rich.table import Table

from gtmm_jax import (
  evaluate,
  figures,
  free_energy,
  generate,
  metrics,
  records,
  replicas,
  train,
)

_ROWS = {
  'negative_bound': 'negative bound, nats a sequence',
  'kl_new': 'KL of new frames, nats a frame',
  'kl_predictable': 'KL of predictable frames, nats a frame',
  'kl_last': 'KL of the last frame, nats',
  'ratio': 'KL predictable / new',
}
_FIGURES = ('results', 'episodes')
# How many episodes are drawn.
_EPISODES = 3
# Of a replica's keys, the one below the evaluation's and above the training's.
_DRAWING_KEY = 2**31 - 1


def headline(line: dict[str, Any]) -> tuple[float, float]:
  """Negative bound and KL ratio of a line of the records, means over replicas.

  Not a number where no replica is left.
  """
  summary = records.summarise(line)
  nothing = records.MeanAndError(float('nan'), None)
  bound, ratio = (
    summary[name] or nothing for name in ('negative_bound', 'ratio')
  )
  return bound.mean, ratio.mean


def is_complete(workdir: pathlib.Path, settings: Any) -> bool:
  """Whether the workdir holds all results of a run with these settings.

  The evaluation is written after the figures, as the mark of completion.

  Raises:
    ValueError: if evaluation.json is damaged.
  """
  evaluation = records.read_evaluation(workdir)
  return (
    evaluation is not None
    and evaluation['step'] == settings.steps
    and evaluation['episodes'] >= settings.evaluation_episodes
    and all(path.exists() for path in figure_paths(workdir))
  )


def figure_paths(workdir: pathlib.Path) -> list[pathlib.Path]:
  """Where the figures of a run are."""
  return [
    workdir / 'figures' / f'{name}.{kind}'
    for name in _FIGURES
    for kind in ('png', 'pdf')
  ]


def conclude(
  prepared: Any, state: train.TrainState, own: Any, console: Console
) -> None:
  """Evaluates, draws the figures, writes evaluation.json, prints the table.

  Args:
    prepared: the run.
    state: of all replicas, on the devices.
    own: the replicas' keys, on the devices.
    console: to print on.
  """
  evaluation = _evaluate(prepared, state, own)
  _draw_results(prepared, evaluation)
  _draw_episodes(prepared, state)
  records.write_evaluation(prepared.workdir, evaluation)
  show(prepared.workdir, prepared.settings, console)


def _evaluate(
  prepared: Any, state: train.TrainState, own: Any
) -> dict[str, Any]:
  """The content of evaluation.json."""
  settings, problem = prepared.settings, prepared.problem
  batches = -(-settings.evaluation_episodes // settings.batch_size)
  zeros = evaluate.zeros(prepared.task.length)
  start = jax.tree.map(
    lambda leaf: np.broadcast_to(leaf, (settings.replicas, *leaf.shape)), zeros
  )

  def step(sums, own, images):
    variables, key = own
    return evaluate.evaluate_batch(problem, sums, variables, key, images)

  variables = {'params': state.params, 'batch_stats': state.batch_stats}
  sums = replicas.repeat(prepared.layout, step)(
    replicas.scatter(prepared.layout, start),
    (variables, own),
    replicas.broadcast(prepared.layout, prepared.digits.held_out),
    batches,
  )
  sums = replicas.gather(sums)
  means = metrics.means(sums.totals, replicas.gather(state.failed_at))
  return {
    'step': int(replicas.gather(state.step)[0]),
    'episodes': batches * settings.batch_size,
    **means,
    'entropy_floor': float(np.mean(sums.entropy)) / batches,
    'predictable': np.mean(sums.totals.predictable, axis=0) / batches,
  }


def _draw_results(prepared: Any, evaluation: dict[str, Any]) -> None:
  settings = prepared.settings
  run = figures.Run(
    settings.model, records.read_metrics(prepared.workdir), evaluation
  )
  figures.draw_results(
    [run],
    prepared.workdir / 'figures' / 'results',
    title=f'{settings.task.replace("_", " ")}, l = {settings.pre_recall}, '
    f'k = {settings.recall}',
  )


def _draw_episodes(prepared: Any, state: train.TrainState) -> None:
  """Held-out episodes, reconstructed, and dreams after their prefixes."""
  failed_at = replicas.gather(state.failed_at)
  replica = int(np.argmax(failed_at < 0))
  variables = jax.tree.map(
    lambda leaf: replicas.gather(leaf)[replica],
    {'params': state.params, 'batch_stats': state.batch_stats},
  )
  problem = train.Problem(
    prepared.problem.model, prepared.task.sample, _EPISODES
  )
  draw = functools.partial(
    _draw, problem, prepared.task.prefix, prepared.settings.binarize
  )
  key = jax.random.fold_in(
    preparation.replica_keys(prepared.settings)[replica], _DRAWING_KEY
  )
  episode, reconstruction, dream = jax.jit(draw)(
    variables, key, prepared.digits.held_out
  )
  rows = []
  for index in range(_EPISODES):
    generated = np.full_like(episode.frames[:, index], np.nan)
    generated[prepared.task.prefix :] = dream[:, index]
    rows += [
      (f'episode {index + 1}', np.asarray(episode.frames[:, index])),
      ('reconstruction', np.asarray(reconstruction[:, index])),
      ('generated', generated),
    ]
  figures.draw_strip(
    rows,
    prepared.workdir / 'figures' / 'episodes',
    # Where episodes differ in it, the first one's.
    marks=np.asarray(episode.predictable[:, 0]),
  )


def _draw(
  problem: train.Problem,
  prefix: int,
  binarize: bool,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, jax.Array, jax.Array]:
  """Episodes, their reconstructions, and the dreams after their prefixes."""
  batch_key, frame_key = jax.random.split(key)
  episode, noise = train.batch(problem, batch_key, images)
  # Where pixels are sampled, so are those of a frame that is encoded again.
  dreamed = episode.frames[prefix:]
  frame_noise = (
    jax.random.uniform(frame_key, dreamed.shape) if binarize else None
  )
  inference = free_energy.infer(
    problem.model, variables, episode.frames, episode.condition, noise
  )
  dream = generate.continue_episode(
    problem.model,
    variables,
    episode.frames[:prefix],
    episode.condition,
    noise,
    frame_noise,
  )
  return episode, inference.frames, jnp.asarray(dream.frames)


def show(workdir: pathlib.Path, settings: Any, console: Console) -> None:
  """Prints the table of results and where the figures are."""
  evaluation = records.read_evaluation(workdir)
  summary = records.summarise(evaluation)
  failed = records.failed_replicas(evaluation)
  healthy = settings.replicas - len(failed)
  console.print(
    f'{settings.model} on {settings.task} after {evaluation["step"]:,} steps'
  )
  console.print(
    f'{evaluation["episodes"]:,} held-out episodes, {healthy} replicas'
  )
  table = Table()
  table.add_column('')
  table.add_column('mean', justify='right')
  table.add_column('standard error', justify='right')
  for name, label in _ROWS.items():
    table.add_row(label, *_cells(summary[name]))
  console.print(table)
  console.print(
    f'The entropy of grey pixels alone makes {evaluation["entropy_floor"]:,.1f}'
    f' nats of the negative bound.'
  )
  for replica, step in failed:
    console.print(
      f'Replica {replica} stopped being finite at step {step:,} and is left '
      f'out.'
    )
  for path in figure_paths(workdir):
    console.print(str(path))


def _cells(value: records.MeanAndError | None) -> tuple[str, str]:
  if value is None:
    return '-', '-'
  error = value.standard_error
  return f'{value.mean:,.3f}', '-' if error is None else f'{error:,.3f}'
