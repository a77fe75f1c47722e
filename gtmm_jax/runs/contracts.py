"""Checks that a user's core and task keep their contracts; shapes only."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.tasks.episode import Episode


def require_core(model: str, core: nn.Module, features: int) -> None:
  """Checks that a core keeps the contract; computes shapes only.

  Args:
    model: its name, for the message.
    core: without parameters.
    features: size of an input.

  Raises:
    ValueError: the core fails, or returns wrong shapes or types.
  """
  for batch in ((), (2,), (2, 3)):
    try:
      carry, (new, context) = _shapes(core, (*batch, features))
    except Exception as error:
      raise ValueError(
        f'The core of {model} fails on inputs of shape {(*batch, features)}: '
        f'{_reason(error)}'
      ) from error
    leaves = jax.tree.leaves(carry)
    if any(leaf.shape[: len(batch)] != batch for leaf in leaves):
      wrong = 'a carry whose leaves do not all begin with the batch axes'
    elif jax.tree.map(_kind, carry) != jax.tree.map(_kind, new):
      wrong = 'a carry of other shapes or types than the one that it got'
    elif not hasattr(context, 'shape') or context.shape[:-1] != batch:
      wrong = 'a context that is not one array [..., P] with the batch axes'
    else:
      continue
    raise ValueError(
      f'The core of {model} returns {wrong}, for inputs of shape '
      f'{(*batch, features)}; see gtmm_jax/memory/contract.py.'
    )


def require_episode(name: str, task: Any, images: Any) -> None:
  """Checks that a task draws an episode; computes shapes only.

  Args:
    name: of the task, for the message.
    task: with its sizes.
    images: to draw from; their `shape` is that of a frame.

  Raises:
    ValueError: it fails, or returns wrong shapes.
  """
  try:
    drawn = jax.eval_shape(task.sample, jax.random.key(0), images)
    fields = {field: getattr(drawn, field) for field in Episode._fields}
    # None stands for the default, where a field has one.
    shapes = {
      field: value.shape
      for field, value in fields.items()
      if not (value is None and field in Episode._field_defaults)
    }
  except Exception as error:
    raise ValueError(
      f'The task {name} draws no episode: {_reason(error)}; see '
      f'gtmm_jax/tasks/episode.py.'
    ) from error
  if getattr(task, 'parts', ()) and drawn.part is None:
    raise ValueError(
      f'The task {name} has parts and draws an episode whose part is None; it '
      f'must be an integer for each frame.'
    )
  length = (task.length,)
  right = dict.fromkeys(Episode._fields, length)
  right['frames'] = (*length, *images.shape)
  right['condition'] = (*length, task.condition_size)
  for field, shape in shapes.items():
    if shape != right[field]:
      raise ValueError(
        f'The task {name} draws an episode whose {field} has the shape '
        f'{shape}; it must be {right[field]}.'
      )


def _reason(error: Exception) -> str:
  """Returns the first line of an error's message, or the error's name."""
  return (str(error).splitlines() or [type(error).__name__])[0]


def _shapes(core: nn.Module, shape: tuple[int, ...]) -> tuple[Any, Any]:
  """Returns the shapes of a core's first carry, and of its call's results."""
  key = jax.random.key(0)
  carry = jax.eval_shape(lambda: core.initialize_carry(key, shape))
  inputs = jax.ShapeDtypeStruct(shape, jnp.float32)
  returned, _ = jax.eval_shape(
    lambda carry, inputs: core.init_with_output(key, carry, inputs),
    carry,
    inputs,
  )
  return carry, returned


def _kind(leaf: Any) -> tuple[Any, ...]:
  return leaf.shape, leaf.dtype
