"""Carries in other programs: donated, exported, saved and restored.

Donation, export, and what saves it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from cores_test import (
  BATCH,
  CORES,
  WIDTH,
  every_core,
  fresh,
  quick_cores,
  random_parameters,
)
from flax import serialization
from jax import export

INPUTS = np.ones((BATCH, WIDTH), np.float32)


def moved(carry):
  """Makes a carry of the same form with other numbers in every leaf."""
  return jax.tree.map(lambda x: x + jnp.ones((), x.dtype), carry)


def assert_equal(found, expected):
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def exported_step(core):
  """Returns a step with random parameters, and the same one exported."""
  variables = random_parameters(core, 0.3)
  (batch,) = export.symbolic_shape('batch')
  shapes = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype),
    (fresh(core, BATCH), INPUTS),
  )
  step = jax.jit(lambda carry, x: core.apply(variables, carry, x))
  exported = export.export(step)(*shapes)
  assert {x.shape[0] for x in exported.out_avals} == {batch}
  return step, exported


@every_core
def test_a_step_of_any_batch_can_be_exported_and_a_fresh_carry_donated(name):
  """Checks that no two leaves share a buffer, which donation would show."""
  core = CORES[name]
  exported_step(core)
  carry = fresh(core, BATCH)
  pointers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(carry)]
  assert len(set(pointers)) == len(pointers)


@quick_cores
def test_a_donated_carry_goes_through_an_exported_step(name):
  core, inputs = CORES[name], INPUTS
  made, exported = exported_step(core)
  donating = jax.jit(exported.call, donate_argnums=0)
  carry, first = donating(fresh(core, BATCH), inputs)
  _, second = donating(carry, inputs)
  expected, contexts = made(fresh(core, BATCH), inputs)
  np.testing.assert_allclose(first, contexts, rtol=1e-5, atol=1e-6)
  _, contexts = made(expected, inputs)
  np.testing.assert_allclose(second, contexts, rtol=1e-5, atol=1e-6)


@every_core
def test_no_leaf_is_empty_and_what_is_saved_comes_back(name, tmp_path):
  """Saves by msgpack and by orbax, which refuses empty leaves."""
  core = CORES[name]
  carry = moved(fresh(core, BATCH))
  assert all(x.size for x in jax.tree.leaves(carry))
  packed = serialization.to_bytes(carry)
  assert_equal(serialization.from_bytes(fresh(core, BATCH), packed), carry)
  with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(tmp_path / 'carry', carry)
    checkpointer.wait_until_finished()
    found = checkpointer.restore(tmp_path / 'carry', fresh(core, BATCH))
  assert_equal(found, carry)
