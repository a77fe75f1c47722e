"""The temporal VAE of `gtmm_jax.model`, in PyTorch.

VRNN and introspection network, grey frames, the memory given the samples. All
frames are encoded at once and decoded at once, and so are the priors: what is
sampled does not depend on them. Only what one step hands to the next is in the
loop over time. Nothing imports this module where PyTorch is not installed.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarking.pytorch import networks
from gtmm_jax.model import build
from gtmm_jax.presets import Preset

Tensor = torch.Tensor
Gaussian = tuple[Tensor, Tensor]

# As in `gtmm_jax.model.maps`.
_LOG_SCALE_BOUND = 4.0


class LSTM(nn.Module):
  """An LSTM cell of H units with one product a step, `gtmm_jax.memory.lstm`."""

  def __init__(self, inputs: int, size: int) -> None:
    super().__init__()
    self.size, self.context_size = size, size
    self.product = nn.Linear(inputs + size, 4 * size)

  def start(self, like: Tensor) -> Gaussian:
    """Returns cell and output of zero, each [B, H], for `like` [B, ...]."""
    zeros = like.new_zeros(len(like), self.size)
    return zeros, zeros

  def forward(
    self, state: tuple[Tensor, Tensor], inputs: Tensor
  ) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Maps state and inputs [B, I] to state and output [B, H]."""
    cell, hidden = state
    i, f, g, o = self.product(torch.cat([inputs, hidden], -1)).chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * cell.tanh()
    return (cell, hidden), hidden


class Introspective(nn.Module):
  """The introspection network, `gtmm_jax.memory.introspective`.

  The memory [B, n, Z] grows with what it holds: nothing has to be masked.
  """

  def __init__(
    self, inputs: int, preset: Preset, slots: int, order: str
  ) -> None:
    super().__init__()
    size = preset.controller_size['introspective']
    self.latent_size, self.heads = preset.latent_size, preset.read_heads
    self.slots, self.order = slots, order
    self.context_size = self.heads * self.latent_size
    self.controller = LSTM(inputs, size)
    self.attention_hidden = nn.Linear(size, preset.attention_size)
    self.attention = nn.Linear(preset.attention_size, self.heads * slots)
    self.gates = nn.Linear(size, self.context_size)

  def start(self, like: Tensor) -> tuple[Any, Tensor, int]:
    """Returns the state of an empty memory, for `like` [B, ...]."""
    memory = like.new_zeros(len(like), 0, self.latent_size)
    return self.controller.start(like), memory, 0

  def forward(
    self, state: tuple[Any, Tensor, int], inputs: Tensor
  ) -> tuple[tuple[Any, Tensor, int], Tensor]:
    """Maps state and inputs [B, Z + A] to state and context [B, R Z]."""
    controller, memory, stored = state
    if stored:
      memory = self._store(memory, inputs[:, None, : self.latent_size], stored)
    controller, h = self.controller(controller, inputs)
    hidden = self.attention_hidden(h).relu()
    logits = self.attention(hidden).unflatten(-1, (self.heads, self.slots))
    powers = functional.softplus(logits[..., : memory.shape[1]])
    weights = powers / powers.sum(-1, keepdim=True)
    retrieved = (weights @ memory).flatten(1)
    context = retrieved * self.gates(h).sigmoid()
    return (controller, memory, stored + 1), context

  def _store(self, memory: Tensor, latent: Tensor, stored: int) -> Tensor:
    """Stores `latent` [B, 1, Z], the `stored`-th, from 1."""
    if self.order == 'age':
      return torch.cat([latent, memory[:, : self.slots - 1]], 1)
    slot = (stored - 1) % self.slots
    return torch.cat([memory[:, :slot], latent, memory[:, slot + 1 :]], 1)


