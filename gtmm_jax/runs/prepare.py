"""From what the flags say to a run that makes sense."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from gtmm_jax import presets, replicas, tasks
from gtmm_jax.model import build
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.problem import Problem
from gtmm_jax.process import command, jax_settings, places, provenance
from gtmm_jax.runs import own_frames, room, workdirs
from gtmm_jax.runs import settings as settings_module
from gtmm_jax.runs.run import Run
from gtmm_jax.tasks import rooms
from gtmm_jax.tasks.sources import characters, digit_images, doubts, frame_files
from gtmm_jax.tasks.sources.dataset import Dataset

Settings = settings_module.Settings

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy')


@dataclasses.dataclass(frozen=True)
class Request:
  """What the flags say; None where the preset decides."""

  task: str
  model: str
  preset: str
  workdir: str | None
  data: str
  data_dir: str | None
  store: str | None
  order: str | None
  top_k: int
  nearest: str
  without: str
  binarize: bool
  recompute: str
  precision: str
  steps: int | None
  replicas: int | None
  batch_size: int | None
  pre_recall: int | None
  recall: int | None
  rows: int | None
  columns: int | None
  length: int | None
  size: int | None
  report_every: int | None
  learning_rate: float | None
  seed: int
  evaluate_every: int
  evaluation_episodes: int
  device_megabytes: float | None


def prepare(
  request: Request, load: Callable[..., tuple[Dataset, str]] | None = None
) -> Run:
  """Checks everything that can be wrong, before anything costs time.

  Args:
    request: what the flags say.
    load: in the place of `load_images`.

  Raises:
    ValueError: in one sentence, what is wrong and what to do.
  """
  places.require_local_data(request.data)
  given = dataclasses.asdict(request)
  for name in ('preset', 'workdir', 'data', 'data_dir', 'device_megabytes'):
    del given[name]
  given['precision'] = jax_settings.precision(request.precision)
  header = own_frames.inspect(request.task, request.data)
  given['found'] = own_frames.found(header)
  name, why = request.preset, 'as asked'
  settings = settings_module.resolve(
    'small' if name == 'auto' else name, **given
  )
  replicas.prepare_cpu_devices(settings.replicas)
  command.require_device()
  if name == 'auto':
    backend = jax.default_backend()
    why = f'jax found no accelerator, its backend is {backend}'
    if backend != 'cpu':
      settings = settings_module.resolve('paper', **given)
      why = f'jax found an accelerator, its backend is {backend}'
  workdir = workdirs.locate(request.workdir, settings)
  task = make_task(settings, header)
  if header:
    # A large file is read once all else is right.
    _make_model(settings, task, header.shape)
  loaded, more_images = (load or load_images)(
    settings, request.data, request.data_dir, request.device_megabytes
  )
  preset, model = _make_model(settings, task, loaded.training.shape)
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
    layout=layout,
    config=_config(request, settings, loaded, preset, model.core, layout),
    why=why,
  )
  workdirs.require(workdir, settings.steps, run.config)
  return run


def _make_model(
  settings: Settings, task: Any, shape: tuple[int, int, int]
) -> tuple[presets.Preset, TemporalVAE]:
  """The preset for such frames, and the model; raises where it cannot be."""
  preset = presets.choose(settings.preset, shape[-1])
  model = build.temporal_vae(
    settings.model,
    preset,
    shape,
    frames=task.length,
    store=settings.store,
    order=settings.order,
    top_k=settings.top_k,
    nearest=settings.nearest,
    without=settings_module.parts(settings),
  )
  return preset, model


def make_task(
  settings: Settings, header: frame_files.Header | None = None
) -> Any:
  """The task with its sizes.

  Args:
    settings: of the run.
    header: of the file that episodes are read from, if they are.

  Raises:
    ValueError: if they make no sense.
  """
  sizes = settings_module.episodes(settings)
  if settings_module.channels(settings) > 1 and settings.binarize:
    raise ValueError(
      f'--binarize means nothing to {settings.task}; its frames are coloured.'
    )
  if settings.task != 'rotation':
    sizes['binarize'] = settings.binarize
  if header:
    sizes |= {
      'length': header.length,
      'condition_size': header.condition_size,
    }
  return tasks.TASKS[settings.task](**sizes)


def load_images(
  settings: Settings,
  data: str,
  data_dir: str | None,
  device_megabytes: float | None = None,
) -> tuple[Dataset, str]:
  """What a task's frames are made of, and what the bundled images lack.

  Raises:
    ValueError: if it cannot be had.
  """
  if data_dir is not None and data != 'tfds':
    raise ValueError(
      f'--data_dir is where tensorflow-datasets keeps its sets; it needs '
      f'--data=tfds, and --data is {data!r}.'
    )
  if settings.task == 'frames':
    return own_frames.load(settings, data, device_megabytes), ''
  if device_megabytes is not None:
    raise ValueError(
      f'--device_megabytes means nothing to {settings.task}; it is for frames, '
      f'whose episodes may be many.'
    )
  if settings.task == 'rotation':
    if data != 'bundled':
      raise ValueError(
        f'--data is {data!r}; rotation draws its rooms itself, leave --data '
        f'out.'
      )
    return rooms.load(settings.size), ''
  if settings.task == 'one_shot_recall':
    loaded = characters.load_characters(data, data_dir)
    return loaded, characters.describe_more_characters()
  loaded = digit_images.load_digits(data, data_dir)
  task = tasks.TASKS[settings.task]
  if task.asks == 'class':
    doubts.require_classes(loaded, task.classes, settings.task)
  drawn = settings.pre_recall or settings.rows * settings.columns
  told = loaded.doubts + doubts.of_draws(loaded, drawn)
  return loaded._replace(doubts=told), digit_images.describe_more_digits()


def _config(
  request: Request,
  settings: Settings,
  loaded: Dataset,
  preset: presets.Preset,
  core: Any,
  layout: replicas.Layout,
) -> dict[str, Any]:
  return {
    'settings': {
      **jax_settings.in_force(),
      # Whose precision is that of the flag, where it is given.
      **dataclasses.asdict(settings),
      'networks': preset.networks,
      'dense_hidden': preset.dense_hidden,
      'patches': preset.patches,
      'latent_size': preset.latent_size,
      'prior_hidden': preset.prior_hidden,
      'read_heads': preset.read_heads,
      'controller_size': preset.controller_size[settings.model],
      'attention_size': preset.attention_size,
      'word_size': preset.word_size,
      'summary_size': preset.summary_size,
      'key_size': preset.key_size,
      # None of a core without.
      'key_strength': getattr(core, 'initial_strength', None),
      'lru_strength': preset.lru_strength,
      'slots': getattr(core, 'slots', None),
      'gradient_norm': preset.gradient_norm,
      'device_megabytes': own_frames.limit(
        settings, loaded, request.device_megabytes
      ),
    },
    'data': {
      'flag': request.data,
      'source': loaded.source,
      'checksum': loaded.checksum,
    },
    'versions': provenance.versions(_PACKAGES),
    'device': {
      **provenance.device(layout.devices[0]),
      'count': len(layout.devices),
    },
  }
