"""Stands for the renderer of rooms, which takes long to compile."""

import jax.numpy as jnp


def render(scene, pose, height, width):
  """Draws stripes that turn with the camera, whatever the room."""
  del scene
  across = jnp.linspace(0, 3, 3 * width).reshape(width, 3)
  stripes = 0.5 + 0.4 * jnp.sin(across + pose[2])
  return jnp.broadcast_to(stripes, (height, width, 3))
