"""Rooms: random mazes, and frames of them from a camera inside.

scenes.py      the arrays that describe a room
furnishing.py  draws textures, paintings, things, sky and buildings
mazes.py       draws a maze with all of these, and places for a camera
sampler.py     rooms for training, validation and test
raycast.py     renders a scene, seen from a camera's pose, with
  view.py      the camera
  walls.py     the walls that rays meet
  outlines.py  the posts, balls and cones before them
  columns.py   the pixels of each column
"""

from gtmm_jax.tasks.rooms.mazes import VERSION, draw_place, make_scene
from gtmm_jax.tasks.rooms.raycast import render
from gtmm_jax.tasks.rooms.sampler import Rooms, load, make_room, split
from gtmm_jax.tasks.rooms.scenes import Scene

__all__ = [
  'VERSION',
  'Rooms',
  'Scene',
  'draw_place',
  'load',
  'make_room',
  'make_scene',
  'render',
  'split',
]
