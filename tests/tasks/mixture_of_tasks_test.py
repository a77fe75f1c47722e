"""The mixture against episodes of its parts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks import TASKS, mixture
from numbered_images import assert_even, make

_SIZES = {'pre_recall': 11, 'recall': 3, 'rows': 2, 'columns': 3, 'length': 16}
_TASK = mixture.Mixture(**_SIZES)
_PARTS = {
  'perfect_recall': (11, 3),
  'dynamic_dependency': (11, 3),
  'similarity_cued_recall': (11, 3),
  'navigation': (2, 3, 16),
}
_COUNT = 400
_KEYS = jax.random.split(jax.random.key(5), _COUNT)


@functools.cache
def _episodes():
  """Draws many episodes of numbered images, [N, T, ...]."""
  sample = jax.jit(jax.vmap(_TASK.sample, in_axes=(0, None)))
  return jax.device_get(sample(_KEYS, make()))


@functools.cache
def _alone(name):
  """Draws an episode of one task with the second key of each episode."""
  keys = jax.vmap(jax.random.split)(_KEYS)[:, 1]
  sample = jax.vmap(TASKS[name](*_PARTS[name]).sample, in_axes=(0, None))
  return jax.device_get(jax.jit(sample)(keys, make()))


def test_parts_are_the_tasks_in_their_order():
  assert {name: type(part) for name, part in _TASK.parts.items()} == {
    name: TASKS[name] for name in _PARTS
  }
  assert list(_TASK.parts) == list(_PARTS)
  assert (_TASK.length, _TASK.prefix, _TASK.condition_size) == (16, 9, 8)


@pytest.mark.parametrize(('number', 'name'), [*enumerate(_PARTS)])
def test_an_episode_is_one_of_a_part_and_then_padding(number, name):
  drawn, alone = _episodes(), _alone(name)
  part = TASKS[name](*_PARTS[name])
  length = part.length
  numbers = np.flatnonzero(drawn.part[:, 0] == number)
  assert len(numbers) > _COUNT / 8
  for n in numbers:
    for field in ('frames', 'source', 'predictable', 'label'):
      values = getattr(drawn, field)[n]
      np.testing.assert_array_equal(values[:length], getattr(alone, field)[n])
    actions, one_hot = np.split(drawn.condition[n], [4], axis=-1)
    np.testing.assert_array_equal(one_hot, [np.eye(4)[number]] * 16)
    if name == 'navigation':
      np.testing.assert_array_equal(actions, alone.condition[n])
    else:
      assert not actions.any()
    assert not drawn.frames[n, length:].any()
    assert not drawn.predictable[n, length:].any()
    assert (drawn.source[n, length:] == -1).all()
    assert (drawn.label[n] == -1).all()
    np.testing.assert_array_equal(drawn.mask[n], np.arange(16) < length)
    np.testing.assert_array_equal(
      drawn.in_prefix[n], np.arange(16) < part.prefix
    )
    np.testing.assert_array_equal(drawn.part[n], [number] * 16)


def test_parts_are_equally_likely():
  assert_even(np.bincount(_episodes().part[:, 0], minlength=4))


def test_binarize_reaches_all_parts():
  task = mixture.Mixture(**_SIZES, binarize=True)
  assert all(part.binarize for part in task.parts.values())
  frames = jax.jit(task.sample)(jax.random.key(0), make()).frames
  assert set(np.unique(frames)) == {0.0, 1.0}


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'length': 13}, 'mixture: length is 13.* 14 together; length must be at'),
    ({'pre_recall': 9}, 'dynamic_dependency: pre_recall is 9'),
    ({'recall': 1}, 'similarity_cued_recall: recall is 1'),
    ({'rows': 0}, 'navigation: rows is 0'),
  ],
)
def test_wrong_sizes_are_refused(changes, words):
  with pytest.raises(ValueError, match=words):
    mixture.Mixture(**(_SIZES | changes))


def test_other_tasks_have_no_padding():
  episode = jax.eval_shape(
    TASKS['navigation'](2, 3, 16).sample, jax.random.key(0), make()
  )
  assert (episode.mask, episode.part, episode.in_prefix) == (None,) * 3
  assert episode.frames.dtype == jnp.float32
