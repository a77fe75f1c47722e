"""Training steps of run.py for benchmark.py: what is timed, and beside what."""

import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import jax
import numpy as np

import kept
import naive_road
from benchmarking import cores, flops, roofline, timing
from benchmarking.pytorch import twin
from gtmm_jax import presets, train
from gtmm_jax.memory.scan import Recompute
from gtmm_jax.model import build
from gtmm_jax.problem import Problem
from gtmm_jax.process import jax_settings, provenance
from gtmm_jax.runs import flags as settings_flags
from gtmm_jax.runs import own_frames, room
from gtmm_jax.runs import prepare as preparation
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.runs.settings import describe


def prepare(flags: Any, count: int) -> Run:
  """What run.py would run with so many replicas, in a folder of its own.

  Args:
    flags: those of benchmark.py, parsed.
    count: replicas.

  Returns:
    The run; its memory has as many slots as --slots says, if it does.

  Raises:
    ValueError: for what makes no sense; `OSError` where data cannot be read.
  """
  with tempfile.TemporaryDirectory() as folder:
    # Nothing is written there: a folder that does not exist has no old run.
    settings = dataclasses.replace(
      settings_flags.read(flags), replicas=count, workdir=f'{folder}/none'
    )
    prepared = preparation.prepare(settings)
  if flags.slots is None:
    return prepared
  return dataclasses.replace(
    prepared, problem=_with_slots(prepared, flags.slots)
  )


def _with_slots(prepared: Run, count: int) -> Problem:
  """What is trained, with a memory of so many slots."""
  if slots(prepared) is None:
    raise ValueError(
      f'--slots means nothing to {prepared.settings.model}; it has no memory.'
    )
  model = prepared.problem.model
  model = model.clone(core=model.core.clone(slots=count))
  # Raises where other settings of the core ask for more slots.
  shape = prepared.images.training.shape[-3:]
  build.variable_shapes(model, shape, prepared.task.condition_size)
  settings, layout = prepared.settings, prepared.layout
  room.require_for_run(
    settings, prepared.task.length, model, prepared.images, layout
  )
  return dataclasses.replace(prepared.problem, model=model)


def memory(prepared: Run) -> list[dict[str, Any]]:
  """What gradients of each model need, however much they compute again.

  Args:
    prepared: a run; its replicas, episodes, batch and preset count.

  Returns:
    For each model and each way to compute again `model`, `recompute`,
    `replicas`, `through_bytes` and `inside_bytes`, as `kept.Kept` has them, of
    all replicas.
  """
  settings, rows = prepared.settings, []
  for model in presets.MODELS:
    for recompute in get_args(Recompute):
      vae = build.temporal_vae(
        model,
        prepared.preset,
        prepared.images.training.shape[-3:],
        prepared.task.length,
        store=prepared.preset.store[model],
      )
      found = kept.estimate(
        vae,
        prepared.images.training.shape[-3:],
        prepared.task.length,
        settings.batch_size,
        prepared.task.condition_size,
        recompute,
      )
      rows.append(
        {
          'model': model,
          'recompute': recompute,
          'replicas': settings.replicas,
          'through_bytes': settings.replicas * found.through,
          'inside_bytes': settings.replicas * found.inside,
        }
      )
  return rows


def announce(prepared: Run) -> str:
  """What is measured and on what, for people."""
  settings, device = prepared.settings, prepared.config['device']
  return (
    f'{settings.model} on {settings.task} ({describe(settings)}), '
    f'batch {settings.batch_size}, '
    f'store {settings.store}, preset {settings.preset} ({prepared.why})\n'
    f'{device["kind"]} ({device["platform"]}), jax '
    f'{prepared.config["versions"]["jax"]}; {prepared.images.source}'
  )


