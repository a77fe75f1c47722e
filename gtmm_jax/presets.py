"""The paper's sizes and the small ones: plain numbers, no jax.

`paper` is the setting of Gemici et al. 2017, section 4.1 and appendix B.
`small` keeps its models and its 28x28 frames, and takes dense networks and
short episodes, so that two CPU cores learn a task in minutes.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

MODELS = ('vrnn', 'introspective', 'ntm', 'lru', 'dnc', 'associative')
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
# Options of a model's core whose default a task changes, by (model, task); they
# come before those of a preset.
OPTIONS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
  {('introspective', 'dynamic_dependency'): {'order': 'arrival'}}
)


def _frozen(**values: Any) -> Mapping[str, Any]:
  return MappingProxyType(values)


def _by_model(*values: Any) -> Mapping[str, Any]:
  """Returns values by model; they are in the order of `MODELS`."""
  return _frozen(**dict(zip(MODELS, values, strict=True)))


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
    controller_size: LSTM units of each model.
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


_SAMPLES = _frozen(**dict.fromkeys(MODELS, 'sample'))
# Gemici et al. 2017, section 3.2: keys are functions of h_t alone.
_PAPER_WIRING = _frozen(tag=False, controller_weight=1.0)
_KEY_STRENGTH = _frozen(ntm=10.0, lru=10.0, dnc=10.0, associative=8.0)


def _episodes(pre_recall: int, length: int) -> Mapping[str, Mapping[str, int]]:
  """Returns sizes with the paper's k and the paper's map."""
  recall = _frozen(pre_recall=pre_recall, recall=5)
  others = {
    'navigation': _frozen(rows=4, columns=4, length=length),
    'mixture': _frozen(**recall, rows=4, columns=4, length=length),
    'rotation': _frozen(length=30, size=32),
    'frames': _frozen(),  # The file decides.
  }
  return _frozen(**(dict.fromkeys(TASKS, recall) | others))


PAPER = Preset(
  networks='digit',
  dense_hidden=(),
  patches=(),
  latent_size=32,
  prior_hidden=(64,),
  prior_components=1,
  posterior='additive',
  read_heads=5,
  controller_size=_by_model(299, 422, 124, 127, 122, 179),
  attention_size=128,
  word_size=48,
  key_size=64,
  summary_size=0,
  key_strength=_KEY_STRENGTH,
  lru_strength='none',
  condition_scale=1.0,
  options=_frozen(**dict.fromkeys(('ntm', 'lru', 'dnc'), _PAPER_WIRING)),
  store=_SAMPLES,
  batch_size=10,
  learning_rate=1e-3,
  long_learning_rate=1e-4,
  schedule='constant',
  warmup_steps=0,
  fall_share=2 / 3,
  gradient_norm=None,
  average=0.0,
  replicas=20,
  steps=_frozen(**dict.fromkeys(TASKS, 100_000)),
  episodes=_episodes(pre_recall=20, length=25),
  report_every=1_000,
)

SMALL = Preset(
  networks='dense',
  dense_hidden=(256, 256),
  patches=(),
  latent_size=32,
  prior_hidden=(128,),
  prior_components=1,
  posterior='additive',
  read_heads=5,
  controller_size=_by_model(204, 205, 68, 72, 69, 128),
  attention_size=128,
  word_size=64,
  key_size=64,
  summary_size=0,
  key_strength=_KEY_STRENGTH,
  lru_strength='softplus',
  condition_scale='sqrt',
  options=_frozen(),
  store=_frozen(
    vrnn='sample',
    introspective='sample',
    ntm='denoised',
    lru='denoised',
    dnc='denoised',
    associative='denoised',
  ),
  batch_size=10,
  learning_rate=2e-3,
  long_learning_rate=1e-4,
  schedule='decay',
  warmup_steps=100,
  fall_share=2 / 3,
  gradient_norm=None,
  average=0.0,
  replicas=3,
  steps=_frozen(
    perfect_recall=2_000,
    parity_recall=10_000,
    one_shot_recall=3_000,
    dynamic_dependency=6_000,
    similarity_cued_recall=4_000,
    navigation=8_000,
    mixture=10_000,
    rotation=2_400,
    frames=5_000,
  ),
  episodes=_episodes(pre_recall=10, length=20),
  report_every=100,
)

# The 3D tasks: section 4.1 and the second half of appendix B.
PAPER_COLOUR = dataclasses.replace(
  PAPER,
  networks='colour',
  latent_size=256,
  prior_hidden=(128,),
  controller_size=_by_model(353, 111, 351, 362, 350, 425),
  word_size=64,
  summary_size=48,
)

SMALL_COLOUR = dataclasses.replace(
  SMALL,
  dense_hidden=(256,),
  patches=((4, 32), (2, 64)),
  latent_size=128,
  prior_hidden=(256,),
  controller_size=_by_model(230, 128, 143, 149, 143, 194),
  summary_size=48,
  store=_frozen(**dict.fromkeys(MODELS, 'denoised') | {'vrnn': 'sample'}),
)

PRESETS: Mapping[str, Preset] = MappingProxyType(
  {'paper': PAPER, 'small': SMALL}
)
_COLOUR: Mapping[str, Preset] = MappingProxyType(
  {'paper': PAPER_COLOUR, 'small': SMALL_COLOUR}
)


def choose(name: str, channels: int) -> Preset:
  """Returns the preset of a name for grey (one channel) or colour frames."""
  return (PRESETS if channels == 1 else _COLOUR)[name]


def for_model(preset: Preset, name: str, model: str) -> Any:
  """Returns a preset's value for a model, built-in or the user's.

  Args:
    preset: the preset.
    name: of one of its fields; may be the same for all models.
    model: name of the model.
  """
  value = getattr(preset, name)
  if name in BY_MODEL:
    return value.get(model, BY_MODEL[name])
  return value


def change(preset: Preset, model: str, values: Mapping[str, Any]) -> Preset:
  """Returns a preset with other values.

  Args:
    preset: the preset.
    model: whose value changes, where each model has its own.
    values: by the names of the preset's fields.
  """
  return dataclasses.replace(
    preset,
    **{
      name: {**getattr(preset, name), model: value}
      if name in BY_MODEL
      else value
      for name, value in values.items()
    },
  )


def slots(model: str, frames: int) -> int:
  """Returns a memory's slots: as many as frames, for the LRU five times more.

  Gemici et al. 2017, section 4.1.
  """
  return 5 * frames if model == 'lru' else frames
