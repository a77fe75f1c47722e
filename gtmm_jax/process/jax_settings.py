"""Settings of jax's own that decide what a run computes."""

from collections.abc import Mapping
from typing import Any

# jax is imported where it is asked: most of what imports this does not need it.

# By its name in config.json: the setting of jax, and what runs computed with
# whose config.json does not have it.
_DECISIVE = {
  'key_generator': ('jax_default_prng_impl', 'threefry2x32'),
  'threefry_partitionable': ('jax_threefry_partitionable', True),
  'seed_offset': ('jax_random_seed_offset', 0),
  'x64': ('jax_enable_x64', False),
}
# What older records lack.
BEFORE: Mapping[str, Any] = {
  **{name: before for name, (_, before) in _DECISIVE.items()},
  'precision': 'default',
}
# Of each precision of products one name; others that jax knows stay.
_PRECISIONS = {
  None: 'default',
  'highest': 'float32',
  'high': 'tensorfloat32',
  'fastest': 'bfloat16',
}


def in_force() -> dict[str, Any]:
  """Returns the settings that are in force, by their names in config.json."""
  import jax

  values = {
    name: getattr(jax.config, of) for name, (of, _) in _DECISIVE.items()
  }
  return {**values, 'precision': precision('default')}


def key(seed: int) -> Any:
  """Returns the key of a seed, of the generator that is in force."""
  import jax

  return jax.random.key(seed, impl=in_force()['key_generator'])


def precision(given: str) -> str:
  """Returns the precision of products that a program runs with.

  Args:
    given: --precision; `default` leaves what jax has been told.
  """
  import jax

  chosen = given
  if given == 'default':
    chosen = jax.config.jax_default_matmul_precision
  return _PRECISIONS.get(chosen, chosen)


def set_precision(chosen: str) -> None:
  """Sets that of all products of this program.

  Args:
    chosen: what `precision` returned; `default` leaves what jax has been told.
  """
  import jax

  if chosen != 'default':
    jax.config.update('jax_default_matmul_precision', chosen)


def remedies(old: Mapping[str, Any]) -> dict[str, str]:
  """Tells how each of these settings becomes what a run was begun with.

  Args:
    old: the run's settings.

  Returns:
    What to do, for people, by the settings' names.
  """
  told = {
    name: f'set {of.upper()}={old[name]}' for name, (of, _) in _DECISIVE.items()
  }
  variable = 'JAX_DEFAULT_MATMUL_PRECISION'
  told['precision'] = f'give --precision and {variable} as they were then'
  return told
