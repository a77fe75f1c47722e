"""Episodes of other sizes or other data for a trained run, and its slots."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax

from gtmm_jax.model import build
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.process import places
from gtmm_jax.runs import own_frames, recorded, resolve
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources import frame_files
from gtmm_jax.trained.trained import Trained

# What happens to a memory with fewer slots than an episode has frames.
Slots = Literal['grow', 'trained']
SLOTS: tuple[Slots, ...] = get_args(Slots)

# Cores that store latents, or what they make of them, as they come.
_STORES = ('introspective', 'associative', 'transformer')


class Variant(NamedTuple):
  """A trained run on episodes of certain sizes.

  Attributes:
    settings: of the run, with the sizes of these episodes.
    task: with these sizes.
    model: the temporal VAE with these slots; its variables are the run's.
    slots: of the memory; None without slots.
    change: 'grown', 'overwritten' where there are too few slots, or ''.
    remark: the same in a sentence.
  """

  settings: Settings
  task: Any
  model: TemporalVAE
  slots: int | None
  change: Literal['grown', 'overwritten', '']
  remark: str


def with_data(run: Trained, data: str) -> Trained:
  """Returns the same trained run with other data, which are read when used.

  Args:
    run: the trained run.
    data: as the flag `--data` of a run.

  Raises:
    ValueError: a file of own episodes is missing, or has other frames or
      conditions than the run.
  """
  places.require_local_data(data)
  settings = dataclasses.replace(run.settings, data=data)
  task, header = run.task, own_frames.inspect(settings.task, data)
  if header:
    now = header.shape, header.condition_size
    if now != (run.recorded.frame_shape, task.condition_size):
      raise ValueError(
        f'--data={data} has frames {header.shape} and conditions of '
        f'{header.condition_size} numbers; the run has '
        f'{run.recorded.frame_shape} and {task.condition_size}.'
      )
    episode = {**settings.episode, 'length': header.length}
    settings = dataclasses.replace(settings, episode=episode)
    task = resolve.make_task(settings, header, run.kinds)
  unchecked = run.recorded._replace(checksum=None)
  return dataclasses.replace(
    run, settings=settings, task=task, recorded=unchecked
  )


def make(
  run: Trained,
  sizes: Mapping[str, int] | None = None,
  slots: Slots | None = None,
) -> Variant:
  """Makes a variant of a trained run; nothing is read or compiled.

  Args:
    run: the trained run.
    sizes: of episodes, by the names of the task's fields; others are the
      run's.
    slots: where episodes have more frames than in training: 'grow' gives the
      memory more slots in proportion; 'trained' leaves it as it is. None grows
      a memory that can.

  Raises:
    ValueError: the task has no such size, a size is impossible, or the memory
      cannot grow.
  """
  sizes = dict(sizes or {})
  is_from_file = run.settings.task == 'frames'
  # A file decides the length of its episodes.
  resolve.require_sizes(
    run.settings.task,
    sizes,
    ('prefix',) if is_from_file else run.settings.episode,
  )
  settings = dataclasses.replace(
    run.settings, episode={**run.settings.episode, **sizes}
  )
  resolve.check(settings, run.kinds)
  header = None
  if is_from_file:
    header = frame_files.Header(
      0, run.task.length, settings.shape, run.task.condition_size
    )
  task = resolve.make_task(settings, header, run.kinds)
  shape = recorded.frame_shape(settings)
  if (shape, task.condition_size) != (
    run.recorded.frame_shape,
    run.task.condition_size,
  ):
    raise ValueError(
      f'{" and ".join(f"--{name}" for name in sizes)} would change the shape '
      f'of frames or conditions, for which a trained model has weights.'
    )
  model, change, remark = _with_slots(run, settings, task, slots)
  return Variant(settings, task, model, _slots_of(model), change, remark)


def _with_slots(
  run: Trained, settings: Settings, task: Any, slots: Slots | None
) -> tuple[TemporalVAE, str, str]:
  """Returns the model with its slots, their change, and a remark on it."""
  now, frames = _slots_of(run.model), run.recorded.task.length
  if now is None:
    if slots == 'grow':
      raise ValueError(
        f'{settings.model} has no slots that could grow; leave --slots out.'
      )
    return run.model, '', ''
  wanted = max(now, -(-now * task.length // frames))
  why = ''
  if slots != 'trained' and wanted > now:
    grown = resolve.make_model(
      dataclasses.replace(settings, slots=wanted),
      task,
      run.recorded.frame_shape,
      run.kinds,
    )
    why = _why_not(run, grown)
    if not why:
      return grown, 'grown', f'{wanted} slots; trained with {now}'
    if slots == 'grow':
      raise ValueError(
        f'The memory of {settings.model} cannot grow: {why}. Evaluate it with '
        f'--slots=trained.'
      )
    why = f' (it cannot grow: {why})'
  # The last latent of an episode is not read.
  if task.length - 1 <= now:
    return run.model, '', ''
  lost = 'the oldest latents' if settings.model in _STORES else 'earlier words'
  remark = f'{now} slots for {task.length} frames{why}: {lost} are overwritten'
  return run.model, 'overwritten', remark


def _why_not(run: Trained, grown: TemporalVAE) -> str:
  """Returns why a memory cannot have more slots, '' if it can."""
  if getattr(grown.core, 'attention', None) == 'gaussian':
    return 'it reads at a share of all its slots, so that more would move reads'
  now, then = (
    build.variable_shapes(
      model, run.recorded.frame_shape, run.task.condition_size
    )
    for model in (run.model, grown)
  )
  if jax.tree.structure(now) != jax.tree.structure(then):
    return 'it would have other weights'
  pairs = zip(
    jax.tree.leaves_with_path(now), jax.tree.leaves(then), strict=True
  )
  for (path, one), other in pairs:
    if one.shape != other.shape:
      name = '/'.join(key.key for key in path[1:])
      return f'its weights {name} are for {_slots_of(run.model)} slots'
  return ''


def _slots_of(model: TemporalVAE) -> int | None:
  return getattr(model.core, 'slots', None)
