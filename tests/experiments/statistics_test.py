"""Statistics over replicas, beside numbers from books and slow loops."""

import math

import numpy as np
import pytest

from studies import statistics
from studies.statistics import Interval

pytestmark = pytest.mark.filterwarnings('error')

# "Student" 1908, The probable error of a mean: hours of sleep gained by ten
# patients with each of two drugs.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
NAN = math.nan


def test_a_mean_has_the_interval_worked_by_hand():
  # Mean 2, deviation 1, t of 2 degrees 4.302653, so 4.302653 / sqrt(3).
  found = statistics.mean([1.0, 2.0, 3.0])
  assert (found.mean, found.n) == (2.0, 3)
  np.testing.assert_allclose(found.interval, [2 - 2.484138, 2 + 2.484138], 1e-6)
  # Half a unit from the middle, times 12.706205.
  two = statistics.mean([1.0, 2.0]).interval
  np.testing.assert_allclose(two, [1.5 - 6.353102, 1.5 + 6.353102], 1e-6)


def test_means_of_few_values():
  assert statistics.mean([]) is None
  assert statistics.mean([NAN, math.inf]) is None
  assert statistics.mean([NAN, 3.0]) == statistics.Mean(3.0, None, 1)
  same = statistics.mean([0.1] * 3)
  assert same.interval.low == same.interval.high == same.mean
  np.testing.assert_allclose(same.mean, 0.1)
  assert statistics.mean([1.0, NAN, 2.0, 3.0]) == statistics.mean([1, 2, 3])


def test_the_sleep_of_student_has_his_test():
  found = statistics.paired_difference(SECOND, FIRST)
  assert found.n == 10
  np.testing.assert_allclose(found.mean, 1.58)
  # t = 4.0621 on 9 degrees of freedom.
  np.testing.assert_allclose(found.interval, [0.7001142, 2.4598858], 1e-6)
  np.testing.assert_allclose(found.p, 0.00283289, 1e-5)


def test_swapping_the_sides_turns_the_differences():
  one = statistics.paired_difference(FIRST[:4], SECOND[:4])
  other = statistics.paired_difference(SECOND[:4], FIRST[:4])
  assert (one.mean, one.p, one.n) == (-other.mean, other.p, 4)
  np.testing.assert_allclose(one.interval, [-x for x in other.interval[::-1]])


def test_the_bootstrap_is_that_of_a_plain_loop():
  differences = np.subtract(SECOND, FIRST)
  found = statistics.paired_difference(SECOND, FIRST).bootstrap
  np.testing.assert_allclose(found, _plain_bca(differences), atol=0.03)
  # It leans to the side of the long tail, unlike the t interval.
  middle = differences.mean()
  assert found.high - middle > middle - found.low


def _plain_bca(values, resamples=20_000):
  """Works a BCa interval of the mean out by loops, as Efron has it."""
  from statistics import NormalDist

  rng, normal = np.random.default_rng(7), NormalDist()
  n, mean = len(values), sum(values) / len(values)
  means = sorted(
    sum(values[rng.integers(n)] for _ in range(n)) / n for _ in range(resamples)
  )
  below = sum(each < mean for each in means)
  equal = sum(each == mean for each in means)
  bias = normal.inv_cdf((below + equal / 2) / resamples)
  without = [(sum(values) - each) / (n - 1) for each in values]
  middle = sum(without) / n
  cubes = sum((middle - each) ** 3 for each in without)
  squares = sum((middle - each) ** 2 for each in without)
  acceleration = cubes / (6 * squares**1.5)
  ends = []
  for share in (0.025, 0.975):
    shifted = bias + normal.inv_cdf(share)
    moved = normal.cdf(bias + shifted / (1 - acceleration * shifted))
    ends.append(means[round(moved * resamples)])
  return ends


@pytest.mark.parametrize('n, has_bootstrap', [(7, False), (8, True)])
def test_the_bootstrap_begins_with_eight_pairs(n, has_bootstrap):
  found = statistics.paired_difference(FIRST[:n], SECOND[:n])
  assert (found.bootstrap is not None) == has_bootstrap


