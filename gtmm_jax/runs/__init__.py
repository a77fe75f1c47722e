"""The parts of a run. Programs import them, never the reverse.

A program with your own models and tasks is a file that ends with:

  if __name__ == '__main__':
    runs.main(models={'mine': make}, tasks={'mine': Task})

where `make` is a function of sizes (`gtmm_jax.model.cores.Sizes`), slots and
keyword-only options that returns a core (`gtmm_jax.memory.contract`), and
`Task` a frozen dataclass (`gtmm_jax.tasks.episode`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from absl import flags as absl_flags

from gtmm_jax.process import command, signals

# Makes --help of a program show the flags that are defined here.
absl_flags.disclaim_key_flags()
# The argument with which a program resolves cells, as a study asks.
CHECK_CELLS = '--check_cells'
_NONE: Mapping[str, Any] = MappingProxyType({})


def main(
  models: Mapping[str, Callable[..., Any]] = _NONE,
  tasks: Mapping[str, type] = _NONE,
) -> None:
  """Runs the program that trains a model on a task, set by flags.

  Args:
    models: your own models by name, beside the built-in ones.
    tasks: your own tasks by name, beside the built-in ones.
  """
  # Before imports that take long.
  signals.watch(signals.GOES_ON)
  command.import_jax()
  from gtmm_jax.runs import program

  program.start(models, tasks)
