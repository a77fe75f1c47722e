"""The paper's networks for frames of 3D environments: plain numbers, no jax.

Gemici et al. 2017, appendix B, for frames of 32x32. A pathway of large strides
without padding sees what fills a frame, one of small kernels its textures.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

# (channels, side, stride, padding).
Layer = tuple[int, int, int, int]

# Layers of each pathway, from the frame on.
PATHWAYS: Mapping[str, tuple[Layer, ...]] = MappingProxyType(
  {
    'global': ((128, 5, 3, 0), (256, 4, 2, 0), (256, 4, 1, 0)),
    'local': ((16, 4, 2, 1), (8, 4, 2, 1)),
  }
)


def shapes(
  frame_shape: tuple[int, int, int], layers: Sequence[Layer]
) -> list[tuple[int, int, int]]:
  """(H, W, C) before the first layer of a pathway and after each."""
  found = [frame_shape]
  for channels, side, stride, padding in layers:
    height, width = (
      (length + 2 * padding - side) // stride + 1 for length in found[-1][:2]
    )
    found.append((height, width, channels))
  return found
