"""Times training steps of a run's model in PyTorch, beside those of JAX.

The model, of `temporal_vae.py`, has the same parameters and computes the same
bound; `updates.py` says what a step is. It is given its frames, where a step of
a run draws them. PyTorch is imported when it is asked for: nothing else needs
it.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from benchmarking import timing
from gtmm_jax.model import build
from gtmm_jax.runs.run import Run

MODELS = ('vrnn', 'introspective')
# More threads may harm products as small as these: each number is timed, and
# the best one counts.
THREADS = (1, 2)


def measure(
  run: Run, slots: int | None, seconds: float
) -> tuple[dict[str, Any] | None, str | None]:
  """Times one replica's training step of a run.

  Args:
    run: whose model, episodes and batch are taken.
    slots: of its memory; None where it has none.
    seconds: to spend on the steps, > 0, shared out to the numbers of threads.

  Returns:
    `time_steps` of it, or None and a sentence on why it is not timed.
  """
  channels = run.images.training.shape[-1]
  why = missing(
    run.settings.model,
    channels,
    run.settings.store,
    run.preset.prior_components,
    run.preset.posterior,
  )
  if why is not None:
    return None, why
  updates = load()
  if isinstance(updates, str):
    return None, updates
  return time_steps(updates, _case(run, slots, updates), seconds), None


def load() -> ModuleType | str:
  """Returns `updates`, which imports PyTorch, or why that cannot be timed."""
  platform = jax.default_backend()
  if platform != 'cpu':
    return (
      f'The model in PyTorch is timed on CPUs alone, and jax is on {platform} '
      f'here.'
    )
  try:
    from benchmarking.pytorch import updates
  except ImportError as error:
    return (
      f'PyTorch cannot be imported ({error}); to time the same model in it, '
      f'pip install "gtmm_jax[benchmark]".'
    )
  return updates


def missing(
  model: str,
  channels: int,
  store: str,
  components: int = 1,
  posterior: str = 'additive',
) -> str | None:
  """Returns a sentence on what PyTorch's model lacks; None if nothing.

  Args:
    model: of the run.
    channels: of its frames.
    store: what its memory is given.
    components: Gaussians of its prior.
    posterior: its form.
  """
  if posterior != 'additive':
    return f'In PyTorch, f_q is additive; {posterior} is timed in JAX alone.'
  if components > 1:
    return (
      'In PyTorch a prior is one Gaussian; a mixture is timed in JAX alone.'
    )
  if model in MODELS and channels == 1 and store == 'sample':
    return None
  return (
    f'In PyTorch there are {" and ".join(MODELS)} on grey frames with store '
    f'sample; {model} on {"grey" if channels == 1 else "colour"} frames with '
    f'store {store} is timed in JAX alone.'
  )


def time_steps(
  updates: ModuleType,
  case: Any,
  seconds: float,
  threads: Sequence[int] = THREADS,
) -> dict[str, Any]:
  """Times training steps on each number of threads.

  These do not take turns: threads that have no work yet wait for it on a core,
  and a single one that has its turn next would be timed too slow.

  Args:
    updates: from `load`.
    case: its `Case`, of a run of which nothing is `missing`.
    seconds: to spend on the steps, > 0; at least five are counted on each
      number of threads.
    threads: which numbers to try.

  Returns:
    `threads`, the number whose median is smallest; `milliseconds`, the spread
    of its steps; and `steps`, how many they were.
  """
  before = updates.torch.get_num_threads()
  rows = []
  try:
    for count in threads:
      step = updates.training_step(case, count)
      times = timing.rounds([step], seconds / len(threads))
      rows.append(
        {
          'threads': count,
          'milliseconds': timing.spread(1e3 * times)._asdict(),
          'steps': len(times),
        }
      )
  finally:
    updates.torch.set_num_threads(before)
  return min(rows, key=lambda row: row['milliseconds']['median'])


def _case(run: Run, slots: int | None, updates: ModuleType) -> Any:
  """Returns the run's model for PyTorch, with random weights and frames."""
  task, random = run.task, np.random.default_rng(0)
  batch, shape = run.settings.batch_size, run.images.training.shape[-3:]
  frames = random.uniform(size=(task.length, batch, *shape))
  condition = np.zeros((task.length, batch, task.condition_size))
  variables = build.variable_shapes(
    run.problem.model, shape, task.condition_size
  )
  parameters = jax.tree.map(
    lambda leaf: random.normal(size=leaf.shape, scale=0.05).astype(np.float32),
    variables['params'],
  )
  return updates.Case(
    run.settings.model,
    run.preset,
    parameters,
    frames.astype(np.float32),
    condition.astype(np.float32),
    slots or task.length,
    run.settings.options.get('order', 'age'),
  )
