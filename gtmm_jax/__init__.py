"""Generative temporal models with memory (Gemici et al. 2017) in JAX.

The package imports nothing by itself, so that `import gtmm_jax` costs nothing:
take the module you need, `from gtmm_jax.model import free_energy`.
"""

__version__ = '0.1.0'
