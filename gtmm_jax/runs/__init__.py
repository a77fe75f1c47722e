"""One run, in the order of its life; programs import it, never the reverse.

A program with models and tasks of one's own is a file that ends so:

  if __name__ == '__main__':
    runs.main(models={'mine': make}, tasks={'mine': Task})

where `make` is a function of sizes (`gtmm_jax.model.build.Sizes`), slots and
keyword-only options that returns a core (`gtmm_jax.memory.contract`), and
`Task` a frozen dataclass (`gtmm_jax.tasks.episode`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from absl import flags as absl_flags

from gtmm_jax.process import command, signals

# So that --help of a program shows the flags that are defined for it here.
absl_flags.disclaim_key_flags()
# The argument with which a program resolves cells, as a study asks.
CHECK_CELLS = '--check_cells'
_NONE: Mapping[str, Any] = MappingProxyType({})


def main(
  models: Mapping[str, Callable[..., Any]] = _NONE,
  tasks: Mapping[str, type] = _NONE,
) -> None:
  """Runs the program that trains a model on a task, as flags say.

  Args:
    models: of one's own, by name, beside the built-in ones.
    tasks: likewise.
  """
  # Before what takes long to import.
  signals.watch(signals.GOES_ON)
  command.import_jax()
  from gtmm_jax.runs import program

  program.start(models, tasks)
