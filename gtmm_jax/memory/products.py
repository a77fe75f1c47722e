"""Products with weights, and scans that make their weights' gradients at once.

Going back through `jax.lax.scan`, the gradient of every weight is a product of
few rows, added to an array as large as the weight at each time step. `scan`
keeps the two factors of all steps instead and multiplies them once, after it.
Both are for `derivatives.written_out`; else all is plain JAX.
"""

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp

from gtmm_jax.memory import derivatives, gradients

Array = jax.Array
Tree = Any


class _Multiplier(NamedTuple):
  """What multiplies in a step of `scan`, and where: in no trace within."""

  multiply: Callable[[Array, Array], Array]
  trace: Any


_multiplier: contextvars.ContextVar[_Multiplier | None] = (
  contextvars.ContextVar('multiplier', default=None)
)


def product(x: Array, kernel: Array) -> Array:
  """x @ kernel: [..., I] and [I, O] -> [..., O]."""
  multiplier = _multiplier.get()
  if (
    multiplier and multiplier.trace == jax.extend.core.get_opaque_trace_state()
  ):
    return multiplier.multiply(x, kernel)
  return _product(x, kernel)


# Going back over time, the transposed kernel is made once, not at each step.
@derivatives.with_backward(gradients.product, lambda _, x, kernel: (kernel.T,))
def _product(x: Array, kernel: Array) -> Array:
  return x @ kernel


def dot_general(x: Array, kernel: Array, *_: Any, **__: Any) -> Array:
  """`product` as `nn.Dense` calls what multiplies for it."""
  return product(x, kernel)


def scan(
  step: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]],
  weights: Tree,
  carry: Tree,
  inputs: Tree,
) -> tuple[Tree, Tree]:
  """`jax.lax.scan` of a step with weights, differentiated faster.

  Faster within `derivatives.written_out` alone, and by what the step gives to
  `product` itself: a product inside of `jit`, `vmap`, `cond`, another scan or a
  `jax.checkpoint`, or with a kernel that is made of more than the weights, is
  differentiated as `jax.lax.scan` does it.

  Args:
    step: (weights, carry, inputs of one step) -> (carry, outputs of it).
    weights: the same at every step.
    carry: before the first step.
    inputs: leaves [T, ...].

  Returns:
    The carry after the last step, and the outputs, leaves [T, ...].

  Raises:
    ValueError: if, written out, the step closes over what is differentiated.
  """
  lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(inputs)}
  has_steps = lengths - {(), (0,)}
  if not has_steps or not derivatives.are_written_out(weights, carry, inputs):
    return _plain(step, weights, carry, inputs)
  try:
    return _scan(step, weights, carry, inputs)
  except Exception as error:
    is_leak = isinstance(error, jax.errors.UnexpectedTracerError)
    if not is_leak and 'closed-over value' not in str(error):
      raise
    raise ValueError(
      'The step of products.scan may not close over what is differentiated; '
      'give it to the scan in its weights, carry or inputs.'
    ) from error


def _plain(step, weights, carry, inputs):
  return jax.lax.scan(
    lambda carry, each: step(weights, carry, each), carry, inputs
  )


@contextlib.contextmanager
def _multiplying(by: Callable[[Array, Array], Array]) -> Iterator[None]:
  here = jax.extend.core.get_opaque_trace_state()
  token = _multiplier.set(_Multiplier(by, here))
  try:
    yield
  finally:
    _multiplier.reset(token)


@jax.custom_vjp
def _tapped(x: Array, kernel: Array, tap: Array) -> Array:
  """x @ kernel, whose cotangent is that of `tap`; none is the kernel's."""
  del tap
  return x @ kernel


def _tapped_forward(x, kernel, tap):
  del tap
  return x @ kernel, kernel.T


def _tapped_backward(transposed, cotangent):
  return cotangent @ transposed, None, cotangent


_tapped.defvjp(_tapped_forward, _tapped_backward)


