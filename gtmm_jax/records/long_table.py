"""Records of a run as one long table, for pandas."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gtmm_jax.records import workdir as workdir_module
from gtmm_jax.records.summary import PER_FRAME

if TYPE_CHECKING:
  import pandas

_COLUMNS = (
  'source',
  'split',
  'task',
  'replica',
  'step',
  'frame',
  'metric',
  'value',
)
_LABELS = ('source', 'split', 'task', 'metric')
# Keys of a record that are no metrics, or become columns.
_NO_METRICS = ('step', 'split', 'lost', 'held_out', 'by_task')
# Stands for the axis of replicas or of frames where a metric has none.
_NO_AXIS = -1


class _Block(NamedTuple):
  """The values of one metric at one step, [R, T].

  R or T is 1 where the metric has no such axis.
  """

  source: str
  split: str
  task: str
  step: int
  metric: str
  has_replicas: bool
  has_frames: bool
  values: np.ndarray


def to_frame(workdir: str | os.PathLike[str]) -> pandas.DataFrame:
  """Returns `metrics.jsonl` and `evaluation.json` as one long table.

  The KL of predictable frames on validation, by step, of each replica:

    table = records.to_frame('runs/perfect_recall-introspective-small-0')
    chosen = table.query('source == "metrics" and split == "validation"')
    kl = chosen[chosen.metric == 'kl_predictable']
    print(kl.pivot(index='step', columns='replica', values='value'))

  Args:
    workdir: the run's folder. A file that is not there adds no rows.

  Returns:
    One row per value, in the order of the files, with the columns

      source: 'metrics' or 'evaluation', the file.
      split: the part of the data: 'training', 'validation' or 'test'; of
        evaluations from before there were these parts, 'held out'.
      task: of a mixture its part's name; 'all' for all episodes.
      replica: from 0; missing where the value is that of the whole run.
      step: of training.
      frame: from 0; missing where the value is not that of a frame.
      metric: its name in the file; those inside another have a path, such as
        'quantiles/kl_new/5%' and 'last_iterate/negative_bound'.
      value: float, NaN where the file has null for one replica or frame. A
        metric that is null as a whole has no row, nor has text.

  Raises:
    ImportError: pandas is not installed.
    ValueError: a file is damaged.
  """
  try:
    import pandas
  except ImportError as error:
    raise ImportError(
      'records.to_frame needs pandas, which is not installed; pip install '
      'pandas.'
    ) from error
  blocks = list(_blocks(workdir))
  sizes = [block.values.size for block in blocks]
  columns = {
    name: np.repeat(
      np.array([getattr(block, name) for block in blocks], kind), sizes
    )
    for name, kind in {**dict.fromkeys(_LABELS, object), 'step': int}.items()
  }
  for name, axis, has_axis in (
    ('replica', 0, 'has_replicas'),
    ('frame', 1, 'has_frames'),
  ):
    numbers = _concatenated(
      [
        np.indices(block.values.shape)[axis]
        if getattr(block, has_axis)
        else np.full(block.values.shape, _NO_AXIS)
        for block in blocks
      ],
      int,
    )
    columns[name] = pandas.arrays.IntegerArray(numbers, numbers == _NO_AXIS)
  columns['value'] = _concatenated([each.values for each in blocks], float)
  return pandas.DataFrame({name: columns[name] for name in _COLUMNS})


def _blocks(workdir: str | os.PathLike[str]) -> Iterator[_Block]:
  """Yields all values of the two files, in their order."""
  for line in workdir_module.read_metrics(workdir):
    step = line['step']
    yield from _of_record('metrics', 'training', step, line)
    held_out = line.get('held_out') or {}
    split = held_out.get('split', 'held out')
    yield from _of_record('metrics', split, step, held_out)
  evaluation = workdir_module.read_evaluation(workdir)
  if evaluation is not None:
    split = evaluation.get('split', 'held out')
    yield from _of_record('evaluation', split, evaluation['step'], evaluation)


def _of_record(
  source: str, split: str, step: int, record: Mapping[str, Any]
) -> Iterator[_Block]:
  """Yields the values of a record, and of its parts by task."""
  parts = record.get('by_task') or {}
  for task, part in {'all': record, **parts}.items():
    for metric, value in _leaves(part):
      values = np.array(value, float)
      is_over_frames = metric in PER_FRAME
      has_replicas = values.ndim > 0 and not is_over_frames
      has_frames = values.ndim == 2 or is_over_frames
      if values.ndim < 2:
        values = values.reshape((1, -1) if is_over_frames else (-1, 1))
      yield _Block(
        source, split, task, step, metric, has_replicas, has_frames, values
      )


def _leaves(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
  """Yields numbers and lists of them, with their paths."""
  for name, value in record.items():
    if name in _NO_METRICS or isinstance(value, (str, bool)) or value is None:
      continue
    if isinstance(value, Mapping):
      yield from ((f'{name}/{path}', each) for path, each in _leaves(value))
    else:
      yield name, value


def _concatenated(arrays: list[np.ndarray], kind: type) -> np.ndarray:
  """Joins the elements of arrays, also of none."""
  return np.concatenate([np.zeros(0, kind), *(each.ravel() for each in arrays)])
