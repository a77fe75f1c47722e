"""The switch for written-out backward passes, and how an equation gets one.

Off, the default, everything is plain JAX. Within `written_out()` the backward
passes of `gradients` and `scan` take the place of those that JAX derives, which
take longer over time. Values are the same, and first derivatives in reverse
mode but for rounding; second ones are those that JAX derives.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

Tree = Any

# Part of the key of jit's cache: a function is traced once for each mode.
_is_on = jax.make_user_context(False)
SAVED = 'saved_for_the_backward_pass'


@contextlib.contextmanager
def written_out() -> Iterator[None]:
  """Uses the written-out backward passes in the code that is traced inside.

  `with written_out(): ...` around the call that takes a gradient, or inside of
  the function whose gradient is taken. Arrays whose type says how a mesh shares
  them (explicit axes, or those of `jax.shard_map`) stay with plain JAX.

  Raises:
    TypeError: forward-mode derivatives are taken.
  """
  try:
    with _is_on(True):
      yield
  except TypeError as error:
    if 'forward-mode' not in str(error):
      raise
    raise TypeError(
      'Forward-mode derivatives (jvp, jacfwd, linearize, hessian) need plain '
      'JAX; take them outside of derivatives.written_out().'
    ) from error


def are_written_out(*arguments: Tree) -> bool:
  """Returns whether written-out backward passes apply to these arguments."""
  return bool(_is_on.value) and not any(
    map(_is_shared_out, jax.tree.leaves(arguments))
  )


def _is_shared_out(leaf: Any) -> bool:
  """Returns whether an array's type says how a mesh shares it.

  Its cotangent must have that type, too, as JAX's own derivatives ensure.
  """
  kind = jax.typeof(leaf)
  if jax.sharding.AxisType.Explicit in kind.sharding.mesh.axis_types:
    return True
  manual = getattr(kind, 'manual_axis_type', None)
  return bool(getattr(manual, 'varying', ()))


def with_backward(
  backward: Callable[..., tuple],
  residuals: Callable[..., tuple] = lambda *_: (),
) -> Callable[[Callable[..., Tree]], Callable[..., Tree]]:
  """Makes a decorator that gives an equation a backward pass.

  For second derivatives JAX differentiates the equation and its backward pass
  once more: neither may stop a gradient that is not zero.

  Args:
    backward: (arguments, cotangent, *residuals) -> a cotangent of each
      argument, None for those that are no floats.
    residuals: (value, *arguments) -> what else the backward pass is given.

  Returns:
    A decorator of functions of arrays.
  """

  def decorate(equation: Callable[..., Tree]) -> Callable[..., Tree]:
    def forward(*arguments):
      value = equation(*arguments)
      return value, (arguments, residuals(value, *arguments))

    written = jax.custom_vjp(equation)
    written.defvjp(
      forward,
      lambda saved, cotangent: backward(saved[0], cotangent, *saved[1]),
    )

    signature = inspect.signature(equation)

    @functools.wraps(equation)
    def chosen(*arguments, **named):
      arguments = signature.bind(*arguments, **named).args
      return (written if are_written_out(arguments) else equation)(*arguments)

    return chosen

  return decorate


def saved(x: Tree) -> Tree:
  """Marks values that `scan.rematerialised` saves, and returns them."""
  return checkpoint_name(x, SAVED)
