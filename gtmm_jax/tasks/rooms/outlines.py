"""Where posts, balls and cones are in each slice of a frame."""

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import columns
from gtmm_jax.tasks.rooms.scenes import BALL, POST, Things
from gtmm_jax.tasks.rooms.view import EYE, View, dim

Array = jax.Array

# Where light comes from, x and y.
_SUN = np.array([0.3, -0.95], np.float32)


def farthest_first(things: Things, place: Array) -> Things:
  """Puts things in an order in which the later hide the earlier.

  Of two things on one ray the nearer has the smaller product of the distances
  at which the ray enters and leaves, which is the same for all rays.
  """
  offset = things.position - place[None, :]
  order = jnp.argsort(things.radius**2 - jnp.sum(offset**2, -1))
  return jax.tree.map(lambda x: x[order], things)


def outline(
  things: Things, place: Array, view: View, reach: Array
) -> columns.Outlines:
  """Where things are in each slice.

  Args:
    things: K of them, in free cells.
    place: the camera's x and y, in none of them.
    view: its rays.
    reach: distance of the wall along each ray, [W].

  Returns:
    Outlines [K, W] in the order of the things.
  """
  x, y = (things.position - place[None, :]).T[..., None]
  kind, radius, height = (
    x[:, None] for x in (things.kind, things.radius, things.height)
  )
  east, north = ((x / view.length)[None, :] for x in view.direction)
  along, aside = x * east + y * north, y * east - x * north
  # Half of the way that is inside the thing's foot.
  half = jnp.sqrt(jnp.maximum(radius**2 - aside**2, 0))
  near, far = along - half, along + half
  ahead = jnp.maximum(along, 0.1)
  spread = ahead * view.part / (view.scale * view.length)[None, :]
  share = jnp.clip((radius - jnp.abs(aside)) / spread + 0.5, 0, 1)
  ball_top, ball_bottom = _ball(along, half, radius)
  is_ball, is_post = kind == BALL, kind == POST
  rim = (height - EYE) / near
  lid = jnp.where(height > EYE, rim, (height - EYE) / far)
  cone = _cone(along, aside, half, radius, height)
  top = view.row(jnp.where(is_ball, ball_top, jnp.where(is_post, lid, cone)))
  bottom = view.row(jnp.where(is_ball, ball_bottom, -EYE / near))
  # A ball grows darker downwards; a post has a light lid.
  pitch = jnp.where(is_ball, 1 / jnp.maximum(bottom - top, 1e-3), 1.0)
  end = jnp.where(is_ball, bottom - 0.5, view.row(rim))
  facing = (half * (-east * _SUN[0] - north * _SUN[1])) / radius
  facing += aside * (east * _SUN[1] - north * _SUN[0]) / radius
  light = (0.7 + 0.3 * facing) * dim(along)
  return columns.Outlines(
    share=jnp.where((along > 0) & (along < reach[None, :]), share, 0.0),
    top=top,
    bottom=bottom,
    phase=jnp.where(is_ball | is_post, end * pitch, 0.0),
    pitch=pitch,
    dark=jnp.where(is_ball, 0.5, 0.8) * light,
    light=jnp.where(is_ball, 0.5, 0.25) * light,
  )


def _ball(along: Array, half: Array, radius: Array) -> tuple[Array, Array]:
  """Slopes of the two lines of sight that touch a slice's circle.

  Its middle is at (along, radius) above the floor, its radius is `half`.
  """
  rise = radius - EYE
  root = half * jnp.sqrt(along**2 + rise**2 - half**2)
  scale = 1 / (along**2 - half**2)
  return (along * rise + root) * scale, (along * rise - root) * scale


def _cone(
  along: Array, aside: Array, half: Array, radius: Array, height: Array
) -> Array:
  """The slope of the highest line of sight that meets a cone in a slice.

  A cone's slice is bounded by a hyperbola. The line touches that, or the far
  end of the foot where everything above is seen from above.
  """
  steep, rise = height / radius, height - EYE
  squared = along**2 + aside**2
  root = jnp.sqrt(jnp.maximum(steep**2 * squared - rise**2, 0))
  slope = (along * rise - jnp.abs(aside) * root) / squared
  beyond = slope * (rise - slope * along) / (slope**2 - steep**2)
  touches = jnp.abs(beyond) <= half
  return jnp.where(touches, slope, -EYE / (along + half))
