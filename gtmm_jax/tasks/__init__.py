"""Tasks: pure generators of episodes. They know nothing of the models."""

from gtmm_jax.tasks.dependency import DynamicDependency, SimilarityCuedRecall
from gtmm_jax.tasks.frames import OwnFrames
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import OneShotRecall, ParityRecall, PerfectRecall
from gtmm_jax.tasks.rotation import Rotation

# The name of each task, as flags and files have it, the paper's but for frames.
# All but the last three are made of (pre_recall, recall, binarize), navigation
# of (rows, columns, length, binarize), rotation of (length, size), frames of
# (length, condition_size, binarize), which its file settles.
TASKS = {
  'perfect_recall': PerfectRecall,
  'parity_recall': ParityRecall,
  'one_shot_recall': OneShotRecall,
  'dynamic_dependency': DynamicDependency,
  'similarity_cued_recall': SimilarityCuedRecall,
  'navigation': Navigation,
  'rotation': Rotation,
  'frames': OwnFrames,
}
