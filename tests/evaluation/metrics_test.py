"""Sums on the device against plain means over all that was added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.evaluation import metrics
from gtmm_jax.model.free_energy import Terms

_LENGTH, _BATCH, _BATCHES, _REPLICAS = 6, 3, 4, 2
_HEALTHY = np.full(_REPLICAS, -1)


def _batches(seed=0, share=0.4):
  """Draws log-likelihood, KL and mask, each [R, batches, T, B]."""
  rng = np.random.default_rng(seed)
  shape = (_REPLICAS, _BATCHES, _LENGTH, _BATCH)
  return (
    rng.normal(-50.0, 5.0, shape).astype(np.float32),
    rng.gamma(2.0, 3.0, shape).astype(np.float32),
    rng.uniform(size=shape) < share,
  )


def _totals(log_likelihood, kl, mask):
  """Adds up all batches of every replica, leaves [R, ...]."""
  replicas = []
  for replica in zip(log_likelihood, kl, mask, strict=True):
    totals = metrics.zeros(_LENGTH)
    for one_log_likelihood, one_kl, one_mask in zip(*replica, strict=True):
      terms = Terms(jnp.asarray(one_log_likelihood), jnp.asarray(one_kl))
      totals = metrics.add(totals, terms, jnp.asarray(one_mask))
    replicas.append(totals)
  return jax.tree.map(lambda *leaves: np.stack(leaves), *replicas)


def test_zeros_are_sums_of_nothing():
  totals = metrics.zeros(_LENGTH)
  assert totals.batches.dtype == jnp.int32
  assert totals.log_likelihood.shape == totals.kl.shape == (_LENGTH,)
  assert totals.predictable.shape == (_LENGTH,)
  assert totals.kl_predictable.shape == ()
  assert not any(np.any(leaf) for leaf in totals)


def test_totals_are_sums_of_batch_means():
  log_likelihood, kl, mask = _batches()
  totals = _totals(log_likelihood, kl, mask)
  np.testing.assert_array_equal(totals.batches, [_BATCHES] * _REPLICAS)
  for name, expected in (
    ('log_likelihood', log_likelihood.mean(-1).sum(1)),
    ('kl', kl.mean(-1).sum(1)),
    ('predictable', mask.mean(-1).sum(1)),
    ('kl_predictable', (kl * mask).mean((-2, -1)).sum(1)),
  ):
    np.testing.assert_allclose(getattr(totals, name), expected, rtol=1e-5)


def test_adding_runs_in_a_scan_as_outside():
  log_likelihood, kl, mask = (x[0] for x in _batches(1))

  def body(totals, batch):
    return metrics.add(totals, Terms(*batch[:2]), batch[2]), None

  scanned, _ = jax.lax.scan(
    body, metrics.zeros(_LENGTH), (log_likelihood, kl, mask)
  )
  outside = _totals(log_likelihood[None], kl[None], mask[None])
  jax.tree.map(
    lambda one, other: np.testing.assert_allclose(one, other[0], rtol=1e-6),
    scanned,
    outside,
  )
  assert scanned.batches.dtype == jnp.int32


@pytest.mark.parametrize('share', [0.05, 0.4, 0.95])
def test_means_are_plain_means_over_frames(share):
  log_likelihood, kl, mask = _batches(2, share)
  means = metrics.means(_totals(log_likelihood, kl, mask), _HEALTHY)
  assert set(means) == {
    'negative_bound',
    'log_likelihood',
    'kl',
    'kl_last',
    'kl_new',
    'kl_predictable',
    'failed_at',
  }
  for r in range(_REPLICAS):
    for name, expected in (
      ('negative_bound', (kl[r] - log_likelihood[r]).sum(1).mean()),
      ('log_likelihood', log_likelihood[r].mean((0, 2))),
      ('kl', kl[r].mean((0, 2))),
      ('kl_last', kl[r, :, -1].mean()),
      ('kl_new', kl[r][~mask[r]].mean()),
      ('kl_predictable', kl[r][mask[r]].mean()),
    ):
      np.testing.assert_allclose(means[name][r], expected, rtol=1e-4)
      assert means[name].shape[0] == _REPLICAS
  assert means['failed_at'].tolist() == [None] * _REPLICAS


def test_frames_of_one_batch_weigh_as_much_as_those_of_another():
  # One predictable frame in the first batch, all but one in the second: the
  # mean is over frames, not over the batches' means.
  log_likelihood, kl, mask = _batches(3)
  mask[:, 0] = False
  mask[:, 0, 2, 1] = True
  mask[:, 1:] = True
  mask[:, 1, 0, 0] = False
  means = metrics.means(_totals(log_likelihood, kl, mask), _HEALTHY)
  for r in range(_REPLICAS):
    np.testing.assert_allclose(
      means['kl_predictable'][r], kl[r][mask[r]].mean(), rtol=1e-4
    )
    np.testing.assert_allclose(
      means['kl_new'][r], kl[r][~mask[r]].mean(), rtol=1e-4
    )


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize(
  ('share', 'present', 'absent'),
  [(-1.0, 'kl_new', 'kl_predictable'), (2.0, 'kl_predictable', 'kl_new')],
)
def test_a_kind_of_frame_that_a_task_lacks_has_no_mean(
  share, present, absent, seed
):
  log_likelihood, kl, mask = _batches(seed, share)
  means = metrics.means(_totals(log_likelihood, kl, mask), _HEALTHY)
  assert np.isnan(means[absent]).all()
  np.testing.assert_allclose(means[present], kl.mean((1, 2, 3)), rtol=1e-5)
  assert np.isfinite(means['negative_bound']).all()


@pytest.mark.parametrize('has_mask', [True, False])
def test_short_episodes_count_as_if_they_ended_in_padding(has_mask):
  log_likelihood, kl, predictable = (x[0] for x in _batches(4))
  short = 4
  one = other = metrics.zeros(_LENGTH)
  for number in range(_BATCHES):
    terms = Terms(log_likelihood[number], kl[number])
    is_frame = np.repeat(np.arange(_LENGTH)[:, None] < short, _BATCH, 1)
    other = metrics.add(other, terms, predictable[number], is_frame)
    terms = Terms(*(each[:short] for each in terms))
    mask = np.ones((short, _BATCH), bool) if has_mask else None
    one = metrics.add(one, terms, predictable[number, :short], mask)
  jax.tree.map(np.testing.assert_array_equal, one, other)
  assert not one.frames[short:].any() and one.frames[:short].all()


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('totals_are_finite', [True, False])
def test_metrics_of_a_failed_replica_are_no_number(totals_are_finite):
  log_likelihood, kl, mask = _batches(5)
  healthy = metrics.means(_totals(log_likelihood, kl, mask), _HEALTHY)
  if not totals_are_finite:
    kl[1, 2] = np.nan
    log_likelihood[1, 2] = -np.inf
  failed_at = np.array([-1, 17], np.int32)
  means = metrics.means(_totals(log_likelihood, kl, mask), failed_at)
  for name, value in means.items():
    if name == 'failed_at':
      assert value.dtype == object
      assert value.tolist() == [None, 17]
      assert type(value[1]) is int
    else:
      assert np.isnan(value[1]).all(), name
      np.testing.assert_array_equal(value[0], healthy[name][0])


@pytest.mark.filterwarnings('error')
def test_without_a_batch_there_are_no_means():
  totals = jax.tree.map(lambda leaf: np.asarray(leaf)[None], metrics.zeros(6))
  means = metrics.means(totals, np.array([-1]))
  for name, value in means.items():
    if name != 'failed_at':
      assert np.isnan(value).all(), name
