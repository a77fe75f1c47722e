"""Panels of a memory over an episode: weights, usage, content, gates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gtmm_jax import figures
from gtmm_jax.memory.associative import ADDRESSINGS, AssociativeState
from gtmm_jax.memory.dnc import DNCState
from gtmm_jax.memory.introspective import IntrospectiveState
from gtmm_jax.memory.lru import LRUState
from gtmm_jax.memory.ntm import NTMState
from gtmm_jax.memory.transformer import TransformerState

# More write heads than this share one panel of their greatest weight.
_SEPARATE_WRITES = 3
# Heads share a panel if their weights differ by less than this fraction of the
# greatest weight.
_ALIKE = 0.1
# Percentage of the magnitudes in a memory that the colour scale covers.
_SHOWN = 98
# In the titles of panels that heads share.
ALIKE = 'alike'


def panels(cores: Any) -> list[figures.Panel]:
  """Returns the panels of a memory over one episode.

  Args:
    cores: carries of a core with a memory, leaves [T, ...] without batch axes.

  Returns:
    Read weights, on one scale; write weights and the usage of slots, if the
    core has them; the norm of each slot, the content after the last frame, and
    the cosines of its slots; the gates. A transformer has read weights alone.
  """
  if isinstance(cores, TransformerState):
    return _weights('read', cores.read_weights, _heads_of_blocks(cores))
  shown = _weights('read', cores.read_weights)
  if hasattr(cores, 'write_weights'):
    weights, heads = cores.write_weights, cores.write_weights.shape[1]
    if heads > _SEPARATE_WRITES:
      greatest = np.max(weights, axis=1)
      title = f'write weights, greatest of {heads} heads'
      shown.append(figures.Panel(title, greatest, 'slot', 'weight'))
    else:
      shown += _weights('write', weights)
  if hasattr(cores, 'usage'):
    # The DNC's usage is in [0, 1]; the LRU's has no upper bound.
    limits = (0.0, 1.0) if isinstance(cores, DNCState) else None
    shown.append(figures.Panel('usage', cores.usage, 'slot', 'usage', limits))
  norms = np.linalg.norm(cores.memory, axis=-1)
  shown.append(figures.Panel('norm of each slot', norms, 'slot', 'norm'))
  content = np.transpose(cores.memory[-1])
  # Scaled to a percentile, because a single outlier would make the rest dark.
  end = float(np.percentile(np.abs(content), _SHOWN)) or None
  limits = end and (-end, end)
  title = 'content at the last frame'
  shown.append(
    figures.Panel(title, content, 'slot', 'value', limits, columns='word')
  )
  shown.append(_alike(cores.memory[-1]))
  return shown + _gates(cores)


def _alike(memory: Any) -> figures.Panel:
  """Returns a panel of the cosines of all pairs of slots, 0 for empty ones."""
  norms = np.linalg.norm(memory, axis=-1, keepdims=True)
  directions = memory / np.where(norms > 0, norms, 1)
  return figures.Panel(
    'cosines of slots at the last frame',
    directions @ directions.T,
    'slot',
    'cosine',
    (-1.0, 1.0),
    columns='slot',
  )


def _heads_of_blocks(cores: TransformerState) -> list[str]:
  """Returns the names of a transformer's heads, the first block's first."""
  blocks = cores.keys.shape[1]
  heads = cores.read_weights.shape[1] // blocks
  return [
    f'{block + 1}.{head + 1}'
    for block in range(blocks)
    for head in range(heads)
  ]


def _weights(
  kind: str, weights: Any, names: Sequence[str] | None = None
) -> list[figures.Panel]:
  """Returns panels of weights [T, H, N], one for each group of similar heads.

  A head is left out if its weights differ from those of a stronger, shown head
  by less than a tenth of the greatest weight of all heads, in every frame and
  slot.
  """
  weights = np.asarray(weights, np.float64)
  if names is None:
    names = [str(head + 1) for head in range(weights.shape[1])]
  end = float(np.nan_to_num(weights).max()) or 1.0
  like: dict[int, list[int]] = {}
  for head in np.argsort(-(weights**2).sum(axis=(0, 2)), kind='stable'):
    weights_of_head = weights[:, head]
    leader = next(
      (
        other
        for other in like
        if np.abs(weights[:, other] - weights_of_head).max() < _ALIKE * end
      ),
      None,
    )
    if leader is None:
      like[int(head)] = []
    else:
      like[leader].append(int(head))
  return [
    figures.Panel(
      f'{kind} weights{_named(head, sorted(like[head]), names)}',
      weights[:, head],
      'slot',
      'weight',
      (0.0, end),
    )
    for head in sorted(like)
  ]


def _named(head: int, others: list[int], names: Sequence[str]) -> str:
  """Returns the part of a title that names the head and similar heads."""
  if len(names) == 1:
    return ''
  if len(others) == len(names) - 1:
    return f', head {names[head]} of {len(names)}, all {ALIKE}'
  if others:
    listed = ', '.join(names[other] for other in others)
    return f', head {names[head]} ({listed} {ALIKE})'
  return f', head {names[head]}'


def _gates(cores: Any) -> list[figures.Panel]:
  """Returns panels of the gates that a core has."""
  match cores:
    case IntrospectiveState():
      means = {'read': np.mean(cores.gates, axis=-1)}
      return [_heads('gates of reads, mean over words', 'gate', means)]
    case AssociativeState():
      means = {'read': np.mean(cores.gates, axis=-1)}
      shares = {
        name: cores.shares[..., index] for index, name in enumerate(ADDRESSINGS)
      }
      return [
        _heads('gates of reads, mean over words', 'gate', means),
        _heads('shares of addressings', 'share', shares),
      ]
    case NTMState():
      gates = {'read': cores.read_gates, 'write': cores.write_gates}
      return [_heads('gates, 1: by content', 'gate', gates)]
    case LRUState():
      gates = {'write': cores.gates}
      return [_heads('gates, 1: to what was read', 'gate', gates)]
    case DNCState():
      free, allocation, write, modes = cores.gates
      gates = {'write': write, 'allocation': allocation, 'free': free}
      links = modes.shape[-1] // 2
      shares = {
        'backward': modes[..., :links].sum(-1),
        'content': modes[..., links],
        'forward': modes[..., links + 1 :].sum(-1),
      }
      return [
        _heads('gates', 'gate', gates),
        _heads('read modes', 'share', shares),
      ]
    case _:
      return []


def _heads(title: str, meaning: str, groups: dict[str, Any]) -> figures.Panel:
  """Returns a panel with a row in [0, 1] for each head of each group [T, H]."""
  rows = [
    f'{name} {head + 1}' if values.shape[1] > 1 else name
    for name, values in groups.items()
    for head in range(values.shape[1])
  ]
  values = np.concatenate(list(groups.values()), axis=1)
  return figures.Panel(title, values, rows, meaning, (0.0, 1.0))
