"""Draws the figures of a run: results, episodes, the map, the memory."""

import functools
import operator
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax import figures, folds, records, replicas, train
from gtmm_jax.evaluation.generation import Dream
from gtmm_jax.model import free_energy
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.problem import Problem
from gtmm_jax.process import command, distributed, exchange
from gtmm_jax.runs import drawn_episodes, exam, held_out, memory_panels
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import Settings, describe
from gtmm_jax.tasks import frames, navigation
from gtmm_jax.tasks.episode import lengths
from gtmm_jax.tasks.sources.dataset import Split


class Subject(NamedTuple):
  """A replica of a run, of which figures are drawn.

  Attributes:
    model: the temporal VAE.
    variables: of the replica.
    key: from `key_of`.
    images: held-out ones, from which episodes are drawn.
  """

  model: TemporalVAE
  variables: free_energy.Variables
  key: jax.Array
  images: Any


class Shown(NamedTuple):
  """A run of which figures are drawn.

  Attributes:
    settings: resolved.
    task: the task.
    workdir: with its records.
    subject: () -> the replica; called only where a figure shows it.
    dream: () -> the episodes of the figure, dreamed after the task's prefix;
      None compiles the program for it.
  """

  settings: Settings
  task: Any
  workdir: pathlib.Path
  subject: Callable[[], Subject]
  dream: Callable[[], Dream] | None = None


def draw(
  run: Run,
  state: train.TrainState,
  wanted: Sequence[str],
  evaluation: held_out.Evaluation,
) -> None:
  """Draws figures of a run into its workdir; a failure costs a line.

  Of several processes the first one draws, and all bring what it needs.

  Args:
    run: the run, whose evaluation is written.
    state: of all replicas, on the devices.
    wanted: which of `workdirs.figure_names`.
    evaluation: of the run's states.
  """
  split = run.settings.evaluate_on
  drawn = functools.cache(functools.partial(subject, run, state))
  dream = None
  if shares_dreams(run):
    dream = functools.cache(
      functools.partial(dream_of, evaluation, state, split)
    )
  if distributed.count() > 1:
    drawn()
    if dream is not None:
      dream()
  if not exchange.is_first():
    return
  figure_of = drawings(Shown(run.settings, run.task, run.workdir, drawn, dream))

  def save(stem: pathlib.Path) -> list[pathlib.Path]:
    return figures.save(figure_of[stem.name](), stem)

  for name in wanted:
    stem = run.workdir / 'figures' / name
    command.attempt_drawing(functools.partial(save, stem), stem)


def shares_dreams(run: Run) -> bool:
  """Returns whether the evaluation's program dreams episodes of figures.

  Recorded episodes are drawn in another way, so that none is there twice.
  """
  return not isinstance(run.images.validation, frames.Frames)


def dream_of(
  evaluation: held_out.Evaluation, state: train.TrainState, split: Split
) -> Dream:
  """Returns the dreams of the first finite replica, on the host.

  Args:
    evaluation: of the run's states.
    state: of all replicas, on the devices.
    split: that episodes are drawn from.
  """
  weights = exam.weights_of(state)
  return evaluation.dream(weights, first_finite(weights.failed_at), split)


def drawings(run: Shown) -> dict[str, Callable[[], figures.Figure]]:
  """Returns the functions that draw figures, by the figures' names.

  They share what several of them show.
  """

  @functools.cache
  def scene() -> tuple[Problem, tuple[Any, ...]]:
    model, *drawn = run.subject()
    problem = Problem(model, run.task.sample, run.settings.batch_size)
    return problem, tuple(drawn)

  @functools.cache
  def dreams(prefix: int) -> Dream:
    if run.dream is not None and prefix == run.task.prefix:
      return run.dream()
    return _dream(run.settings, *scene(), prefix)

  prefix = run.task.prefix
  return {
    'results': lambda: _results_figure(run),
    'episodes': lambda: figures.strip_figure(
      episode_rows(dreams(prefix), run.task), turn=prefix
    ),
    'overlay': lambda: _overlay_figure(run, scene(), dreams(prefix), dreams(1)),
    'memory': lambda: _memory_figure(run.settings, *scene()),
  }


def key_of(settings: Settings, replica: int) -> jax.Array:
  """Returns the random key of a replica's figures."""
  return jax.random.fold_in(replica_keys(settings)[replica], folds.DRAWING)


def first_finite(failed_at: np.ndarray) -> int:
  """Returns the number of the first replica that did not fail, else 0."""
  return int(np.argmax(failed_at < 0))


