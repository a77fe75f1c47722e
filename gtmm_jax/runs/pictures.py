"""Draws the figures of a run: results, episodes, the map, the memory."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import figures, folds, records, replicas, train
from gtmm_jax.model import free_energy, generate
from gtmm_jax.problem import Problem
from gtmm_jax.process import command
from gtmm_jax.runs import memory_panels
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import Settings, describe
from gtmm_jax.tasks import frames, navigation

# Episodes in a figure, at most.
_EPISODES = 3


class Dream(NamedTuple):
  """Episodes, and two ways in which a model generates their frames.

  Attributes:
    episode: the episodes, [T, B, ...].
    reconstruction: their frames by the posterior, [T, B, H, W, C].
    generated: frames by the prior after a prefix, [T - prefix, B, H, W, C].
  """

  episode: Any
  reconstruction: jax.Array
  generated: jax.Array


def draw(run: Run, state: train.TrainState, wanted: Sequence[str]) -> None:
  """Draws figures of a run into its workdir; a failure costs a line.

  Args:
    run: the run, whose evaluation is written.
    state: of all replicas, on the devices.
    wanted: which of `workdirs.figure_names`.
  """

  @functools.cache
  def subject() -> tuple[free_energy.Variables, jax.Array, Any]:
    return _subject(run, state)

  @functools.cache
  def dreams(prefix: int) -> Dream:
    return _dream(run, problem, prefix, subject())

  held_out = run.images.held_out(run.settings.evaluate_on)
  count = _EPISODES
  if isinstance(held_out, frames.Frames):
    count = min(count, len(held_out.frames))
  problem = Problem(run.problem.model, run.task.sample, count)
  prefix = run.task.prefix
  figure_of: dict[str, Callable[[], figures.Figure]] = {
    'results': lambda: _results_figure(run),
    'episodes': lambda: _episodes_figure(run, dreams(prefix)),
    'overlay': lambda: _overlay_figure(
      run, problem, subject()[1], dreams(prefix), dreams(1)
    ),
    'memory': lambda: _memory_figure(run, problem, subject()),
  }

  def save(stem: pathlib.Path) -> list[pathlib.Path]:
    return figures.save(figure_of[stem.name](), stem)

  for name in wanted:
    stem = run.workdir / 'figures' / name
    command.attempt_drawing(functools.partial(save, stem), stem)


def _subject(
  run: Run, state: train.TrainState
) -> tuple[free_energy.Variables, jax.Array, Any]:
  """Returns variables, key and images of the first finite replica."""
  failed_at = replicas.gather(state.failed_at)
  replica = int(np.argmax(failed_at < 0))
  variables = jax.tree.map(
    lambda leaf: replicas.gather(leaf)[replica],
    train.evaluated(state),
  )
  key = jax.random.fold_in(replica_keys(run.settings)[replica], folds.DRAWING)
  return variables, key, run.images.held_out(run.settings.evaluate_on)


def _task(settings: Settings) -> str:
  return f'{settings.task.replace("_", " ")}, {describe(settings)}'


def _results_figure(run: Run) -> figures.Figure:
  results = figures.Run(
    run.settings.model,
    records.read_metrics(run.workdir),
    records.read_evaluation(run.workdir),
  )
  return figures.results_figure([results], title=_task(run.settings))


def _episodes_figure(run: Run, dream: Dream) -> figures.Figure:
  """Draws held-out episodes, reconstructed, and generated after a prefix."""
  episode, reconstruction, frames_after = dream
  rows = []
  for index in range(episode.frames.shape[1]):
    truth = np.asarray(episode.frames[:, index])
    generated = np.full_like(truth, np.nan)
    generated[run.task.prefix :] = frames_after[:, index]
    marks = np.asarray(episode.predictable[:, index])
    rows += [
      figures.Row(f'episode {index + 1}', truth, marks),
      figures.Row('reconstruction', np.asarray(reconstruction[:, index])),
      figures.Row('generated', generated),
    ]
  return figures.strip_figure(rows, turn=run.task.prefix)


def _overlay_figure(
  run: Run,
  problem: Problem,
  key: jax.Array,
  late: Dream,
  early: Dream,
) -> figures.Figure:
  """Draws the first episode as a map: the truth, and as it is generated.

  Args:
    run: the run, of navigation.
    problem: that makes the episodes.
    key: of the drawing, as `dream` takes it.
    late: of the task's prefix.
    early: of a prefix of one frame.
  """
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
  settings, batch_key = run.settings, _batch_key(key)
  start = run.task.start(problem.episode_keys(batch_key)[0])
  return figures.overlay_figure(
    rows,
    np.asarray(start) + navigation.positions(condition),
    navigation.visits(condition),
    title=f'{figures.in_print(settings.model)} on {_task(settings)}: episode 1',
    grid=(run.task.rows, run.task.columns),
  )


def _dream(
  run: Run, problem: Problem, prefix: int, subject: tuple[Any, ...]
) -> Dream:
  """Compiles and calls `dream`; its episodes are the same for every prefix."""
  binarize = run.settings.binarize
  return jax.jit(functools.partial(dream, problem, prefix, binarize))(*subject)


def batch(
  problem: Problem, key: jax.Array, images: Any
) -> tuple[Any, jax.Array]:
  """Draws a batch as `Problem.draw` does, but no recorded episode twice."""
  episode, noise = problem.draw(key, images)
  if not isinstance(images, frames.Frames):
    return episode, noise
  key = jax.random.fold_in(key, folds.WITHOUT_REPEATS)
  keys = jax.random.split(key, 1 + problem.batch_size)
  order = jax.random.permutation(keys[0], images.frames.shape[0])
  chosen = order[: problem.batch_size]
  each = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen, None], images)
  return jax.vmap(problem.sample, (0, 0), 1)(keys[1:], each), noise


def _batch_key(key: jax.Array) -> jax.Array:
  """Returns the key of the episodes, and of the noise of their latents."""
  return jax.random.split(key)[0]


def dream(
  problem: Problem,
  prefix: int,
  binarize: bool,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> Dream:
  """Draws episodes, reconstructs them, and generates them after a prefix.

  Args:
    problem: of the model; its batch size is the number of episodes.
    prefix: true frames before those that are generated.
    binarize: whether generated frames that are encoded again are drawn.
    variables: of the model.
    key: of the figures of a replica.
    images: held-out images.
  """
  _, frame_key = jax.random.split(key)
  episode, noise = batch(problem, _batch_key(key), images)
  inference = free_energy.infer(
    problem.model, variables, episode.frames, episode.condition, noise
  )
  free = generate.run_free(
    problem.model,
    variables,
    episode.frames,
    episode.condition,
    noise,
    prefix,
    frame_key if binarize else None,
  )
  return Dream(episode, inference.frames, free[prefix:])


def _memory_figure(
  run: Run, problem: Problem, subject: tuple[Any, ...]
) -> figures.Figure:
  """Draws the memory over the first of the episodes."""
  episode, cores = jax.jit(functools.partial(watch, problem))(*subject)
  settings = run.settings
  panels = memory_panels.panels(cores)
  note = (
    'Column t: as it predicts frame t, just given the latent of frame t - 1. '
    'The episode is the first one of the figure of episodes.'
  )
  if any(memory_panels.ALIKE in panel.title for panel in panels):
    note += ' Alike: weights differ by less than a tenth of the scale.'
  return figures.memory_figure(
    np.asarray(episode.frames[:, 0]),
    panels,
    marks=np.asarray(episode.predictable[:, 0]),
    title=f'Memory of the {figures.in_print(settings.model)} on '
    f'{_task(settings)}',
    note=note,
  )


def watch(
  problem: Problem,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, Any]:
  """Returns the episodes of `dream`, and the core's carries over the first."""
  episode, noise = batch(problem, _batch_key(key), images)
  first = (x[:, :1] for x in (episode.frames, episode.condition, noise))
  cores = free_energy.watch(problem.model, variables, *first)
  return episode, jax.tree.map(lambda leaf: leaf[:, 0], cores)
