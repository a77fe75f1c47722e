"""The figures of a run: results, episodes, and the memory at work."""

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import preparation
from settings import describe

from gtmm_jax import figures, free_energy, generate, records, replicas, train
from gtmm_jax.memory.dnc_access import DNCState
from gtmm_jax.memory.introspective import IntrospectiveState
from gtmm_jax.memory.lru import LRUState
from gtmm_jax.memory.ntm import NTMState

# How many episodes are drawn.
_EPISODES = 3
# Of a replica's keys, the one below the evaluation's and above the training's.
_DRAWING_KEY = 2**31 - 1
# More write heads than these are shown as one, by their greatest weight.
_SEPARATE_WRITES = 3


def names(settings: Any) -> tuple[str, ...]:
  """The figures of a run; of a model without a memory, none of that."""
  has_memory = settings.model != 'vrnn'
  return ('results', 'episodes', *(('memory',) if has_memory else ()))


def draw(
  prepared: Any, state: train.TrainState, evaluation: dict[str, Any]
) -> None:
  """Draws every figure of a run into its workdir.

  Args:
    prepared: the run.
    state: of all replicas, on the devices.
    evaluation: the content of evaluation.json.
  """
  _draw_results(prepared, evaluation)
  failed_at = replicas.gather(state.failed_at)
  replica = int(np.argmax(failed_at < 0))
  variables = jax.tree.map(
    lambda leaf: replicas.gather(leaf)[replica],
    {'params': state.params, 'batch_stats': state.batch_stats},
  )
  problem = train.Problem(
    prepared.problem.model, prepared.task.sample, _EPISODES
  )
  key = jax.random.fold_in(
    preparation.replica_keys(prepared.settings)[replica], _DRAWING_KEY
  )
  drawn = (variables, key, prepared.images.held_out)
  _draw_episodes(prepared, problem, drawn)
  if 'memory' in names(prepared.settings):
    _draw_memory(prepared, problem, drawn)


def _path(prepared: Any, name: str) -> pathlib.Path:
  return prepared.workdir / 'figures' / name


def _task(settings: Any) -> str:
  return f'{settings.task.replace("_", " ")}, {describe(settings)}'


def _draw_results(prepared: Any, evaluation: dict[str, Any]) -> None:
  run = figures.Run(
    prepared.settings.model, records.read_metrics(prepared.workdir), evaluation
  )
  figures.draw_results(
    [run], _path(prepared, 'results'), title=_task(prepared.settings)
  )


def _draw_episodes(
  prepared: Any, problem: train.Problem, drawn: tuple[Any, ...]
) -> None:
  """Held-out episodes, reconstructed, and dreams after their prefixes."""
  dreaming = functools.partial(
    dream, problem, prepared.task.prefix, prepared.settings.binarize
  )
  episode, reconstruction, dreamed = jax.jit(dreaming)(*drawn)
  rows = []
  for index in range(_EPISODES):
    generated = np.full_like(episode.frames[:, index], np.nan)
    generated[prepared.task.prefix :] = dreamed[:, index]
    rows += [
      (f'episode {index + 1}', np.asarray(episode.frames[:, index])),
      ('reconstruction', np.asarray(reconstruction[:, index])),
      ('generated', generated),
    ]
  figures.draw_strip(
    rows,
    _path(prepared, 'episodes'),
    # Where episodes differ in it, the first one's.
    marks=np.asarray(episode.predictable[:, 0]),
  )


