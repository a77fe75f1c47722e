"""Files of one's own frames, as a trained run observes them."""

import types

import numpy as np
import pytest

from gtmm_jax.trained import from_file

_SHAPE = (8, 12, 3)


def _run(actions=0):
  return types.SimpleNamespace(
    recorded=types.SimpleNamespace(frame_shape=_SHAPE),
    task=types.SimpleNamespace(condition_size=actions),
  )


def _frames(*axes):
  rng = np.random.default_rng(0)
  return rng.integers(0, 256, (*axes, *_SHAPE), dtype=np.uint8)


@pytest.mark.parametrize('axes', [(5,), (1, 5), (2, 5)])
def test_frames_come_time_first_whatever_their_type(tmp_path, axes):
  frames = _frames(*axes)
  condition = np.random.default_rng(1).normal(size=(*axes, 2))
  for values in (frames, frames / 255):
    np.savez(tmp_path / 'own.npz', frames=values, condition=condition)
    episode = from_file.read(_run(actions=2), tmp_path / 'own.npz')
    expected = frames.reshape(-1, 5, *_SHAPE).swapaxes(0, 1) / 255
    np.testing.assert_allclose(episode.frames, expected, atol=1e-6)
    same = condition.reshape(-1, 5, 2).swapaxes(0, 1)
    np.testing.assert_allclose(episode.condition, same, rtol=1e-6)
    assert not episode.predictable.any() and (episode.source == -1).all()


@pytest.mark.parametrize(
  ('arrays', 'message'),
  [
    ({'frames': np.zeros((5, 8, 12, 1))}, r'this model takes \[T, 8, 12, 3\]'),
    ({'frames': np.zeros((5, 8, 12, 3), int)}, 'have the type int64'),
    ({'frames': np.full((5, 8, 12, 3), 7.0)}, 'reach from 7.0'),
    ({'frames': _frames(5)}, 'give condition'),
    ({'frames': _frames(5), 'condition': np.zeros((4, 2))}, r'\[5, 2\]'),
    ({'images': _frames(5)}, 'has no array frames'),
  ],
)
def test_arrays_that_do_not_fit_are_told(tmp_path, arrays, message):
  file = tmp_path / 'own.npz'
  np.savez(file, **arrays)
  with pytest.raises(ValueError, match=message) as error:
    from_file.read(_run(actions=2), file)
  assert str(error.value).startswith(str(file))
  assert '\n' not in str(error.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
  file = tmp_path / 'own.npz'
  with pytest.raises(ValueError, match='cannot be read'):
    from_file.read(_run(), file)
  file.write_bytes(b'not a file of numpy')
  with pytest.raises(ValueError, match='is not an .npz file'):
    from_file.read(_run(), file)
