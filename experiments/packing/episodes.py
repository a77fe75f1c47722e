"""Cuts recordings into episodes of frames of one size."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from gtmm_jax.process import machine
from gtmm_jax.tasks.sources import frame_files
from packing.recordings import CannotRead, recordings


class Form(NamedTuple):
  """The form of episodes.

  Attributes:
    length: T, frames of an episode.
    size: (H, W) in pixels; None keeps the size of all frames.
    grey: whether frames become grey.
    stride: K, of which every K-th frame is taken.
  """

  length: int
  size: tuple[int, int] | None
  grey: bool
  stride: int


class Packed(NamedTuple):
  """Episodes of recordings.

  Attributes:
    episodes: each uint8 [T, H, W, C], in the order of the recordings.
    recordings: how many there are.
    left_over: frames after the last whole episode of each recording.
    doubts: sentences on what is likely to be wrong with them.
  """

  episodes: list[np.ndarray]
  recordings: int
  left_over: int
  doubts: tuple[str, ...]


def pack(paths: Iterable[pathlib.Path], form: Form) -> Packed:
  """Reads recordings, and cuts each into as many episodes as fit.

  Raises:
    CannotRead: a recording cannot be read, is too short, or has frames of
      another size or number of channels; or all are too large for the memory.
  """
  episodes, count, left_over, room = [], 0, 0, _room()
  sentences: tuple[str, ...] = ()
  first = None
  for path in paths:
    for name, frames, doubts in recordings(path):
      sentences += doubts
      chosen = itertools.islice(frames, 0, None, form.stride)
      shaped = (_shaped(name, frame, form) for frame in chosen)
      before = len(episodes)
      for piece in _pieces(shaped, form.length):
        for frame in piece:
          first = frame.shape if first is None else first
          _require_alike(name, frame.shape, first, form)
        if len(piece) < form.length:
          left_over += len(piece)
          break
        room -= len(piece) * piece[0].nbytes
        if room < 0:
          raise CannotRead(
            f'The frames take more than half of the memory of this machine; '
            f'use a smaller --size, --grey, a larger --stride, or fewer '
            f'recordings than up to {name}.'
          )
        episodes.append(np.stack(piece))
      if len(episodes) == before:
        raise CannotRead(
          f'{name} has fewer than {form.length} frames at --stride='
          f'{form.stride}; use a smaller --length or --stride, or leave it '
          f'out.'
        )
      count += 1
  if len(episodes) < 3:
    raise CannotRead(
      f'There are {len(episodes)} episode(s) of {form.length} frames; at least '
      f'3 are needed, one to train on, one for validation and one for the '
      f'test: name more recordings, or use a smaller --length or --stride.'
    )
  return Packed(episodes, count, left_over, sentences)


def held_out(count: int) -> np.ndarray:
  """Returns the part of each episode: 0 training, 1 validation, 2 test.

  The last tenth is for the test and the tenth before for validation, at least
  one each, so that pieces of one recording are in two parts at two places at
  most.

  Args:
    count: N >= 3, number of episodes.

  Returns:
    uint8 [N].
  """
  tenth = max(count // 10, 1)
  return np.repeat([0, 1, 2], [count - 2 * tenth, tenth, tenth]).astype(
    np.uint8
  )


def _pieces(frames: Iterator[Any], length: int) -> Iterator[list[Any]]:
  """Yields lists of `length` frames, the last of which may be shorter."""
  while piece := list(itertools.islice(frames, length)):
    yield piece


def _shaped(name: str, frame: np.ndarray, form: Form) -> np.ndarray:
  """Returns a frame as uint8 [H, W, C]: the middle of it, resized."""
  image = Image.fromarray(frame)
  if form.grey or image.mode not in ('L', 'RGB'):
    image = image.convert('L' if form.grey else 'RGB')
  if form.size is not None:
    height, width = form.size
    image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
  width, height = image.size
  if not frame_files.has_room_to_halve(height, width):
    raise CannotRead(
      f'{name} has frames of {height} x {width} pixels; height and width must '
      f'be multiples of 4, at least 8: give --size.'
    )
  pixels = np.asarray(image)
  return pixels[..., None] if pixels.ndim == 2 else pixels


def _require_alike(
  name: str, shape: tuple[int, ...], first: tuple[int, ...], form: Form
) -> None:
  """Raises `CannotRead` for frames of different shapes (H, W, C)."""
  if shape[:2] != first[:2]:
    raise CannotRead(
      f'{name} has a frame of {shape[0]} x {shape[1]} pixels, and the first '
      f'frame has {first[0]} x {first[1]}; give --size, to which all are '
      f'brought.'
    )
  if shape != first:
    raise CannotRead(
      f'{name} has a frame with {shape[2]} channel(s), and the first frame has '
      f'{first[2]}; give --grey, or convert the grey ones to RGB.'
    )


def _room() -> int:
  """Returns the bytes that frames may take, half of the machine's memory."""
  return machine.memory() // 2
