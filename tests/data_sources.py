"""Parts that tests with digits or characters share."""

import hashlib
import importlib.util
import pathlib
import struct

import numpy as np
import pytest

from gtmm_jax.tasks.sources.dataset import Dataset, Images


def check_form(part: Images, count: int) -> None:
  """Checks types, shapes and memory order of `count` images."""
  assert part.pixels.shape == (count, 28, 28, 1)
  assert part.pixels.dtype == np.uint8
  assert part.pixels.flags['C_CONTIGUOUS']
  assert part.labels.shape == (count,)
  assert part.labels.dtype == np.int32


def slow_checksum(data: Dataset[Images]) -> str:
  """Computes the checksum of a data set, label by label."""
  content = b''
  for part in (data.training, data.validation, data.test):
    content += part.pixels.tobytes()
    content += b''.join(struct.pack('<i', int(x)) for x in part.labels)
  return hashlib.sha256(content).hexdigest()


def hide_package(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
  """Makes `find_spec` say that a package is not installed."""
  find_spec = importlib.util.find_spec

  def find_others(name: str, package: str | None = None):
    return None if name == hidden else find_spec(name, package)

  monkeypatch.setattr(importlib.util, 'find_spec', find_others)


def write_idx(folder: pathlib.Path) -> None:
  """Writes four idx files of random digits, 60 of train and 30 of t10k."""
  random = np.random.default_rng(0)
  for part, count in {'train': 60, 't10k': 30}.items():
    pixels = random.integers(0, 256, (count, 28, 28), np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10
    (folder / f'{part}-images-idx3-ubyte').write_bytes(
      struct.pack('>4i', 2051, count, 28, 28) + pixels.tobytes()
    )
    (folder / f'{part}-labels-idx1-ubyte').write_bytes(
      struct.pack('>2i', 2049, count) + labels.tobytes()
    )
