"""Values of every evaluated frame, as a file of the workdir."""

import os

import numpy as np
import pytest

from gtmm_jax import records


def _arrays(shape=(2, 3, 4)):
  rng = np.random.default_rng(0)
  kl, log_likelihood = rng.normal(size=(2, *shape)).astype(np.float32)
  kl[1] = np.nan
  verdicts = rng.integers(-1, 2, (2, *shape)).astype(np.int8)
  return records.EpisodeArrays(
    kl,
    log_likelihood,
    rng.uniform(size=shape) < 0.5,
    rng.integers(-1, 4, shape).astype(np.int8),
    *verdicts,
    rng.uniform(size=shape) < 0.9,
    rng.integers(0, 4, shape).astype(np.int8),
  )


def test_arrays_are_read_as_written_and_the_file_is_a_function_of_them(
  tmp_path,
):
  arrays = _arrays()
  records.write_episodes(tmp_path, arrays._asdict())
  for got, expected in zip(
    records.read_episodes(tmp_path), arrays, strict=True
  ):
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype
  assert os.listdir(tmp_path) == ['evaluation.npz']
  before = (tmp_path / 'evaluation.npz').read_bytes()
  records.write_episodes(tmp_path, arrays._asdict())
  assert (tmp_path / 'evaluation.npz').read_bytes() == before


def test_the_file_is_replaced_wholly_or_not_at_all(tmp_path, monkeypatch):
  records.write_episodes(tmp_path, _arrays()._asdict())
  before = (tmp_path / 'evaluation.npz').read_bytes()

  def crash(*_):
    raise OSError('the disk is full')

  for name in ('fsync', 'replace'):
    with monkeypatch.context() as patch:
      patch.setattr(os, name, crash)
      with pytest.raises(OSError, match='full'):
        records.write_episodes(tmp_path, _arrays((2, 9, 4))._asdict())
    assert (tmp_path / 'evaluation.npz').read_bytes() == before
  assert os.listdir(tmp_path) == ['evaluation.npz']


def test_an_array_that_is_missing_or_foreign_is_not_written(tmp_path):
  arrays = _arrays()._asdict()
  kl = arrays.pop('kl')
  for wrong in (arrays, {**arrays, 'kl': kl, 'more': kl}):
    with pytest.raises(TypeError, match='kl|more'):
      records.write_episodes(tmp_path, wrong)
  assert not os.listdir(tmp_path)


def _one_line(workdir):
  """Reads a wrong file; returns the message, which has to be one line."""
  with pytest.raises(ValueError, match='delete evaluation.json') as caught:
    records.read_episodes(workdir)
  message = str(caught.value)
  assert message.startswith(str(workdir / 'evaluation.npz'))
  assert '\n' not in message
  return message


def test_a_missing_file_is_named(tmp_path):
  assert 'is missing' in _one_line(tmp_path)


@pytest.mark.parametrize(
  'damage',
  [
    lambda whole: b'',
    lambda whole: whole[: len(whole) // 2],
    lambda whole: whole[:-1],
    lambda whole: b'no archive',
    # One byte inside the first array.
    lambda whole: whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
  ],
)
def test_a_damaged_file_is_named(tmp_path, damage):
  records.write_episodes(tmp_path, _arrays()._asdict())
  path = tmp_path / 'evaluation.npz'
  path.write_bytes(damage(path.read_bytes()))
  assert 'is damaged' in _one_line(tmp_path)


def test_a_file_of_other_arrays_is_named(tmp_path):
  path = tmp_path / 'evaluation.npz'
  np.savez_compressed(path, frames=np.zeros(3))
  assert 'is damaged' in _one_line(tmp_path)
  np.savez_compressed(path, **_arrays()._replace(kl=np.array([{}]))._asdict())
  assert 'is damaged' in _one_line(tmp_path)
  wrong = _arrays()._replace(source=np.zeros((2, 2, 4), np.int8))
  np.savez_compressed(path, **wrong._asdict())
  assert 'not all [R, N, T]' in _one_line(tmp_path)
