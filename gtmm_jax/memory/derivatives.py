"""The switch for backward passes that are written out, and how to write one.

What JAX derives takes longer, going back over time, than what is written out in
`gradients` and `products`. Off, which is the default, everything is plain JAX.
Within `written_out()` values are the same, and first derivatives in reverse
mode are the same but for rounding; second ones are those that JAX derives.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

Tree = Any

# Part of what JAX keeps compiled functions by: each is traced in either mode.
_is_on = jax.make_user_context(False)
_KEPT = 'kept_for_going_back'


@contextlib.contextmanager
def written_out() -> Iterator[None]:
  """Uses the written-out backward passes in what is traced within.

  `with written_out(): ...` around the call that takes a gradient, or inside of
  the function whose gradient is taken. Arrays whose type says how a mesh shares
  them (explicit axes, or those of `jax.shard_map`) stay with plain JAX.

  Raises:
    TypeError: for forward-mode derivatives.
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
  """Whether an array's type says how a mesh shares it.

  A cotangent has to be of such a type, too; JAX's own derivatives see to it.
  """
  kind = jax.typeof(leaf)
  if jax.sharding.AxisType.Explicit in kind.sharding.mesh.axis_types:
    return True
  manual = getattr(kind, 'manual_axis_type', None)
  return bool(getattr(manual, 'varying', ()))


def with_backward(
  backward: Callable[..., tuple],
  kept: Callable[..., tuple] = lambda *_: (),
) -> Callable[[Callable[..., Tree]], Callable[..., Tree]]:
  """Makes a decorator that gives an equation a backward pass.

  JAX differentiates the equation and its backward pass once more where second
  derivatives are asked for: neither may stop a gradient that is not zero.

  Args:
    backward: (arguments, cotangent, *kept) -> a cotangent of each argument,
      None for those that are no floats.
    kept: (value, *arguments) -> what else the backward pass is given.

  Returns:
    A decorator of functions of arrays.
  """

  def decorate(equation: Callable[..., Tree]) -> Callable[..., Tree]:
    def forward(*arguments):
      value = equation(*arguments)
      return value, (arguments, kept(value, *arguments))

    written = jax.custom_vjp(equation)
    written.defvjp(
      forward, lambda saved, cotangent: backward(saved[0], cotangent, *saved[1])
    )

    signature = inspect.signature(equation)

    @functools.wraps(equation)
    def chosen(*arguments, **named):
      arguments = signature.bind(*arguments, **named).args
      return (written if are_written_out(arguments) else equation)(*arguments)

    return chosen

  return decorate


def keep(x: Tree) -> Tree:
  """Marks what `sparing` keeps, and returns the same values."""
  return checkpoint_name(x, _KEPT)


def sparing(part: Callable[..., Tree]) -> Callable[..., Tree]:
  """Makes a part of a core's step keep less for its backward pass.

  What JAX keeps of a step is several times a core's state: more than half of
  the memory that going back takes. To write and read it takes no less time than
  to compute it again. Kept are the arguments, and what `keep` marks: small
  arrays whose making is long. Off, it is the part itself.
  """
  if not _is_on.value:
    return part
  # Nothing hides what is done again from XLA: in a scan it cannot be merged.
  return jax.checkpoint(
    part,
    prevent_cse=False,
    policy=jax.checkpoint_policies.save_only_these_names(_KEPT),
  )
