"""Two turns of a camera in a room."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks import episode, rooms

_TURN = 2 * np.pi
# Steps from rest to full speed, and how many steps after the last frame the
# second turn would be complete: both vary from episode to episode.
_RAMP = 3.8, 4.6
_REMAINDER = 0.1, 0.4


@dataclasses.dataclass(frozen=True)
class Rotation:
  """Two turns to the right, at a random place of a random room.

  The camera starts at rest, in a random direction; its speed grows evenly for
  about four steps and then stays. The first turn ends about a step after half
  of the episode, the second within a step and a half after its last frame. At
  full speed a turn takes a whole number of steps and a half, give or take a
  quarter: the second turn's views are between those of the first, and
  predictable, but none is seen twice. Gemici et al. 2017, section 5.7.

  Attributes:
    length: T >= 14, frames of an episode, 30 in the paper.
    size: height and width of a frame in pixels, 32 by default, at least 8.
  """

  length: int
  size: int = 32
  asks: ClassVar[episode.Asks] = 'view'

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
    """0: the camera's motion is for the model to find out."""
    return 0

  def sample(self, key: jax.Array, images: rooms.Rooms) -> episode.Episode:
    """Draws one episode of T frames; those of the second turn are predictable.

    Raises:
      ValueError: if `images` are not of this size.
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
    none = jnp.full((self.length,), -1, jnp.int32)
    return episode.Episode(
      frames=frames,
      condition=jnp.zeros((self.length, 0), jnp.float32),
      source=none,
      predictable=angles >= _TURN,
      label=none,
    )

  def angles(self, key: jax.Array) -> jax.Array:
    """How far the camera has turned by each frame, in radians, `[T]`.

    From 0 on ever further, to a little less than two turns; the second begins
    where a turn is complete, at 2 pi.
    """
    low, high = np.array([_RAMP, _REMAINDER], np.float32).T
    draws = jax.random.uniform(key, (2,), jnp.float32)
    ramp, remainder = low + (high - low) * draws
    steps = jnp.arange(self.length, dtype=jnp.float32)
    # At constant speed, the way that is made in `steps` would have taken so
    # many. An odd number of steps altogether makes a turn take a half one.
    steady = jnp.where(steps < ramp, steps**2 / (2 * ramp), steps - 0.5 * ramp)
    odd = self.length - 1 + self.length % 2
    return 2 * _TURN * steady / (odd + remainder - 0.5 * ramp)
