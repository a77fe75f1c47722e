"""The contract that every memory core keeps.

A core is a `flax.linen.RNNCellBase`:

  carry = core.initialize_carry(key, input_shape)      # shape of one input
  carry, context = core.apply(variables, carry, inputs)

* `inputs [..., I]` may have any number of leading batch axes, none included,
  and every leaf of the carry has the same leading axes. The same code thus
  serves in `flax.linen.RNN`, `jax.lax.scan` and `jax.vmap`.
* All state is in the carry, the last read and write weights included. A fresh
  sequence is a fresh carry; nothing survives elsewhere, nothing is reset. No
  two of its leaves share a buffer, so that a carry can be donated, and none is
  empty; where a core has no use for one there is None.
* A core computes in the dtype of its carry's floating-point leaves, and keeps
  the dtypes of all leaves: a scan can't change them. A fresh carry is float32,
  its counts int32, as parameters are, whatever jax's own settings say; inputs
  and parameters of another dtype are converted. To compute in float64 or
  bfloat16, hand it such a carry (`in_dtype`).
* Cores that are given a `latent_size` store the first so many features of their
  input, the paper's z_{t-1}; what follows them, the paper's c_t, reaches the
  controller alone.
"""

import math
import numbers
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing

Array = jax.Array

Reads = Literal['before', 'after']
InitialMemory = Literal['constant', 'learned']
Activation = Literal['identity', 'tanh']
Strength = Literal['softplus', 'oneplus']

_SIZES = (
  'size',
  'slots',
  'word_size',
  'read_heads',
  'write_heads',
  'controller_size',
  'attention_size',
  'key_size',
  'latent_size',
  'shift_range',
  'top_k',
)
# Those that may be zero have a check of their own.
_MAY_BE_ZERO = ('latent_size', 'shift_range', 'top_k')


def require_features(inputs: Array, at_least: int, core: str) -> None:
  """Checks that `inputs [..., I]` has I >= `at_least` features.

  Args:
    inputs: what the core was called with.
    at_least: the smallest width that makes sense to the core.
    core: the core's name, for the message.

  Raises:
    ValueError: if `inputs` is a scalar or too narrow.
  """
  if inputs.ndim < 1 or inputs.shape[-1] < at_least:
    raise ValueError(
      f'{core} takes inputs [..., I] with I >= {at_least}, the stored latent '
      f'first, and any number of leading batch axes; it got an array of shape '
      f'{inputs.shape}.'
    )


def require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
  """Checks a setting that is a word.

  Raises:
    ValueError: if `value` is not among `allowed`; names them.
  """
  if value not in allowed:
    raise ValueError(f'{name} is {value!r}; it must be {" or ".join(allowed)}.')


def require_sizes(core: Any, *more: str) -> None:
  """Checks that sizes are whole numbers, and those that must be, at least 1.

  Args:
    core: any of them.
    *more: names of sizes that other cores may set to zero.

  Raises:
    ValueError: names the first size that makes no sense.
  """
  for name in _SIZES:
    size = getattr(core, name, 1)
    if not isinstance(size, numbers.Integral) or isinstance(size, bool):
      raise ValueError(f'{name} is {size!r}; it must be a whole number.')
    if size < 1 and (name in more or name not in _MAY_BE_ZERO):
      raise ValueError(f'{name} is {size}; it must be >= 1.')


def require_strength(strength: float) -> None:
  """Checks a key strength that a core starts from.

  Raises:
    ValueError: if it is no finite number above 1.
  """
  # Written so that "not a number" fails, too.
  if not (isinstance(strength, numbers.Real) and 1 < strength < math.inf):
    raise ValueError(
      f'initial_strength is {strength!r}; it must be a number above 1.'
    )


