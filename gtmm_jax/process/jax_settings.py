"""jax's own settings that change the numbers of a run."""

import contextlib
from collections.abc import Mapping
from typing import Any

import jax

# From the name in config.json to the setting of jax, and to the value of runs
# whose config.json does not have it.
_DECISIVE = {
  'key_generator': ('jax_default_prng_impl', 'threefry2x32'),
  'threefry_partitionable': ('jax_threefry_partitionable', True),
  'seed_offset': ('jax_random_seed_offset', 0),
  'x64': ('jax_enable_x64', False),
}
# Values of settings that older records lack.
BEFORE: Mapping[str, Any] = {
  **{name: before for name, (_, before) in _DECISIVE.items()},
  'precision': 'default',
}
# One name for each precision of products; jax's other names are unchanged.
_PRECISIONS = {
  None: 'default',
  'highest': 'float32',
  'high': 'tensorfloat32',
  'fastest': 'bfloat16',
}


def in_force() -> dict[str, Any]:
  """Returns the current settings, by their names in config.json."""
  values = {
    name: getattr(jax.config, of) for name, (of, _) in _DECISIVE.items()
  }
  return {**values, 'precision': precision('default')}


def key(seed: int) -> jax.Array:
  """Returns the key of a seed, for jax's current default generator."""
  return jax.random.key(seed, impl=in_force()['key_generator'])


def precision(flag: str) -> str:
  """Returns the precision of matrix products that a program runs with.

  Args:
    flag: value of --precision; `default` means jax's own setting.
  """
  chosen = flag
  if flag == 'default':
    chosen = jax.config.jax_default_matmul_precision
  return _PRECISIONS.get(chosen, chosen)


def set_precision(chosen: str) -> None:
  """Sets the precision of all matrix products of this program.

  Args:
    chosen: from `precision`; `default` leaves jax's setting unchanged.
  """
  if chosen != 'default':
    jax.config.update('jax_default_matmul_precision', chosen)


def with_precision(
  chosen: str,
) -> contextlib.AbstractContextManager[Any]:
  """Sets the precision of matrix products inside a `with` statement.

  Args:
    chosen: as of `set_precision`.
  """
  if chosen == 'default':
    return contextlib.nullcontext()
  return jax.default_matmul_precision(chosen)


def remedies(old: Mapping[str, Any]) -> dict[str, str]:
  """Tells how to set each of these settings as a run was started with.

  Args:
    old: the run's settings.

  Returns:
    Instructions for the user, by the names of settings.
  """
  instructions = {
    name: f'set {of.upper()}={old[name]}' for name, (of, _) in _DECISIVE.items()
  }
  variable = 'JAX_DEFAULT_MATMUL_PRECISION'
  instructions['precision'] = (
    f'give --precision and {variable} as they were then'
  )
  return instructions
