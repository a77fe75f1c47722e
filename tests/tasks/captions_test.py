"""Captions of frames, and the notes that explain them."""

import numpy as np

from gtmm_jax import presets
from gtmm_jax.tasks import captions
from gtmm_jax.tasks.episode import Episode


def test_every_task_has_a_note():
  assert set(captions.NOTES) == set(presets.TASKS)


def test_actions_sources_and_labels_stand_together():
  episode = Episode(
    frames=None,
    condition=np.eye(5, 4, -1),
    source=np.array([-1, -1, 0, 11, -1]),
    predictable=None,
    label=np.array([-1, -1, -1, 7, 0]),
  )
  expected = ['·', '↑', '↓ =1', '← =12 a 7', '→ a 0']
  assert captions.of_frames(episode, is_walk=True) == expected
  plain = episode._replace(condition=np.zeros((5, 0)))
  texts = captions.of_frames(plain, is_walk=False)
  assert texts == ['', '', '=1', '=12 a 7', 'a 0']
