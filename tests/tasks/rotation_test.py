"""Rotation: how the camera turns, where it stands, and what it shows."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
from gtmm_jax.tasks import rooms, rotation
from gtmm_jax.tasks.rooms.view import FIELD_OF_VIEW
from gtmm_jax.tasks.rotation import Rotation
from numbered_images import assert_even

_TURN = 2 * np.pi
_MANY = 400
_SIZE = 8
_TASK = Rotation(30, _SIZE)
_TRAINING, *_HELD_OUT = rooms.split(_SIZE)
_KEYS = jax.random.split(jax.random.key(4), 3)


@functools.cache
def _sample():
  return jax.jit(jax.vmap(_TASK.sample, in_axes=(0, None)))


@functools.cache
def _batch():
  return jax.device_get(_sample()(_KEYS, _TRAINING))


def _show_pose(scene, pose, height, width):
  """Returns the pose and the floor's colour instead of a frame."""
  values = jnp.concatenate([pose, scene.floor])
  return jnp.broadcast_to(values, (height, width, 6))


@functools.cache
def _poses(length):
  """Angles turned [N, T], poses [N, T, 3] and flags [N, T] of many episodes."""
  task = Rotation(length, _SIZE)
  keys = jax.random.split(jax.random.key(length), _MANY)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(rotation.rooms, 'render', _show_pose)
    batch = jax.jit(jax.vmap(task.sample, (0, None)))(keys, _TRAINING)
    batch = jax.device_get(batch)
  shown = batch.frames[:, :, 0, 0].astype(np.float64)
  # One room an episode.
  assert (shown[:, :, 3:] == shown[:, :1, 3:]).all()
  poses = shown[..., :3]
  return poses[:, :1, 2] - poses[..., 2], poses, batch.predictable


_LENGTHS = slow_cases.but_for([30], [14, 30, 31])


@pytest.mark.parametrize('length', _LENGTHS)
def test_speed_grows_from_rest_and_stays(length):
  angles, _, _ = _poses(length)
  steps = np.diff(angles, axis=1)
  speed = steps[:, -1:]
  assert (steps > 0).all()
  # Steady after about four steps, with nothing gained or lost;
  np.testing.assert_allclose(
    steps[:, 5:], speed.repeat(length - 6, 1), atol=1e-5
  )
  # before that it grows by the same amount each step, from nothing.
  growth = np.diff(steps, axis=1)[:, :2]
  np.testing.assert_allclose(growth[:, 0], growth[:, 1], atol=1e-5)
  np.testing.assert_allclose(steps[:, 0], growth[:, 0] / 2, atol=1e-5)
  ramp = (speed / growth[:, :1]).ravel()
  assert 3.7 < ramp.min() < 4.0 < 4.4 < ramp.max() < 4.7


@pytest.mark.parametrize('length', _LENGTHS)
def test_two_turns_fill_the_episode(length):
  angles, _, predictable = _poses(length)
  speed = np.diff(angles)[:, -1]
  np.testing.assert_array_equal(predictable, angles >= _TURN)
  # The first turn ends soon after half of the frames.
  first = predictable.argmax(1)
  assert (first >= length / 2).all() and (first <= length / 2 + 2).all()
  # The second is not complete with the last frame, but would be soon after.
  missing = (2 * _TURN - angles[:, -1]) / speed
  assert (missing > 0).all() and (missing < 1.5).all()
  # What is seen in a frame is seen in the next as well, in part.
  assert (speed < FIELD_OF_VIEW).all()


def test_first_turn_of_thirty_frames_ends_at_the_sixteenth():
  angles, _, predictable = _poses(30)
  # Fifteen intervals and a part of one from rest, that is after 16 frames.
  assert (predictable.argmax(1) == 16).all()
  speed = np.degrees(np.diff(angles)[:, -1])
  assert (speed > 25).all() and (speed < 28).all()


@pytest.mark.parametrize('length', _LENGTHS)
def test_angles_of_the_second_turn_are_between_those_of_the_first(length):
  angles, _, predictable = _poses(length)
  for row, second in zip(angles, predictable, strict=True):
    speed = row[-1] - row[-2]
    ramp_end = row[5]
    first = np.append(row[~second], _TURN)
    for angle in row[second] - _TURN:
      apart = abs(first - angle).min() / speed
      assert apart > 1e-3
      if ramp_end < angle < first[-2]:
        assert 0.2 < apart <= 0.5


