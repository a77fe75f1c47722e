"""Models as functions: from sizes of a preset to a core with its options."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flax import linen as nn

from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.ssm import SSM
from gtmm_jax.memory.transformer import Transformer


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
