"""Checks of what a trained model is given; they work under `jax.jit`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def frames(values: Any, shape: tuple[int, int, int]) -> Array:
  """Returns frames in [0, 1], float32.

  Args:
    values: [T, H, W, C] or [T, B, H, W, C], in [0, 1], or uint8 from 0 to 255.
    shape: (H, W, C) of the model.

  Raises:
    ValueError: the shape or type is another, or a value is not in [0, 1].
  """
  if not hasattr(values, 'dtype'):
    values = np.asarray(values)
  form = ', '.join(map(str, shape))
  fits = values.ndim in (4, 5) and values.shape[-3:] == tuple(shape)
  if not fits or 0 in values.shape:
    raise ValueError(
      f'frames have the shape {values.shape}; this model takes [T, {form}] of '
      f'one episode, or [T, B, {form}] of several, with at least one frame.'
    )
  if values.dtype == np.uint8:
    return jnp.asarray(values, jnp.float32) / 255.0
  if not jnp.issubdtype(values.dtype, jnp.floating):
    raise ValueError(
      f'frames have the type {values.dtype}; give floats from 0 to 1, or bytes '
      f'(uint8) from 0 to 255.'
    )
  # A traced value cannot be looked at. NaN fails this test, too.
  is_traced = isinstance(values, jax.core.Tracer)
  if not is_traced and not (values.min() >= 0 and values.max() <= 1):
    raise ValueError(
      f'frames reach from {values.min()} to {values.max()}; give floats from 0 '
      f'to 1, or bytes (uint8) from 0 to 255.'
    )
  return jnp.asarray(values, jnp.float32)


def condition(values: Any, size: int, axes: tuple[int, ...]) -> Array:
  """Returns the condition of every frame, float32 [*axes, A].

  Args:
    values: [*axes, A]; None where A = 0.
    size: A, the width of the model's condition.
    axes: (T,) of one episode, (T, B) of several.

  Raises:
    ValueError: it is missing, or its shape is another.
  """
  form = ', '.join(map(str, (*axes, size)))
  if values is None:
    if size:
      raise ValueError(
        f'This model gets a condition with every frame: give condition, '
        f'[{form}].'
      )
    return jnp.zeros((*axes, 0), jnp.float32)
  values = jnp.asarray(values, jnp.float32)
  if values.shape != (*axes, size):
    raise ValueError(
      f'condition has the shape {values.shape}; it must be [{form}], the '
      f'{size} numbers of every frame.'
    )
  return values


def at_least_one(**numbers: int) -> None:
  """Raises `ValueError` for a number that is not whole, or below 1."""
  for name, number in numbers.items():
    is_whole = isinstance(number, int | np.integer)
    if not is_whole or isinstance(number, bool) or number < 1:
      raise ValueError(
        f'{name} is {number!r}; it must be a whole number, at least 1.'
      )
