"""Scans over time: the one file on how time is differentiated.

`scan` is `jax.lax.scan` of a step that is given its weights. Three means make
its backward pass cheaper, and change no value; the first two apply within
`derivatives.written_out` alone:

* `product` and `dense` multiply by weights. Without them the gradient of each
  weight is a product of few rows, added to an array as large as the weight at
  every time step. `scan` saves the factors of all steps, and multiplies once.
* `rematerialised` lets a part of a step save only its arguments.
* `recompute` rematerialises whole steps, or whole segments of steps.
"""

import contextlib
import contextvars
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.extend
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import contract, derivatives, gradients

Array = jax.Array
Tree = Any
Recompute = Literal['nothing', 'steps', 'everything']


def scan(
  step: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]],
  weights: Tree,
  carry: Tree,
  inputs: Tree,
  recompute: Recompute = 'nothing',
) -> tuple[Tree, Tree]:
  """Scans a step with weights over time.

  Within `derivatives.written_out`, gradients of weights are made once, after
  the scan, for products that the step gives to `product` itself, with kernels
  made of the weights alone. Products inside of `jit`, `vmap`, `cond`, another
  scan or a `jax.checkpoint` are differentiated as `jax.lax.scan` does it.

  Args:
    step: (weights, carry, inputs of one step) -> (carry, outputs of it).
    weights: the same at every step.
    carry: before the first step.
    inputs: leaves [T, ...].
    recompute: what the backward pass rematerialises: 'nothing'; 'steps', the
      inside of each; 'everything', also the carry after most steps, of which
      about 2 sqrt(T) are saved. With the last two, each step's gradients of
      weights are added up.

  Returns:
    The carry after the last step, and the outputs, leaves [T, ...].

  Raises:
    ValueError: `recompute` is none of these; or, written out, the step
      closes over what is differentiated.
  """
  contract.check_word('recompute', recompute, get_args(Recompute))
  if recompute != 'nothing':
    # Inside a scan XLA cannot merge the two passes, so nothing must prevent it.
    body = jax.checkpoint(functools.partial(step, weights), prevent_cse=False)
    scan_body = jax.lax.scan if recompute == 'steps' else _scan_in_segments
    return scan_body(body, carry, inputs)
  has_steps = {jnp.shape(x)[:1] for x in jax.tree.leaves(inputs)} - {(), (0,)}
  if not has_steps or not derivatives.are_written_out(weights, carry, inputs):
    return _plain(step, weights, carry, inputs)
  try:
    return _scan(step, weights, carry, inputs)
  except Exception as error:
    is_leak = isinstance(error, jax.errors.UnexpectedTracerError)
    if not is_leak and 'closed-over value' not in str(error):
      raise
    raise ValueError(
      'The step of scan.scan may not close over what is differentiated; '
      'give it to the scan in its weights, carry or inputs.'
    ) from error


def _plain(step, weights, carry, inputs):
  return jax.lax.scan(
    lambda carry, each: step(weights, carry, each), carry, inputs
  )


def _scan_in_segments(
  body: Callable[[Tree, Tree], tuple[Tree, Tree]], carry: Tree, inputs: Tree
) -> tuple[Tree, Tree]:
  """Scans and saves the carry after about sqrt(T) of T steps only.

  The backward pass recomputes the other carries, one segment at a time.
  """
  length = jax.tree.leaves(inputs)[0].shape[0]
  size = math.isqrt(length)
  whole = length - length % size
  scan_segment = functools.partial(jax.lax.scan, body)
  cut = jax.tree.map(
    lambda x: x[:whole].reshape(whole // size, size, *x.shape[1:]), inputs
  )
  carry, outputs = jax.lax.scan(
    jax.checkpoint(scan_segment, prevent_cse=False), carry, cut
  )
  outputs = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), outputs)
  carry, last = scan_segment(carry, jax.tree.map(lambda x: x[whole:], inputs))
  return carry, jax.tree.map(
    lambda one, other: jnp.concatenate([one, other]), outputs, last
  )


def rematerialised(part: Callable[..., Tree]) -> Callable[..., Tree]:
  """Returns a part of a step that saves little for its backward pass.

  It saves only its arguments and the values that `derivatives.saved` marks:
  small arrays that take long to compute. JAX would save several times a core's
  state, which takes as long to write and read as to compute again.
  """
  if not derivatives.are_written_out():
    return part
  return jax.checkpoint(
    part,
    prevent_cse=False,
    policy=jax.checkpoint_policies.save_only_these_names(derivatives.SAVED),
  )


# The multiplication in the step that `scan` traces, and the trace it is for.
_multiplier: contextvars.ContextVar[tuple[Callable, Any] | None] = (
  contextvars.ContextVar('multiplier', default=None)
)


def dense(features: int, **settings: Any) -> nn.Dense:
  """Makes a `flax.linen.Dense` layer that multiplies by `product`.

  Args:
    features: width of its output.
    **settings: of the layer, such as `name`.

  Returns:
    The layer, to be called in a compact method.
  """
  return nn.Dense(features, dot_general=_dot_general, **settings)


def _dot_general(x: Array, kernel: Array, *_: Any, **__: Any) -> Array:
  return product(x, kernel)


