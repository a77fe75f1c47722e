"""A pass of PyTorch's package `dnc`, for benchmark.py --cores.

PyTorch and the package are imported by `load`: nothing else needs them.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax

NAME = 'pytorch dnc'
# Threads matter little to products as small as these, and more than one often
# harm: the package is timed on each number, and the best one counts.
THREADS = (1, 2)


class Modules(NamedTuple):
  """The modules `torch` and `dnc`."""

  torch: ModuleType
  dnc: ModuleType


def load() -> Modules | str:
  """Imports both, or returns a sentence on why they are not timed."""
  platform = jax.default_backend()
  if platform != 'cpu':
    return (
      f"PyTorch's package dnc is timed on CPUs alone, and jax is on "
      f'{platform} here.'
    )
  try:
    import dnc
    import torch
  except ImportError as error:
    return (
      f"PyTorch's package dnc cannot be imported ({error}); to time it beside "
      f'these cores, pip install "gtmm_jax[benchmark]".'
    )
  return Modules(torch, dnc)


def forward_backward(
  modules: Modules,
  shape: tuple[int, int, int],
  *,
  slots: int,
  word_size: int,
  read_heads: int,
  controller_size: int,
) -> Callable[[int], Any]:
  """Returns a pass through the package's DNC, of the sizes of the JAX core.

  It has one layer of one LSTM and starts every pass with an empty memory.
  Unlike the JAX core it has a linear map at the end, as wide as the inputs, and
  does not give its reads to the controller.

  Args:
    modules: from `load`.
    shape: of the inputs, [B, T, I], which are Gaussian noise.
    slots: N.
    word_size: W.
    read_heads: R.
    controller_size: units of the LSTM.

  Returns:
    A function of a number of threads, for all of PyTorch, that computes the sum
    of squares of the outputs and returns its gradients: of the inputs, then of
    every parameter. It raises `RuntimeError` if the loss does not depend on one
    of them.
  """
  torch, dnc = modules
  torch.manual_seed(0)
  model = dnc.DNC(
    input_size=shape[-1],
    hidden_size=controller_size,
    num_layers=1,
    num_hidden_layers=1,
    batch_first=True,
    nr_cells=slots,
    cell_size=word_size,
    read_heads=read_heads,
  )
  inputs = torch.randn(*shape, requires_grad=True)
  variables = [inputs, *model.parameters()]

  def run(threads: int) -> Any:
    torch.set_num_threads(threads)
    outputs, _ = model(inputs, (None, None, None), reset_experience=True)
    return torch.autograd.grad(outputs.square().sum(), variables)

  return run
