"""The floor of a perfect read: on which episodes it is fitted and reported."""

import types

import jax
import numpy as np
import pytest

from gtmm_jax.evaluation import perfect_read
from gtmm_jax.runs import exam, held_out
from gtmm_jax.runs.run import replica_keys

_REPLICAS, _LATENT = 2, 3


def _reads(seed, batches=4, count=20):
  """Draws moments of batches of `count` frames, leaves [R, P, ...]."""
  rng = np.random.default_rng(seed)
  shape = (_REPLICAS, batches, count, _LATENT)
  s = rng.normal(size=shape)
  m = 0.5 * s + rng.normal(0.0, 0.3, shape)
  log_scale = rng.normal(-1.0, 0.2, shape)
  parts = (s, s * s, m, m * m, m * s, np.exp(2 * log_scale), log_scale)
  sums = (part.sum(2) for part in parts)
  return perfect_read.Moments(
    np.full((_REPLICAS, batches), float(count)), *sums
  )


class _Stub(held_out.Evaluation):
  """Evaluates nothing: returns the moments of a split, and notes the calls."""

  def __init__(self, reads, episodes):
    self._exam = types.SimpleNamespace(keys=_keys(), count=episodes)
    self._reads, self.calls = reads, []

  def _evaluate(self, weights, variables, sample, generates):
    # The floor needs no generated frame.
    assert not generates
    self.calls.append((variables, *sample))
    return held_out._Evaluated({}, None, (self._reads[sample.split],))


def _keys():
  settings = types.SimpleNamespace(seed=0, replicas=_REPLICAS, second_try=None)
  return replica_keys(settings)


def _floor(reads, split, episodes=5_000):
  """Returns the floor, and the evaluations that it took."""
  evaluation = _Stub(reads, episodes)
  weights = exam.Weights(0, None, 'average', 'last')
  (floor,) = evaluation._kl_floors(weights, (reads[split],), split)
  return floor, evaluation.calls


def test_on_validation_one_half_is_fitted_to_and_the_other_reported():
  reads = {'validation': _reads(0)}
  floor, calls = _floor(reads, 'validation')
  assert not calls
  fitted, reported = (
    jax.tree.map(lambda leaf, i=i: leaf[:, i::2].sum(1), reads['validation'])
    for i in (0, 1)
  )
  expected = perfect_read.mean_kl(reported, perfect_read.fit(fitted))
  np.testing.assert_allclose(floor, expected)
  assert floor.shape == (_REPLICAS,) and (floor > 0).all()


@pytest.mark.parametrize(('episodes', 'count'), [(5_000, 500), (60, 60)])
def test_on_test_it_is_fitted_to_validation_and_all_are_reported(
  episodes, count
):
  reads = {'validation': _reads(1), 'test': _reads(2, batches=7)}
  floor, calls = _floor(reads, 'test', episodes)
  ((variables, keys, episodes_drawn, split),) = calls
  assert (variables, episodes_drawn, split) == ('average', count, 'validation')
  # Of other episodes than those of an evaluation at the end.
  ends = jax.random.key_data(_keys())
  assert (jax.random.key_data(keys) != ends).any(-1).all()
  validation, test = (
    jax.tree.map(lambda leaf: leaf.sum(1), reads[name])
    for name in ('validation', 'test')
  )
  expected = perfect_read.mean_kl(test, perfect_read.fit(validation))
  np.testing.assert_allclose(floor, expected)


def test_each_part_of_a_mixture_has_a_floor_of_its_own():
  parts = [_reads(0), _reads(4)]
  floors = _Stub({}, 60)._kl_floors(None, parts, 'validation')
  alone = [_floor({'validation': part}, 'validation')[0] for part in parts]
  np.testing.assert_array_equal(floors, alone)
  assert (floors[0] != floors[1]).all()


@pytest.mark.parametrize('split', ['validation', 'test'])
def test_without_frames_that_come_back_nothing_is_evaluated_again(split):
  reads = {split: jax.tree.map(np.zeros_like, _reads(3))}
  floor, calls = _floor(reads, split)
  assert not calls
  np.testing.assert_array_equal(floor, [np.nan] * _REPLICAS)
