"""Retrieval accuracy against plain loops over frames."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.evaluation import retrieval
from gtmm_jax.tasks import TASKS
from numbered_images import make

_CASES = [
  ('perfect_recall', (6, 4)),
  ('one_shot_recall', (3, 3)),
  ('dynamic_dependency', (10, 5)),
  ('similarity_cued_recall', (6, 3)),
  ('navigation', (2, 2, 12)),
]
_BATCH = 4
_judge = jax.jit(retrieval.judge, static_argnums=(3, 4))


def _tally(*arguments):
  return retrieval.tally(_judge(*arguments))


def _episodes(name, sizes, seed=0):
  """Draws a batch of episodes of numbered images, axes [T, B, ...]."""
  sample = jax.vmap(TASKS[name](*sizes).sample, in_axes=(0, None), out_axes=1)
  return jax.device_get(
    jax.jit(sample)(jax.random.split(jax.random.key(seed), _BATCH), make())
  )


def _origin(source, t):
  while source[t] >= 0:
    t = source[t]
  return t


def _candidates(source, prefix, t):
  """Lists frames before t except generated ones that repeat a true one."""
  return [j for j in range(t) if j < prefix or _origin(source, j) >= prefix]


def _finds(generated, seen, source, t, prefix):
  """Computes the definition, a frame at a time."""
  if source[t] < 0:
    return False
  candidates = _candidates(source, prefix, t)
  generated, seen = np.float64(generated), np.float64(seen)
  distances = [((generated[t] - seen[j]) ** 2).sum() for j in candidates]
  right = [_origin(source, j) == _origin(source, t) for j in candidates]
  nearest = min(distances)
  return any(
    is_right and distance <= nearest + 1e-4
    for distance, is_right in zip(distances, right, strict=True)
  )


def _chance(source, prefix, t):
  origins = [_origin(source, j) for j in _candidates(source, prefix, t)]
  return np.mean([origin == _origin(source, t) for origin in origins])


def _free(source, predictable, prefix):
  return [t for t in range(prefix, len(source)) if predictable[t]]


@pytest.mark.parametrize('seed', range(5))
def test_origins_follow_repeats_to_the_first(seed):
  rng = np.random.default_rng(seed)
  for length in (1, 2, 3, 17):
    source = np.array([rng.integers(-1, t) if t else -1 for t in range(length)])
    expected = [_origin(source, t) for t in range(length)]
    assert retrieval.origins(jnp.asarray(source)).tolist() == expected


def test_origins_of_the_longest_chain():
  source = jnp.arange(-1, 399, dtype=jnp.int32)
  assert not retrieval.origins(source).any()


@pytest.mark.parametrize(('name', 'sizes'), _CASES)
@pytest.mark.parametrize('noise', [0.0, 0.4, 100.0])
def test_verdicts_and_counts_are_those_of_a_loop(name, sizes, noise):
  episode = _episodes(name, sizes)
  prefix = TASKS[name](*sizes).prefix
  rng = np.random.default_rng(1)
  ahead, free = (
    np.float32(episode.frames + noise * rng.normal(size=episode.frames.shape))
    for _ in range(2)
  )
  free[:prefix] = episode.frames[:prefix]
  verdicts = _judge(episode, ahead, free, prefix)
  expected, expected_free = np.full((2, *episode.source.shape), -1)
  chances = np.zeros(2)
  for b in range(_BATCH):
    source, predictable = episode.source[:, b], episode.predictable[:, b]
    for t in np.flatnonzero(predictable):
      expected[t, b] = _finds(
        ahead[:, b], episode.frames[:, b], source, t, len(source)
      )
      chances[0] += _chance(source, len(source), t)
    for t in _free(source, predictable, prefix):
      expected_free[t, b] = _finds(free[:, b], free[:, b], source, t, prefix)
      chances[1] += _chance(source, prefix, t)
  np.testing.assert_array_equal(verdicts.ahead, expected)
  np.testing.assert_array_equal(verdicts.free, expected_free)
  assert verdicts.ahead.dtype == verdicts.free.dtype == jnp.int8
  got = retrieval.tally(verdicts)
  assert (got.frames, got.ahead) == (
    (expected >= 0).sum(),
    expected.clip(0).sum(),
  )
  assert got.frames_free == (expected_free >= 0).sum()
  assert got.free == expected_free.clip(0).sum()
  np.testing.assert_allclose((got.chance, got.chance_free), chances, rtol=1e-5)
  if noise == 0.0:
    assert got.ahead == got.frames > 0
    assert got.free == got.frames_free > 0


def test_a_cue_is_not_asked_for():
  episode = _episodes('similarity_cued_recall', (6, 3))
  got = _tally(episode, episode.frames, episode.frames, 7)
  assert got.frames == got.frames_free == 2 * _BATCH


def test_a_frame_equally_near_to_two_is_right():
  # Frames 0 and 1 are of different draws and look the same; 2 repeats 1.
  seen = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
  source = jnp.array([-1, -1, -1, 1])
  found = retrieval.finds_source(seen, seen, source, 4)
  assert found.tolist() == [False, False, False, True]
  wrong = seen.at[3].set(jnp.array([0.0, 1.0]))
  assert not retrieval.finds_source(wrong, seen, source, 4)[3]


def test_later_frames_do_not_count():
  # Frame 3 repeats frame 0; what is generated is most like frame 4.
  seen = jnp.array([[0.0], [5.0], [6.0], [0.0], [2.2]])
  source = jnp.array([-1, -1, -1, 0, -1])
  generated = seen.at[3].set(2.2)
  assert retrieval.finds_source(generated, seen, source, 5)[3]


def test_generated_frames_are_sought_among_generated_ones():
  # The walk comes back to a cell that was itself dreamed: consistent, though
  # unlike the true frame.
  source = jnp.array([-1, -1, -1, 1])[:, None]
  true = jnp.array([0.0, 1.0, 2.0, 1.0])[:, None, None]
  dreamed = jnp.array([0.0, 9.0, 2.0, 8.0])[:, None, None]
  episode = TASKS['navigation'](2, 2, 4).sample(jax.random.key(0), make())
  episode = episode._replace(
    frames=true,
    source=source,
    predictable=source >= 0,
    label=jnp.full((4, 1), -1),
  )
  got = _tally(episode, true, dreamed, 1)
  assert (got.free, got.frames_free) == (1, 1)
  got = _tally(episode, true, dreamed.at[3].set(1.0), 1)
  assert (got.free, got.frames_free) == (0, 1)


def test_repeating_its_own_mistake_is_not_right():
  # Frame 2 and frame 3 both repeat frame 1, which was seen, and look like 9.
  source = jnp.array([-1, -1, 1, 2, -1])
  seen = jnp.array([[0.0], [1.0], [9.0], [9.0], [5.0]])
  assert retrieval.origins(source).tolist() == [0, 1, 1, 1, 4]
  free = retrieval.finds_source(seen, seen, source, 2)
  # 9 is nearer to 1 than to 0: right for want of other candidates.
  assert free.tolist() == [False, False, True, True, False]
  other = seen.at[0].set(8.0)
  free = retrieval.finds_source(other, other, source, 2)
  assert not free.any()


def test_classes_are_judged_by_the_classifier():
  episode = _episodes('parity_recall', (6, 4))
  asked = 4 * _BATCH

  def count(classify):
    frames = episode.frames
    return _tally(episode, frames, frames, 6, classify)

  oracle = count(lambda frames: jnp.asarray(episode.label))
  assert oracle[:4] == (asked, asked, asked, asked)
  zeros = int((episode.label == 0).sum())
  assert 0 < zeros < asked
  always = count(lambda frames: jnp.zeros(frames.shape[:2], jnp.int32))
  assert always[:4] == (asked, zeros, asked, zeros)
  assert always.chance == always.chance_free == 0


def test_accuracies_of_replicas():
  total = retrieval.Tally(
    frames=np.array([4.0, 4.0, 0.0]),
    ahead=np.array([1.0, 2.0, 0.0]),
    frames_free=np.array([2.0, 2.0, 0.0]),
    free=np.array([2.0, 1.0, 0.0]),
    chance=np.array([0.5, 0.0, 0.0]),
    chance_free=np.array([0.5, 0.0, 0.0]),
  )
  got = retrieval.accuracies(total, np.array([False, False, False]))
  nan = np.nan
  np.testing.assert_array_equal(got['retrieval_ahead'], [0.25, 0.5, nan])
  np.testing.assert_array_equal(got['retrieval_free'], [1.0, 0.5, nan])
  # Where a class was asked for, there is no chance to tell of.
  for name, first in (('ahead', 0.125), ('free', 0.25)):
    np.testing.assert_array_equal(
      got[f'retrieval_{name}_chance'], [first, nan, nan]
    )
  failed = retrieval.accuracies(total, np.array([True, False, False]))
  assert all(np.isnan(values[0]) for values in failed.values())
  assert failed['retrieval_ahead'][1] == 0.5


def test_zeros_add_nothing():
  episode = _episodes('perfect_recall', (6, 4))
  one = _tally(episode, episode.frames, episode.frames, 6)
  both = jax.tree.map(jnp.add, retrieval.zeros(), one)
  assert [float(x) for x in both] == [float(x) for x in one]
