"""The contract that every memory core keeps, its two checks, and its helpers.

A core is a `flax.linen.RNNCellBase`:

  carry = core.initialize_carry(key, input_shape)      # shape of one input
  carry, context = core.apply(variables, carry, inputs)

* `inputs [..., I]` may have any number of leading batch axes, none included,
  and every leaf of the carry has the same leading axes. The same code thus
  serves in `flax.linen.RNN`, `jax.lax.scan` and `jax.vmap`.
* All state is in the carry, the last read and write weights included. A fresh
  sequence is a fresh carry. No two leaves share a buffer, so that a carry can
  be donated, and no leaf is empty: a field that a core has no use for is None.
* A core computes in the dtype of its carry's floating-point leaves, and keeps
  the dtypes of all leaves, as a scan requires. A fresh carry is float32, its
  counts int32, whatever jax's own settings say; inputs and parameters of
  another dtype are converted. To compute in float64 or bfloat16, convert the
  carry (`in_dtype`).
* A core with a `latent_size` stores the first so many features of its input,
  the paper's z_{t-1}; the controller alone sees the others, the paper's c_t.
"""

import dataclasses
import math
import numbers
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing

Array = jax.Array

Reads = Literal['before', 'after']
InitialMemory = Literal['constant', 'learned']
Activation = Literal['identity', 'tanh']
Strength = Literal['softplus', 'oneplus']

# Fields of cores that are numbers, and what they must exceed.
_ABOVE = {'initial_strength': 1, 'controller_weight': 0}


def check_settings(core: nn.Module, *may_be_zero: str) -> None:
  """Checks a core's settings by the types that its fields are declared with.

  A field of type `int` holds a whole number, one of a `Literal` type one of its
  words, `initial_strength` a number above 1, and `controller_weight` one above
  0. A `word_size` leaves room for a tag beside the latent. A core calls it in
  `initialize_carry`.

  Args:
    core: the core; its annotations are types, not strings.
    *may_be_zero: the sizes that may be 0; all others are at least 1.

  Raises:
    ValueError: a setting is wrong; names the first one and what is allowed.
  """
  for field in dataclasses.fields(core):
    name, value = field.name, getattr(core, field.name)
    if field.type is int:
      if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ValueError(f'{name} is {value!r}; it must be a whole number.')
      least = 0 if name in may_be_zero else 1
      if value < least:
        raise ValueError(f'{name} is {value}; it must be >= {least}.')
    elif get_origin(field.type) is Literal:
      check_word(name, value, get_args(field.type))
    # NaN fails this test, too.
    elif name in _ABOVE and not (
      isinstance(value, numbers.Real) and _ABOVE[name] < value < math.inf
    ):
      raise ValueError(
        f'{name} is {value!r}; it must be a number above {_ABOVE[name]}.'
      )
  word_size = getattr(core, 'word_size', math.inf)
  if getattr(core, 'latent_size', 0) >= word_size:
    raise ValueError(
      f'latent_size is {core.latent_size} and word_size {word_size}; a word '
      f'holds a latent and a tag, so word_size must be the larger.'
    )


def check_word(name: str, value: Any, allowed: tuple[str, ...]) -> None:
  """Checks a setting that is a word.

  Raises:
    ValueError: `value` is not among `allowed`; names them.
  """
  if value not in allowed:
    raise ValueError(f'{name} is {value!r}; it must be {" or ".join(allowed)}.')


