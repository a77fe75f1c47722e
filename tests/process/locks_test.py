"""Locks of folders: of one host, and of two hosts that are faked."""

import contextlib
import errno
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest

import program_flags
from gtmm_jax.process import holders, locks

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Another host, and what follows from its name.
NODE = ('node7', 'boot of node7', 'pid:[7]')


@pytest.fixture
def quick(monkeypatch):
  """Makes hearts beat fast, and stop being waited for soon."""
  monkeypatch.setattr(locks, '_BEAT', 0.02)
  monkeypatch.setattr(locks, '_SETTLE', 0.02)
  monkeypatch.setattr(holders, 'STALE', 0.5)


@contextlib.contextmanager
def _elsewhere():
  """Lets this program be one of another host, which shares no `flock`."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(holders, 'this_host', lambda: NODE)
    patch.setattr(locks, '_flock', lambda *_: False)
    yield


def _leave(folder, age=0.0, **changes):
  """Leaves a lock as a program of this host that was killed does."""
  folder.mkdir(exist_ok=True)
  program = holders.this_program(has_flock=True)._replace(**changes)
  (folder / 'lock.json').write_bytes(holders.to_bytes(program))
  _age(folder, age)
  return program


def _age(folder, seconds):
  """Makes the last heartbeat older."""
  beat = time.time() - seconds
  os.utime(folder / 'lock.json', (beat, beat))


def _ended():
  """Returns the number of a process that has ended."""
  with subprocess.Popen([sys.executable, '-c', '']) as process:
    process.wait()
  return process.pid


def _refused(folder, **options):
  """Returns why a folder cannot be locked, in its one line."""
  with (
    pytest.raises(locks.CannotLock) as caught,
    locks.alone(folder, **options),
  ):
    pass
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_a_folder_is_held_by_one_program_that_is_named(tmp_path):
  folder = tmp_path / 'new' / 'run'
  assert not locks.is_taken(folder)
  with locks.alone(folder) as lock:
    named = json.loads((folder / 'lock.json').read_text())
    assert (named['process'], named['has_flock']) == (os.getpid(), True)
    assert locks.is_taken(folder)
    assert _refused(folder).startswith(
      f'Another program runs in {folder}: process {os.getpid()} on '
      f'{named["host"]}, heartbeat 0 s ago; wait for it, or name another'
    )
    lock.require()
  assert os.listdir(folder) == ['lock'] and not locks.is_taken(folder)
  with locks.alone(folder):
    pass


def test_the_lock_of_a_program_that_was_killed_is_replaced_without_a_word(
  tmp_path, capsys
):
  program = (
    'import os, pathlib, signal\n'
    'from gtmm_jax.process import locks\n'
    f'with locks.alone(pathlib.Path({str(tmp_path)!r})):\n'
    '  os.kill(os.getpid(), signal.SIGKILL)\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program],
    env={**program_flags.environment(), 'PYTHONPATH': str(ROOT)},
    check=False,
  )
  assert result.returncode == -signal.SIGKILL
  assert (tmp_path / 'lock.json').exists() and not locks.is_taken(tmp_path)
  with locks.alone(tmp_path):
    assert locks.is_taken(tmp_path)
  assert capsys.readouterr() == ('', '')


@pytest.mark.parametrize('flock', [True, False])
def test_a_process_that_is_gone_is_told_from_one_of_the_same_number(
  tmp_path, monkeypatch, quick, flock
):
  if not flock:
    monkeypatch.setattr(locks, '_flock', lambda *_: False)
  start = holders.this_program(True).start
  for changes in (
    {'process': _ended()},
    # A later process got its number, here this one.
    {'start': start + 1 if start else 0, 'has_flock': flock},
  ):
    _leave(tmp_path, **changes)
    assert not locks.is_taken(tmp_path) or not start
    with locks.alone(tmp_path):
      pass
  # The process runs; without a flock nothing else tells.
  _leave(tmp_path, has_flock=False)
  assert locks.is_taken(tmp_path)
  assert 'Another program runs in' in _refused(tmp_path, take_over=True)


def test_a_file_system_without_flock_has_locks_too(tmp_path, monkeypatch):
  def missing(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  monkeypatch.setattr(locks.fcntl, 'flock', missing)
  with locks.alone(tmp_path):
    named = json.loads((tmp_path / 'lock.json').read_text())
    assert named['has_flock'] is False
    assert f'process {os.getpid()} on ' in _refused(tmp_path)
  with locks.alone(tmp_path):
    pass


def test_a_program_of_another_host_is_named_with_its_heartbeat(tmp_path):
  with _elsewhere(), locks.alone(tmp_path):
    pass
  with _elsewhere():
    _leave(tmp_path, age=42, process=4242, has_flock=False)
  assert locks.is_taken(tmp_path)
  assert _refused(tmp_path) == (
    f'Another program runs in {tmp_path}: process 4242 on node7, heartbeat 42 '
    f's ago; wait for it, or name another --workdir.'
  )
  # So is one of this host to the other.
  _leave(tmp_path, process=4242)
  with _elsewhere():
    assert 'process 4242 on ' in _refused(tmp_path)


def test_a_stale_lock_is_reported_and_taken_over_only_where_that_is_asked(
  tmp_path, quick, capsys
):
  with _elsewhere():
    _leave(tmp_path, age=7200, process=4242)
  assert not locks.is_taken(tmp_path)
  assert _refused(tmp_path) == (
    f'The lock of {tmp_path} is stale: process 4242 on node7, heartbeat 2 h '
    f'ago. If that program has surely ended, add --take_over or delete '
    f'{tmp_path}/lock.json.'
  )
  assert capsys.readouterr().err == ''
  with locks.alone(tmp_path, take_over=True):
    assert locks.is_taken(tmp_path)
  (line,) = capsys.readouterr().err.splitlines()
  assert f'Takes {tmp_path} over from process 4242 on node7' in line
  with _elsewhere():
    _leave(tmp_path, age=7200)
  (tmp_path / 'lock.json').unlink()
  with locks.alone(tmp_path):
    pass


def test_a_takeover_waits_until_the_heart_has_surely_stopped(
  tmp_path, quick, capsys
):
  with _elsewhere():
    _leave(tmp_path)
  began = time.monotonic()
  with locks.alone(tmp_path, take_over=True):
    assert time.monotonic() - began > 0.4
  assert 'Waits' in capsys.readouterr().err.splitlines()[0]
  # A heart that beats is not waited for.
  with (
    _elsewhere(),
    locks.alone(tmp_path),
    pytest.MonkeyPatch.context() as patch,
  ):
    patch.setattr(holders, 'this_host', lambda: ('here', 'boot', 'pid:[1]'))
    assert 'Another program runs in' in _refused(tmp_path, take_over=True)


def test_a_program_whose_lock_was_taken_over_ends(tmp_path, quick):
  with _elsewhere():
    lost = locks.alone(tmp_path)
    lock = lost.__enter__()
  lock.require()
  # As a program does that was suspended meanwhile, and did not beat.
  newer = _leave(tmp_path)
  with pytest.raises(locks.Lost, match='deleted or replaced'):
    _require_soon(lock)
  lost.__exit__(None, None, None)
  # It leaves the lock to the other one.
  assert holders.look(tmp_path).holder == newer


def _require_soon(lock):
  until = time.monotonic() + 10
  while time.monotonic() < until:
    lock.require()
    time.sleep(0.02)


def test_of_two_programs_that_take_over_at_once_one_is_left(
  tmp_path, monkeypatch
):
  with _elsewhere():
    _leave(tmp_path, age=7200)

  def meanwhile(_):
    _leave(tmp_path, process=4242)

  monkeypatch.setattr(locks.time, 'sleep', meanwhile)
  assert 'process 4242' in _refused(tmp_path, take_over=True)


def test_programs_of_before_a_restart_of_the_host_have_ended(
  tmp_path, monkeypatch
):
  host, boot, _ = holders.this_host()
  if not boot:
    pytest.skip('this system does not tell when it started')
  monkeypatch.setattr(locks, '_SETTLE', 0)
  uptime = time.time() - holders._booted_at()
  _leave(tmp_path, age=uptime + 5, boot='the one before')
  with locks.alone(tmp_path):
    pass
  # A host of the same name whose heart beats.
  _leave(tmp_path, age=0, boot='another')
  assert f'on {host}, heartbeat 0 s ago' in _refused(tmp_path)


def test_processes_of_another_container_are_judged_by_their_heartbeat(
  tmp_path,
):
  for age, state in ((10, 'runs'), (1000, 'stale')):
    _leave(tmp_path, age=age, namespace='pid:[9]', process=_ended())
    assert holders.state(holders.look(tmp_path)) == state
    # The kernel they share tells that it holds its flock no more.
    assert holders.state(holders.look(tmp_path), has_flock=True) == 'ended'


@pytest.mark.parametrize(
  'content',
  [
    b'',
    b'\xff\x00',
    b'[' * 4000,
    b'[]',
    b'{"host": "a"}',
    holders.to_bytes(holders.this_program(True)._replace(process=0)),
    holders.to_bytes(holders.this_program(True)._replace(process=10**30)),
    holders.to_bytes(holders.this_program(True)._replace(process='1')),
  ],
)
def test_a_damaged_lock_is_reported_as_of_an_unknown_host(tmp_path, content):
  (tmp_path / 'lock.json').write_bytes(content)
  assert 'process 0 on an unknown host' in _refused(tmp_path)
  _age(tmp_path, 1000)
  assert 'is stale: process 0 on an unknown host' in _refused(tmp_path)


def test_a_full_disk_leaves_no_part_of_a_lock(tmp_path):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
  try:
    with pytest.raises(OSError, match='File too large'), locks.alone(tmp_path):
      pass
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert os.listdir(tmp_path) == ['lock']


def test_a_folder_that_cannot_be_made_is_a_mistake(tmp_path):
  (tmp_path / 'file').touch()
  assert 'cannot be made and locked' in _refused(tmp_path / 'file' / 'run')
