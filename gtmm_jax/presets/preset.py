"""The fields of a preset, and the names of the models and tasks."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

MODELS = (
  'vrnn',
  'introspective',
  'ntm',
  'lru',
  'dnc',
  'associative',
  'transformer',
  'ssm',
)
# Of these, the recurrent ones, whose state is no memory with slots.
WITHOUT_MEMORY = ('vrnn', 'ssm')
TASKS = (
  'perfect_recall',
  'parity_recall',
  'one_shot_recall',
  'dynamic_dependency',
  'similarity_cued_recall',
  'navigation',
  'mixture',
  'rotation',
  'frames',
)
# Fields of presets with a value for each of `MODELS`, and for other models.
BY_MODEL: Mapping[str, Any] = MappingProxyType(
  {
    'controller_size': 128,
    'key_strength': 10.0,
    'store': 'sample',
  }
)


@dataclasses.dataclass(frozen=True)
class Preset:
  """Sizes of the models, and how they are trained.

  Attributes:
    networks: 'digit' and 'colour', the convolutional ones of appendix B, or
      'dense'.
    dense_hidden: units of the hidden layers of the dense encoder; the decoder
      has them in the opposite order.
    patches: (side, channels) of the layers before those. Each maps all patches
      of side x side pixels by the same weights. The first layer whose patches
      do not fill a frame, and those after it, are left out.
    latent_size: Z.
    prior_hidden: units of the hidden layers of the prior map.
    prior_components: K, Gaussians of the prior; above 1 it is a mixture.
    posterior: 'additive' adds a linear map of the context to the encoder's
      output; 'residual' starts from the prior, with a gate.
    read_heads: R of the external memories.
    controller_size: LSTM units of each model, or features of its context.
    attention_size: hidden units of the introspection network's attention.
    word_size: W of NTM, LRU and DNC: a latent and its tag.
    key_size: K of the associative memory.
    summary_size: of what models that summarise latents get of each; 0 is all.
    key_strength: of reads by content at the start, where it is learned.
    lru_strength: of the LRU's keys: 'none' (its paper's), or learned.
    condition_scale: of conditions as the core gets them; 'sqrt' is the root of
      the number of features that it gets of a latent, so that a one-hot action
      is as strong as a latent of variance one.
    options: of the core, by model, whose default the preset changes.
    store: what each model's memory is given of a latent.
    batch_size: sequences in a batch.
    learning_rate: Adam's, for episodes of at most 100 frames.
    long_learning_rate: Adam's, for longer ones.
    schedule: of the learning rate, as `gtmm_jax.recipe` has it.
    warmup_steps: over which the rate rises, or until it falls if that is
      sooner.
    fall_share: part of `decay_steps` over which the rate falls.
    gradient_norm: to which gradients are clipped; None for no clipping.
    average: decay of the moving average that is evaluated, 0 for none.
    replicas: trained side by side with other seeds.
    steps: updates for each task.
    episodes: the sizes of each task's episodes: pre_recall l and recall k, or
      rows and columns of a grid and the length T of a walk, all of these for
      the mixture, or the length T of two turns and the size of frames in
      pixels; none of frames, whose episodes are given.
    report_every: steps between two lines of the records.
  """

  networks: Literal['digit', 'colour', 'dense']
  dense_hidden: tuple[int, ...]
  patches: tuple[tuple[int, int], ...]
  latent_size: int
  prior_hidden: tuple[int, ...]
  prior_components: int
  posterior: Literal['additive', 'residual']
  read_heads: int
  controller_size: Mapping[str, int]
  attention_size: int
  word_size: int
  key_size: int
  summary_size: int
  key_strength: Mapping[str, float]
  lru_strength: Literal['none', 'softplus', 'oneplus']
  condition_scale: Literal['sqrt'] | float
  options: Mapping[str, Mapping[str, Any]]
  store: Mapping[str, str]
  batch_size: int
  learning_rate: float
  long_learning_rate: float
  schedule: Literal['decay', 'constant']
  warmup_steps: int
  fall_share: float
  gradient_norm: float | None
  average: float
  replicas: int
  steps: Mapping[str, int]
  episodes: Mapping[str, Mapping[str, int]]
  report_every: int


# Strengths of reads by content, at the start.
KEY_STRENGTH: Mapping[str, float] = MappingProxyType(
  {'ntm': 10.0, 'lru': 10.0, 'dnc': 10.0, 'associative': 8.0}
)


def frozen(**values: Any) -> Mapping[str, Any]:
  """Returns a mapping that cannot be changed."""
  return MappingProxyType(values)


def by_model(*values: Any) -> Mapping[str, Any]:
  """Returns values by model; they are in the order of `MODELS`."""
  return frozen(**dict(zip(MODELS, values, strict=True)))


def episodes(pre_recall: int, length: int) -> Mapping[str, Mapping[str, int]]:
  """Returns sizes with the paper's k and the paper's map."""
  recall = frozen(pre_recall=pre_recall, recall=5)
  others = {
    'navigation': frozen(rows=4, columns=4, length=length),
    'mixture': frozen(**recall, rows=4, columns=4, length=length),
    'rotation': frozen(length=30, size=32),
    'frames': frozen(),  # The file decides.
  }
  return frozen(**(dict.fromkeys(TASKS, recall) | others))