def measure(
  prepared: Sequence[Run],
  seconds: float,
  modes: Sequence[str] = (),
  naive: bool = False,
) -> Iterator[dict[str, Any]]:
  """Times the steps, then the machine, then other roads to the same.

  Args:
    prepared: runs that differ in their number of replicas, the fewest first.
    seconds: for the steps of each.
    modes: of PyTorch, `eager` and `compiled`; may be empty.
    naive: whether `naive_road` is timed.

  Yields:
    What --json holds, with one row more each time; after the last there are
    `roofline`, rows of `roofline.as_row`, `others`, rows as `benchmark_torch`
    has them, each with `ratios`: how many times as long its replica's step
    takes as that of each of our rows; and `remarks` on what was not timed
    or not counted.
  """
  content = document(prepared[0], seconds)
  jax_settings.set_precision(prepared[0].settings.precision)
  timings = []
  for each in prepared:
    timings.append(timing.measure(each, seconds))
    content['rows'] = timing.as_rows(timings)
    yield content
  rates = roofline.measure()
  content['machine'] = {
    name: value._asdict() if isinstance(value, roofline.Rate) else value
    for name, value in rates._asdict().items()
  }
  operations = _operations(prepared[0])
  content['roofline'] = [
    roofline.as_row(
      prepared[0].settings.model,
      operations,
      rates,
      row['step_milliseconds']['median'],
      # Those of the CPU's devices share what there is.
      row['replicas' if rates.platform == 'cpu' else 'replicas_per_device'],
    )
    for row in content['rows']
  ]
  if naive:
    content['others'].append(_time_naive(prepared[0], seconds))
  if modes:
    rows, remarks = _time_pytorch(prepared[0], seconds, modes)
    content['others'] += rows
    content['remarks'] += remarks
  for row in content['others']:
    row['ratios'] = {
      str(own['replicas']): row['replica_milliseconds']['median']
      / own['replica_milliseconds']['median']
      for own in content['rows']
    }
  yield content


def document(prepared: Run, seconds: float) -> dict[str, Any]:
  """What --json holds, without rows."""
  settings, device = prepared.config['settings'], prepared.config['device']
  names = ('task', 'model', 'preset', 'batch_size', *settings_flags.EPISODE)
  names += ('store', *prepared.settings.options)
  names += ('recompute', 'precision', 'key_generator', 'x64')
  return {
    'settings': {
      **{name: settings[name] for name in names},
      'slots': slots(prepared),
    },
    'seconds': seconds,
    'versions': prepared.config['versions'],
    # How many of them are used is a matter of the row.
    'device': {name: device[name] for name in ('platform', 'kind', 'cores')},
    'data': prepared.config['data'],
    **provenance.published(),
    'rows': [],
    'roofline': [],
    'others': [],
    'remarks': [],
  }


def slots(prepared: Run) -> int | None:
  """Of the memory that is trained; None where there is none."""
  return getattr(prepared.problem.model.core, 'slots', None)


def _operations(prepared: Run) -> float:
  """Returns the operations of one replica's training step."""
  return flops.training_step(
    prepared.problem.model,
    prepared.images.training.shape[-3:],
    prepared.task.length,
    prepared.settings.batch_size,
    prepared.task.condition_size,
  )


def _time_naive(prepared: Run, seconds: float) -> dict[str, Any]:
  """The row of one replica's step on the naive road."""
  settings, problem = prepared.settings, prepared.problem
  optimizer = train.adam(settings.learning_rate, prepared.preset.gradient_norm)
  key = replica_keys(settings)[0]
  images = jax.device_put(own_frames.first(prepared.images))
  start = jax.jit(functools.partial(train.init_state, problem, optimizer))(
    key, images
  )
  state = naive_road.State(start.params, start.batch_stats, start.optimizer)
  step = naive_road.training_step(problem, optimizer)
  numbers = itertools.count()

  def run() -> None:
    nonlocal state
    state, _ = step(state, jax.random.fold_in(key, next(numbers)), images)

  program = twin.program('naive JAX', None, run)
  times = cores.take_turns([program], seconds)
  return twin.as_rows([(program, times[:, 0])], 1)[0]


def _time_pytorch(
  prepared: Run, seconds: float, modes: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
  """Rows of one replica's step in PyTorch, and what there is to say."""
  settings, training = prepared.settings, twin.load()
  shape = prepared.images.training.shape[-3:]
  why = twin.missing(settings.model, shape[-1], settings.store)
  if why is None and isinstance(training, str):
    why = training
  if why is not None:
    return [], [why]
  rows, remark = twin.measure(
    training, _case(prepared, training, shape), seconds=seconds, modes=modes
  )
  return rows, [remark] if remark else []


def _case(prepared: Run, training: Any, shape: Any) -> Any:
  """The same model for PyTorch, from random weights and on random frames."""
  settings, task = prepared.settings, prepared.task
  model, random = prepared.problem.model, np.random.default_rng(0)
  batch = settings.batch_size
  frames = random.uniform(size=(task.length, batch, *shape))
  condition = np.zeros((task.length, batch, task.condition_size))
  variables = build.variable_shapes(model, shape, task.condition_size)
  parameters = jax.tree.map(
    lambda leaf: random.normal(size=leaf.shape, scale=0.05).astype(np.float32),
    variables['params'],
  )
  return training.Case(
    settings.model,
    prepared.preset,
    parameters,
    frames.astype(np.float32),
    condition.astype(np.float32),
    slots(prepared) or task.length,
    settings.options.get('order', 'age'),
  )