def require_settings(core: Any) -> None:
  """Checks the settings that the cores which write words share.

  Args:
    core: an NTM, LRU or DNC.

  Raises:
    ValueError: in one sentence, what was wrong and what is wanted.
  """
  require_sizes(core)
  if not 0 <= core.latent_size < core.word_size:
    raise ValueError(
      f'latent_size is {core.latent_size} and word_size {core.word_size}; a '
      f'word holds a latent and a tag, so word_size must be the larger.'
    )
  require_one_of('reads', core.reads, get_args(Reads))
  require_one_of('key_activation', core.key_activation, get_args(Activation))
  require_one_of('initial_memory', core.initial_memory, get_args(InitialMemory))
  require_strength(core.initial_strength)


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


def require_sense(core: Any, carry: Any, inputs: Array) -> Array:
  """Checks what a core is called with: settings, carry and inputs.

  Each core checks its settings where it initialises a carry: nothing is called
  without one.

  Args:
    core: any of them.
    carry: what it was called with.
    inputs: [..., I].

  Returns:
    The inputs in the dtype of the carry.

  Raises:
    ValueError: in one sentence, what was wrong and what is wanted.
  """
  # Which checks the settings, too.
  wanted = jax.eval_shape(
    lambda: core.initialize_carry(jax.random.key(0), inputs.shape)
  )
  name = type(core).__name__
  require_features(inputs, max(1, getattr(core, 'latent_size', 1)), name)
  if type(carry) is not type(wanted):
    raise ValueError(
      f'{name} was called with a carry of type {type(carry).__name__}; it must '
      f'be {type(wanted).__name__}. Start with '
      f'initialize_carry(key, inputs.shape).'
    )
  if jax.tree.map(jnp.shape, carry) == jax.tree.map(jnp.shape, wanted):
    return jnp.asarray(inputs, _dtype(carry, name))
  # The memory, where there is one, tells most.
  for field in sorted(carry._fields, key=lambda field: field != 'memory'):
    found, asked = (
      jax.tree.map(jnp.shape, getattr(state, field))
      for state in (carry, wanted)
    )
    if found != asked:
      raise ValueError(
        f"{name}'s carry holds a {field} of shape {found}; inputs of shape "
        f'{inputs.shape} and the sizes of the core ask for {asked}. Start with '
        f'initialize_carry(key, inputs.shape).'
      )


def _dtype(carry: Any, name: str) -> Any:
  """The one dtype of a carry's floating-point leaves."""
  found = {
    jnp.result_type(x) for x in jax.tree.leaves(carry) if _is_floating(x)
  }
  if len(found) != 1:
    dtypes = ' and '.join(sorted(map(str, found))) or 'none'
    raise ValueError(
      f"The floating-point leaves of {name}'s carry are {dtypes}; they must "
      f'share one dtype, in which the core computes. See `core.in_dtype`.'
    )
  return found.pop()


def begin(core: nn.Module, carry: Any) -> Any:
  """The carry that a call of a core starts from.

  Args:
    core: in its compact call; where its `initial_memory` is 'learned', it gets
      a parameter `initial_memory` [N, W].
    carry: with `memory` [..., N, W] and `calls` [...].

  Returns:
    The carry; in the first call of a sequence the learned memory is put in.
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


def beside_one_another(reads: Array) -> Array:
  """Reads [..., R, W] as one vector [..., R W], of no sequences, too."""
  *batch, heads, size = reads.shape
  return reads.reshape(*batch, heads * size)


def put_in_turn(memory: Array, row: Array, number: Array) -> Array:
  """Puts a row in as the one of this number: each slot in turn, then again.

  Args:
    memory: [..., N, W].
    row: [..., W].
    number: int32 [...], from 1. As number 0, a placeholder's, it comes into the
      last slot, where the N-th replaces it: to be hidden until then.

  Returns:
    Memory [..., N, W].
  """
  slots = memory.shape[-2]
  slot = ((number - 1) % slots)[..., None]
  is_slot = addressing.counting(slots, slot) == slot
  return jnp.where(is_slot[..., None], row[..., None, :], memory)
