"""The outlines of posts, balls and cones in each slice of a frame."""

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.tasks.rooms import columns
from gtmm_jax.tasks.rooms.scenes import BALL, POST, Things
from gtmm_jax.tasks.rooms.view import EYE, View, dim

Array = jax.Array

# Direction from which the light comes, x and y.
_SUN = np.array([0.3, -0.95], np.float32)


def farthest_first(things: Things, place: Array) -> Things:
  """Sorts things so that later ones hide earlier ones.

  Of two things on one ray the nearer one has the smaller product of the
  distances at which the ray enters and leaves it. That product, the power of
  the camera's place with respect to a circle, is the same for all rays.
  """
  offset = things.position - place[None, :]
  order = jnp.argsort(things.radius**2 - jnp.sum(offset**2, -1))
  return jax.tree.map(lambda x: x[order], things)


def outline(
  things: Things, place: Array, view: View, reach: Array
) -> columns.Outlines:
  """Computes the outlines of things in each slice.

  Args:
    things: K of them, in free cells.
    place: x and y of the camera, which is inside none of them.
    view: the camera's rays.
    reach: horizontal distance of the wall along each ray, [W].

  Returns:
    Outlines [K, W] in the order of the things.
  """
  x, y = (things.position - place[None, :]).T[..., None]
  kind, radius, height = (
    x[:, None] for x in (things.kind, things.radius, things.height)
  )
  east, north = ((x / view.length)[None, :] for x in view.direction)
  along, aside = x * east + y * north, y * east - x * north
  # Half of the ray's chord through the thing's base.
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
  # A ball is darker at the bottom; the top face of a post is light.
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
  """Computes the slopes of the two lines of sight tangent to a slice's circle.

  The centre of the circle is at distance `along` and height `radius`; its
  radius is `half`.
  """
  rise = radius - EYE
  root = half * jnp.sqrt(along**2 + rise**2 - half**2)
  scale = 1 / (along**2 - half**2)
  return (along * rise + root) * scale, (along * rise - root) * scale


def _cone(
  along: Array, aside: Array, half: Array, radius: Array, height: Array
) -> Array:
  """Computes the slope of the highest line of sight that meets a cone.

  In a slice, a cone is bounded by a hyperbola. The line is tangent to it or, if
  the camera sees the cone from above, meets the far end of the base.
  """
  steep, rise = height / radius, height - EYE
  squared = along**2 + aside**2
  root = jnp.sqrt(jnp.maximum(steep**2 * squared - rise**2, 0))
  slope = (along * rise - jnp.abs(aside) * root) / squared
  beyond = slope * (rise - slope * along) / (slope**2 - steep**2)
  touches = jnp.abs(beyond) <= half
  return jnp.where(touches, slope, -EYE / (along + half))
