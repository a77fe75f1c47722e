"""The scan with its own gradient, against `jax.lax.scan`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax import build, free_energy, presets
from gtmm_jax.memory import products

_STEPS, _ROWS, _IN, _HIDDEN = 5, 3, 4, 6
_close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)


def _step(weights, carry, inputs):
  """Products of several kinds; a count; a kernel that is used twice."""
  hidden, count = carry
  given = jnp.concatenate([inputs['x'], hidden], axis=-1)
  hidden = jnp.tanh(products.product(given, weights['first']) + weights['bias'])
  # Made of weights, not a weight itself.
  square = weights['second'] * jnp.exp(weights['scale'])
  hidden = products.product(jnp.sin(hidden), square) + inputs['shift']
  hidden = products.product(hidden, square)
  # A product that no one told of.
  made = hidden @ weights['second'] + count
  return (hidden, count + 1), {'made': made, 'hidden': hidden}


def _arguments(rows=(_ROWS,)):
  random = np.random.default_rng(0)
  weights = {
    'first': random.normal(size=(_IN + _HIDDEN, _HIDDEN)),
    'bias': random.normal(size=_HIDDEN),
    'second': random.normal(size=(_HIDDEN, _HIDDEN)),
    'scale': random.normal(size=()),
    'unused': random.normal(size=(2, 2)),
    'number': np.int32(3),
  }
  carry = random.normal(size=(*rows, _HIDDEN)), np.int32(0)
  inputs = {
    'x': random.normal(size=(_STEPS, *rows, _IN)),
    'shift': random.normal(size=(_STEPS, *rows, _HIDDEN)),
  }
  return weights, carry, inputs


def _plain(step, weights, carry, inputs):
  return jax.lax.scan(functools.partial(step, weights), carry, inputs)


def _loss(scan, weights, carry, inputs):
  (hidden, count), made = scan(_step, weights, carry, inputs)
  total = jnp.sin(made['made']).sum() + (made['hidden'] ** 2).sum()
  return total + hidden.sum() * count


@pytest.mark.parametrize('rows', [(), (_ROWS,), (2, _ROWS)])
def test_values_and_gradients_are_those_of_a_plain_scan(rows):
  with jax.enable_x64(True):
    arguments = _arguments(rows)
    results = [
      jax.jit(
        jax.value_and_grad(
          functools.partial(_loss, scan), argnums=(0, 1, 2), allow_int=True
        )
      )(*arguments)
      for scan in (_plain, products.scan)
    ]
    outputs = [scan(_step, *arguments) for scan in (_plain, products.scan)]
  jax.tree.map(_close, *outputs)

  def compare(one, other):
    assert one.dtype == other.dtype
    if one.dtype != jax.dtypes.float0:
      _close(one, other)

  jax.tree.map(compare, *results)
  _, (weights, _, _) = results[0]
  # All that could be forgotten is not zero.
  for name in ('first', 'bias', 'second', 'scale'):
    assert np.abs(weights[name]).min() > 0


def test_it_may_be_batched():
  """Over weights, as replicas are, and gradients of each are its own."""
  with jax.enable_x64(True):
    weights, carry, inputs = _arguments()
    many = jax.tree.map(lambda leaf: np.stack([leaf, leaf + leaf]), weights)

    def gradient(scan, weights):
      floats = {k: v for k, v in weights.items() if k != 'number'}
      rest = {'number': weights['number']}
      return jax.grad(
        lambda floats: _loss(scan, {**floats, **rest}, carry, inputs)
      )(floats)

    found = jax.vmap(functools.partial(gradient, products.scan))(many)
    for index in range(2):
      own = jax.tree.map(lambda leaf, i=index: leaf[i], many)
      jax.tree.map(
        lambda one, other, i=index: _close(one[i], other),
        found,
        gradient(_plain, own),
      )


def test_gradients_of_products_are_made_after_the_scan():
  """No weight's gradient is added to at each step: one product makes it."""
  weights, carry, inputs = _arguments()
  text = str(
    jax.make_jaxpr(
      jax.grad(functools.partial(_loss, products.scan), allow_int=True)
    )(*jax.tree.map(lambda leaf: jnp.asarray(leaf), (weights, carry, inputs)))
  )
  shape = f'f32[{_IN + _HIDDEN},{_HIDDEN}]'
  plain = str(
    jax.make_jaxpr(jax.grad(functools.partial(_loss, _plain), allow_int=True))(
      *jax.tree.map(lambda leaf: jnp.asarray(leaf), (weights, carry, inputs))
    )
  )

  def added(text):
    lines = text.splitlines()
    return sum(shape in line and 'add_any' in line for line in lines)

  assert added(plain) > 0 == added(text)


def test_outside_of_such_a_scan_products_are_plain():
  x, kernel = jnp.ones((2, 3)), jnp.arange(12.0).reshape(3, 4)
  np.testing.assert_array_equal(products.product(x, kernel), x @ kernel)
  # What a scan sets for its steps, for gradients, does not outlive it.
  with pytest.raises(ZeroDivisionError):
    jax.grad(
      lambda weight: products.scan(lambda *_: 1 // 0, weight, 0.0, jnp.ones(3))
    )(1.0)
  np.testing.assert_array_equal(products.product(x, kernel), x @ kernel)
  gradient = jax.grad(lambda k: products.product(x, k).sum())(kernel)
  np.testing.assert_array_equal(gradient, x.T @ jnp.ones((2, 4)))


@pytest.mark.parametrize('name', presets.MODELS)
def test_models_multiply_by_weights_in_no_other_way(name):
  """Every product with a weight in a step is made once, after the scan."""
  model = build.temporal_vae(name, presets.SMALL, (8, 8, 1), frames=4)
  z = presets.SMALL.latent_size
  frames, condition, noise = (
    jnp.zeros((4, 2, *shape)) for shape in ((8, 8, 1), (0,), (z,))
  )
  variables = jax.eval_shape(
    model.init, jax.random.key(0), None, frames[0], condition[0], noise[0]
  )

  def bound(params):
    inference = free_energy.infer(
      model, {**variables, 'params': params}, frames, condition, noise
    )
    return inference.terms.kl.sum()

  made = jax.make_jaxpr(jax.grad(bound))(variables['params'])
  kernels = {
    leaf.shape
    for leaf in jax.tree.leaves(
      [variables['params'][part] for part in ('core', 'posterior_map')]
    )
    if leaf.ndim == 2
  }
  # What a step hands on, or adds up, is never of a weight's shape.
  scans = [each for each in made.eqns if each.primitive.name == 'scan']
  assert len(scans) >= 2
  for equation in scans:
    handed_on = equation.params['jaxpr'].jaxpr.outvars
    assert not kernels & {var.aval.shape for var in handed_on}
