"""Tasks: pure generators of episodes. They know nothing of the models."""

from gtmm_jax.tasks.dependency import DynamicDependency, SimilarityCuedRecall
from gtmm_jax.tasks.frames import OwnFrames
from gtmm_jax.tasks.mixture import Mixture
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import OneShotRecall, ParityRecall, PerfectRecall
from gtmm_jax.tasks.rotation import Rotation

# Each task by its name in flags and files. Whole-numbered fields of a class are
# the sizes of its episodes, which have flags.
TASKS = {
  'perfect_recall': PerfectRecall,
  'parity_recall': ParityRecall,
  'one_shot_recall': OneShotRecall,
  'dynamic_dependency': DynamicDependency,
  'similarity_cued_recall': SimilarityCuedRecall,
  'navigation': Navigation,
  'mixture': Mixture,
  'rotation': Rotation,
  'frames': OwnFrames,
}
