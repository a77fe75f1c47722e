"""The interface from a controller to its memory.

Parts of an interface are described by `Part`s in a `NamedTuple`, and come back
as arrays in the same `NamedTuple`, not yet activated.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, scan

Array = jax.Array
# Default weight of h_t in what a latent is stored with. At the start an LSTM's
# output is small beside latents of variance one; with weight one, it would tell
# frames apart, but not places, which only the controller knows.
CONTROLLER_WEIGHT = 4.0


class Part(NamedTuple):
  """One part of an interface.

  Attributes:
    shape: its shape at one time step, without batch axes.
    bias: at the start; a number, or one for each entry of the last axis.
    starts_at_zero: whether its kernel is zero at the start.
  """

  shape: tuple[int, ...]
  bias: float | tuple[float, ...] = 0.0
  starts_at_zero: bool = False


class Words(NamedTuple):
  """The words that a controller seeks and writes in one step.

  Attributes:
    read_keys: [..., R, W].
    write_vectors: [..., H, W]; None without write heads.
  """

  read_keys: Array
  write_vectors: Array | None


class Interface(nn.Module):
  """A map from the controller's output to words and to an interface's parts.

  Without latents in words (`latent_size` 0) all of it is one linear map of h_t,
  as in the papers of NTM and DNC and as in Gemici et al. 2017, section 3.2,
  k_t = f_key(h_t): latents reach the memory through the controller alone.

  With latents, a word written at t is [z_{t-1}, tag_{t-1}]: the latent beside a
  tag that was made a step earlier, before that latent was known, tag_t =
  A [u h_t, z_{t-1}], with u the controller's weight. A read key starts as the
  same question without its answer, [0, tag_t], plus a correction
  B [h_t, z_{t-1}] that is zero at first. So a situation that comes again finds
  what followed it. All write heads write the same word. This is ours: Gemici et
  al. 2017 say of navigation that these memories "collocate the new memories
  with context information", and leave open how.

  Attributes:
    word_size: W, above Z.
    read_heads: R, number of read keys.
    write_heads: H, number of write vectors.
    parts: a NamedTuple of `Part`s, nested ones included; None is no part.
    latent_size: Z, the inputs at the front that words hold; 0 holds none.
    activation: of keys and write vectors that are linear in h_t alone.
    controller_weight: u, of h_t in tags.
  """

  word_size: int
  read_heads: int
  write_heads: int
  parts: Any
  latent_size: int = 0
  activation: contract.Activation = 'identity'
  controller_weight: float = CONTROLLER_WEIGHT

  @nn.compact
  def __call__(
    self, h: Array, inputs: Array, tag_tm1: Array | None
  ) -> tuple[Words, Any, Array | None]:
    """Computes the words and the parts of the interface.

    Args:
      h: h_t, [..., C].
      inputs: [..., Z + A].
      tag_tm1: tag_{t-1}, [..., W - Z]; None without latents.

    Returns:
      The words, the parts as arrays [..., *shape], and tag_t.
    """
    if self.latent_size:
      latent = inputs[..., : self.latent_size]
      word = jnp.concatenate([latent, tag_tm1], axis=-1)
      write_vectors = jnp.broadcast_to(
        word[..., None, :], (*h.shape[:-1], self.write_heads, self.word_size)
      )
      read_keys, tag = self._question(h, latent)
      return Words(read_keys, write_vectors), linear(h, self.parts), tag
    words = Words(
      Part((self.read_heads, self.word_size)),
      Part((self.write_heads, self.word_size)) if self.write_heads else None,
    )
    words, parts = linear(h, (words, self.parts))
    words = jax.tree.map(lambda x: activate(x, self.activation), words)
    return words, parts, tag_tm1

  def _question(self, h: Array, latent: Array) -> tuple[Array, Array]:
    """Makes read keys [..., R, W] and tag_t [..., W - Z]."""
    seen = jnp.concatenate([h, latent], axis=-1)
    known = jnp.concatenate([self.controller_weight * h, latent], axis=-1)
    tag_size = self.word_size - self.latent_size
    tag = scan.dense(tag_size, dtype=h.dtype, name='tag')(known)
    correction = scan.dense(
      self.read_heads * self.word_size,
      kernel_init=nn.initializers.zeros,
      dtype=h.dtype,
      name='read_keys',
    )(seen)
    question = jnp.concatenate([jnp.zeros_like(latent), tag], axis=-1)
    shape = (*h.shape[:-1], self.read_heads, self.word_size)
    return question[..., None, :] + correction.reshape(shape), tag


def of_core(core: nn.Module, write_heads: int, parts: Any) -> Interface:
  """Makes the interface of a core, in the core's compact call.

  Args:
    core: NTM, LRU or DNC, whose fields set what its words are.
    write_heads: as in `Interface`.
    parts: as in `Interface`.
  """
  return Interface(
    core.word_size,
    core.read_heads,
    write_heads,
    parts,
    core.latent_size,
    core.key_activation,
    core.controller_weight,
    name='interface',
  )


def linear(x: Array, parts: Any, name: str = 'linear') -> Any:
  """Maps `x` linearly to all parts with one product, in a compact call.

  Args:
    x: [..., I].
    parts: a tree of `Part`s, such as a NamedTuple; None is no part.
    name: of the layer.

  Returns:
    The same tree of arrays [..., *shape].
  """
  leaves, tree = jax.tree.flatten(parts, is_leaf=lambda x: isinstance(x, Part))
  sizes = [math.prod(part.shape) for part in leaves]

  def initial_kernel(key, shape, dtype=jnp.float32):
    kernel = nn.initializers.lecun_normal()(key, shape, dtype)
    is_used = [not part.starts_at_zero for part in leaves]
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
      for part in leaves
    ]
    return jnp.concatenate(biases).reshape(shape)

  flat = scan.dense(
    sum(sizes),
    kernel_init=initial_kernel,
    bias_init=initial_bias,
    dtype=x.dtype,
    name=name,
  )(x)
  ends = [sum(sizes[: n + 1]) for n in range(len(sizes) - 1)]
  pieces = jnp.split(flat, ends, axis=-1)
  return jax.tree.unflatten(
    tree,
    [
      piece.reshape(*x.shape[:-1], *part.shape)
      for part, piece in zip(leaves, pieces, strict=True)
    ],
  )


def activate(x: Array, activation: contract.Activation) -> Array:
  """Returns keys or written vectors as they are, or between -1 and 1."""
  return jnp.tanh(x) if activation == 'tanh' else x


def strengthen(x: Array, strength: contract.Strength) -> Array:
  """Returns key strengths, softplus(x) > 0 or oneplus(x) >= 1."""
  if strength == 'oneplus':
    return addressing.oneplus(x)
  return jax.nn.softplus(x)


def strength_bias(initial: float, strength: contract.Strength) -> float:
  """Returns the x for which `strengthen` gives `initial`, a number above 1."""
  value = initial - 1.0 if strength == 'oneplus' else initial
  return value + math.log1p(-math.exp(-value))


def initial_tag(
  batch: tuple[int, ...], word_size: int, latent_size: int
) -> Array | None:
  """Makes the tag before the first step: zeros [..., W - Z], None if Z is 0."""
  return (
    contract.zeros(*batch, word_size - latent_size) if latent_size else None
  )
