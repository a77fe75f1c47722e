"""Event files of a run, which TensorBoard shows; written only if asked for.

In the folder `tensorboard` of the workdir there is one of TensorBoard's runs
for each replica, `replica_N`, one for their mean, `mean`, and one for pictures,
`pictures`. Curves follow from the records, and are written anew at each start:
they have each step once, those from before they were asked for, too. Pictures
are added, and those of steps that are trained again are purged.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image

from gtmm_jax import records, train
from gtmm_jax.process import exchange
from gtmm_jax.runs import held_out
from gtmm_jax.runs.event_pictures import Pictures
from gtmm_jax.runs.run import Run

# What the whole run has; other values are by replica.
_OF_RUN = ('learning_rate', 'steps_per_second')
_MEAN = 'mean'


def require_writer() -> None:
  """Raises `ValueError` if the package that writes event files is missing."""
  if importlib.util.find_spec('tensorboardX') is None:
    raise ValueError(
      '--tensorboard needs the package tensorboardX, which is not installed: '
      'pip install "gtmm_jax[tensorboard]", or leave the flag out.'
    )


class EventFiles:
  """The open event files of a run."""

  def __init__(self, run: Run, evaluation: held_out.Evaluation | None) -> None:
    """Writes the curves of the records that there are, and opens the files.

    Args:
      run: the run.
      evaluation: of its states; None if there will be no more lines.

    Raises:
      OSError: they cannot be written.
    """
    lines = records.read_metrics(run.workdir)
    times = [line['seconds'] for line in lines if line['seconds'] is not None]
    # Times of events are those of training, without pauses between starts.
    self._began = time.time() - max(times, default=0.0)
    self._pictures = Pictures(run, evaluation)
    folder = run.workdir / 'tensorboard'
    names = [f'replica_{n}' for n in range(run.settings.replicas)]
    self._curves = {
      name: _Writer(folder / name, 0, is_new=True) for name in (_MEAN, *names)
    }
    step = lines[-1]['step'] if lines else 0
    self._shown = _Writer(folder / 'pictures', step + 1, is_new=False)
    settled_at = records.settled_at(lines)
    for line in lines:
      self._add_curves(line, settled_at)
    self._flush()

  def add(
    self,
    line: Mapping[str, Any],
    settled_at: int | None,
    state: train.TrainState,
  ) -> None:
    """Adds a line of the records, with pictures if it has validation episodes.

    Args:
      line: as it is written.
      settled_at: what `records.settled_at` returns of the lines up to it.
      state: of all replicas, on the devices; it is not changed.

    Raises:
      OSError: a file cannot be written.
    """
    self._add_curves(line, settled_at)
    if 'held_out' in line:
      pictures = self._pictures.draw(state)
      self._shown.write(self._time(line), line['step'], pictures=pictures)
    self._flush()

  def close(self) -> None:
    """Closes the files."""
    for writer in (*self._curves.values(), self._shown):
      writer.close()

  def _add_curves(
    self, line: Mapping[str, Any], settled_at: int | None
  ) -> None:
    """Adds the numbers of a line; one that was lost has none."""
    if line['seconds'] is None:
      return
    has_settled = settled_at is not None and line['step'] >= settled_at
    by_replica = curves(line, has_settled)
    mean = {tag: _mean(values) for tag, values in by_replica.items()}
    mean |= {f'run/{name}': line.get(name) for name in _OF_RUN}
    each = (
      {tag: values[number] for tag, values in by_replica.items()}
      for number in range(len(self._curves) - 1)
    )
    for writer, values in zip(
      self._curves.values(), (mean, *each), strict=True
    ):
      writer.write(self._time(line), line['step'], values)

  def _time(self, line: Mapping[str, Any]) -> float:
    return self._began + line['seconds']

  def _flush(self) -> None:
    for writer in (*self._curves.values(), self._shown):
      writer.flush()


class OfOthers:
  """Stands for the event files in a process that does not write them."""

  def __init__(self, run: Run, evaluation: held_out.Evaluation | None) -> None:
    self._pictures = Pictures(run, evaluation)

  def add(
    self, line: Mapping[str, Any], _: int | None, state: train.TrainState
  ) -> None:
    """Brings what pictures show to the process that writes them."""
    if 'held_out' in line:
      self._pictures.draw(state)

  def close(self) -> None:
    """Does nothing."""


@contextlib.contextmanager
def opened(
  run: Run, evaluation: held_out.Evaluation | None
) -> Iterator[EventFiles | OfOthers | None]:
  """Opens the event files of a run in its locked folder; None if not asked for.

  Args:
    run: the run.
    evaluation: of its states; None if there will be no more lines.

  Raises:
    OSError: they cannot be written.
  """
  if not run.settings.tensorboard:
    yield None
    return
  files = (EventFiles if exchange.is_first() else OfOthers)(run, evaluation)
  try:
    yield files
  finally:
    files.close()


def curves(line: Mapping[str, Any], has_settled: bool) -> dict[str, np.ndarray]:
  """Returns the values of a line of the records that are drawn, by replica.

  Args:
    line: of `metrics.jsonl`, as read or as written.
    has_settled: whether the KL ratio means something yet.

  Returns:
    By tag, `training/METRIC` and `validation/METRIC`, of a mixture also
    `validation/TASK/METRIC`: [R], NaN where there is no value.
  """
  held_out = line.get('held_out')
  parts = {'training': line}
  if held_out:
    tasks = held_out.get('by_task', {}).items()
    parts |= {'validation': held_out}
    parts |= {f'validation/{task}': part for task, part in tasks}
  values = {
    f'{name}/{metric}': column
    for name, part in parts.items()
    for metric, column in records.by_replica(part, has_settled).items()
  }
  norm = np.array(line['gradient_norm'], float)
  return {**values, 'training/gradient_norm': norm}


def _mean(values: np.ndarray) -> float | None:
  """Returns the mean over the replicas that have a value."""
  finite = values[np.isfinite(values)]
  return float(finite.mean()) if finite.size else None


class _Writer:
  """One event file, written without threads, so that errors are raised."""

  def __init__(self, folder: pathlib.Path, step: int, is_new: bool) -> None:
    """Begins a file.

    Args:
      folder: of the file; it is made if it is missing.
      step: what files before have of it, and of later ones, is void.
      is_new: whether files before are deleted.
    """
    # Optional packages.
    from tensorboardX import event_file_writer
    from tensorboardX.proto import event_pb2, summary_pb2

    self._events, self._summaries = event_pb2, summary_pb2
    folder.mkdir(parents=True, exist_ok=True)
    before = sorted(folder.glob('events.out.tfevents.*'))
    if is_new:
      for path in before:
        path.unlink()
    # The time in a name has seconds, and starts can be less apart.
    self._writer = event_file_writer.EventsWriter(
      os.fspath(folder / 'events'), f'.{len(before)}'
    )
    started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._writer.write_event(
      event_pb2.Event(wall_time=time.time(), step=step, session_log=started)
    )

  def write(
    self,
    seconds: float,
    step: int,
    values: Mapping[str, float | None] | None = None,
    pictures: Mapping[str, np.ndarray] | None = None,
  ) -> None:
    """Writes an event; leaves out values that are None or not finite.

    Args:
      seconds: time of the event, since 1970.
      step: of training.
      values: by tag.
      pictures: by tag, uint8 [H, W, 3].
    """
    kinds = self._summaries.Summary
    summary = kinds(
      value=[
        *(
          kinds.Value(tag=tag, simple_value=value)
          for tag, value in (values or {}).items()
          if value is not None and np.isfinite(value)
        ),
        *(
          kinds.Value(tag=tag, image=kinds.Image(**_encoded(pixels)))
          for tag, pixels in (pictures or {}).items()
        ),
      ]
    )
    self._writer.write_event(
      self._events.Event(wall_time=seconds, step=step, summary=summary)
    )

  def flush(self) -> None:
    """Passes what was written to the operating system."""
    self._writer.flush()

  def close(self) -> None:
    """Closes the file."""
    self._writer.close()


def _encoded(pixels: np.ndarray) -> dict[str, Any]:
  """Returns an image as an event has it, PNG."""
  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, 'PNG')
  height, width, channels = pixels.shape
  return {
    'height': height,
    'width': width,
    'colorspace': channels,
    'encoded_image_string': buffer.getvalue(),
  }
