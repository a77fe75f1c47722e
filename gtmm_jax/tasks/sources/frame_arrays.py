"""Checks of the arrays that may be beside the frames of own episodes."""

import pathlib

import numpy as np

from gtmm_jax.tasks.sources import npz
from gtmm_jax.tasks.sources.dataset import DataError

# Parts of the data, as `held_out` counts them.
_PARTS = ('training', 'validation', 'test')


def require_axes(
  file: pathlib.Path, member: npz.Member, axes: str, steps: tuple[int, int]
) -> None:
  """Checks the type and shape of an array beside frames.

  Args:
    file: of the array.
    member: the array.
    axes: that it must have, such as '[N, T, A]'.
    steps: (N, T) of frames.

  Raises:
    DataError: it is not of real numbers, or has other axes.
  """
  name, kind, shape = member.name, member.dtype, member.shape
  if kind.kind not in 'biuf':
    raise DataError(
      f'{file}: {name} is {kind}; it must be of real numbers or bool, save '
      f'{name}.astype(np.float32), say.'
    )
  count = axes.count(',') + 1
  if len(shape) != count or shape[:2] != steps[:count]:
    raise DataError(
      f'{file}: {name} has the shape {shape}; it must be {axes} with the N '
      f'{steps[0]} and T {steps[1]} of frames.'
    )


def as_condition(file: pathlib.Path, values: np.ndarray) -> np.ndarray:
  """Returns a condition as float32 [N, T, A].

  Raises:
    DataError: a value is not finite as float32.
  """
  with np.errstate(over='ignore'):
    condition = np.ascontiguousarray(values, np.float32)
  if not np.isfinite(condition).all():
    episode, step, place = np.argwhere(~np.isfinite(condition))[0]
    raise DataError(
      f'{file}: condition is not finite as float32, first at '
      f'[{episode}, {step}, {place}], {values[episode, step, place]}; replace '
      f'such values, by 0 say.'
    )
  return condition


def as_marks(file: pathlib.Path, values: np.ndarray) -> np.ndarray:
  """Returns marks of predictable frames as bool [N, T].

  Raises:
    DataError: a value is neither 0 nor 1.
  """
  # NaN fails this test, too.
  is_mark = (values == 0) | (values == 1)
  if not is_mark.all():
    episode, step = np.argwhere(~is_mark)[0]
    raise DataError(
      f'{file}: predictable has a value that is neither 0 nor 1, first at '
      f'[{episode}, {step}], {values[episode, step]}; it must be bool, or 0 '
      f'and 1.'
    )
  return np.ascontiguousarray(values, bool)


def as_parts(file: pathlib.Path, values: np.ndarray) -> np.ndarray:
  """Returns the part of each episode as uint8 [N].

  Raises:
    DataError: a value is none of 0, 1 and 2, or one of these is missing.
  """
  meaning = '0 for training, 1 for validation, 2 for the test'
  is_part = np.isin(values, range(len(_PARTS)))
  if values.dtype == bool or not is_part.all():
    wrong = 'is bool'
    if values.dtype != bool:
      (episode, *_) = np.flatnonzero(~is_part)
      wrong = f'is {values[episode]} at episode {episode}'
    raise DataError(f'{file}: held_out {wrong}; it must be {meaning}.')
  for number, part in enumerate(_PARTS):
    if number not in values:
      raise DataError(
        f'{file}: held_out has no {number}, so no episode is for {part}; each '
        f'part needs one ({meaning}).'
      )
  return values.astype(np.uint8)
