"""Cores whose batch is shared out over two devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cores_test import CORES, WIDTH, fresh, random_parameters
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from gtmm_jax.memory import derivatives, scan

BATCH, STEPS = 4, 3
AXES = {'explicit': (AxisType.Explicit,), 'automatic': (AxisType.Auto,)}
# Of parameters, carry and inputs.
SPECS = P(), P('d'), P(None, 'd')


def _mesh(axes):
  return jax.make_mesh((2,), ('d',), AXES[axes], devices=jax.devices()[:2])


def _arguments(core):
  inputs = np.random.default_rng(0).normal(size=(STEPS, BATCH, WIDTH))
  return (
    random_parameters(core),
    fresh(core, BATCH),
    jnp.asarray(inputs, jnp.float32),
  )


def _gradient(core, is_written_out):
  """Returns the gradient of a sum over the batch by parameters and inputs."""

  def loss(variables, carry, inputs):
    _, contexts = scan.scan(core.apply, variables, carry, inputs)
    return (contexts**2).sum()

  gradient = jax.grad(loss, argnums=(0, 2))
  return derivatives.written_out()(gradient) if is_written_out else gradient


def _on_mesh(axes, gradient, arguments):
  """Returns a mesh, a compiled gradient, and its arguments where they lie."""
  mesh = _mesh(axes)
  placed = [
    jax.device_put(each, NamedSharding(mesh, spec))
    for each, spec in zip(arguments, SPECS, strict=True)
  ]
  return mesh, jax.jit(gradient), placed


def _in_shard_map(gradient, arguments):
  mesh, _, placed = _on_mesh('explicit', gradient, arguments)
  mapped = jax.shard_map(
    gradient, mesh=mesh, in_specs=SPECS, out_specs=(P(), P(None, 'd'))
  )
  return mesh, jax.jit(mapped), placed


WAYS = {
  'explicit': functools.partial(_on_mesh, 'explicit'),
  'automatic': functools.partial(_on_mesh, 'automatic'),
  'shard_map': _in_shard_map,
}


@pytest.mark.slow
@pytest.mark.parametrize('is_written_out', [False, True])
@pytest.mark.parametrize('name', CORES)
def test_gradients_of_a_shared_batch_are_those_of_one_device(
  name, is_written_out
):
  core = CORES[name]
  arguments = _arguments(core)
  gradient = _gradient(core, is_written_out)
  expected = jax.device_get(jax.jit(gradient)(*arguments))
  for way in WAYS.values():
    mesh, program, placed = way(gradient, arguments)
    # From jax 0.12 on, derivatives ask for the mesh here, flax's cells' too.
    with jax.set_mesh(mesh):
      found = jax.device_get(program(*placed))
    jax.tree.map(
      lambda one, other: np.testing.assert_allclose(
        one, other, rtol=1e-4, atol=1e-5
      ),
      found,
      expected,
    )


@pytest.mark.parametrize(
  ('name', 'way', 'is_written_out'),
  [
    *((name, 'explicit', False) for name in CORES),
    ('ntm', 'shard_map', False),
    ('introspective', 'explicit', True),
    ('lstm', 'shard_map', True),
  ],
)
def test_a_shared_batch_has_gradients(name, way, is_written_out):
  """Checks the way that each array is shared out, while JAX traces."""
  core = CORES[name]
  gradient = _gradient(core, is_written_out)
  mesh, program, placed = WAYS[way](gradient, _arguments(core))
  with jax.set_mesh(mesh):
    _, by_inputs = jax.eval_shape(program, *placed)
  assert by_inputs.shape == (STEPS, BATCH, WIDTH)
