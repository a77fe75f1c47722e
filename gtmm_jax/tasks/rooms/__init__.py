"""Rooms: random mazes, and a camera that looks at them.

scenes.py     what a room is: arrays
mazes.py      draws one at random, and places for a camera
sampler.py    rooms for training, and rooms held out
raycast.py    renders a scene, as a function of it and the camera's pose
view.py       the camera; walls.py, outlines.py: where walls and things are in
              its frame; columns.py: from there to pixels
"""

from gtmm_jax.tasks.rooms.mazes import VERSION, draw_place, make_scene
from gtmm_jax.tasks.rooms.raycast import render
from gtmm_jax.tasks.rooms.sampler import Rooms, Sets, load, make_room, split
from gtmm_jax.tasks.rooms.scenes import Scene

__all__ = [
  'VERSION',
  'Rooms',
  'Scene',
  'Sets',
  'draw_place',
  'load',
  'make_room',
  'make_scene',
  'render',
  'split',
]
