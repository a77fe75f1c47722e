"""Tasks: pure generators of episodes. They know nothing of the models."""

from gtmm_jax.tasks.dependency import DynamicDependency, SimilarityCuedRecall
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import OneShotRecall, ParityRecall, PerfectRecall

# The paper's name of each task, as flags and files have it. All but the last
# are made of (pre_recall, recall, binarize), navigation of (rows, columns,
# length, binarize).
TASKS = {
  'perfect_recall': PerfectRecall,
  'parity_recall': ParityRecall,
  'one_shot_recall': OneShotRecall,
  'dynamic_dependency': DynamicDependency,
  'similarity_cued_recall': SimilarityCuedRecall,
  'navigation': Navigation,
}
