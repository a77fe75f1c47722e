"""Files of episodes that carry their number, by which tests recognise them."""

import pathlib

import numpy as np

LENGTH = 4


def make(
  count: int = 20,
  length: int = LENGTH,
  shape: tuple[int, int, int] = (28, 28, 1),
  seed: int = 0,
) -> np.ndarray:
  """Draws frames uint8 [N, T, H, W, C]; an episode's first bytes number it."""
  rng = np.random.default_rng(seed)
  frames = rng.integers(0, 256, (count, length, *shape), dtype=np.uint8)
  flat = frames.reshape(count, -1)
  flat[:, 0], flat[:, 1] = np.divmod(np.arange(count), 256)
  return frames


def numbers(frames: np.ndarray) -> np.ndarray:
  """Reads the numbers, int [...], of episodes [..., T, H, W, C].

  The frames are bytes or in [0, 1].
  """
  flat = np.asarray(frames).reshape(*np.shape(frames)[:-4], -1)[..., :2]
  if flat.dtype != np.uint8:
    flat = np.rint(255 * flat)
  return flat.astype(int) @ (256, 1)


def save(folder: pathlib.Path, **sizes) -> pathlib.Path:
  """Writes episodes drawn by `make` and returns the file's path."""
  file = folder / 'episodes.npz'
  np.savez(file, frames=make(**sizes))
  return file
