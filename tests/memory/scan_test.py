"""The scan with its own gradient, against `jax.lax.scan`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
from gtmm_jax import presets
from gtmm_jax.memory import derivatives, scan
from gtmm_jax.model import build, free_energy

_STEPS, _ROWS, _IN, _HIDDEN = 5, 3, 4, 6
_close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)


def _step(weights, carry, inputs):
  """Makes products of several kinds, and counts; uses a kernel twice."""
  hidden, count = carry
  given = jnp.concatenate([inputs['x'], hidden], axis=-1)
  hidden = jnp.tanh(scan.product(given, weights['first']) + weights['bias'])
  # Made of weights, not a weight itself.
  square = weights['second'] * jnp.exp(weights['scale'])
  hidden = scan.product(jnp.sin(hidden), square) + inputs['shift']
  hidden = scan.product(hidden, square)
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


def _written(*arguments):
  with derivatives.written_out():
    return scan.scan(*arguments)


def _loss(scan, weights, carry, inputs):
  return _loss_and_outputs(scan, weights, carry, inputs)[0]


def _loss_and_outputs(scan, weights, carry, inputs):
  (hidden, count), made = scan(_step, weights, carry, inputs)
  total = jnp.sin(made['made']).sum() + (made['hidden'] ** 2).sum()
  return total + hidden.sum() * count, ((hidden, count), made)


@pytest.mark.parametrize('rows', [(), (_ROWS,), (2, _ROWS)])
def test_values_and_gradients_are_those_of_a_plain_scan(rows):
  with jax.enable_x64(True):
    arguments = _arguments(rows)
    results = [
      jax.jit(
        jax.value_and_grad(
          functools.partial(_loss_and_outputs, scan),
          argnums=(0, 1, 2),
          has_aux=True,
          allow_int=True,
        )
      )(*arguments)
      for scan in (_plain, _written)
    ]

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
  """Maps over weights, as over replicas; each gets its own gradients."""
  with jax.enable_x64(True):
    weights, carry, inputs = _arguments()
    many = jax.tree.map(lambda leaf: np.stack([leaf, leaf + leaf]), weights)

    def gradient(scan, weights):
      floats = {k: v for k, v in weights.items() if k != 'number'}
      rest = {'number': weights['number']}
      return jax.grad(
        lambda floats: _loss(scan, {**floats, **rest}, carry, inputs)
      )(floats)

    found = jax.jit(jax.vmap(functools.partial(gradient, _written)))(many)
    plain = jax.jit(functools.partial(gradient, _plain))
    for index in range(2):
      own = jax.tree.map(lambda leaf, i=index: leaf[i], many)
      jax.tree.map(
        lambda one, other, i=index: _close(one[i], other),
        found,
        plain(own),
      )


def test_gradients_of_products_are_made_after_the_scan():
  """Checks that one product makes a weight's gradient, not a sum over steps."""
  weights, carry, inputs = _arguments()
  arguments = jax.tree.map(jnp.asarray, (weights, carry, inputs))
  shape = f'f32[{_IN + _HIDDEN},{_HIDDEN}]'

  def added(scan):
    gradient = jax.grad(functools.partial(_loss, scan), allow_int=True)
    lines = str(jax.make_jaxpr(gradient)(*arguments)).splitlines()
    return sum(shape in line and 'add_any' in line for line in lines)

  assert added(_plain) > 0 == added(_written)
  # Nobody asked for it.
  assert added(scan.scan) == added(_plain)


def _within(transform):
  """Returns a step whose second product is inside of a transformation."""

  def step(weights, carry, x):
    hidden = jnp.tanh(scan.product(x, weights['first']) + carry)
    within = transform(lambda x, kernel: jnp.sin(scan.product(x, kernel)))
    return within(hidden, weights['second']), hidden

  return step


def _scanned(scan):
  """Returns a function of x and a kernel, twice in a scan over time."""
  return lambda f: (
    lambda x, kernel: scan(
      lambda kernel, carry, _: (f(carry, kernel), None), kernel, x, jnp.zeros(2)
    )[0]
  )


TRANSFORMS = {
  'jit': jax.jit,
  'vmap': lambda f: jax.vmap(f, (0, None)),
  'cond': lambda f: (
    lambda x, kernel: jax.lax.cond(
      x.sum() > 0.0, f, lambda *x: -f(*x), x, kernel
    )
  ),
  'scan': _scanned(_plain),
  'this scan': _scanned(scan.scan),
  'checkpoint': jax.checkpoint,
}