class _Products(NamedTuple):
  """The products of a step, in the order in which it makes them.

  Attributes:
    are_of_weights: whether the kernel of each is made of the weights alone.
    shapes: of what those make whose kernels are.
    kernels: from weights to their kernels.
  """

  are_of_weights: list[bool]
  shapes: list[jax.ShapeDtypeStruct]
  kernels: Callable[[Tree], list[Array]]


def _products(step, weights, carry, inputs) -> _Products:
  """Looks at the products of a step."""

  def kernels_and_products(weights, *rest):
    kernels, made = [], []

    def note(x, kernel):
      kernels.append(kernel)
      made.append(x @ kernel)
      return made[-1]

    with _multiplying(note):
      step(weights, *rest)
    return kernels, made

  rest = carry, jax.tree.map(lambda leaf: leaf[0], inputs)
  jaxpr, (_, made) = jax.make_jaxpr(kernels_and_products, return_shape=True)(
    weights, *rest
  )
  count = len(jax.tree.leaves(weights))
  reached = _reached(jaxpr.jaxpr, jaxpr.jaxpr.invars[count:])
  own = [not is_reached for is_reached in reached[: len(made)]]

  def chosen(all_products):
    return list(itertools.compress(all_products, own))

  def kernels(weights):
    leaves = jax.tree.leaves((weights, *rest))
    return chosen(jax.extend.core.jaxpr_as_fun(jaxpr)(*leaves)[: len(made)])

  return _Products(own, chosen(made), kernels)


def _reached(jaxpr: Any, begin: list[Any]) -> list[bool]:
  """Finds which results of a jaxpr depend on some of its inputs."""
  reached = set(begin)

  def is_reached(variable):
    is_literal = isinstance(variable, jax.extend.core.Literal)
    return not is_literal and variable in reached

  for equation in jaxpr.eqns:
    if any(map(is_reached, equation.invars)):
      reached.update(equation.outvars)
  return list(map(is_reached, jaxpr.outvars))


def _scan_forward(step, weights, carry, inputs):
  products = _products(step, weights, carry, inputs)
  # To what follows they are constants, but not to second derivatives.
  kernels, to_weights = jax.vjp(products.kernels, weights)
  length = len(jax.tree.leaves(inputs)[0])
  taps = [jnp.zeros((length, *x.shape), x.dtype) for x in products.shapes]

  def tapped_scan(weights, taps, carry, inputs):
    def tapped_step(carry, each):
      own, taps_t = each
      factors, are_of_weights = [], iter(products.are_of_weights)
      waiting = zip(kernels, taps_t, strict=True)

      def multiply(x, kernel):
        if not next(are_of_weights):
          return _product(x, kernel)
        factors.append(x)
        return _tapped(x, *next(waiting))

      with _multiplying(multiply):
        carry, made = step(weights, carry, own)
      return carry, (made, factors)

    carry, (made, factors) = jax.lax.scan(tapped_step, carry, (inputs, taps))
    return (carry, made), factors

  made, back, factors = jax.vjp(
    tapped_scan, weights, taps, carry, inputs, has_aux=True
  )
  return made, (back, factors, to_weights)


def _scan_backward(step, saved, cotangents):
  del step
  back, factors, to_weights = saved
  of_weights, of_products, of_carry, of_inputs = back(cotangents)
  kernels = [
    x.reshape(-1, x.shape[-1]).T @ each.reshape(-1, each.shape[-1])
    for x, each in zip(factors, of_products, strict=True)
  ]
  (more,) = to_weights(kernels)
  of_weights = jax.tree.map(
    lambda one, other: one if one.dtype == jax.dtypes.float0 else one + other,
    of_weights,
    more,
  )
  return of_weights, of_carry, of_inputs


_scan = jax.custom_vjp(_plain, nondiff_argnums=(0,))
_scan.defvjp(derivatives.written_out()(_scan_forward), _scan_backward)
