"""Products with weights, and scans that make their weights' gradients at once.

Going back through `jax.lax.scan`, the gradient of every weight is a product of
few rows, added to an array as large as the weight at each time step. `scan`
keeps the two factors of all steps instead and multiplies them once, after it.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Tree = Any

# What multiplies while a step is traced, if not `product` itself.
_multiplier: contextvars.ContextVar[Callable[[Array, Array], Array] | None] = (
  contextvars.ContextVar('multiplier', default=None)
)


def product(x: Array, kernel: Array) -> Array:
  """x @ kernel: [..., I] and [I, O] -> [..., O]."""
  multiplier = _multiplier.get()
  if multiplier is None:
    return _transposed_once(x, kernel)
  return multiplier(x, kernel)


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

  Args:
    step: (weights, carry, inputs of one step) -> (carry, outputs of it). The
      kernels that it gives to `product` are functions of the weights alone, and
      no `jax.checkpoint` may hide the call. It may not close over what is
      differentiated.
    weights: the same at every step.
    carry: before the first step.
    inputs: leaves [T, ...].

  Returns:
    The carry after the last step, and the outputs, leaves [T, ...]; there is
    no forward-mode derivative.
  """
  return _scan(step, weights, carry, inputs)


@jax.custom_vjp
def _transposed_once(x: Array, kernel: Array) -> Array:
  """Going back over time, the transposed kernel is made once, not each step."""
  return x @ kernel


def _product_forward(x, kernel):
  return x @ kernel, (x, kernel.T)


def _product_backward(saved, cotangent):
  x, transposed = saved
  rows, back = (each.reshape(-1, each.shape[-1]) for each in (x, cotangent))
  return cotangent @ transposed, rows.T @ back


_transposed_once.defvjp(_product_forward, _product_backward)


@contextlib.contextmanager
def _multiplying(by: Callable[[Array, Array], Array]) -> Iterator[None]:
  token = _multiplier.set(by)
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
  none = jnp.zeros(transposed.shape[::-1], transposed.dtype)
  return cotangent @ transposed, none, cotangent


_tapped.defvjp(_tapped_forward, _tapped_backward)


def _plain(step, weights, carry, inputs):
  return jax.lax.scan(
    lambda carry, each: step(weights, carry, each), carry, inputs
  )


def _scan_forward(step, weights, carry, inputs):
  shapes = []

  def kernels_of(weights):
    """The kernels of all products of a step; notes the shapes of these."""
    kernels = []

    def note(x, kernel):
      made = x @ kernel
      kernels.append(kernel)
      shapes.append(jax.ShapeDtypeStruct(made.shape, made.dtype))
      return made

    with _multiplying(note):
      step(weights, carry, jax.tree.map(lambda leaf: leaf[0], inputs))
    return kernels

  _, to_weights = jax.vjp(kernels_of, weights)
  length = jax.tree.leaves(inputs)[0].shape[0]
  taps = [jnp.zeros((length, *each.shape), each.dtype) for each in shapes]

  def tapped_scan(weights, taps, carry, inputs):
    def tapped_step(carry, each):
      own, taps_t = each
      factors, waiting = [], iter(taps_t)

      def multiply(x, kernel):
        factors.append(x)
        return _tapped(x, jax.lax.stop_gradient(kernel), next(waiting))

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
_scan.defvjp(_scan_forward, _scan_backward)
