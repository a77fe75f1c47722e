"""Builds a temporal VAE from the name of a model and a preset."""

import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax import presets
from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.ssm import SSM
from gtmm_jax.memory.transformer import Transformer
from gtmm_jax.model import frame_networks, maps
from gtmm_jax.model.temporal_vae import Store, TemporalVAE
from gtmm_jax.presets import Preset

# Models whose core gets a summary of a latent, where a preset has one.
_SUMMARISING = ('ntm', 'lru', 'dnc', 'associative')


class Sizes(NamedTuple):
  """Sizes of a preset that a core is made of.

  Attributes:
    latent_size: features of a latent that the core gets, first of its inputs.
    read_heads: R.
    controller_size: LSTM units of this model, or features of its context.
    attention_size: hidden units of attention by position.
    word_size: W.
    key_size: K.
    key_strength: of reads by content at the start.
    lru_strength: of the LRU's keys.
  """

  latent_size: int
  read_heads: int
  controller_size: int
  attention_size: int
  word_size: int
  key_size: int
  key_strength: float
  lru_strength: str


class Option(NamedTuple):
  """A setting of a core that no size of a preset decides.

  Attributes:
    type: as annotated; a `Literal` lists what is allowed.
    default: its value where none is given.
  """

  type: Any
  default: Any


# A model: makes a core of sizes and slots; its keyword-only parameters are the
# core's options. The core keeps the contract of `gtmm_jax.memory.contract`.
Make = Callable[..., nn.Module]


def of_class(core: type[nn.Module], **sizes_of: str) -> Make:
  """Returns the model whose core is of a class.

  Args:
    core: the class; its fields that nothing here settles are the options.
    **sizes_of: for fields of the class, names of fields of `Sizes`. A field
      `slots` gets the slots.
  """
  fields = core.__dataclass_fields__

  def make(sizes: Sizes, slots: int, **options: Any) -> nn.Module:
    values = {field: getattr(sizes, name) for field, name in sizes_of.items()}
    if 'slots' in fields:
      values['slots'] = slots
    return core(**values, **options)

  make.__signature__ = inspect.Signature(
    inspect.Parameter(
      name,
      inspect.Parameter.KEYWORD_ONLY,
      default=field.default,
      annotation=field.type,
    )
    for name, field in fields.items()
    if name not in (*sizes_of, 'slots', 'parent', 'name')
  )
  return make


def of_words(
  core: type[nn.Module], unused: tuple[str, ...] = (), **sizes_of: str
) -> Make:
  """Returns the model whose core's words may hold latents beside tags.

  Args:
    core: NTM, LRU or DNC.
    unused: options that mean nothing where words hold latents.
    **sizes_of: as of `of_class`.

  Returns:
    A model with one more option, `tag`: true stores latents beside tags (see
    `memory.interface.Interface`); with false all words and keys are linear in
    h_t alone, as in Gemici et al. 2017, section 3.2. Options that mean nothing
    do not reach the core.
  """
  make_core = of_class(core, **sizes_of)

  def make(
    sizes: Sizes, slots: int, *, tag: bool = True, **options: Any
  ) -> nn.Module:
    if not tag:
      sizes = sizes._replace(latent_size=0)
    left_out = unused if tag else ('controller_weight',)
    options = {name: options[name] for name in options.keys() - {*left_out}}
    return make_core(sizes, slots, **options)

  tag = inspect.signature(make).parameters['tag']
  others = inspect.signature(make_core).parameters.values()
  make.__signature__ = inspect.Signature([tag, *others])
  return make


def of_sequence(core: type[nn.Module]) -> Make:
  """Returns the model of a core that keeps inputs, not latents.

  Args:
    core: its field `size` is the preset's `controller_size`.

  Returns:
    A model with one more option, `sees_frames`: whether the core is given the
    features of x_{t-1} beside z_{t-1}, as the VRNN is.
  """
  make_core = of_class(core, size='controller_size')

  def make(
    sizes: Sizes, slots: int, *, sees_frames: bool = False, **options: Any
  ) -> nn.Module:
    del sees_frames  # It makes the core's inputs wider, and no other core.
    return make_core(sizes, slots, **options)

  sees_frames = inspect.signature(make).parameters['sees_frames']
  others = inspect.signature(make_core).parameters.values()
  make.__signature__ = inspect.Signature([sees_frames, *others])
  return make