def test_pairs_where_a_replica_failed_are_left_out():
  ours, others = [1.0, NAN, 3.0, 5.0], [0.5, 2.0, NAN, 2.0]
  found = statistics.paired_difference(ours, others)
  assert found == statistics.paired_difference([1.0, 5.0], [0.5, 2.0])
  assert found.n == 2 and found.mean == 1.75
  # t = 1.75 / 1.25 = 1.4 on one degree: p = 1 - 2 atan(1.4) / pi.
  np.testing.assert_allclose(found.p, 1 - 2 * math.atan(1.4) / math.pi)
  assert statistics.paired_difference([NAN], [1.0]) is None
  assert statistics.paired_difference([], []) is None
  with pytest.raises(ValueError):
    statistics.paired_difference([1.0, 2.0], [1.0])


def test_pairs_without_spread_have_no_test():
  one = statistics.paired_difference([3.0], [1.0])
  assert one == statistics.Difference(2.0, None, None, None, 1)
  same = statistics.paired_difference([3.1] * 9, [3.0] * 9)
  assert same.p is None and same.bootstrap is None
  np.testing.assert_allclose([same.mean, *same.interval], 0.1)
  # Equal but for rounding: 0.3 - 0.1 is not 0.2.
  assert statistics.paired_difference([0.3, 0.4], [0.1, 0.2]).p is None


@pytest.mark.parametrize(
  'p_values, adjusted',
  [
    # Holm's procedure by hand: times 4, 3, 2 and 1, and never falling.
    ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
    ([0.02, 0.02], [0.04, 0.04]),
    ([0.6, 0.4, 0.9], [1.0, 1.0, 1.0]),
    ([0.01, None, 0.02], [0.03, None, 0.04]),
    ([None], [None]),
    ([], []),
  ],
)
def test_p_values_of_a_family_are_adjusted(p_values, adjusted):
  found = statistics.holm(p_values)
  assert [p is None for p in found] == [p is None for p in adjusted]
  np.testing.assert_allclose(
    [p for p in found if p is not None], [p for p in adjusted if p is not None]
  )


def test_regret_is_that_of_the_worst_task():
  losses = [
    np.array([[1.0, 3.0], [4.0, 6.0], [2.0, 2.0]]),
    # The second replica of the first model failed.
    np.array([[5.0, NAN, 7.0], [3.0, 9.0, 3.0], [9.0, 0.0, 9.0]]),
  ]
  # Means 2, 5, 2 and 6, 3, 9: regrets 0, 3, 0 and 3, 0, 6.
  found = statistics.worst_task_regrets(losses)
  assert [each.regret for each in found] == [3.0, 3.0, 6.0]


def test_the_interval_of_a_regret_is_that_of_all_resamples():
  losses = [
    np.array([[1.0, 2.0], [3.0, 1.0]]),
    np.array([[4.0, 0.0], [0.0, 1.0]]),
  ]
  worst = []
  draws = [[0, 0], [0, 1], [1, 0], [1, 1]]
  for first in draws:
    for second in draws:
      regrets = np.zeros(2)
      for task, drawn in zip(losses, (first, second), strict=True):
        means = [np.mean([row[i] for i in drawn]) for row in task]
        regrets = np.maximum(regrets, np.subtract(means, min(means)))
      worst.append(regrets)
  ends = np.quantile(worst, [0.025, 0.975], axis=0, method='inverted_cdf')
  found = statistics.worst_task_regrets(losses)
  for each, (low, high) in zip(found, ends.T, strict=True):
    np.testing.assert_allclose(each.interval, [low, high])


def test_regrets_of_few_replicas():
  (alone,) = statistics.worst_task_regrets([np.array([[1.0, 2.0]])])
  assert alone == statistics.Regret(0.0, Interval(0.0, 0.0))
  once = [np.array([[1.0], [2.0]]), np.array([[3.0, 1.0], [1.0, 1.0]])]
  assert statistics.worst_task_regrets(once) == [(1.0, None), (1.0, None)]
  for losses in ([], [np.array([[1.0, NAN], [NAN, 1.0]])]):
    with pytest.raises(ValueError, match='each task|Each task'):
      statistics.worst_task_regrets(losses)


def test_regrets_are_the_same_each_time():
  losses = [np.random.default_rng(3).normal(size=(3, 5)) for _ in range(2)]
  once = statistics.worst_task_regrets(losses)
  assert once == statistics.worst_task_regrets(losses)
