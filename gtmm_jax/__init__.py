"""Generative temporal models with memory (Gemici et al. 2017) in JAX.

`gtmm_jax.load` opens a trained run. It is imported at its first use, and the
package imports nothing else by itself, so that `import gtmm_jax` costs nothing:
take the module you need, `from gtmm_jax.model import free_energy`.
"""

import importlib
from typing import Any

__version__ = '0.1.0'


def __getattr__(name: str) -> Any:
  """Imports `load` at its first use; raises `AttributeError` for others."""
  if name != 'load':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  # By name, since modules below import this one.
  return importlib.import_module('gtmm_jax.trained').load