def dream(
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
  continued = generate.continue_episode(
    problem.model,
    variables,
    episode.frames[:prefix],
    episode.condition,
    noise,
    frame_noise,
  )
  return episode, inference.frames, jnp.asarray(continued.frames)


def _draw_memory(
  prepared: Any, problem: train.Problem, drawn: tuple[Any, ...]
) -> None:
  """The memory over the first of the episodes."""
  episode, cores = jax.jit(functools.partial(watch, problem))(*drawn)
  settings = prepared.settings
  figures.draw_memory(
    np.asarray(episode.frames[:, 0]),
    panels(cores),
    _path(prepared, 'memory'),
    marks=np.asarray(episode.predictable[:, 0]),
    title=f'Memory of {settings.model} on {_task(settings)}',
    note='Column t: as it predicts frame t, just given the latent of frame '
    't - 1. The episode is the first one of the figure of episodes.',
  )


def watch(
  problem: train.Problem,
  variables: free_energy.Variables,
  key: jax.Array,
  images: Any,
) -> tuple[Any, Any]:
  """Episodes as `dream` has them, and the core's carries over the first."""
  batch_key, _ = jax.random.split(key)
  episode, noise = train.batch(problem, batch_key, images)
  first = (x[:, :1] for x in (episode.frames, episode.condition, noise))
  cores = free_energy.watch(problem.model, variables, *first)
  return episode, jax.tree.map(lambda leaf: leaf[:, 0], cores)


def panels(cores: Any) -> list[figures.Panel]:
  """What is to be seen of a memory over one episode.

  Args:
    cores: carries of a core with a memory, leaves [T, ...] without batch axes.

  Returns:
    Where each head read; where was written, and the usage of slots, if the core
    has them; the norm of each slot, and the content after the last frame; the
    gates.
  """
  shown = _weights('read', cores.read_weights)
  if hasattr(cores, 'write_weights'):
    weights, heads = cores.write_weights, cores.write_weights.shape[1]
    if heads > _SEPARATE_WRITES:
      greatest = np.max(weights, axis=1)
      title = f'write weights, greatest of {heads} heads'
      shown.append(figures.Panel(title, greatest, 'slot', 'weight', (0.0, 1.0)))
    else:
      shown += _weights('write', weights)
  if hasattr(cores, 'usage'):
    # The DNC's lies in [0, 1]; the LRU's has no upper end.
    limits = (0.0, 1.0) if isinstance(cores, DNCState) else None
    shown.append(figures.Panel('usage', cores.usage, 'slot', 'usage', limits))
  norms = np.linalg.norm(cores.memory, axis=-1)
  shown.append(figures.Panel('norm of each slot', norms, 'slot', 'norm'))
  shown.append(
    figures.Panel(
      'content at the last frame',
      np.transpose(cores.memory[-1]),
      'slot',
      'value',
      columns='word',
    )
  )
  return shown + _gates(cores)


def _weights(kind: str, weights: Any) -> list[figures.Panel]:
  """A panel for each head of weights [T, H, N]."""
  heads = weights.shape[1]
  return [
    figures.Panel(
      f'{kind} weights' + (f', head {head + 1}' if heads > 1 else ''),
      weights[:, head],
      'slot',
      'weight',
      (0.0, 1.0),
    )
    for head in range(heads)
  ]


def _gates(cores: Any) -> list[figures.Panel]:
  """The gates of each core, which differ in what they are."""
  match cores:
    case IntrospectiveState():
      means = {'read': np.mean(cores.gates, axis=-1)}
      return [_heads('gates of reads, mean over words', 'gate', means)]
    case NTMState():
      gates = {'read': cores.read_gates, 'write': cores.write_gates}
      return [_heads('gates, 1: by content', 'gate', gates)]
    case LRUState():
      gates = {'write': cores.gates}
      return [_heads('gates, 1: to what was read', 'gate', gates)]
    case DNCState():
      free, allocation, write, modes = cores.gates
      gates = {'write': write, 'allocation': allocation, 'free': free}
      links = modes.shape[-1] // 2
      shares = {
        'backward': modes[..., :links].sum(-1),
        'content': modes[..., links],
        'forward': modes[..., links + 1 :].sum(-1),
      }
      return [
        _heads('gates', 'gate', gates),
        _heads('read modes', 'share', shares),
      ]
    case _:
      return []


def _heads(title: str, meaning: str, groups: dict[str, Any]) -> figures.Panel:
  """A row in [0, 1] for each head of each group [T, H]."""
  rows = [
    f'{name} {head + 1}' if values.shape[1] > 1 else name
    for name, values in groups.items()
    for head in range(values.shape[1])
  ]
  values = np.concatenate(list(groups.values()), axis=1)
  return figures.Panel(title, values, rows, meaning, (0.0, 1.0))