_WORDS = {
  'word_size': 'word_size',
  'read_heads': 'read_heads',
  'controller_size': 'controller_size',
  'latent_size': 'latent_size',
  'initial_strength': 'key_strength',
}
_LATENTS = {
  'latent_size': 'latent_size',
  'read_heads': 'read_heads',
  'controller_size': 'controller_size',
  'attention_size': 'attention_size',
}
MODELS: Mapping[str, Make] = MappingProxyType(
  {
    'vrnn': of_class(LSTM, size='controller_size'),
    'introspective': of_class(Introspective, **_LATENTS),
    'ntm': of_words(NTM, **_WORDS),
    'lru': of_words(
      LRU,
      unused=('write_vector', 'key_activation'),
      strength='lru_strength',
      **_WORDS,
    ),
    'dnc': of_words(DNC, **_WORDS),
    'associative': of_class(
      Associative,
      **_LATENTS,
      key_size='key_size',
      initial_strength='key_strength',
    ),
    'transformer': of_sequence(Transformer),
    'ssm': of_sequence(SSM),
  }
)


def options(make: Make) -> dict[str, Option]:
  """Returns a model's options by name: its keyword-only parameters.

  An option that is not annotated has the type of its default.
  """
  return {
    name: Option(
      type(each.default) if each.annotation is each.empty else each.annotation,
      each.default,
    )
    for name, each in inspect.signature(make, eval_str=True).parameters.items()
    if each.kind is inspect.Parameter.KEYWORD_ONLY
  }


def temporal_vae(
  model: str,
  preset: Preset,
  frame_shape: tuple[int, int, int],
  frames: int,
  *,
  store: Store = 'sample',
  slots: int | None = None,
  options: Mapping[str, Any] = MappingProxyType({}),
  models: Mapping[str, Make] = MODELS,
) -> TemporalVAE:
  """Builds one of the paper's models, or one of the others.

  Args:
    model: one of `models`.
    preset: its sizes.
    frame_shape: (H, W, C); C = 1 is Bernoulli, C = 3 Gaussian. The digit
      networks need H and W to be multiples of 4, the paper's for colour at
      least 32.
    frames: of an episode.
    store: what the memory is given of a latent (see `TemporalVAE`).
    slots: of the memory; None for what the paper has (`presets.slots`).
    options: of the core, by the names of `options(models[model])`; others are
      the preset's or the model's.
    models: the models that there are.

  Returns:
    The model, without parameters.

  Raises:
    ValueError: there is no such model, its networks cannot have this size of
      frames, or its posterior starts from a prior that is a mixture. The core
      checks its options when it makes a carry.
  """
  if model not in models:
    raise ValueError(
      f'There is no model {model!r}; there are {", ".join(models)}.'
    )
  is_residual = preset.posterior == 'residual'
  if is_residual and preset.prior_components > 1:
    raise ValueError(
      f'posterior is residual and prior_components is '
      f'{preset.prior_components}; it must start from one Gaussian: '
      f'set prior_components to 1, or posterior to additive.'
    )
  encoder, decoder = frame_networks.choose(preset, frame_shape)
  summary_size = preset.summary_size if model in _SUMMARISING else 0
  sizes = Sizes(
    latent_size=summary_size or preset.latent_size,
    **{
      name: presets.for_model(preset, name, model) for name in Sizes._fields[1:]
    },
  )
  if slots is None:
    slots = presets.slots(model, frames)
  options = {**preset.options.get(model, {}), **options}
  core = models[model](sizes, slots, **options)
  return TemporalVAE(
    core=core,
    prior_map=maps.PriorMap(
      preset.latent_size,
      preset.prior_hidden,
      preset.prior_components,
      in_scan=is_residual,
    ),
    posterior_map=maps.PosteriorMap(encoder, preset.latent_size, is_residual),
    observation_map=maps.ObservationMap(
      decoder, 'bernoulli' if frame_shape[-1] == 1 else 'gaussian'
    ),
    latent_size=preset.latent_size,
    core_sees_frames=options.get('sees_frames', model == 'vrnn'),
    store=store,
    summary_size=summary_size,
    condition_scale=condition_scale(preset, sizes.latent_size),
    posterior_sees_prior=is_residual,
  )


def variable_shapes(
  model: TemporalVAE, frame_shape: tuple[int, int, int], condition_size: int = 0
) -> Any:
  """Returns the shapes of a model's variables; nothing is computed.

  Args:
    model: from `temporal_vae`.
    frame_shape: (H, W, C).
    condition_size: A, of the paper's c_t.

  Returns:
    `params` and, where it has them, `batch_stats`, of `jax.ShapeDtypeStruct`.
  """
  inputs = [
    jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    for shape in (frame_shape, (condition_size,), (model.noise_size,))
  ]
  return jax.eval_shape(
    lambda *inputs: model.init(jax.random.key(0), None, *inputs), *inputs
  )


def condition_scale(preset: Preset, features: int) -> float:
  """Returns the number by which the core's conditions are multiplied.

  Args:
    preset: the preset.
    features: of a latent that the core gets.
  """
  scale = preset.condition_scale
  return math.sqrt(features) if scale == 'sqrt' else scale
