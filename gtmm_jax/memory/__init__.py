"""Memory cores: recurrent cells that can be taken into any JAX project."""

from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.ssm import SSM
from gtmm_jax.memory.transformer import Transformer

__all__ = [
  'DNC',
  'LRU',
  'LSTM',
  'NTM',
  'SSM',
  'Associative',
  'Introspective',
  'Transformer',
]