def test_episodes_differ_in_ramp_and_heading():
  angles, poses, _ = _poses(30)
  assert len(np.unique(angles[:, -1])) > _MANY / 2
  start = poses[:, 0, 2]
  assert start.min() >= 0 and start.max() < _TURN
  assert_even(np.histogram(start, 12, (0, _TURN))[0])


def test_camera_stays_at_one_place():
  _, poses, _ = _poses(30)
  places = poses[..., :2]
  assert (places == places[:, :1]).all()
  inside = places % 1
  assert inside.min() > 0.29 and inside.max() < 0.71
  assert len(np.unique(places[:, 0], axis=0)) == _MANY


def test_contract():
  assert (_TASK.prefix, _TASK.condition_size, _TASK.length) == (15, 0, 30)
  made = _batch()
  assert made.frames.shape == (3, 30, _SIZE, _SIZE, 3)
  assert made.condition.shape == (3, 30, 0)
  assert made.frames.dtype == made.condition.dtype == np.float32
  assert made.frames.min() >= 0 and made.frames.max() <= 1
  for field, kind in (
    ('source', np.int32),
    ('label', np.int32),
    ('predictable', np.bool_),
  ):
    values = getattr(made, field)
    assert values.shape == (3, 30), field
    assert values.dtype == kind, field
  assert (made.source == -1).all() and (made.label == -1).all()
  assert not made.predictable[:, : _TASK.prefix].any()
  assert made.predictable[:, -1].all()
  for length in range(14, 40):
    assert 1 <= Rotation(length).prefix < length
  assert Rotation(30).size == 32


def test_second_turn_shows_what_the_first_did():
  # Neighbours in angle look alike, those half a turn apart do not.
  frames = _batch().frames
  angles, _, _ = _poses(30)
  nearest = [abs(angles[0] - x + _TURN).argmin() for x in angles[0, 16:]]
  far = (np.array(nearest) + 7) % 16
  for episode in frames:
    near, opposite = (
      abs(episode[16:] - episode[index]).mean() for index in (nearest, far)
    )
    assert near < 0.75 * opposite


@pytest.mark.parametrize('rooms_of_part', _HELD_OUT)
def test_rooms_of_other_parts_are_others(rooms_of_part):
  held_out = jax.device_get(_sample()(_KEYS, rooms_of_part))
  # The camera turns alike; what it sees is something else.
  np.testing.assert_array_equal(held_out.predictable, _batch().predictable)
  error = abs(held_out.frames - _batch().frames).mean((1, 2, 3, 4))
  assert (error > 0.02).all()
  assert len(np.unique(_batch().frames[:, 0].reshape(3, -1), axis=0)) == 3


def test_nothing_leaves_the_device():
  arguments = jax.device_put((_KEYS, _TRAINING))
  _sample()(*arguments)
  with jax.transfer_guard('disallow'):
    jax.block_until_ready(_sample()(*arguments))


def test_task_is_frozen_and_equal_by_its_parameters():
  with pytest.raises(dataclasses.FrozenInstanceError):
    _TASK.length = 3
  assert Rotation(30, _SIZE) == _TASK != Rotation(30, 32)
  assert hash(Rotation(30, _SIZE)) == hash(_TASK)


@pytest.mark.parametrize(
  ('length', 'size', 'message'),
  [
    (13, 32, 'length is 13; it must be at least 14'),
    (0, 32, 'length is 0; it must be at least 14'),
    (-30, 32, 'length is -30; it must be at least 14'),
    (30, 7, 'size is 7; it must be at least 8'),
    (30, -1, 'size is -1; it must be at least 8'),
  ],
)
def test_parameters_that_make_no_sense_are_refused(length, size, message):
  with pytest.raises(ValueError, match=f'^rotation: {message}'):
    Rotation(length, size)


def test_rooms_of_another_size_are_refused():
  message = r'^rotation: size is 8, and the rooms .* \(16, 16, 3\); make both'
  with pytest.raises(ValueError, match=message):
    _TASK.sample(_KEYS[0], rooms.split(16)[0])
