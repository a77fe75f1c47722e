"""Prepares a run: checks settings, task, data and model before it starts."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from gtmm_jax import presets, replicas
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.problem import Problem
from gtmm_jax.process import command, exchange, jax_settings, places
from gtmm_jax.recipe import Recipe
from gtmm_jax.runs import (
  config,
  contracts,
  curriculum,
  event_files,
  horizon,
  own_frames,
  resolve,
  room,
  workdirs,
)
from gtmm_jax.runs.kinds import BUILT_IN, Kinds
from gtmm_jax.runs.run import Run
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks import rooms
from gtmm_jax.tasks.sources import characters, digit_images, doubts
from gtmm_jax.tasks.sources.dataset import Dataset

# Sizes of a preset that do not belong to a model.
_OF_TRAINING = ('fall_share', 'gradient_norm')


def prepare(
  unresolved: Settings,
  kinds: Kinds = BUILT_IN,
  load: Callable[[Settings, Kinds], tuple[Dataset, str]] | None = None,
  has_workdir: bool = True,
) -> Run:
  """Prepares a run, and checks everything before anything costs time.

  Args:
    unresolved: settings from flags.
    kinds: the models and tasks of the program.
    load: replaces `load_images`.
    has_workdir: whether the run has a folder; not if nothing is written.

  Raises:
    ValueError: something is wrong; tells in one line what, and what to do.
  """
  resolve.check(unresolved, kinds)
  places.require_local_data(unresolved.data)
  if unresolved.tensorboard:
    event_files.require_writer()
  header = own_frames.inspect(unresolved.task, unresolved.data)
  name, why = _preset(unresolved)
  settings = resolve.resolve(
    dataclasses.replace(
      unresolved, precision=jax_settings.precision(unresolved.precision)
    ),
    name,
    header,
    kinds,
  )
  workdir = workdirs.locate(settings) if has_workdir else None
  preset = resolve.sized(settings, kinds)
  settings = horizon.resolve(
    settings, preset, workdir and workdirs.horizon(workdir)
  )
  task = resolve.make_task(settings, header, kinds)
  stages = curriculum.make_stages(settings, task, kinds)
  if header:
    # Reads a large file only if everything else is right.
    _make_model(settings, task, header.shape, kinds)
  loaded, more_images = (load or load_images)(settings, kinds)
  if settings.task not in BUILT_IN.tasks:
    for each in (task, *(stage.task for stage in stages)):
      contracts.require_episode(settings.task, each, loaded.training)
  model = _make_model(settings, task, loaded.training.shape, kinds)
  layout = replicas.plan(settings.replicas, preset.networks != 'dense')
  room.require_for_run(settings, task.length, model, loaded, layout)
  run = Run(
    settings=settings,
    workdir=workdir,
    task=task,
    images=loaded,
    more_images=more_images,
    preset=preset,
    problem=Problem(
      model, task.sample, settings.batch_size, settings.recompute
    ),
    stages=stages,
    recipe=Recipe(
      settings.learning_rate,
      settings.schedule,
      settings.warmup_steps,
      settings.decay_steps,
      preset.fall_share,
      preset.gradient_norm,
      settings.average,
    ),
    layout=layout,
    config=config.content(settings, task, loaded, preset, model, layout, kinds),
    why=why,
  )
  if workdir is not None:
    workdirs.require(workdir, settings.steps, run.config)
  return run


def _preset(settings: Settings) -> tuple[str, str]:
  """Starts jax on its devices; returns the preset's name, and the reason."""
  is_auto = settings.preset == 'auto'
  # On the CPU each replica gets its own device.
  small = presets.PRESETS['small' if is_auto else settings.preset]
  try:
    replicas.prepare_cpu_devices(settings.replicas or small.replicas)
  except RuntimeError as error:
    raise ValueError(
      'jax was used before the run chose its devices; compute nothing with jax '
      'while your program is imported.'
    ) from error
  command.require_device()
  exchange.connect()
  if not is_auto:
    return settings.preset, 'as asked'
  backend = jax.default_backend()
  if backend == 'cpu':
    return 'small', f'jax found no accelerator, its backend is {backend}'
  return 'paper', f'jax found an accelerator, its backend is {backend}'


