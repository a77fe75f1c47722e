"""The figures of a run: results, episodes, and the memory at work."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import figures, folds, records, replicas, train
from gtmm_jax.model import free_energy, generate
from gtmm_jax.problem import Problem
from gtmm_jax.process import command
from gtmm_jax.runs import memory_panels
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks import frames, navigation

# How many episodes are drawn, where there are so many.
_EPISODES = 3


def draw(run: Run, state: train.TrainState, wanted: Sequence[str]) -> None:
  """Draws figures of a run into its workdir, and tells of those it could not.

  Args:
    run: the run, whose evaluation is written.
    state: of all replicas, on the devices.
    wanted: which of `workdirs.figure_names`.
  """

  @functools.cache
  def drawn() -> tuple[Any, ...]:
    return _drawn(run, state)

  @functools.cache
  def dreams(prefix: int) -> tuple[Any, jax.Array, jax.Array]:
    return _dream(run, problem, prefix, drawn())

  held_out = run.images.held_out
  count = _EPISODES
  if isinstance(held_out, frames.Frames):
    count = min(count, len(held_out.frames))
  problem = Problem(run.problem.model, run.task.sample, count)
  prefix = run.task.prefix
  figure: dict[str, Callable[[], list[pathlib.Path]]] = {
    'results': lambda: _draw_results(run),
    'episodes': lambda: _draw_episodes(run, *dreams(prefix)),
    'overlay': lambda: _draw_overlay(
      run, problem, drawn()[1], dreams(prefix), dreams(1)
    ),
    'memory': lambda: _draw_memory(run, problem, drawn()),
  }
  for name in wanted:
    command.attempt_drawing(figure[name], _path(run, name))


def _drawn(run: Run, state: train.TrainState) -> tuple[Any, ...]:
  """Returns the arguments of `dream` for the first replica that is left."""
  failed_at = replicas.gather(state.failed_at)
  replica = int(np.argmax(failed_at < 0))
  variables = jax.tree.map(
    lambda leaf: replicas.gather(leaf)[replica],
    {'params': state.params, 'batch_stats': state.batch_stats},
  )
  key = jax.random.fold_in(replica_keys(run.settings)[replica], folds.DRAWING)
  return variables, key, run.images.held_out


def _path(run: Run, name: str) -> pathlib.Path:
  return run.workdir / 'figures' / name


def _task(settings: Any) -> str:
  return f'{settings.task.replace("_", " ")}, {describe(settings)}'


def _draw_results(run: Run) -> list[pathlib.Path]:
  drawn = figures.Run(
    run.settings.model,
    records.read_metrics(run.workdir),
    records.read_evaluation(run.workdir),
  )
  return figures.draw_results(
    [drawn], _path(run, 'results'), title=_task(run.settings)
  )


def _draw_episodes(
  run: Run, episode: Any, reconstruction: jax.Array, dreamed: jax.Array
) -> list[pathlib.Path]:
  """Held-out episodes, reconstructed, and dreams after their prefixes."""
  rows = []
  for index in range(episode.frames.shape[1]):
    truth = np.asarray(episode.frames[:, index])
    generated = np.full_like(truth, np.nan)
    generated[run.task.prefix :] = dreamed[:, index]
    marks = np.asarray(episode.predictable[:, index])
    rows += [
      figures.Row(f'episode {index + 1}', truth, marks),
      figures.Row('reconstruction', np.asarray(reconstruction[:, index])),
      figures.Row('generated', generated),
    ]
  return figures.draw_strip(rows, _path(run, 'episodes'), turn=run.task.prefix)


def _draw_overlay(
  run: Run,
  problem: Problem,
  key: jax.Array,
  late: tuple[Any, ...],
  early: tuple[Any, ...],
) -> list[pathlib.Path]:
  """The first of the episodes as a map: as it is, and as it was dreamed.

  Args:
    run: the run, of navigation.
    problem: that makes the episodes.
    key: of the drawing, as `dream` takes it.
    late: what `dream` returns for the task's prefix.
    early: and for a prefix of one frame.
  """
  episode, _, after_one = early
  truth = np.asarray(episode.frames[:, 0])
  rows = [('truth', truth)]
  prefix = run.task.prefix
  for name, seen, dreamed in (
    (f'generated after frame {prefix}', prefix, late[2]),
    ('generated after frame 1', 1, after_one),
  ):
    rows.append((name, np.concatenate([truth[:seen], dreamed[:, 0]])))
  condition = np.asarray(episode.condition[:, 0])
  settings, batch_key = run.settings, _batch_key(key)
  start = run.task.start(problem.episode_keys(batch_key)[0])
  return figures.draw_overlay(
    rows,
    np.asarray(start) + navigation.positions(condition),
    navigation.visits(condition),
    _path(run, 'overlay'),
    title=f'{figures.in_print(settings.model)} on {_task(settings)}: episode 1',
    grid=(settings.rows, settings.columns),
  )


def _dream(
  run: Run, problem: Problem, prefix: int, drawn: tuple[Any, ...]
) -> tuple[Any, jax.Array, jax.Array]:
  """What `dream` returns, of the same episodes for every prefix."""
  binarize = run.settings.binarize
  return jax.jit(functools.partial(dream, problem, prefix, binarize))(*drawn)


def batch(
  problem: Problem, key: jax.Array, images: Any
) -> tuple[Any, jax.Array]:
  """Draws what `Problem.draw` does; of given episodes each at most once."""
  episode, noise = problem.draw(key, images)
  if not isinstance(images, frames.Frames):
    return episode, noise
  key = jax.random.fold_in(key, folds.WITHOUT_REPEATS)
  own = jax.random.split(key, 1 + problem.batch_size)
  order = jax.random.permutation(own[0], images.frames.shape[0])
  chosen = order[: problem.batch_size]
  each = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen, None], images)
  return jax.vmap(problem.sample, (0, 0), 1)(own[1:], each), noise


def _batch_key(key: jax.Array) -> jax.Array:
  """Returns the key of the episodes that are drawn, and of their noise."""
  return jax.random.split(key)[0]


def dream(
  problem: Problem,
  prefix: int,
  binarize: bool,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, jax.Array, jax.Array]:
  """Episodes, their reconstructions, and the dreams after their prefixes."""
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
  return episode, inference.frames, free[prefix:]


def _draw_memory(
  run: Run, problem: Problem, drawn: tuple[Any, ...]
) -> list[pathlib.Path]:
  """The memory over the first of the episodes."""
  episode, cores = jax.jit(functools.partial(watch, problem))(*drawn)
  settings = run.settings
  panels = memory_panels.panels(cores)
  note = (
    'Column t: as it predicts frame t, just given the latent of frame t - 1. '
    'The episode is the first one of the figure of episodes.'
  )
  if any(memory_panels.ALIKE in panel.title for panel in panels):
    note += ' Alike: weights differ by less than a tenth of the scale.'
  return figures.draw_memory(
    np.asarray(episode.frames[:, 0]),
    panels,
    _path(run, 'memory'),
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
  """Episodes as `dream` has them, and the core's carries over the first."""
  episode, noise = batch(problem, _batch_key(key), images)
  first = (x[:, :1] for x in (episode.frames, episode.condition, noise))
  cores = free_energy.watch(problem.model, variables, *first)
  return episode, jax.tree.map(lambda leaf: leaf[:, 0], cores)
