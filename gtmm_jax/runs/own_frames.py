"""Recorded episodes in a run: their file, and windows on large ones."""

import math
from typing import Any

from gtmm_jax import replicas
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks import frames
from gtmm_jax.tasks.sources import frame_files
from gtmm_jax.tasks.sources.dataset import Dataset

_MEGABYTE = 10**6


def inspect(task: str, data: str) -> frame_files.Header | None:
  """Reads the header of the file of episodes; returns None for other tasks.

  Raises:
    ValueError: the file is missing or wrong.
  """
  if task != 'frames':
    return None
  return frame_files.inspect(frame_files.locate(data))


def load(
  settings: Settings, data: str, device_megabytes: float | None
) -> Dataset[frames.Frames | frames.Windows]:
  """Loads the episodes, in windows where they exceed the memory.

  Args:
    settings: of the run; its replicas decide how many devices there are.
    data: the flag.
    device_megabytes: that training episodes may take on a device; None for half
      of its memory.

  Raises:
    ValueError: `device_megabytes` is not above 0, or the file is wrong.
  """
  budget = room(settings, device_megabytes) * _MEGABYTE
  return frames.load(frame_files.locate(data), budget, settings.seed)


def room(settings: Settings, device_megabytes: float | None) -> float:
  """Returns the megabytes that training episodes may take on a device.

  Raises:
    ValueError: `device_megabytes` is not above 0.
  """
  if device_megabytes is None:
    layout = replicas.plan(settings.replicas, convolutional=False)
    return replicas.room_for_data(layout) // _MEGABYTE
  # NaN fails this test, too.
  if not 0 < device_megabytes < math.inf:
    raise ValueError(
      f'--device_megabytes is {device_megabytes}; it must be a number above 0.'
    )
  return device_megabytes


def limit(
  settings: Settings, images: Dataset, device_megabytes: float | None
) -> float | None:
  """Returns `room` for episodes in windows, and None otherwise.

  It decides the size of windows, and so the episodes of each step.
  """
  if not isinstance(images.training, frames.Windows):
    return None
  return room(settings, device_megabytes)


def first(images: Dataset) -> Any:
  """Returns the images of the first training steps, on the host."""
  training = images.training
  return training.at(0) if isinstance(training, frames.Windows) else training


class Training:
  """Training images on the devices: all of them, or one window of episodes."""

  def __init__(self, layout: replicas.Layout, images: Dataset) -> None:
    """Takes the images of a run; moves nothing yet."""
    self._layout, self._images = layout, images
    self._window, self._placed = -1, None

  def make_room(self) -> None:
    """Frees a window, which `at` moves again; without windows frees nothing."""
    if isinstance(self._images.training, frames.Windows):
      self._window, self._placed = -1, None

  def at(self, window: int) -> Any:
    """Returns the images of a window, as `replicas.broadcast` puts them."""
    training = self._images.training
    is_windowed = isinstance(training, frames.Windows)
    window = window if is_windowed else 0
    if window != self._window:
      # Frees the last window first: there is room for only one.
      self._placed = None
      images = training.at(window) if is_windowed else training
      self._placed = replicas.broadcast(self._layout, images)
      self._window = window
    return self._placed
