"""Rotation: two turns of a camera in a room."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks import episode, rooms

_TURN = 2 * np.pi
# Least and greatest, uniform between them: steps from rest to full speed, and
# steps from the last frame to the end of the second turn.
_RAMP = 3.8, 4.6
_REMAINDER = 0.1, 0.4


@dataclasses.dataclass(frozen=True)
class Rotation:
  """Two turns to the right, at a random place of a random room.

  The camera starts at rest in a random direction. Its speed grows linearly for
  about four steps and then stays constant. The first turn ends about one step
  after half of the episode, the second turn within one and a half steps after
  the last frame. At full speed a turn takes n + 1/2 steps, plus or minus 1/4,
  for a whole number n: the views of the second turn lie between those of the
  first, so they are predictable, but none is seen twice. Gemici et al. 2017,
  section 5.7.

  Attributes:
    length: T >= 14, frames of an episode, 30 in the paper.
    size: height and width of a frame in pixels, at least 8.
    asks: see the contract of a task.
  """

  length: int
  size: int = 32
  asks: ClassVar[episode.Asks] = 'view'
  channels: ClassVar[int] = 3

  def __post_init__(self) -> None:
    """Raises `ValueError` for a length below 14 or a size below 8."""
    if self.length < 14:
      raise ValueError(
        f'rotation: length is {self.length}; it must be at least 14, so '
        f'that what is seen in a frame is still seen in part in the next.'
      )
    if self.size < 8:
      raise ValueError(
        f'rotation: size is {self.size}; it must be at least 8 pixels, so that '
        f'there is something to be seen.'
      )

  @property
  def prefix(self) -> int:
    """Half of the frames, rounded down: 15 of 30, about the first turn."""
    return self.length // 2

  @property
  def condition_size(self) -> int:
    """0: the model is not told the camera's motion."""
    return 0

  def sample(self, key: jax.Array, images: rooms.Rooms) -> episode.Episode:
    """Draws one episode of T frames; those of the second turn are predictable.

    Raises:
      ValueError: `images` are not of this size.
    """
    if images.shape != (self.size, self.size, 3):
      raise ValueError(
        f'rotation: size is {self.size}, and the rooms are seen in frames of '
        f'shape {images.shape}; make both of one size, rooms by '
        f'rooms.split({self.size}).'
      )
    room_key, place_key, heading_key, motion_key = jax.random.split(key, 4)
    scene = images.draw(room_key)
    place = rooms.draw_place(place_key, scene)
    start = jax.random.uniform(heading_key, (), jnp.float32, maxval=_TURN)
    angles = self.angles(motion_key)
    frames = jax.vmap(
      lambda angle: rooms.render(
        scene, jnp.append(place, start - angle), self.size, self.size
      )
    )(angles)
    return episode.make_episode(frames, angles >= _TURN)

  def angles(self, key: jax.Array) -> jax.Array:
    """Draws how far the camera has turned by each frame, in radians, `[T]`.

    Angles increase from 0 to a little less than two turns; the second turn
    begins at 2 pi.
    """
    low, high = np.array([_RAMP, _REMAINDER], np.float32).T
    draws = jax.random.uniform(key, (2,), jnp.float32)
    ramp, remainder = low + (high - low) * draws
    steps = jnp.arange(self.length, dtype=jnp.float32)
    # Steps at full speed that turn as far as `steps` with the ramp. Two turns
    # take an odd number of them, so one turn takes a whole number and a half.
    steady = jnp.where(steps < ramp, steps**2 / (2 * ramp), steps - 0.5 * ramp)
    odd = self.length - 1 + self.length % 2
    return 2 * _TURN * steady / (odd + remainder - 0.5 * ramp)
