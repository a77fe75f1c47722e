"""Times training steps, laid out and drawn as a run takes them."""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax import presets, replicas
from gtmm_jax.model import build
from gtmm_jax.runs import own_frames, training
from gtmm_jax.runs.run import Run

# Into how many portions a row's seconds are cut, and how many it has at least:
# quartiles of fewer say nothing.
_PORTIONS = 20
_LEAST_PORTIONS = 4
# Part of a row's seconds that goes to drawing episodes alone, on top of them.
_DRAWING = 5

# Table 1 counts parameters of models for frames of these shapes, and so many.
_PAPER_FRAMES = {
  'digits': ((28, 28, 1), 25),
  'environments': ((32, 32, 3), 30),
}


class Spread(NamedTuple):
  """A median and what lies around it, in the unit of what was measured.

  Attributes:
    median: of the portions.
    min: the smallest.
    lower_quartile: a quarter of the portions lies below.
    upper_quartile: a quarter lies above.
  """

  median: float
  min: float
  lower_quartile: float
  upper_quartile: float


class Timing(NamedTuple):
  """What training R replicas costs.

  Attributes:
    replicas: R.
    devices: on how many devices they lie.
    replicas_per_device: R over the number of devices.
    loops_on_device: whether many steps are one program.
    steps_timed: updates that were measured; each is of all R replicas.
    portions: into which they were cut, with a wait for the device after each.
    step_milliseconds: of one update of all R replicas, over the portions.
    replica_milliseconds: the same divided by R.
    drawing_milliseconds: of one update's episodes for all R replicas, drawn or
      rendered as inside a step, but in a program that does nothing else.
    frames_per_second: drawn, in the median of it.
    initialise_seconds: until the first state was there, compiling included.
    compile_seconds: of the first step, less the median step.
    device_peak_bytes: the most memory in use on one device since the program
      began; None where the device does not tell, as a CPU.
    process_peak_bytes: the most resident memory of the program on the host
      since it began, compiling included.
  """

  replicas: int
  devices: int
  replicas_per_device: int
  loops_on_device: bool
  steps_timed: int
  portions: int
  step_milliseconds: Spread
  replica_milliseconds: Spread
  drawing_milliseconds: Spread
  frames_per_second: float
  initialise_seconds: float
  compile_seconds: float
  device_peak_bytes: int | None
  process_peak_bytes: int


def measure(prepared: Run, seconds: float) -> Timing:
  """Trains for a while and times it.

  Episodes are drawn inside the step, as in a run, and nothing is copied to the
  host.

  Args:
    prepared: the run whose steps are timed; nothing is written for it.
    seconds: to spend on the portions that count, > 0. At least four are
      measured, which takes longer where a step is long.

  Returns:
    The timing.
  """
  settings, layout = prepared.settings, prepared.layout
  programs = training.make_programs(prepared)
  images = own_frames.Training(layout, prepared.images).at(0)
  began = time.perf_counter()
  state = jax.block_until_ready(programs.start(images))
  initialise_seconds = time.perf_counter() - began
  steps, portions, first = _time_portions(
    lambda state, count: programs.advance(state, images, count), state, seconds
  )
  milliseconds = 1e3 * portions / steps
  drawing = _time_drawing(prepared, programs.own, images, seconds / _DRAWING)
  frames = settings.replicas * settings.batch_size * prepared.task.length
  return Timing(
    replicas=settings.replicas,
    devices=len(layout.devices),
    replicas_per_device=layout.per_device,
    loops_on_device=layout.loops_on_device,
    steps_timed=int(steps.sum()),
    portions=len(steps),
    step_milliseconds=spread(milliseconds),
    replica_milliseconds=spread(milliseconds / settings.replicas),
    drawing_milliseconds=spread(drawing),
    frames_per_second=1e3 * frames / float(np.median(drawing)),
    initialise_seconds=initialise_seconds,
    compile_seconds=max(0.0, first - float(np.median(milliseconds)) / 1e3),
    device_peak_bytes=_device_peak(layout.devices),
    process_peak_bytes=_process_peak(),
  )


