"""Times training steps of the same model in PyTorch, beside those of this one.

The model, `torch_model.py`, starts from this library's parameters and computes
the same bound; `torch_training.py` says what a step is. It is given its frames,
where a step of ours draws them. PyTorch is imported when it is asked for alone:
it is needed nowhere else.
"""

import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarking import cores, timing

MODELS = ('vrnn', 'introspective')
# More threads may harm products as small as these: each number is timed, and
# the best one counts.
THREADS = (1, 2)


class Measured(NamedTuple):
  """What `measure` found.

  Attributes:
    rows: one for each mode, see `as_rows`.
    remark: a sentence on why a mode has no row; None where all have one.
  """

  rows: list[dict[str, Any]]
  remark: str | None


class Program(NamedTuple):
  """Something that takes a training step of all replicas.

  Attributes:
    mode: 'eager' or 'compiled', of PyTorch, or the name of another road.
    threads: that PyTorch is told to use; None for others.
    run: one step; it returns when the parameters are updated.
    first_seconds: of the first step, which compiles where that is the mode.
  """

  mode: str
  threads: int | None
  run: Callable[[], None]
  first_seconds: float


def load() -> ModuleType | str:
  """Imports PyTorch, or tells why it is not timed.

  Returns:
    The module `torch_training`, whose `Case` is what `measure` takes; or a
    sentence.
  """
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


def missing(model: str, channels: int, store: str) -> str | None:
  """A sentence on what PyTorch's model lacks of a run, None where it is whole.

  Args:
    model: of the run.
    channels: of its frames.
    store: what its memory is given.
  """
  if model in MODELS and channels == 1 and store == 'sample':
    return None
  return (
    f'In PyTorch there are {" and ".join(MODELS)} on grey frames with store '
    f'sample; {model} on {"grey" if channels == 1 else "colour"} frames with '
    f'store {store} is timed in JAX alone.'
  )


def measure(
  training: ModuleType,
  case: Any,
  *,
  seconds: float,
  replicas: int = 1,
  modes: Sequence[str] = ('eager', 'compiled'),
  threads: Sequence[int] = THREADS,
) -> Measured:
  """Times training steps in each mode on each number of threads.

  The modes take turns, so that what else the machine does falls on both. The
  numbers of threads do not: threads that have no work yet wait for it on a
  core, and a single one that has its turn next would be timed too slow.

  Args:
    training: from `load`.
    case: its `Case`, of a run of which nothing is `missing`.
    seconds: to spend on the steps that count, > 0, shared out evenly to the
      numbers of threads; at least five rounds are made on each. Compiling comes
      before, and takes minutes for each number of threads.
    replicas: R, trained one after another.
    modes: which to time.
    threads: which to try; each mode has a row for the best alone.

  Returns:
    The rows, and why there are fewer than modes, if so.
  """
  torch = training.torch
  # What was compiled for other cases would count towards PyTorch's limit.
  torch.compiler.reset()
  before = torch.get_num_threads()
  timed, remark = [], None
  try:
    for count in threads:
      programs = []
      for mode in modes:
        try:
          step = training.training_step(case, mode, count, replicas)
          programs.append(program(mode, count, step))
        except RuntimeError as error:
          if mode == 'eager':
            raise
          remark = _not_compiled(error)
      if programs:
        times = cores.take_turns(programs, seconds / len(threads))
        timed += zip(programs, times.T, strict=True)
  finally:
    torch.set_num_threads(before)
  return Measured(as_rows(timed, replicas), remark)


def as_rows(
  timed: Sequence[tuple[Program, np.ndarray]], replicas: int
) -> list[dict[str, Any]]:
  """Times as JSON has them, a row for each mode.

  Args:
    timed: programs, each with the milliseconds of its steps of all replicas,
      [rounds].
    replicas: R.

  Returns:
    `mode`; `threads`, those with the smallest median; `replicas`;
    `step_milliseconds`, the spread over rounds of a step of all R, and
    `replica_milliseconds`, the same over R; `rounds`; and `compile_seconds`,
    the first step less the median one, None where nothing was compiled.
  """
  rows: dict[str, dict[str, Any]] = {}
  for each, milliseconds in timed:
    spread = timing.spread(milliseconds)
    best = rows.get(each.mode)
    if best and best['step_milliseconds']['median'] <= spread.median:
      continue
    compiling = each.first_seconds - spread.median / 1e3
    is_compiled = each.mode != 'eager'
    rows[each.mode] = {
      'mode': each.mode,
      'threads': each.threads,
      'replicas': replicas,
      'step_milliseconds': spread._asdict(),
      'replica_milliseconds': timing.spread(milliseconds / replicas)._asdict(),
      'rounds': len(milliseconds),
      'compile_seconds': max(0.0, compiling) if is_compiled else None,
    }
  return list(rows.values())


def program(mode: str, threads: int | None, run: Callable[[], None]) -> Program:
  """A training step, taken once."""
  began = time.perf_counter()
  run()
  return Program(mode, threads, run, time.perf_counter() - began)


def _not_compiled(error: RuntimeError) -> str:
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  why = lines[0] if lines else type(error).__name__
  return (
    f'torch.compile does not work here ({why.rstrip(".")}); PyTorch is timed '
    f'without it. It needs a C++ compiler and the headers of Python.'
  )
