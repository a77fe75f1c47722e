"""Converts parameters of `gtmm_jax` for the model in PyTorch, and back.

NumPy arrays in and out: PyTorch is not needed.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = Mapping[str, Any]


def as_state(parameters: Parameters) -> dict[str, np.ndarray]:
  """Returns the arrays of `temporal_vae.TemporalVAE`, by PyTorch's names.

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
  """Inverts `as_state`, for parameters or their gradients.

  Args:
    state: arrays by PyTorch's names.
    like: the tree of parameters whose layout is wanted.

  Returns:
    A tree of the structure of `like`.
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
  """Yields paths and leaves of a tree of mappings."""
  if not isinstance(tree, Mapping):
    yield path, tree
    return
  for name, branch in tree.items():
    yield from _leaves(branch, (*path, name))


def _torch_name(path: tuple[str, ...]) -> str:
  """Returns a path's name, such as 'core.gates.weight', in PyTorch."""
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
  """Returns the axes of an array in the order of PyTorch's."""
  if rank < 2:
    return tuple(range(rank))
  if rank == 2:
    return (1, 0)
  # Rows, columns, inputs, outputs; deconvolutions have inputs before outputs.
  return (2, 3, 0, 1) if path[-2].startswith('double') else (3, 2, 0, 1)
