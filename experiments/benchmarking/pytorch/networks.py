"""The networks of `gtmm_jax.model.networks` for grey frames, in PyTorch.

Frames come as `[N, H, W, 1]` in (-1, 1) and are convolved with their channels
last in memory, which is faster on CPUs. Nothing imports this module where
PyTorch is not installed.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

_CHANNELS = 8
_SIDES = (1, 3, 5, 7)
_STREAMS = _CHANNELS * len(_SIDES)


def dense(sizes: Sequence[int]) -> nn.Sequential:
  """Returns linear layers between the widths of `sizes`, rectified between.

  Layer i has the name 2 i, the rectifications the odd names.
  """
  layers = []
  for inputs, outputs in itertools.pairwise(sizes):
    layers += [nn.Linear(inputs, outputs), nn.ReLU()]
  return nn.Sequential(*layers[:-1])


class DenseEncoder(nn.Module):
  """Dense layers from frames `[N, H, W, 1]` to features `[N, F]`."""

  def __init__(self, pixels: int, hidden: Sequence[int], features: int) -> None:
    super().__init__()
    self.layers = dense((pixels, *hidden, features))

  def forward(self, frames: torch.Tensor) -> torch.Tensor:
    """Maps frames [N, H, W, 1] to features [N, F]."""
    return self.layers(frames.flatten(1))


class DenseDecoder(nn.Module):
  """Dense layers from codes `[N, D]` to logits of frames."""

  def __init__(
    self, code: int, hidden: Sequence[int], frame_shape: tuple[int, int, int]
  ) -> None:
    super().__init__()
    height, width, channels = self.frame_shape = frame_shape
    self.layers = dense((code, *hidden, height * width * channels))

  def forward(self, code: torch.Tensor) -> torch.Tensor:
    """Maps codes [N, D] to logits [N, H, W, 1]."""
    return self.layers(code).unflatten(1, self.frame_shape)


class _Streams(nn.ModuleDict):
  """Parallel convolutions of several sizes, concatenated."""

  def __init__(self, inputs: int) -> None:
    super().__init__(
      {
        f'kernel_{side}': nn.Conv2d(
          inputs, _CHANNELS, side, padding=side // 2, bias=False
        )
        for side in _SIDES
      }
    )

  def forward(self, frames: torch.Tensor) -> torch.Tensor:
    """Maps frames [N, C, H, W] to [N, 32, H, W]."""
    return torch.cat([stream(frames) for stream in self.values()], dim=1)


def _norm(channels: int) -> nn.BatchNorm2d:
  # Flax's constants; momentum is its complement.
  return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.01)


class DigitEncoder(nn.Module):
  """The paper's network for 28x28 frames (Gemici et al. 2017, appendix B)."""

  def __init__(self, height: int, width: int, features: int) -> None:
    super().__init__()
    self.streams_1, self.norm_1 = _Streams(1), _norm(_STREAMS)
    self.halve_1 = nn.Conv2d(_STREAMS, 32, 3, 2, padding=1, bias=False)
    self.norm_2 = _norm(32)
    self.streams_2, self.norm_3 = _Streams(32), _norm(_STREAMS)
    self.halve_2 = nn.Conv2d(_STREAMS, 64, 3, 2, padding=1)
    self.linear = nn.Linear(height * width * 4, features)

  def forward(self, frames: torch.Tensor) -> torch.Tensor:
    """Maps frames [N, H, W, 1] to features [N, F]."""
    x = frames.permute(0, 3, 1, 2)
    x = self.norm_1(self.streams_1(x)).relu()
    x = self.norm_2(self.halve_1(x)).relu()
    x = self.norm_3(self.streams_2(x)).relu()
    x = self.halve_2(x)
    return self.linear(x.permute(0, 2, 3, 1).flatten(1))


class DigitDecoder(nn.Module):
  """The digit encoder with deconvolutions (Gemici et al. 2017, appendix B)."""

  def __init__(self, code: int, height: int, width: int) -> None:
    super().__init__()
    self.shape = (height // 4, width // 4, 64)
    self.linear = nn.Linear(code, height * width * 4)
    self.streams_1, self.norm_1 = _Streams(64), _norm(_STREAMS)
    self.double_1 = _double(32, use_bias=False)
    self.norm_2 = _norm(32)
    self.streams_2, self.norm_3 = _Streams(32), _norm(_STREAMS)
    self.double_2 = _double(1, use_bias=True)

  def forward(self, code: torch.Tensor) -> torch.Tensor:
    """Maps codes [N, D] to logits [N, H, W, 1]."""
    x = self.linear(code).unflatten(1, self.shape).permute(0, 3, 1, 2)
    x = self.norm_1(self.streams_1(x)).relu()
    x = self.norm_2(self.double_1(x)).relu()
    x = self.norm_3(self.streams_2(x)).relu()
    return self.double_2(x).permute(0, 2, 3, 1)


def _double(channels: int, use_bias: bool) -> nn.ConvTranspose2d:
  return nn.ConvTranspose2d(
    _STREAMS, channels, 3, 2, padding=1, output_padding=1, bias=use_bias
  )
