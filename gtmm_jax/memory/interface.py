"""From the controller to the memory: keys, words, interface, and a step."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, derivatives, products
from gtmm_jax.memory.lstm import LSTM

Array = jax.Array
# Of h_t in what a latent is stored with: at the start an LSTM's output is small
# beside latents of variance one, and counted once it would tell frames apart,
# but not places, which only the controller knows.
CONTROLLER_WEIGHT = 4.0


class Part(NamedTuple):
  """One named part of an interface.

  Attributes:
    shape: of what it holds for one time step.
    bias: at the start; a number, or one for each of the last axis.
    starts_at_zero: whether its kernel is zero at the start.
  """

  shape: tuple[int, ...]
  bias: float | tuple[float, ...] = 0.0
  starts_at_zero: bool = False


class Asked(NamedTuple):
  """What a controller asks of its memory in one step.

  Attributes:
    read_keys: [..., R, W].
    write_vectors: [..., H, W]; None where there are no write heads.
    tag: to be carried to the next step, [..., W - Z]; None without latents.
    parts: name -> [..., *shape], not yet activated.
  """

  read_keys: Array
  write_vectors: Array | None
  tag: Array | None
  parts: dict[str, Array]


class Interface(nn.Module):
  """From the controller's output to everything that it asks of its memory.

  Without latents (`latent_size` 0) all of it is one linear map of h_t, as in
  the papers of NTM and DNC.

  With them, a word written at t is [z_{t-1}, tag_{t-1}]: the latent beside a
  tag that was made a step earlier, before that latent was known, tag_t =
  A [4 h_t, z_{t-1}]. A read key starts as the same question without its answer,
  [0, tag_t], plus a correction B [h_t, z_{t-1}] that is zero at first. So a
  situation that comes again finds what followed it (Gemici et al. 2017 say of
  navigation that these memories "collocate the new memories with context
  information", and leave open how). All heads are given the same word.

  Attributes:
    word_size: W, above Z.
    read_heads: R, number of read keys.
    write_heads: H, number of write vectors.
    parts: name -> shape and initial bias of what else is asked.
    latent_size: Z.
    activation: of keys and write vectors that are linear in h_t alone.
  """

  word_size: int
  read_heads: int
  write_heads: int
  parts: Mapping[str, Part]
  latent_size: int = 0
  activation: contract.Activation = 'identity'

  @nn.compact
  def __call__(self, h: Array, inputs: Array, tag_tm1: Array | None) -> Asked:
    """From h_t [..., H], inputs [..., Z + A] and tag_{t-1} to what is asked."""
    if self.latent_size:
      latent = inputs[..., : self.latent_size]
      word = jnp.concatenate([latent, tag_tm1], axis=-1)
      write_vectors = jnp.broadcast_to(
        word[..., None, :], (*h.shape[:-1], self.write_heads, self.word_size)
      )
      read_keys, tag = self._question(h, latent)
      return Asked(read_keys, write_vectors, tag, linear(h, self.parts))
    size = self.word_size
    words = {'read_keys': Part((self.read_heads, size))}
    if self.write_heads:
      words['write_vectors'] = Part((self.write_heads, size))
    raw = linear(h, {**words, **self.parts})
    asked = {name: activate(raw.pop(name), self.activation) for name in words}
    return Asked(asked['read_keys'], asked.get('write_vectors'), tag_tm1, raw)

  def _question(self, h: Array, latent: Array) -> tuple[Array, Array]:
    """Read keys [..., R, W] and tag [..., W - Z]."""
    seen = jnp.concatenate([h, latent], axis=-1)
    known = jnp.concatenate([CONTROLLER_WEIGHT * h, latent], axis=-1)
    tag = nn.Dense(
      self.word_size - self.latent_size,
      dtype=h.dtype,
      dot_general=products.dot_general,
      name='tag',
    )(known)
    correction = nn.Dense(
      self.read_heads * self.word_size,
      kernel_init=nn.initializers.zeros,
      dtype=h.dtype,
      dot_general=products.dot_general,
      name='read_keys',
    )(seen)
    question = jnp.concatenate([jnp.zeros_like(latent), tag], axis=-1)
    shape = (*h.shape[:-1], self.read_heads, self.word_size)
    return question[..., None, :] + correction.reshape(shape), tag


def linear(
  x: Array, parts: Mapping[str, Part], name: str = 'linear'
) -> dict[str, Array]:
  """One linear map, cut into parts; in the compact call of a module.

  Args:
    x: [..., I].
    parts: name -> shape, and how it starts.
    name: of the layer.

  Returns:
    name -> [..., *shape].
  """
  sizes = [math.prod(part.shape) for part in parts.values()]

  def initial_kernel(key, shape, dtype=jnp.float32):
    kernel = nn.initializers.lecun_normal()(key, shape, dtype)
    is_used = [not part.starts_at_zero for part in parts.values()]
    used = jnp.repeat(
      jnp.array(is_used, dtype),
      jnp.array(sizes),
      total_repeat_length=sum(sizes),
    )
    return kernel * addressing.aligned(used, kernel)

  def initial_bias(key, shape, dtype=jnp.float32):
    del key
    biases = [
      jnp.broadcast_to(jnp.asarray(part.bias, dtype), part.shape).reshape(-1)
      for part in parts.values()
    ]
    return jnp.concatenate(biases).reshape(shape)

  flat = nn.Dense(
    sum(sizes),
    kernel_init=initial_kernel,
    bias_init=initial_bias,
    dtype=x.dtype,
    dot_general=products.dot_general,
    name=name,
  )(x)
  ends = [sum(sizes[: n + 1]) for n in range(len(sizes) - 1)]
  pieces = jnp.split(flat, ends, axis=-1)
  return {
    name: piece.reshape(*x.shape[:-1], *part.shape)
    for (name, part), piece in zip(parts.items(), pieces, strict=True)
  }


def advance(
  cell: nn.Module,
  carry: Any,
  inputs: Array,
  ask: Callable[[Array, Array, Array | None], tuple[Any, Array | None]],
  access: Callable[[Any, Any], Any],
) -> tuple[Any, Array]:
  """One step of a core that writes words, in its compact call.

  h_t = LSTM(h_{t-1}, [inputs_t, reads_{t-1}]); what is asked comes from h_t;
  the memory is written and read; the context is [reads_t, h_t].

  Args:
    cell: an NTM, LRU or DNC.
    carry: its state.
    inputs: [..., I].
    ask: from h_t, inputs and tag_{t-1} to what is asked, and the tag.
    access: from a state and what is asked to the next state.

  Returns:
    The state after the step, and the context `[..., R W + controller_size]`.

  Raises:
    ValueError: if settings, carry or inputs make no sense.
  """
  inputs = contract.require_sense(cell, carry, inputs)
  carry = contract.begin(cell, carry)
  controller, h = LSTM(cell.controller_size, name='controller')(
    carry.controller,
    jnp.concatenate(
      [inputs, contract.beside_one_another(carry.reads)], axis=-1
    ),
  )
  asked, tag = ask(h, inputs, carry.tag)
  state = derivatives.sparing(access)(carry, asked)
  context = jnp.concatenate(
    [contract.beside_one_another(state.reads), h], axis=-1
  )
  state = state._replace(controller=controller, tag=tag, calls=carry.calls + 1)
  return state, context


def activate(x: Array, activation: contract.Activation) -> Array:
  """Keys and written vectors: as they are, or between -1 and 1."""
  return jnp.tanh(x) if activation == 'tanh' else x


def strengthen(x: Array, strength: contract.Strength) -> Array:
  """Key strengths: softplus(x) > 0, or oneplus(x) >= 1.

  Raises:
    ValueError: if `strength` is neither.
  """
  contract.require_one_of('strength', strength, get_args(contract.Strength))
  if strength == 'oneplus':
    return addressing.oneplus(x)
  return jax.nn.softplus(x)


def strength_bias(initial: float, strength: contract.Strength) -> float:
  """The x for which `strengthen` gives `initial`, a number above 1."""
  value = initial - 1.0 if strength == 'oneplus' else initial
  return value + math.log1p(-math.exp(-value))


def initial_tag(
  batch: tuple[int, ...], word_size: int, latent_size: int
) -> Array | None:
  """Makes the tag before the first step: zeros [..., W - Z], None if Z is 0."""
  return (
    contract.zeros(*batch, word_size - latent_size) if latent_size else None
  )
