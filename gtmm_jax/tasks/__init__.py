"""Tasks: pure generators of episodes. They know nothing of the models."""

from gtmm_jax.tasks.dependency import DynamicDependency
from gtmm_jax.tasks.recall import PerfectRecall

# The paper's name of each task, as flags and files have it.
TASKS = {
  'perfect_recall': PerfectRecall,
  'dynamic_dependency': DynamicDependency,
}