def subject(
  run: Run, state: train.TrainState, split: Split | None = None
) -> Subject:
  """Returns the first finite replica of a state on the devices.

  Args:
    run: the run.
    state: of all replicas.
    split: the part of the data that is drawn; None for that of the evaluation
      at the end.
  """
  replica = first_finite(replicas.gather(state.failed_at))
  return Subject(
    run.problem.model,
    jax.tree.map(
      lambda leaf: replicas.gather(leaf)[replica], train.evaluated(state)
    ),
    key_of(run.settings, replica),
    run.images.held_out(split or run.settings.evaluate_on),
  )


def _task(settings: Settings) -> str:
  return f'{settings.task.replace("_", " ")}, {describe(settings)}'


def _results_figure(run: Shown) -> figures.Figure:
  results = figures.Run(
    run.settings.model,
    records.read_metrics(run.workdir),
    records.read_evaluation(run.workdir),
  )
  return figures.results_figure([results], title=_task(run.settings))


def episode_rows(dream: Dream, task: Any) -> list[figures.Row]:
  """Returns three rows for each episode: true, reconstructed, generated."""
  prefix, names = task.prefix, list(getattr(task, 'parts', ()))
  rows = []
  for index in range(dream.episode.frames.shape[1]):
    episode = jax.tree.map(
      lambda leaf, index=index: np.asarray(leaf[:, index]), dream.episode
    )
    length, own_prefix = int(lengths(episode)), prefix
    if episode.in_prefix is not None:
      own_prefix = int(episode.in_prefix.sum())
    name = f'episode {index + 1}'
    if names:
      name += f', {names[episode.part[0]].replace("_", " ")}'
    generated = np.full_like(episode.frames, np.nan)
    generated[prefix:] = dream.generated[:, index]
    generated[:own_prefix] = np.nan
    rows += [
      figures.Row(name, episode.frames[:length], episode.predictable[:length]),
      figures.Row(
        'reconstruction', np.asarray(dream.reconstruction[:length, index])
      ),
      figures.Row('generated', generated[:length]),
    ]
  return rows


def _overlay_figure(
  run: Shown,
  scene: tuple[Problem, tuple[Any, ...]],
  late: Dream,
  early: Dream,
) -> figures.Figure:
  """Draws the first episode as a map: the truth, and as it is generated.

  Args:
    run: the run, of navigation.
    scene: that makes the episodes, and the last arguments of `dream`.
    late: of the task's prefix.
    early: of a prefix of one frame.
  """
  problem, (_, key, _) = scene
  episode = early.episode
  truth = np.asarray(episode.frames[:, 0])
  rows = [('truth', truth)]
  prefix = run.task.prefix
  for name, seen, dream in (
    (f'generated after frame {prefix}', prefix, late),
    ('generated after frame 1', 1, early),
  ):
    frames_after = dream.generated[:, 0]
    rows.append((name, np.concatenate([truth[:seen], frames_after])))
  condition = np.asarray(episode.condition[:, 0])
  settings, batch_key = run.settings, drawn_episodes.batch_key(key)
  start = run.task.start(problem.episode_keys(batch_key)[0])
  return figures.overlay_figure(
    rows,
    np.asarray(start) + navigation.positions(condition),
    navigation.visits(condition),
    title=f'{figures.in_print(settings.model)} on {_task(settings)}: episode 1',
    grid=(run.task.rows, run.task.columns),
  )


def _dream(
  settings: Settings, problem: Problem, drawn: tuple[Any, ...], prefix: int
) -> Dream:
  """Compiles and calls `dream`; its episodes are the same for every prefix."""
  binarize = settings.binarize
  return jax.jit(
    functools.partial(drawn_episodes.dream, problem, prefix, binarize)
  )(*drawn)


def _memory_figure(
  settings: Settings, problem: Problem, drawn: tuple[Any, ...]
) -> figures.Figure:
  """Draws the memory over the first of the episodes."""
  episode, cores = jax.jit(functools.partial(drawn_episodes.watch, problem))(
    *drawn
  )
  length = lengths(episode)[0]
  panels = memory_panels.panels(
    jax.tree.map(operator.itemgetter(slice(length)), cores)
  )
  note = (
    'Column t: as it predicts frame t, just given the latent of frame t - 1. '
    'The episode is the first one of the figure of episodes.'
  )
  if any(memory_panels.ALIKE in panel.title for panel in panels):
    note += ' Alike: weights differ by less than a tenth of the scale.'
  return figures.memory_figure(
    np.asarray(episode.frames[:length, 0]),
    panels,
    marks=np.asarray(episode.predictable[:length, 0]),
    title=f'Memory of the {figures.in_print(settings.model)} on '
    f'{_task(settings)}',
    note=note,
  )
