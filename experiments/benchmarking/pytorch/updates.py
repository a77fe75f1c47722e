"""Trains the temporal VAE in PyTorch, from and to parameters of `gtmm_jax`.

A step draws the noise of the latents, passes forward and backward, clips the
gradients where the preset does, and lets Adam update at a constant rate; the
frames are given, and no average is kept. Nothing imports this module where
PyTorch is not installed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from benchmarking.pytorch import conversion, temporal_vae
from gtmm_jax.presets import Preset


class Case(NamedTuple):
  """A model, its first parameters, and the batch that it is trained on.

  Attributes:
    model: 'vrnn' or 'introspective', its memory given samples.
    preset: its sizes, its learning rate and its clipping.
    parameters: the collection `params` that it starts from.
    frames: x in [0, 1], [T, B, H, W, 1]; the model computes in their precision.
    condition: c, [T, B, A].
    slots: N of the introspection network.
    order: of its slots, 'age' or 'arrival'.
  """

  model: str
  preset: Preset
  parameters: conversion.Parameters
  frames: np.ndarray
  condition: np.ndarray
  slots: int
  order: str = 'age'


def build(case: Case) -> temporal_vae.TemporalVAE:
  """Makes the model with a case's weights, in the precision of the frames."""
  model = temporal_vae.TemporalVAE(
    case.model,
    case.preset,
    case.frames.shape[2:],
    case.slots,
    condition_size=case.condition.shape[-1],
    order=case.order,
  )
  model.to(_tensor(case.frames).dtype, memory_format=torch.channels_last)
  weights = conversion.as_state(case.parameters)
  # Running averages stay as they are: training makes no use of them.
  model.load_state_dict(
    model.state_dict() | {name: _tensor(a) for name, a in weights.items()}
  )
  return model


def loss_and_gradients(
  case: Case, noise: np.ndarray
) -> tuple[float, conversion.Parameters]:
  """Returns the negative bound and its gradients, laid out as in `gtmm_jax`.

  Args:
    case: model and batch.
    noise: standard normal, [T, B, Z].

  Returns:
    Nats a sequence, the mean over the batch; and a tree of NumPy arrays.
  """
  model = build(case)
  loss = model(*map(_tensor, (case.frames, case.condition, noise)))
  loss.backward()
  gradients = {
    name: parameter.grad.numpy() for name, parameter in model.named_parameters()
  }
  return loss.item(), conversion.as_parameters(gradients, case.parameters)


def parameters_of(
  model: temporal_vae.TemporalVAE, case: Case
) -> conversion.Parameters:
  """Copies the parameters of a model of `build`, laid out as in `gtmm_jax`."""
  state = {
    name: parameter.detach().clone().numpy()
    for name, parameter in model.named_parameters()
  }
  return conversion.as_parameters(state, case.parameters)


def updater(
  case: Case, model: temporal_vae.TemporalVAE
) -> Callable[[torch.Tensor], None]:
  """Returns a training step that is given its noise.

  Args:
    case: model and batch; its preset says how Adam learns.
    model: of `build`; the step changes its parameters.

  Returns:
    A function of noise, a tensor [T, B, Z].
  """
  frames, condition = _tensor(case.frames), _tensor(case.condition)
  weights = list(model.parameters())
  rate, norm = case.preset.learning_rate, case.preset.gradient_norm
  # On CPUs, too, all weights in one loop take less than tensor by tensor.
  adam = torch.optim.Adam(weights, lr=rate, fused=True)

  def update(noise: torch.Tensor) -> None:
    adam.zero_grad()
    model(frames, condition, noise).backward()
    if norm is not None:
      torch.nn.utils.clip_grad_norm_(weights, norm)
    adam.step()

  return update


def training_step(case: Case, threads: int = 1) -> Callable[[], None]:
  """Returns a whole training step, which draws its noise.

  Args:
    case: model and batch.
    threads: for all of PyTorch, set anew at each step.
  """
  update = updater(case, build(case))
  shape = (*case.frames.shape[:2], case.preset.latent_size)
  dtype = _tensor(case.frames).dtype

  def step() -> None:
    torch.set_num_threads(threads)
    update(torch.randn(shape, dtype=dtype))

  return step


def _tensor(array: np.ndarray) -> torch.Tensor:
  return torch.from_numpy(np.array(array, order='C'))
