"""Replicas on devices against one replica on its own."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
from gtmm_jax import presets, replicas, train
from gtmm_jax.model import build
from gtmm_jax.problem import Problem
from gtmm_jax.recipe import Recipe
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images


def _problem():
  preset = presets.Preset(
    **{
      **presets.SMALL.__dict__,
      'dense_hidden': (16,),
      'latent_size': 4,
      'prior_hidden': (8,),
      'controller_size': {'vrnn': 8},
    }
  )
  task = PerfectRecall(3, 2)
  model = build.temporal_vae('vrnn', preset, (8, 8, 1), task.length)
  return Problem(model, task.sample, 2)


def _images():
  rng = np.random.default_rng(0)
  return Images(
    rng.integers(0, 256, (20, 8, 8, 1), np.uint8), np.arange(20) % 10
  )


_RECIPE = Recipe(1e-2, 'decay', 2, 9, gradient_norm=50.0, average=0.9)


def _keys(count):
  return jax.vmap(lambda r: jax.random.fold_in(jax.random.key(3), r))(
    jnp.arange(count)
  )


_step = functools.partial(train.train_step, _problem(), _RECIPE)
_initialise = functools.partial(train.init_state, _problem(), _RECIPE)


@functools.cache
def _fresh():
  """Returns the first states of four replicas, [4, ...], each made alone."""
  initialise = jax.jit(_initialise)
  states = [jax.device_get(initialise(key, _images())) for key in _keys(4)]
  return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


@functools.cache
def _advance(layout):
  """Compiles training once for each layout."""
  return replicas.repeat(layout, _step)


def _train(layout, portions):
  """Trains R tiny models for portions of steps; returns states [R, ...]."""
  advance = _advance(layout)
  own = replicas.scatter(layout, _keys(layout.replicas))
  shared = replicas.broadcast(layout, _images())
  first = jax.tree.map(lambda leaf: leaf[: layout.replicas], _fresh())
  state = replicas.scatter(layout, first)
  for count in portions:
    state = advance(state, own, shared, count)
  return replicas.gather(state)


def _layout(count, per_device, loops=True):
  return replicas.Layout(tuple(jax.devices()[:count]), per_device, loops)


def _assert_same(got, wanted, rtol=0.0):
  for (path, a), b in zip(
    jax.tree.flatten_with_path(got)[0], jax.tree.leaves(wanted), strict=True
  ):
    np.testing.assert_allclose(
      a, b, rtol=rtol, atol=rtol, err_msg=jax.tree_util.keystr(path)
    )


@pytest.fixture(scope='module')
def alone():
  """Trains four replicas, each by itself without lifting."""
  images = jax.tree.map(jnp.asarray, _images())
  states = []
  step = jax.jit(_step)
  for r, key in enumerate(_keys(4)):
    state = jax.tree.map(lambda leaf, r=r: leaf[r], _fresh())
    for _ in range(3):
      state = step(state, key, images)
    states.append(state)
  return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


@pytest.mark.parametrize(
  'devices, per_device, loops',
  slow_cases.but_for(
    [(1, 4, True), (4, 1, False)],
    [(1, 4, True), (2, 2, True), (4, 1, True), (4, 1, False)],
  ),
)
def test_every_layout_trains_each_replica_as_if_it_were_alone(
  alone, devices, per_device, loops
):
  got = _train(_layout(devices, per_device, loops), [3])
  _assert_same(got, alone, rtol=2e-5)
  assert np.all(got.step == 3)


@pytest.mark.parametrize('devices, per_device', [(2, 2), (4, 1)])
def test_every_layout_begins_as_if_each_replica_were_alone(devices, per_device):
  layout = _layout(devices, per_device)
  state = replicas.lift(layout, _initialise, (0, None))(
    replicas.scatter(layout, _keys(4)), replicas.broadcast(layout, _images())
  )
  _assert_same(replicas.gather(state), _fresh(), rtol=2e-5)


def test_replicas_differ_from_one_another(alone):
  kernels = jax.tree.leaves(alone.params)[-1]
  assert not np.allclose(kernels[0], kernels[1])


def test_a_replica_is_the_same_to_the_bit_however_many_run_beside_it():
  few, many = _train(_layout(2, 1), [3]), _train(_layout(4, 1), [3])
  _assert_same(few, jax.tree.map(lambda leaf: leaf[:2], many))


def test_portions_of_steps_change_no_bit():
  layout = _layout(2, 1)
  whole = _train(layout, [7])
  for portions in ([1, 6], [3, 3, 1], [1] * 7):
    _assert_same(_train(layout, portions), whole)


# Both are each replica alone, as the test of all layouts has it.
@pytest.mark.slow
def test_pmap_of_vmap_equals_jit_of_vmap_with_a_sharded_replica_axis():
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ('replica',))
  spec = jax.sharding.PartitionSpec
  split = jax.sharding.NamedSharding(mesh, spec('replica'))
  images = jax.device_put(_images(), jax.sharding.NamedSharding(mesh, spec()))
  state, keys = jax.device_put((_fresh(), _keys(4)), split)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(0, 0, None))
  def sharded(state, key, images):
    return jax.lax.fori_loop(
      0, 3, lambda _, state: _step(state, key, images), state
    )

  state = sharded(state, keys, images)
  _assert_same(
    _train(_layout(4, 1), [3]), jax.tree.map(np.asarray, state), rtol=2e-5
  )


def test_the_program_of_all_replicas_has_no_collective():
  layout = _layout(4, 1)
  compiled = (
    replicas.lift(layout, lambda a, b, shared: a + b * shared, (0, 0, None))
    .lower(
      replicas.scatter(layout, np.zeros(4)),
      replicas.scatter(layout, np.ones(4)),
      replicas.broadcast(layout, np.float32(2)),
    )
    .compile()
    .as_text()
  )
  for collective in ('all-reduce', 'all-gather', 'all-to-all', 'permute'):
    assert collective not in compiled


@pytest.mark.parametrize(
  'count, devices, wanted',
  [
    (20, 8, (5, 4)),
    (20, 4, (4, 5)),
    (20, 1, (1, 20)),
    (1, 4, (1, 1)),
    (7, 4, (1, 7)),
    (3, 2, (1, 3)),
    (6, 4, (3, 2)),
  ],
)
def test_any_number_of_replicas_fits_any_number_of_devices(
  count, devices, wanted
):
  class Device:
    platform, process_index = 'gpu', 0

  layout = replicas.plan(count, True, [Device() for _ in range(devices)])
  assert (len(layout.devices), layout.per_device) == wanted
  assert layout.replicas == count
  assert layout.loops_on_device


def _devices(*counts):
  """Stands for the devices of processes, by the numbers that they have."""

  class Device(NamedTuple):
    process_index: int
    number: int
    platform: str = 'gpu'

  return [
    Device(process, number)
    for process, count in enumerate(counts)
    for number in range(count)
  ]


@pytest.mark.parametrize(
  'count, devices, wanted',
  [
    (20, (4, 4), (3, 2)),
    (20, (8, 8), (5, 5)),
    (4, (4, 4), (2, 2)),
    (20, (1, 1, 1, 1, 1), (1, 1, 1, 1, 1)),
    (6, (2, 2), (2, 1)),
  ],
)
def test_processes_share_the_devices_of_replicas(count, devices, wanted):
  layout = replicas.plan(count, False, _devices(*devices))
  of_process = [device.process_index for device in layout.devices]
  assert of_process == sorted(of_process)
  assert tuple(map(of_process.count, range(len(devices)))) == wanted
  assert layout.replicas == count


def test_a_process_without_a_replica_is_an_error():
  with pytest.raises(ValueError, match='20 replicas run on 5 .* start 5, or'):
    replicas.plan(20, False, _devices(*[1] * 8))


def test_only_convolutions_on_the_cpu_keep_their_loop_on_the_host():
  assert not replicas.plan(2, True).loops_on_device
  assert replicas.plan(2, False).loops_on_device


def test_no_replica_is_an_error():
  with pytest.raises(ValueError, match='at least 1'):
    replicas.plan(0, False)


def test_what_is_scattered_comes_back():
  layout = _layout(2, 3)
  tree = {'a': np.arange(12.0).reshape(6, 2), 'b': np.arange(6)}
  _assert_same(replicas.gather(replicas.scatter(layout, tree)), tree)


def test_gathered_arrays_outlive_the_state_that_is_given_up():
  layout = _layout(2, 1)
  state = replicas.scatter(layout, np.zeros(2))
  own = replicas.scatter(layout, np.ones(2))
  advance = replicas.repeat(layout, lambda state, own, shared: state + own)
  kept = replicas.gather(state)
  advance(state, own, replicas.broadcast(layout, np.zeros(1)), 5)
  np.testing.assert_array_equal(kept, np.zeros(2))


def test_nothing_crosses_to_the_host_inside_a_portion():
  layout = _layout(2, 1)
  state = replicas.scatter(layout, np.zeros(2))
  own = replicas.scatter(layout, np.ones(2))
  shared = replicas.broadcast(layout, np.zeros(1))
  advance = replicas.repeat(layout, lambda state, own, shared: state + own)
  state = advance(state, own, shared, 1)
  with jax.transfer_guard_device_to_host('disallow'):
    state = advance(state, own, shared, 3)
  np.testing.assert_array_equal(replicas.gather(state), [4.0, 4.0])
