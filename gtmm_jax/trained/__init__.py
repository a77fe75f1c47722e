"""Trained runs as models to use: observe, dream, measure, look inside."""

from gtmm_jax.trained.evaluating import Measured, evaluate
from gtmm_jax.trained.loading import load
from gtmm_jax.trained.trained import Trained

__all__ = ['Measured', 'Trained', 'evaluate', 'load']