def _time_drawing(
  prepared: Run, own: Any, shared: Any, seconds: float
) -> np.ndarray:
  """Milliseconds of drawing the batches of all replicas, of each portion."""

  def draw(drawn, own, shared):
    step, total = drawn
    key = jax.random.fold_in(own, step)
    episode, _ = prepared.problem.draw(key, shared)
    # Sums, lest the compiler drop what nobody needs.
    return step + 1, total + episode.frames.sum()

  layout, count = prepared.layout, prepared.settings.replicas
  start = np.zeros(count, np.int32), np.zeros(count, np.float32)
  repeated = replicas.repeat(layout, draw)
  steps, times, _ = _time_portions(
    lambda state, count: repeated(state, own, shared, count),
    replicas.scatter(layout, start),
    seconds,
  )
  return 1e3 * times / steps


def as_rows(timings: Sequence[Timing]) -> list[dict[str, Any]]:
  """Timings as JSON has them.

  Args:
    timings: of one model and task, the smallest R first.

  Returns:
    The fields of each `Timing`, and `replica_cost_ratio`, the median cost a
    replica over that of R = 1; None where R = 1 was not timed.
  """
  rows = []
  for timing in timings:
    row = timing._asdict()
    for name, value in row.items():
      if isinstance(value, Spread):
        row[name] = value._asdict()
    row['replica_cost_ratio'] = None
    if timings[0].replicas == 1:
      row['replica_cost_ratio'] = (
        timing.replica_milliseconds.median
        / timings[0].replica_milliseconds.median
      )
    rows.append(row)
  return rows


def spread(values: np.ndarray) -> Spread:
  """Median, minimum and quartiles of values [N], N >= 1."""
  lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
  return Spread(
    float(median), float(np.min(values)), float(lower), float(upper)
  )


def parameter_counts(frames: str) -> dict[str, int]:
  """Number of parameters of each model at the paper preset.

  Shapes alone are worked out: nothing is compiled, no images are read.

  Args:
    frames: 'digits', for tasks of 20 + 5 frames, or 'environments', for 30.
  """
  shape, length = _PAPER_FRAMES[frames]
  preset = presets.choose('paper', shape[-1])
  return {
    model: _count_parameters(model, preset, shape, length)
    for model in presets.MODELS
  }


def _count_parameters(
  model: str, preset: presets.Preset, shape: tuple[int, int, int], length: int
) -> int:
  vae = build.temporal_vae(model, preset, shape, frames=length)
  made = build.variable_shapes(vae, shape)
  return sum(leaf.size for leaf in jax.tree.leaves(made['params']))


def _time_portions(
  advance: Callable[[Any, int], Any], state: Any, seconds: float
) -> tuple[np.ndarray, np.ndarray, float]:
  """Steps and seconds of each portion [N], and the seconds of the first step.

  The first step compiles. The next portions only find out how many steps make
  one: a step that is timed alone pays for the dispatch of a whole loop.
  """

  def timed(state, count):
    began = time.perf_counter()
    state = jax.block_until_ready(advance(state, count))
    return state, time.perf_counter() - began

  def fitting(count, took):
    return max(1, round(seconds / _PORTIONS * count / took))

  state, first = timed(state, 1)
  state, took = timed(state, 1)
  count = fitting(1, took)
  if count > 1:
    state, took = timed(state, count)
    count = fitting(count, took)
  steps, times = [], []
  while len(times) < _LEAST_PORTIONS or sum(times) < seconds:
    state, took = timed(state, count)
    steps.append(count)
    times.append(took)
  return np.array(steps), np.array(times), first


def _device_peak(devices: tuple[jax.Device, ...]) -> int | None:
  """Largest peak of the devices' allocators, bytes; None where unknown."""
  statistics = [device.memory_stats() or {} for device in devices]
  peaks = [each.get('peak_bytes_in_use') for each in statistics]
  return None if None in peaks else max(peaks)


def _process_peak() -> int:
  """Largest resident set of this process, bytes."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  # macOS counts bytes, other systems kibibytes.
  return peak if sys.platform == 'darwin' else 1024 * peak
