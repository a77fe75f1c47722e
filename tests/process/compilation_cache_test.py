"""The cache of compiled programs: whose it is, and what is kept out of it."""

import os
import pathlib
import random
import subprocess
import sys
import time
import zlib

import jax
import pytest

import program_flags
from gtmm_jax.process import compilation_cache

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / 'experiments'

# Compiles one program, and prints what it makes and how often it was found.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import jax
from gtmm_jax.process import compilation_cache
if len(sys.argv) > 2:
  compilation_cache.cpu = lambda: sys.argv[2]
found = []
jax.monitoring.register_event_listener(
  lambda name, **_: found.append(name) if 'cache_hits' in name else None
)
compilation_cache.use(True)
def step(carry, _):
  return jax.numpy.tanh(carry @ carry + carry), carry.sum()
rows = jax.lax.iota('float32', 64).reshape(8, 8) / 64
out = jax.jit(lambda x: jax.lax.scan(step, x, None, length=9))(rows)
print(out[1].tolist(), len(found) > 0)
"""


def _environment(root, **variables):
  own = program_flags.environment()
  own = {k: v for k, v in own.items() if k != 'JAX_COMPILATION_CACHE_DIR'}
  own |= {'XDG_CACHE_HOME': str(root), 'PYTHONPATH': str(ROOT)}
  own['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
  return {**own, **variables}


def _compute(root, *words, **variables):
  """Runs a program; returns its numbers, if it was cached, and its output."""
  result = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(ROOT), *words],
    env=_environment(root, **variables),
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert result.stderr == ''
  *said, last = result.stdout.splitlines()
  numbers, _, is_found = last.rpartition(' ')
  return numbers, is_found == 'True', said


def _entries(root):
  return sorted(root.glob('gtmm_jax/*/*-cache'))


@pytest.mark.skipif(sys.platform == 'darwin', reason='is elsewhere on macOS')
def test_programs_are_found_again_unless_damaged_or_of_another_cpu(tmp_path):
  numbers, is_found, said = _compute(tmp_path)
  assert not is_found and not said
  assert _compute(tmp_path) == (numbers, True, [])
  assert _compute(tmp_path, 'another CPU') == (numbers, False, [])
  # One bit, where jax's own compression would not tell.
  for entry in _entries(tmp_path):
    content = bytearray(zlib.decompress(entry.read_bytes()))
    content[len(content) // 2] ^= 1
    entry.write_bytes(zlib.compress(bytes(content)))
  assert _compute(tmp_path) == (numbers, False, [])


def test_a_folder_that_cannot_be_written_costs_speed_alone(tmp_path):
  (tmp_path / 'gtmm_jax').write_text('a file')
  numbers, is_found, said = _compute(tmp_path)
  assert not is_found
  assert len(said) == 1 and said[0].startswith(
    'Compiled programs are not cached'
  )
  assert numbers.startswith('[')


@pytest.fixture
def folder(tmp_path):
  """Makes a folder with two entries of different age, both sealed."""
  folder = tmp_path / 'gtmm_jax' / 'machine'
  folder.mkdir(parents=True)
  for number, name in enumerate(('old', 'new')):
    (folder / f'{name}-cache').write_bytes(random.Random(name).randbytes(1000))
    os.utime(folder / f'{name}-cache', (number + 1, number + 1))
  compilation_cache.seal(folder, since=0)
  return folder


def _names(folder):
  return {path.name.split('-')[0] for path in folder.glob('*-cache')}


def _damage(content, kind):
  return {
    'flipped': lambda: (
      content[:500] + bytes([content[500] ^ 8]) + content[501:]
    ),
    'cut': lambda: content[:-1],
    'empty': lambda: b'',
    'grown': lambda: content + b'x',
  }[kind]()


@pytest.mark.parametrize('kind', ['flipped', 'cut', 'empty', 'grown'])
def test_an_entry_that_is_not_as_it_was_sealed_is_deleted(folder, kind):
  entry = folder / 'old-cache'
  compilation_cache.check(folder)
  assert _names(folder) == {'old', 'new'}
  entry.write_bytes(_damage(entry.read_bytes(), kind))
  compilation_cache.check(folder)
  assert _names(folder) == {'new'}
  assert len(list(folder.iterdir())) == 2


def test_an_entry_without_a_seal_is_kept_for_an_hour(folder):
  for seal in folder.glob('*.sha256'):
    seal.unlink()
  now = time.time()
  os.utime(folder / 'new-cache', (now, now))
  compilation_cache.check(folder)
  assert _names(folder) == {'new'}
  # Of a program before this one: whether it is whole is not known.
  compilation_cache.seal(folder, since=now + 1)
  assert not list(folder.glob('*.sha256'))


def test_an_entry_that_goes_meanwhile_leaves_the_others_to_be_sealed(
  folder, monkeypatch
):
  for seal in folder.glob('*.sha256'):
    seal.unlink()
  digest, gone = compilation_cache._digest, []

  def one_is_gone(entry):
    if not gone:
      gone.append(entry)
      entry.unlink()
    return digest(entry)

  monkeypatch.setattr(compilation_cache, '_digest', one_is_gone)
  compilation_cache.seal(folder, since=0)
  assert len(_names(folder)) == len(list(folder.glob('*.sha256'))) == 1


def test_the_oldest_entries_make_room(folder, monkeypatch):
  monkeypatch.setattr(compilation_cache, '_LARGEST', 1999)
  compilation_cache._tidy(folder.parent)
  assert _names(folder) == {'new'} and len(list(folder.iterdir())) == 2


def test_another_cpu_or_version_has_another_folder():
  own = compilation_cache.cpu()
  assert own and own == compilation_cache.cpu()
  names = {
    compilation_cache.machine(cpu, *versions)
    for cpu in (own, own + ' avx10', '')
    for versions in (('0.10.2', '0.10.2'), ('0.10.2', '0.10.3'), ('0.11', '1'))
  }
  assert len(names) == 9


def test_a_folder_that_the_user_gave_jax_is_left_to_them(monkeypatch, tmp_path):
  monkeypatch.setattr(
    compilation_cache, '_root', lambda: pytest.fail('was looked for')
  )
  before = jax.config.jax_compilation_cache_dir
  compilation_cache.use(True)
  assert jax.config.jax_compilation_cache_dir == before


@pytest.mark.slow
def test_a_run_has_the_same_bits_with_and_without(tmp_path):
  def run(name, *flags):
    words = ['--preset=small', '--steps=20', '--replicas=2', '--batch_size=2']
    words += ['--evaluation_episodes=4', f'--workdir={tmp_path / name}']
    result = subprocess.run(
      [sys.executable, str(EXPERIMENTS / 'run.py'), *words, *flags],
      env=_environment(tmp_path),
      capture_output=True,
      text=True,
      check=False,
    )
    assert result.returncode == 0, result.stderr
    folder = tmp_path / name
    pictures = sorted((folder / 'figures').glob('*.png'))
    return [
      (folder / 'evaluation.json').read_bytes(),
      *(picture.read_bytes() for picture in pictures),
    ]

  plain = run('plain', '--nocompilation_cache')
  assert not _entries(tmp_path)
  cold = run('cold')
  assert _entries(tmp_path)
  before = {entry.name for entry in _entries(tmp_path)}
  warm = run('warm')
  assert {entry.name for entry in _entries(tmp_path)} == before
  assert plain == cold == warm