def check_call(core: nn.Module, carry: Any, inputs: Array) -> Array:
  """Checks the settings, the carry and the inputs of a call.

  Args:
    core: any core whose `initialize_carry` checks its settings.
    carry: the carry that it was called with, a NamedTuple.
    inputs: [..., I].

  Returns:
    The inputs in the dtype of the carry.

  Raises:
    ValueError: a setting, the carry or the inputs are wrong; tells what is
      allowed.
  """
  name = type(core).__name__
  wanted = jax.eval_shape(
    lambda: core.initialize_carry(jax.random.key(0), inputs.shape)
  )
  least = max(1, getattr(core, 'latent_size', 1))
  if inputs.ndim < 1 or inputs.shape[-1] < least:
    raise ValueError(
      f'{name} takes inputs [..., I] with I >= {least}, the stored latent '
      f'first, and any number of leading batch axes; it got an array of shape '
      f'{inputs.shape}.'
    )
  if type(carry) is not type(wanted):
    raise ValueError(
      f'{name} was called with a carry of type {type(carry).__name__}; it must '
      f'be {type(wanted).__name__}. Start with '
      f'initialize_carry(key, inputs.shape).'
    )
  shapes, wanted = (jax.tree.map(jnp.shape, each) for each in (carry, wanted))
  if shapes == wanted:
    return jnp.asarray(inputs, _dtype(carry, name))
  wrong = [
    field
    for field in carry._fields
    if getattr(shapes, field) != getattr(wanted, field)
  ]
  # The memory's shape, where it is wrong, explains those of other fields.
  field = 'memory' if 'memory' in wrong else wrong[0]
  raise ValueError(
    f"{name}'s carry holds a {field} of shape {getattr(shapes, field)}; inputs "
    f'of shape {inputs.shape} and the sizes of the core ask for '
    f'{getattr(wanted, field)}. Start with initialize_carry(key, inputs.shape).'
  )


def _dtype(carry: Any, name: str) -> Any:
  """Returns the one dtype of a carry's floating-point leaves."""
  dtypes = {
    jnp.result_type(x) for x in jax.tree.leaves(carry) if _is_floating(x)
  }
  if len(dtypes) != 1:
    listed = ' and '.join(sorted(map(str, dtypes))) or 'none'
    raise ValueError(
      f"The floating-point leaves of {name}'s carry are {listed}; they must "
      f'share one dtype, in which the core computes. See `contract.in_dtype`.'
    )
  return dtypes.pop()


def in_dtype(carry: Any, dtype: Any) -> Any:
  """Converts the floating-point leaves of a carry, in which a core computes.

  Args:
    carry: of any core; leaves that count stay integers.
    dtype: such as `jnp.float64`.

  Returns:
    The carry.
  """
  return jax.tree.map(
    lambda leaf: leaf.astype(dtype) if _is_floating(leaf) else leaf, carry
  )


def _is_floating(leaf: Array) -> bool:
  return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def zeros(*shape: int) -> Array:
  """Makes zeros of float32, whatever `jax_enable_x64` says."""
  return jnp.zeros(shape, jnp.float32)


def with_initial_memory(core: nn.Module, carry: Any) -> Any:
  """Puts the learned memory into the carry in the first call of a sequence.

  Args:
    core: in its compact call; if its `initial_memory` is 'learned', it gets a
      parameter `initial_memory` [N, W].
    carry: with `memory` [..., N, W] and `calls` [...].

  Returns:
    The carry; unchanged if the initial memory is 'constant'.
  """
  if core.initial_memory == 'constant':
    return carry
  learned = core.param(
    'initial_memory',
    nn.initializers.normal(0.1),
    (core.slots, core.word_size),
    jnp.float32,
  )
  memory = carry.memory
  is_first = (carry.calls == 0)[..., None, None]
  learned = addressing.aligned(learned.astype(memory.dtype), memory)
  return carry._replace(memory=jnp.where(is_first, learned, memory))


def normalise(core: nn.Module, x: Array, name: str) -> Array:
  """Divides features by their root mean square, and multiplies by a scale.

  Args:
    core: in its compact call; it gets the scale as a parameter [C], ones at
      the start.
    x: [..., C].
    name: of the parameter.
  """
  scale = core.param(name, nn.initializers.ones, (x.shape[-1],), jnp.float32)
  normalised = addressing.normalised(x)
  return addressing.aligned(scale.astype(x.dtype), x) * normalised


def flatten_heads(reads: Array) -> Array:
  """Flattens reads [..., R, W] to [..., R W]; also with an empty batch."""
  *batch, heads, size = reads.shape
  return reads.reshape(*batch, heads * size)


def write_to_ring(memory: Array, row: Array, number: Array) -> Array:
  """Writes `row` to slot (number - 1) mod N: memory is a ring buffer.

  Args:
    memory: [..., N, W].
    row: [..., W].
    number: int32 [...], counted from 1. Number 0 is a placeholder in the last
      slot: mask it until row N replaces it.

  Returns:
    Memory [..., N, W].
  """
  slots = memory.shape[-2]
  slot = ((number - 1) % slots)[..., None]
  is_slot = addressing.counting(slots, slot) == slot
  return jnp.where(is_slot[..., None], row[..., None, :], memory)