def product(x: Array, kernel: Array) -> Array:
  """Returns x @ kernel: [..., I] and [I, O] -> [..., O]."""
  multiply, trace = _multiplier.get() or (None, None)
  if multiply and trace == jax.extend.core.get_opaque_trace_state():
    return multiply(x, kernel)
  return _product(x, kernel)


# The backward pass over time then transposes the kernel once, not at each step.
@derivatives.with_backward(gradients.product, lambda _, x, kernel: (kernel.T,))
def _product(x: Array, kernel: Array) -> Array:
  return x @ kernel


@contextlib.contextmanager
def _multiplying(by: Callable[[Array, Array], Array]) -> Iterator[None]:
  token = _multiplier.set((by, jax.extend.core.get_opaque_trace_state()))
  try:
    yield
  finally:
    _multiplier.reset(token)


@jax.custom_vjp
def _tapped(x: Array, kernel: Array, tap: Array) -> Array:
  """Returns x @ kernel, whose cotangent goes to `tap`, none to the kernel."""
  del tap
  return x @ kernel


_tapped.defvjp(
  lambda x, kernel, tap: (x @ kernel, kernel.T),
  lambda transposed, cotangent: (cotangent @ transposed, None, cotangent),
)


class _Products(NamedTuple):
  """The products of a step, and which of them have kernels made of weights."""

  are_of_weights: list[bool]  # For each product, in their order.
  shapes: list[jax.ShapeDtypeStruct]  # Of the results of products of weights.
  kernels: Callable[[Tree], list[Array]]  # From weights to their kernels.


def _products(step, weights, carry, inputs) -> _Products:
  """Traces a step to find its products."""

  def kernels_and_results(weights, *rest):
    kernels, results = [], []

    def note(x, kernel):
      kernels.append(kernel)
      results.append(x @ kernel)
      return results[-1]

    with _multiplying(note):
      step(weights, *rest)
    return kernels, results

  rest = carry, jax.tree.map(lambda leaf: leaf[0], inputs)
  jaxpr, (_, results) = jax.make_jaxpr(kernels_and_results, return_shape=True)(
    weights, *rest
  )
  count = len(jax.tree.leaves(weights))
  depends = _depends(jaxpr.jaxpr, jaxpr.jaxpr.invars[count:])
  are_of_weights = [not each for each in depends[: len(results)]]

  def kernels(weights):
    leaves = jax.tree.leaves((weights, *rest))
    values = jax.extend.core.jaxpr_as_fun(jaxpr)(*leaves)[: len(results)]
    return list(itertools.compress(values, are_of_weights))

  shapes = list(itertools.compress(results, are_of_weights))
  return _Products(are_of_weights, shapes, kernels)


def _depends(jaxpr: Any, variables: list[Any]) -> list[bool]:
  """Returns for each result of a jaxpr whether it depends on `variables`."""
  dependent = set(variables)

  def is_dependent(variable):
    is_literal = isinstance(variable, jax.extend.core.Literal)
    return not is_literal and variable in dependent

  for equation in jaxpr.eqns:
    if any(map(is_dependent, equation.invars)):
      dependent.update(equation.outvars)
  return list(map(is_dependent, jaxpr.outvars))


def _scan_forward(step, weights, carry, inputs):
  products = _products(step, weights, carry, inputs)
  # Constants to what follows, but not to second derivatives.
  kernels, to_weights = jax.vjp(products.kernels, weights)
  length = len(jax.tree.leaves(inputs)[0])
  taps = [jnp.zeros((length, *x.shape), x.dtype) for x in products.shapes]

  def tapped_scan(weights, taps, carry, inputs):
    def tapped_step(carry, each):
      inputs_t, taps_t = each
      factors, are_of_weights = [], iter(products.are_of_weights)
      waiting = zip(kernels, taps_t, strict=True)

      def multiply(x, kernel):
        if not next(are_of_weights):
          return _product(x, kernel)
        factors.append(x)
        return _tapped(x, *next(waiting))

      with _multiplying(multiply):
        carry, outputs = step(weights, carry, inputs_t)
      return carry, (outputs, factors)

    carry, (outputs, factors) = jax.lax.scan(tapped_step, carry, (inputs, taps))
    return (carry, outputs), factors

  results, back, factors = jax.vjp(
    tapped_scan, weights, taps, carry, inputs, has_aux=True
  )
  return results, (back, factors, to_weights)


def _scan_backward(step, saved, cotangents):
  del step
  back, factors, to_weights = saved
  of_weights, of_products, of_carry, of_inputs = back(cotangents)
  of_kernels = [
    x.reshape(-1, x.shape[-1]).T @ each.reshape(-1, each.shape[-1])
    for x, each in zip(factors, of_products, strict=True)
  ]
  (more,) = to_weights(of_kernels)
  of_weights = jax.tree.map(
    lambda one, other: one if one.dtype == jax.dtypes.float0 else one + other,
    of_weights,
    more,
  )
  return of_weights, of_carry, of_inputs


_scan = jax.custom_vjp(_plain, nondiff_argnums=(0,))
_scan.defvjp(derivatives.written_out()(_scan_forward), _scan_backward)