def _first(scan, step, *arguments):
  """Returns the gradient of a loss."""

  def loss(*arguments):
    carry, made = scan(step, *arguments)
    return jnp.sin(carry).sum() + (made**2).sum()

  return jax.grad(loss, argnums=(0, 1, 2))(*arguments)


def _second(scan, step, *arguments):
  """Returns the gradient of the sum of squares of the gradient."""

  def norm(*arguments):
    first = _first(scan, step, *arguments)
    return sum((leaf**2).sum() for leaf in jax.tree.leaves(first))

  return jax.grad(norm, argnums=(0, 1, 2))(*arguments)


def _small():
  random = np.random.default_rng(1)
  shapes = (_IN, _HIDDEN), (_HIDDEN, _HIDDEN), (_ROWS, _HIDDEN)
  first, second, carry = (random.normal(size=shape) for shape in shapes)
  inputs = random.normal(size=(_STEPS, _ROWS, _IN))
  return {'first': first, 'second': second}, carry, inputs


def _compare(derivative, step, arguments):
  with jax.enable_x64(True):
    results = [
      jax.jit(functools.partial(derivative, scan, step))(*arguments)
      for scan in (_plain, _written)
    ]
  jax.tree.map(_close, *results)
  assert all(np.any(leaf) for leaf in jax.tree.leaves(results[0]))


@pytest.mark.parametrize('name', TRANSFORMS)
def test_a_step_may_hold_any_transformation(name):
  _compare(_first, _within(TRANSFORMS[name]), _small())


def test_kernels_may_be_made_of_more_than_weights():
  """Uses kernels of carry, inputs, or a number, beside one of weights."""

  def step(weights, carry, x):
    kernel = weights['second'] * jnp.exp(carry.mean())
    hidden = scan.product(carry, kernel)
    kernel = weights['first'] + x.mean()
    hidden = jnp.tanh(hidden + scan.product(x, kernel))
    hidden = scan.product(hidden, jnp.sin(weights['second']))
    return scan.product(hidden, 0.5 * jnp.eye(_HIDDEN)), hidden

  _compare(_second, step, _small())


def test_a_step_may_not_close_over_what_is_differentiated():
  weights, carry, inputs = _small()

  def loss(weights):
    def step(_, carry, x):
      return jnp.tanh(scan.product(x, weights['first']) + carry), None

    return _written(step, (), carry, inputs)[0].sum()

  with pytest.raises(ValueError, match='may not close over'):
    jax.grad(loss)(weights)


def test_no_steps_are_none():
  weights, carry, inputs = _small()
  step = _within(jax.jit)
  last, made = _written(step, weights, carry, inputs[:0])
  np.testing.assert_array_equal(last, np.float32(carry))
  assert made.shape == (0, _ROWS, _HIDDEN)


def test_outside_of_such_a_scan_products_are_plain():
  x, kernel = jnp.ones((2, 3)), jnp.arange(12.0).reshape(3, 4)
  np.testing.assert_array_equal(scan.product(x, kernel), x @ kernel)
  # What a scan sets for its steps, for gradients, does not outlive it.
  with pytest.raises(ZeroDivisionError):
    jax.grad(
      lambda weight: _written(lambda *_: 1 // 0, weight, 0.0, jnp.ones(3))
    )(1.0)
  np.testing.assert_array_equal(scan.product(x, kernel), x @ kernel)
  gradient = jax.grad(lambda k: scan.product(x, k).sum())(kernel)
  np.testing.assert_array_equal(gradient, x.T @ jnp.ones((2, 4)))


@pytest.mark.parametrize(
  'name', slow_cases.but_for(['associative', 'dnc'], presets.MODELS)
)
def test_models_multiply_by_weights_in_no_other_way(name):
  """Checks that weights' gradients in a step are made once, after the scan."""
  model = build.temporal_vae(name, presets.SMALL, (8, 8, 1), frames=4)
  z = presets.SMALL.latent_size
  frames, condition, noise = (
    jnp.zeros((4, 2, *shape)) for shape in ((8, 8, 1), (0,), (z,))
  )
  variables = jax.eval_shape(
    model.init, jax.random.key(0), None, frames[0], condition[0], noise[0]
  )

  def bound(params):
    with derivatives.written_out():
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