class TemporalVAE(nn.Module):
  """Maps and core; its submodules have the names of `gtmm_jax`'s."""

  def __init__(
    self,
    model: str,
    preset: Preset,
    frame_shape: tuple[int, int, int],
    slots: int,
    *,
    condition_size: int = 0,
    order: str = 'age',
  ) -> None:
    super().__init__()
    self.latent_size = preset.latent_size
    self.core_sees_frames = model == 'vrnn'
    self.condition_scale = build.condition_scale(preset, preset.latent_size)
    inputs = preset.latent_size + condition_size
    if self.core_sees_frames:
      inputs += 2 * preset.latent_size
      self.core = LSTM(inputs, preset.controller_size[model])
    else:
      self.core = Introspective(inputs, preset, slots, order)
    context = self.core.context_size
    self.prior_map = networks.dense(
      (context, *preset.prior_hidden, 2 * preset.latent_size)
    )
    encoder, decoder = _networks(preset, frame_shape, context)
    self.posterior_map = nn.ModuleDict(
      {
        'encoder': encoder,
        'from_context': nn.Linear(context, 2 * preset.latent_size, bias=False),
      }
    )
    self.observation_map = nn.ModuleDict({'decoder': decoder})

  def forward(self, frames: Tensor, condition: Tensor, noise: Tensor) -> Tensor:
    """Computes the negative bound, nats a sequence, the mean over the batch.

    Args:
      frames: x in [0, 1], [T, B, H, W, 1].
      condition: c, [T, B, A].
      noise: standard normal, [T, B, Z].
    """
    flat = frames.flatten(0, 1)
    features = self.posterior_map['encoder'](2.0 * flat - 1.0)
    contexts, means, log_scales, latents = self._loop(
      features.unflatten(0, frames.shape[:2]), condition, noise
    )
    prior_means, prior_log_scales = _gaussian(self.prior_map(contexts))
    shift = (means - prior_means) * (-prior_log_scales).exp()
    log_ratio = log_scales - prior_log_scales
    kl = 0.5 * ((2.0 * log_ratio).expm1() + shift.square()) - log_ratio
    code = torch.cat([latents, contexts], -1).flatten(0, 1)
    unlikelihood = functional.binary_cross_entropy_with_logits(
      self.observation_map['decoder'](code), flat, reduction='sum'
    )
    return (kl.sum() + unlikelihood) / frames.shape[1]

  def _loop(
    self, features: Tensor, condition: Tensor, noise: Tensor
  ) -> tuple[Tensor, ...]:
    """Returns contexts, means, log-scales and latents, each [T, B, ...]."""
    state = self.core.start(features[0])
    z = torch.zeros_like(noise[0])
    seen = torch.zeros_like(features[0])
    outputs = []
    condition = condition * self.condition_scale
    # Going back, a slice of time fills a whole array of zeros; unbind does not.
    for now, c, e in zip(
      features.unbind(), condition.unbind(), noise.unbind(), strict=True
    ):
      inputs = [seen, z, c] if self.core_sees_frames else [z, c]
      state, context = self.core(state, torch.cat(inputs, -1))
      mean, log_scale = _gaussian(
        now + self.posterior_map['from_context'](context)
      )
      z = mean + log_scale.exp() * e
      seen = now
      outputs.append((context, mean, log_scale, z))
    return tuple(torch.stack(each) for each in zip(*outputs, strict=True))


def _gaussian(raw: Tensor) -> Gaussian:
  """Splits raw numbers [..., 2 Z] into a mean and a bounded log-scale."""
  mean, log_scale = raw.chunk(2, -1)
  return mean, _LOG_SCALE_BOUND * (log_scale / _LOG_SCALE_BOUND).tanh()


def _networks(
  preset: Preset, frame_shape: tuple[int, int, int], context: int
) -> tuple[nn.Module, nn.Module]:
  """Returns encoder and decoder of a preset."""
  height, width, _ = frame_shape
  features, code = 2 * preset.latent_size, preset.latent_size + context
  if preset.networks == 'digit':
    return (
      networks.DigitEncoder(height, width, features),
      networks.DigitDecoder(code, height, width),
    )
  hidden = preset.dense_hidden
  return (
    networks.DenseEncoder(height * width, hidden, features),
    networks.DenseDecoder(code, tuple(reversed(hidden)), frame_shape),
  )
