"""Backward passes that are written out, against what JAX derives."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.memory import (
  addressing,
  allocation,
  derivatives,
  positions,
  scan,
)
from gtmm_jax.model import distributions

B, R, N, W = 2, 3, 5, 4


# Each with the shapes of what it is differentiated by.
EQUATIONS = {
  'product': (scan.product, [(B, R, W), (W, N)]),
  'content_weights': (
    addressing.content_weights,
    [(B, R, W), (B, N, W), (B, R)],
  ),
  'by_slot': (
    lambda x: positions.by_slot(x, jnp.array([2, 7])),
    [(B, R, N)],
  ),
  'free_slots': (allocation.free_slots, [(B, N), (B, R), (B, R, N)]),
  'allocation_weights': (allocation.allocation_weights, [(B, N)]),
  'update_link': (allocation.update_link, [(B, R, N, N), (B, R, N), (B, R, N)]),
  'follow_links': (
    lambda *x: jnp.stack(allocation.follow_links(*x)),
    [(B, 2, N, N), (B, R, N)],
  ),
}
# What the arguments are made of: numbers in [0, 1], as usage and weights are.
EDGES = {
  'random': lambda x: x,
  'none': jnp.zeros_like,
  'ones': jnp.ones_like,
  'some none': lambda x: jnp.where(x < 0.5, 0.0, x),
  'large': lambda x: 1e4 * (x - 0.5),
}


@functools.partial(jax.jit, static_argnums=0)
def _derivatives(equation, x, directions):
  """Returns the value, its gradient, and the gradient of a slope."""

  def total(*x):
    made = equation(*x)
    return (jnp.cos(jnp.arange(made.size)).reshape(made.shape) * made).sum()

  gradient = jax.grad(total, argnums=tuple(range(len(x))))

  def along(*x):
    return sum(map(jnp.vdot, gradient(*x), directions))

  return {
    'value': equation(*x),
    'first': gradient(*x),
    'second': jax.grad(along, argnums=tuple(range(len(x))))(*x),
  }


@pytest.mark.parametrize('name', EQUATIONS)
def test_written_out_derivatives_are_those_of_the_equation(name):
  equation, shapes = EQUATIONS[name]
  random = np.random.default_rng(0)
  with jax.enable_x64(True):
    numbers = [jnp.asarray(random.uniform(size=shape)) for shape in shapes]
    directions = tuple(
      jnp.asarray(random.normal(size=shape)) for shape in shapes
    )
    for edge, change in EDGES.items():
      if name == 'allocation_weights' and edge == 'large':
        continue  # Usage is in [0, 1].
      x = tuple(map(change, numbers))
      plain = _derivatives(equation, x, directions)
      with derivatives.written_out():
        written = _derivatives(equation, x, directions)
      for order, expected in plain.items():
        pairs = zip(
          *map(jax.tree.leaves, (expected, written[order])), strict=True
        )
        for one, other in pairs:
          scale = max(1e-6, np.abs(one).max())
          np.testing.assert_allclose(
            other, one, rtol=1e-8, atol=1e-9 * scale, err_msg=f'{edge} {order}'
          )
    # There is something to compare.
    x = tuple(map(EDGES['random'], numbers))
    assert any(np.any(leaf) for leaf in _derivatives(equation, x, x)['first'])


def test_arguments_may_be_given_by_their_names():
  keys, memory = jnp.ones((1, 2)), jnp.array([[1.0, 2.0], [3.0, 5.0]])
  slope = jax.grad(
    lambda memory: addressing.cosine_similarity(memory=memory, keys=keys).sum()
  )
  expected = slope(memory)
  assert np.abs(expected).max() > 0.1
  with derivatives.written_out():
    np.testing.assert_allclose(slope(memory), expected, rtol=1e-5, atol=1e-7)


def _program(is_on):
  x = jnp.ones((2, 3))
  context = derivatives.written_out() if is_on else contextlib.nullcontext()
  with context:
    return str(jax.make_jaxpr(lambda x: scan.product(x, x.T))(x))


def test_nothing_is_written_out_unless_asked_for():
  assert 'custom_vjp' not in _program(False)
  assert 'custom_vjp' in _program(True)
  with derivatives.written_out(), pytest.raises(ZeroDivisionError):
    1 // 0  # noqa: B018
  assert 'custom_vjp' not in _program(False)


def test_one_compiled_function_serves_in_both_modes():
  """Checks that each mode gets its own compiled function."""
  square = jax.jit(lambda x: scan.product(x, x).sum())
  x = jnp.array([[1.0, 2.0], [3.0, 5.0]])
  expected = jax.grad(lambda x: (x @ x).sum())(x)
  for _ in range(2):
    with derivatives.written_out():
      np.testing.assert_array_equal(jax.grad(square)(x), expected)
    np.testing.assert_allclose(jax.jacfwd(square)(x), expected)


@pytest.mark.parametrize('transform', [lambda f: f, jax.jit])
def test_forward_mode_names_the_switch(transform):
  function = transform(jax.jacfwd(lambda x: scan.product(x, x)))
  with (
    pytest.raises(TypeError, match=r'outside of derivatives\.written_out\(\)'),
    derivatives.written_out(),
  ):
    function(jnp.eye(2))
  with (
    pytest.raises(TypeError, match='unrelated'),
    derivatives.written_out(),
  ):
    raise TypeError('unrelated')


def test_second_derivatives_of_a_coin_flip():
  """Checks d2/dl2 log p(x) = -p (1 - p), the only derivative given by hand."""
  logits = jnp.array([-30.0, -2.0, 0.0, 0.5, 30.0])

  def likelihood(logit):
    return distributions.Bernoulli(logit).log_likelihood(0.25)

  p = jax.nn.sigmoid(logits)
  for second in (jax.grad(jax.grad(likelihood)), jax.hessian(likelihood)):
    found = jax.vmap(second)(logits)
    np.testing.assert_allclose(found, -p * (1 - p), rtol=1e-5, atol=1e-12)
