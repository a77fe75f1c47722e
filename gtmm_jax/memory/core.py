"""The contract that every memory core keeps.

A core is a `flax.linen.RNNCellBase`:

  carry = core.initialize_carry(key, input_shape)      # shape of one input
  carry, context = core.apply(variables, carry, inputs)

* `inputs [..., I]` may have any number of leading batch axes, none included,
  and every leaf of the carry has the same leading axes. The same code thus
  serves in `flax.linen.RNN`, `jax.lax.scan` and `jax.vmap`.
* All state is in the carry, the last read and write weights included. A fresh
  sequence is a fresh carry; nothing survives elsewhere, nothing is reset.
* Cores with an external memory store the first `latent_size` features of their
  input, the paper's z_{t-1}; what follows them, the paper's c_t, reaches the
  controller alone.
"""

import jax

Array = jax.Array


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