def _make_model(
  settings: Settings, task: Any, shape: tuple[int, int, int], kinds: Kinds
) -> TemporalVAE:
  """Makes the model; raises `ValueError` for a size that changes nothing."""
  model = resolve.make_model(settings, task, shape, kinds)
  features = model.latent_size + task.condition_size
  if settings.model not in BUILT_IN.models:
    contracts.require_core(settings.model, model.core, features)
  else:
    # A core checks its settings when it makes a carry.
    jax.eval_shape(
      lambda: model.core.initialize_carry(jax.random.key(0), (features,))
    )
  sizes = {
    name: value
    for name, value in settings.sizes.items()
    if name not in _OF_TRAINING
  }
  for name, value in {**sizes, 'slots': settings.slots}.items():
    if value is None:
      continue
    others = {key: each for key, each in settings.sizes.items() if key != name}
    other = dataclasses.replace(
      settings,
      sizes=others,
      slots=None if name == 'slots' else settings.slots,
    )
    default = resolve.make_model(other, task, shape, kinds)
    if name == 'slots':
      is_default = value == getattr(default.core, 'slots', None)
    else:
      preset = resolve.sized(other, kinds)
      is_default = value == presets.for_model(preset, name, settings.model)
    if default == model and not is_default:
      raise ValueError(
        f'--set={name} means nothing to {settings.model} on {settings.task} '
        f'with the preset {settings.preset}; leave it out.'
      )
  _require_options(settings, task, shape, model, kinds)
  return model


def _require_options(
  settings: Settings,
  task: Any,
  shape: tuple[int, int, int],
  model: TemporalVAE,
  kinds: Kinds,
) -> None:
  """Raises `ValueError` for an option that changes nothing of the model."""
  defaults = resolve.default_options(settings, kinds)
  for name, value in settings.options.items():
    options = {**settings.options, name: defaults[name]}
    other = dataclasses.replace(settings, options=options)
    if (
      value != defaults[name]
      and resolve.make_model(other, task, shape, kinds) == model
    ):
      raise ValueError(
        f'--set={name} means nothing to {settings.model} with the other '
        f'settings of this run; leave it out.'
      )


def load_images(
  settings: Settings, kinds: Kinds = BUILT_IN
) -> tuple[Dataset, str]:
  """Loads images or episodes for a task.

  Returns:
    The data, and a sentence on the limits of bundled data, '' for other tasks.

  Raises:
    ValueError: the data cannot be loaded, or a flag does not fit the task.
  """
  data, data_dir = settings.data, settings.data_dir
  if data_dir is not None and data != 'tfds':
    raise ValueError(
      f'--data_dir is the folder of tensorflow-datasets; it needs --data=tfds, '
      f'and --data is {data!r}.'
    )
  if settings.task == 'frames':
    return own_frames.load(settings, data, settings.device_megabytes), ''
  if settings.device_megabytes is not None:
    raise ValueError(
      f'--device_megabytes means nothing to {settings.task}; it is for the '
      f'task frames.'
    )
  if settings.task == 'rotation':
    if data != 'bundled':
      raise ValueError(
        f'--data is {data!r}; rotation draws its rooms itself: leave --data '
        f'out.'
      )
    return rooms.load(settings.episode['size']), ''
  if settings.task == 'one_shot_recall':
    loaded = characters.load_characters(data, data_dir)
    return loaded, characters.describe_more_characters()
  loaded = digit_images.load_digits(data, data_dir)
  task = kinds.tasks[settings.task]
  if task.asks == 'class':
    doubts.require_classes(loaded, task.classes, settings.task)
  sizes = settings.episode
  cells = sizes.get('rows', 0) * sizes.get('columns', 0)
  drawn = max(cells, sizes.get('pre_recall', 0))
  sentences = loaded.doubts + doubts.of_draws(loaded, drawn)
  return loaded._replace(doubts=sentences), digit_images.describe_more_digits()
