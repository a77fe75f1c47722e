"""Values of single frames: how they are joined, and their quantiles."""

import numpy as np
import pytest

from gtmm_jax.evaluation import episodes

_REPLICAS, _LENGTH, _BATCH = 2, 5, 3
_NONE = np.zeros(_REPLICAS, bool)


def _portion(batches, first):
  """Returns values that name replica, episode and frame, [R, P, T, B]."""
  shape = (_REPLICAS, batches, _LENGTH, _BATCH)
  replica, batch, step, row = np.indices(shape)
  episode = (first + batch) * _BATCH + row
  name = (10_000 * replica + 100 * episode + step).astype(np.float32)
  return episodes.EpisodeValues(
    name,
    -name,
    step > 2,
    np.where(step > 2, step - 3, -1).astype(np.int32),
    np.where(step > 2, episode % 2, -1).astype(np.int8),
    np.where(step > 3, episode % 2, -1).astype(np.int8),
    step < 4 + episode % 2,
    (episode % 3).astype(np.int8),
  )


def test_episodes_are_joined_in_the_order_in_which_they_were_drawn():
  values = episodes.join([_portion(2, 0), _portion(1, 2)], _NONE)
  replica, episode, step = np.indices((_REPLICAS, 9, _LENGTH))
  name = 10_000 * replica + 100 * episode + step
  np.testing.assert_array_equal(values.kl, name)
  np.testing.assert_array_equal(values.log_likelihood, -name)
  np.testing.assert_array_equal(values.predictable, step > 2)
  np.testing.assert_array_equal(values.source, np.where(step > 2, step - 3, -1))
  for name, first in (('retrieved_ahead', 3), ('retrieved_free', 4)):
    expected = np.where(step >= first, episode % 2, -1)
    np.testing.assert_array_equal(getattr(values, name), expected)
  np.testing.assert_array_equal(values.mask, step < 4 + episode % 2)
  np.testing.assert_array_equal(values.part, episode % 3)
  kinds = [array.dtype for array in values]
  single = ['float32', 'float32', 'bool', 'int8', 'int8', 'int8']
  assert kinds == [*single, 'bool', 'int8']


def test_a_replica_that_failed_has_no_values_and_its_episodes_remain():
  whole = episodes.join([_portion(2, 0)], _NONE)
  values = episodes.join([_portion(2, 0)], np.array([False, True]))
  for array, other in zip(values, whole, strict=True):
    np.testing.assert_array_equal(array[0], other[0])
    assert array.dtype == other.dtype
  assert (
    np.isnan(values.kl[1]).all() and np.isnan(values.log_likelihood[1]).all()
  )
  assert (values.retrieved_ahead[1] == -1).all()
  assert (values.retrieved_free[1] == -1).all()
  np.testing.assert_array_equal(values.source, whole.source)
  np.testing.assert_array_equal(values.predictable, whole.predictable)


def test_long_episodes_have_sources_of_more_bytes():
  shape = (1, 1, 300, 1)
  source = np.arange(-1, 299, dtype=np.int32).reshape(shape)
  zeros = np.zeros(shape, np.float32)
  values = episodes.EpisodeValues(
    zeros, zeros, source >= 0, source, zeros - 1, zeros - 1, zeros == 0, zeros
  )
  joined = episodes.join([values], np.zeros(1, bool))
  assert joined.source.dtype == np.int16
  np.testing.assert_array_equal(joined.source[0, 0], source[0, 0, :, 0])


def _drawn(seed=0, count=40):
  """Draws values whose third episode has no predictable frame, [R, N, T]."""
  rng = np.random.default_rng(seed)
  shape = (_REPLICAS, count, _LENGTH)
  predictable = rng.uniform(size=shape) < 0.4
  predictable[:, :, 0] = False
  predictable[:, 2] = False
  nothing = np.full(shape, -1, np.int8)
  return episodes.EpisodeValues(
    rng.gamma(2.0, 3.0, shape).astype(np.float32),
    rng.normal(-50.0, 5.0, shape).astype(np.float32),
    predictable,
    nothing,
    nothing,
    nothing,
    np.ones(shape, bool),
    np.zeros(shape, np.int8),
  )


@pytest.mark.filterwarnings('error')
def test_quantiles_are_over_the_episodes_that_have_such_frames():
  values = _drawn()
  got = episodes.quantiles(values)
  assert list(got) == ['negative_bound', 'kl_new', 'kl_predictable']
  for replica in range(_REPLICAS):
    expected = {name: [] for name in got}
    for n in range(values.kl.shape[1]):
      kl, mask = values.kl[replica, n], values.predictable[replica, n]
      bound = kl.sum() - values.log_likelihood[replica, n].sum()
      expected['negative_bound'].append(bound)
      expected['kl_new'].append(kl[~mask].mean())
      if mask.any():
        expected['kl_predictable'].append(kl[mask].mean())
    assert len(expected['kl_predictable']) < len(expected['kl_new'])
    for name, sample in expected.items():
      for level, share in (('5%', 0.05), ('50%', 0.5), ('95%', 0.95)):
        np.testing.assert_allclose(
          got[name][level][replica], np.quantile(sample, share), rtol=1e-5
        )


@pytest.mark.filterwarnings('error')
def test_replicas_without_finite_episodes_have_no_quantiles():
  values = _drawn(1)
  values.kl[1] = np.nan
  values.log_likelihood[0, 3, 2] = -np.inf
  values = values._replace(predictable=np.zeros_like(values.predictable))
  got = episodes.quantiles(values)
  assert np.isnan(got['negative_bound']['50%']).all()
  assert np.isnan(got['kl_predictable']['50%']).all()
  np.testing.assert_array_equal(np.isnan(got['kl_new']['95%']), [False, True])
