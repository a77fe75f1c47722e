"""Parameters of `gtmm_jax` for the model in PyTorch, and back.

NumPy arrays in and out: PyTorch is not needed.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = Mapping[str, Any]


def as_state(parameters: Parameters) -> dict[str, np.ndarray]:
  """The arrays of `torch_model.TemporalVAE`, by PyTorch's names.

  Args:
    parameters: the collection `params` of a VRNN or an introspection network
      for grey frames, a tree of arrays.

  Returns:
    What its `load_state_dict` takes, but for the running averages.
  """
  state = {}
  for path, leaf in _leaves(parameters):
    array = np.asarray(leaf)
    state[_torch_name(path)] = array.transpose(_axes(path, array.ndim))
  return state


def as_parameters(
  state: Mapping[str, np.ndarray], like: Parameters
) -> Parameters:
  """The inverse of `as_state`, for parameters or their gradients.

  Args:
    state: arrays by PyTorch's names.
    like: the tree of parameters whose layout is wanted.

  Returns:
    A tree as `like` is.
  """
  tree: dict[str, Any] = {}
  for path, leaf in _leaves(like):
    *folders, name = path
    branch = tree
    for folder in folders:
      branch = branch.setdefault(folder, {})
    axes = _axes(path, np.ndim(leaf))
    branch[name] = state[_torch_name(path)].transpose(np.argsort(axes))
  return tree


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Any:
  """Paths and leaves of a tree of mappings."""
  if not isinstance(tree, Mapping):
    yield path, tree
    return
  for name, branch in tree.items():
    yield from _leaves(branch, (*path, name))


def _torch_name(path: tuple[str, ...]) -> str:
  """('core', 'gates', 'kernel') -> 'core.gates.weight', say."""
  *folders, name = path
  if re.fullmatch(r'kernel_\d', name):
    # One of several streams, in a module of its own.
    folders, name = [*folders, name], 'kernel'
  if folders[-1] in ('core', 'controller'):
    folders.append('product')
  dense = re.fullmatch(r'Dense_(\d)', folders[-1])
  if dense:
    number = str(2 * int(dense[1]))
    is_network = folders[-2] in ('encoder', 'decoder')
    folders[-1:] = ['layers', number] if is_network else [number]
  return '.'.join((*folders, 'bias' if name == 'bias' else 'weight'))


def _axes(path: tuple[str, ...], rank: int) -> tuple[int, ...]:
  """Which of our axes are PyTorch's, in its order."""
  if rank < 2:
    return tuple(range(rank))
  if rank == 2:
    return (1, 0)
  # Rows, columns, inputs, outputs; deconvolutions have inputs before outputs.
  return (2, 3, 0, 1) if path[-2].startswith('double') else (3, 2, 0, 1)
