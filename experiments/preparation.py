"""From what the flags say to a run that makes sense."""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import settings as settings_module
import surroundings
from absl import logging

from gtmm_jax import build, presets, records, replicas, tasks, train
from gtmm_jax.tasks import characters, images

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
  binarize: bool
  steps: int | None
  replicas: int | None
  batch_size: int | None
  pre_recall: int | None
  recall: int | None
  rows: int | None
  columns: int | None
  length: int | None
  report_every: int | None
  learning_rate: float | None
  seed: int
  evaluation_episodes: int


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A run that makes sense; nothing was compiled or written for it yet.

  Attributes:
    settings: as resolved.
    workdir: where results go.
    task: the task.
    images: to train on, and held out.
    more_images: a sentence on what the bundled ones lack.
    problem: what one replica trains.
    layout: where replicas run.
    config: what `config.json` will hold.
    why: why the preset is what it is.
  """

  settings: Settings
  workdir: pathlib.Path
  task: Any
  images: images.Digits | characters.Characters
  more_images: str
  problem: train.Problem
  layout: replicas.Layout
  config: dict[str, Any]
  why: str


def prepare(request: Request) -> Prepared:
  """Checks everything that can be wrong, before anything costs time.

  Raises:
    ValueError: in one sentence, what is wrong and what to do.
  """
  logging.set_verbosity(logging.ERROR)
  given = dataclasses.asdict(request)
  for name in ('preset', 'workdir', 'data', 'data_dir'):
    del given[name]
  name, why = request.preset, 'as asked'
  settings = settings_module.resolve(
    'small' if name == 'auto' else name, **given
  )
  replicas.prepare_cpu_devices(settings.replicas)
  if name == 'auto':
    backend = jax.default_backend()
    why = f'jax found no accelerator, its backend is {backend}'
    if backend != 'cpu':
      settings = settings_module.resolve('paper', **given)
      why = f'jax found an accelerator, its backend is {backend}'
  task = tasks.TASKS[settings.task](
    **settings_module.episodes(settings), binarize=settings.binarize
  )
  loaded, more_images = load_images(
    settings.task, request.data, request.data_dir
  )
  preset = presets.PRESETS[settings.preset]
  model = build.temporal_vae(
    settings.model,
    preset,
    loaded.training.shape,
    frames=task.length,
    store=settings.store,
    order=settings.order,
  )
  layout = replicas.plan(settings.replicas, preset.networks == 'digit')
  prepared = Prepared(
    settings=settings,
    workdir=_workdir(request.workdir, settings),
    task=task,
    images=loaded,
    more_images=more_images,
    problem=train.Problem(model, task.sample, settings.batch_size),
    layout=layout,
    config=_config(
      request,
      settings,
      loaded,
      layout,
      presets.slots(settings.model, task.length),
    ),
    why=why,
  )
  _require_continuation(prepared)
  return prepared


def load_images(
  task: str, data: str, data_dir: str | None
) -> tuple[images.Digits | characters.Characters, str]:
  """The images that a task takes, and what the bundled ones lack.

  Raises:
    ValueError: if they cannot be had.
  """
  if task == 'one_shot_recall':
    loaded = characters.load_characters(data, data_dir)
    return loaded, characters.describe_more_characters()
  loaded = images.load_digits(data, data_dir)
  return loaded, images.describe_more_digits()


def _workdir(given: str | None, settings: Settings) -> pathlib.Path:
  name = f'{settings.task}-{settings.model}-{settings.preset}-{settings.seed}'
  path = pathlib.Path(given or pathlib.Path('runs') / name).expanduser()
  if path.exists() and not path.is_dir():
    raise ValueError(f'--workdir {path} is a file; name a folder.')
  existing = next(p for p in (path, *path.absolute().parents) if p.exists())
  if not (existing.is_dir() and os.access(existing, os.W_OK)):
    raise ValueError(
      f'--workdir {path} cannot be written in {existing}; name another.'
    )
  return path


def _config(
  request: Request,
  settings: Settings,
  loaded: images.Digits | characters.Characters,
  layout: replicas.Layout,
  slots: int,
) -> dict[str, Any]:
  preset = presets.PRESETS[settings.preset]
  return {
    'settings': {
      **dataclasses.asdict(settings),
      'networks': preset.networks,
      'dense_hidden': preset.dense_hidden,
      'latent_size': preset.latent_size,
      'prior_hidden': preset.prior_hidden,
      'read_heads': preset.read_heads,
      'controller_size': preset.controller_size[settings.model],
      'attention_size': preset.attention_size,
      'word_size': preset.word_size,
      'key_strength': preset.key_strength,
      'lru_strength': preset.lru_strength,
      'slots': slots,
      'gradient_norm': preset.gradient_norm,
    },
    'data': {
      'flag': request.data,
      'source': loaded.source,
      'checksum': loaded.checksum,
    },
    'versions': surroundings.versions(_PACKAGES),
    'device': {
      **surroundings.device(layout.devices[0]),
      'count': len(layout.devices),
    },
  }


def _require_continuation(prepared: Prepared) -> None:
  """Raises unless the workdir is new or its run can go on.

  Where it goes on with other versions or on another device, the config keeps
  the earlier ones.
  """
  old = records.read_config(prepared.workdir)
  records.read_evaluation(prepared.workdir)
  if old is None:
    if records.read_metrics(prepared.workdir):
      raise ValueError(
        f'{prepared.workdir} has metrics.jsonl but no config.json; it is not '
        f'the folder of a run. Name another --workdir.'
      )
    return
  new = prepared.config
  if not {'settings', 'data', 'versions', 'device'} <= old.keys():
    raise ValueError(
      f'{prepared.workdir}/config.json is not that of a run. Name another '
      f'--workdir.'
    )
  ran_on = {name: old[name] for name in ('versions', 'device')}
  new['earlier'] = old.get('earlier', [])
  if any(ran_on[name] != new[name] for name in ran_on):
    new['earlier'] = [*new['earlier'], ran_on]
  records.require_same_settings(
    {**old['settings'], 'data': old['data']['checksum']},
    {**new['settings'], 'data': new['data']['checksum']},
    settings_module.MAY_DIFFER,
  )
  lines = records.read_metrics(prepared.workdir)
  if lines and lines[-1]['step'] > prepared.settings.steps:
    raise ValueError(
      f'{prepared.workdir} has been trained for {lines[-1]["step"]} steps '
      f'already, more than --steps={prepared.settings.steps}; ask for at least '
      f'as many, or name another --workdir.'
    )
  # Of a run that was cut short, the first checkpoint may be missing, and is
  # always there before the third line.
  kept = (prepared.workdir / 'checkpoints').glob('[0-9]*')
  if len(lines) > 2 and not any(path.name.isdigit() for path in kept):
    raise ValueError(
      f'{prepared.workdir} has records of {lines[-1]["step"]} steps and no '
      f'checkpoint to go on from; name another --workdir to keep them.'
    )


def replica_keys(settings: Settings) -> jax.Array:
  """One key for each replica, a function of (seed, replica) alone, [R]."""
  fold = functools.partial(jax.random.fold_in, jax.random.key(settings.seed))
  return jax.vmap(fold)(jnp.arange(settings.replicas))
