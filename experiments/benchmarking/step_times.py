"""Times the training steps of a run, and the drawing of its episodes."""

import resource
import sys
import time
from typing import Any

import jax
import numpy as np

from benchmarking import timing
from gtmm_jax import replicas
from gtmm_jax.runs import own_frames, training
from gtmm_jax.runs.run import Run

# Drawing episodes is timed for the seconds of a row divided by this.
_DRAWING = 5


def measure(run: Run, seconds: float) -> dict[str, Any]:
  """Trains for a while and returns how long its steps take.

  Episodes are drawn inside the step, as in a run, and nothing is copied to the
  host.

  Args:
    run: whose steps are timed; nothing is written for it.
    seconds: to spend on the portions of steps that count, > 0. At least five
      are measured, which takes longer where a step is long.

  Returns:
    Sizes: `replicas` R, `devices` that they are on, `replicas_per_device`,
    `loops_on_device`, whether many steps are one program, `frames` T,
    `batch_size`, `slots` of the memory. Times, `Spread` each:
    `step_milliseconds` of one update of all replicas, `replica_milliseconds`,
    the same over R, and `drawing_milliseconds` of the episodes of one update,
    in a program that does nothing else. `frames_per_second` that are drawn
    then; `initialise_seconds` until there is a state, compiling included;
    `compile_seconds` of the first step, less the median step. Memory:
    `device_peak_bytes`, the most in use on one device since the program began,
    None where the device does not tell, as a CPU; `process_peak_bytes`, the
    most resident memory of the program on the host. `portions` and `portion`,
    steps in each.
  """
  settings, layout = run.settings, run.layout
  programs = training.make_programs(run)
  images = own_frames.Training(layout, run.images).at(0)
  began = time.perf_counter()
  state = jax.block_until_ready(programs.start(images))
  initialise_seconds = time.perf_counter() - began
  advance = programs.advance[-1]
  steps = timing.steps(
    lambda state, count: advance(state, images, count), state, seconds
  )
  drawing = _time_drawing(run, programs.keys, images, seconds / _DRAWING)
  frames = settings.replicas * settings.batch_size * run.task.length
  median = float(np.median(steps.seconds))

  def spread(times: np.ndarray) -> dict[str, float]:
    return timing.spread(1e3 * times)._asdict()

  return {
    'replicas': settings.replicas,
    'devices': len(layout.devices),
    'replicas_per_device': layout.per_device,
    'loops_on_device': layout.loops_on_device,
    'frames': run.task.length,
    'batch_size': settings.batch_size,
    'slots': slots(run),
    'step_milliseconds': spread(steps.seconds),
    'replica_milliseconds': spread(steps.seconds / settings.replicas),
    'drawing_milliseconds': spread(drawing),
    'frames_per_second': frames / float(np.median(drawing)),
    'initialise_seconds': initialise_seconds,
    'compile_seconds': max(0.0, steps.first_seconds - median),
    'device_peak_bytes': _device_peak(layout.devices),
    'process_peak_bytes': _process_peak(),
    'portions': len(steps.seconds),
    'portion': steps.portion,
  }


def slots(run: Run) -> int | None:
  """Returns N of the trained memory; None without a memory."""
  return getattr(run.problem.model.core, 'slots', None)


def _time_drawing(
  run: Run, keys: Any, images: Any, seconds: float
) -> np.ndarray:
  """Returns seconds of drawing one batch for all replicas, [portions]."""

  def draw(state, key, images):
    step, total = state
    episode, _ = run.problem.draw(jax.random.fold_in(key, step), images)
    # Sums, because the compiler would drop unused episodes.
    return step + 1, total + episode.frames.sum()

  layout, count = run.layout, run.settings.replicas
  start = np.zeros(count, np.int32), np.zeros(count, np.float32)
  repeated = replicas.repeat(layout, draw)
  return timing.steps(
    lambda state, count: repeated(state, keys, images, count),
    replicas.scatter(layout, start),
    seconds,
  ).seconds


def _device_peak(devices: tuple[jax.Device, ...]) -> int | None:
  """Returns the largest peak of the devices, bytes; None where unknown."""
  statistics = [device.memory_stats() or {} for device in devices]
  peaks = [each.get('peak_bytes_in_use') for each in statistics]
  return None if None in peaks else max(peaks)


def _process_peak() -> int:
  """Returns the largest resident set of this process, bytes."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  # macOS counts bytes, other systems kibibytes.
  return peak if sys.platform == 'darwin' else 1024 * peak
