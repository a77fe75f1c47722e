"""Signals: how programs end for them, in words and exit codes."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import program_flags

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'experiments'

# Runs a program that gets a signal where it imports a module.
AT_IMPORT = """
import os, runpy, signal, sys, time
class Signal:
  def find_spec(self, name, *_):
    if name == {module!r}:
      os.kill(os.getpid(), signal.{name})
      time.sleep(60)
sys.meta_path.insert(0, Signal())
sys.argv = [{program!r}, *{flags!r}]
runpy.run_path({program!r}, run_name='__main__')
"""


def _python(program, **kwargs):
  return subprocess.run(
    [sys.executable, '-c', program],
    env={**program_flags.environment(), 'PYTHONPATH': str(FOLDER.parent)},
    stderr=subprocess.PIPE,
    text=True,
    timeout=50,
    check=False,
    **kwargs,
  )


@pytest.mark.parametrize(
  'name, flags, module, sent, code',
  [
    ('run', [], 'rich', 'SIGINT', 130),
    ('run', [], 'jax', 'SIGTERM', 143),
    ('run', [], 'jax', 'SIGHUP', 129),
    ('copy_task', [], 'jax', 'SIGINT', 130),
    ('show_task', [], 'jax', 'SIGINT', 130),
    ('benchmark', ['--parameters'], 'jax', 'SIGINT', 130),
  ],
)
def test_a_program_that_begins_ends_in_one_line(
  tmp_path, name, flags, module, sent, code
):
  program = str(FOLDER / f'{name}.py')
  given = {'module': module, 'name': sent, 'program': program, 'flags': flags}
  result = _python(
    # As a shell starts it, whatever the tests were started with.
    f'import signal; signal.signal(signal.{sent}, signal.SIG_DFL)\n'
    + AT_IMPORT.format(**given),
    stdout=subprocess.PIPE,
    cwd=tmp_path,
  )
  assert (result.returncode, result.stdout) == (code, '')
  assert result.stderr.count('\n') == 1
  assert result.stderr.startswith(f'{name}.py: {sent}: ')
  assert os.listdir(tmp_path) == []


def _watched(body):
  return _python(
    'import os, signal, sys, time\n'
    'from gtmm_jax.process import signals\n'
    'for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):\n'
    '  signal.signal(getattr(signal, name), signal.SIG_DFL)\n'
    'signals.watch("nothing")\n'
    'def send(name):\n'
    '  os.kill(os.getpid(), getattr(signal, name)); time.sleep(0.1)\n' + body,
    stdout=subprocess.PIPE,
  )


def test_a_signal_waits_until_what_is_at_hand_is_finished():
  result = _watched("""
try:
  with signals.deferred('the last one is kept'):
    send('SIGTERM')
    # As programs do that also signal their group.
    send('SIGTERM')
    print(signals.received())
    raise signals.Stopped(signals.received(), 'saved')
except signals.Stopped as stopped:
  signals.leave(stopped)
""")
  assert (result.returncode, result.stdout) == (143, '15\n')
  assert result.stderr.splitlines()[1] == '-c: SIGTERM: saved.'


def test_a_second_signal_ends_at_once():
  result = _watched("""
with signals.deferred('the last one is kept'):
  send('SIGTERM')
  time.sleep(0.3)
  send('SIGINT')
  time.sleep(60)
""")
  assert result.returncode == 130
  last = '-c: SIGINT: the last one is kept.'
  assert result.stderr.splitlines()[1:] == [last]


def test_a_cluster_s_warnings_never_cut_the_saving_short():
  result = _watched("""
try:
  with signals.deferred('the last one is kept'):
    send('SIGUSR2')
    for name in ('SIGUSR2', 'SIGUSR1'):
      time.sleep(0.3)
      send(name)
    print(signals.received() == signal.SIGUSR2)
    raise signals.Stopped(signals.received(), 'saved')
except signals.Stopped as stopped:
  signals.leave(stopped)
""")
  code = 128 + signal.SIGUSR2
  assert (result.returncode, result.stdout) == (code, 'True\n')
  assert result.stderr.splitlines() == [
    '-c: SIGUSR2: finishes its current work; a second signal ends it at once.',
    '-c: SIGUSR2: saved.',
  ]


def test_a_signal_ends_what_has_nothing_to_save():
  result = _watched("""
with signals.deferred('kept'), signals.at_once('compiling'):
  send('SIGINT')
  time.sleep(60)
""")
  assert (result.returncode, result.stderr) == (130, '-c: SIGINT: compiling.\n')


def test_a_signal_that_nobody_asked_for_is_raised_at_the_end():
  result = _watched("""
try:
  with signals.deferred('kept'):
    send('SIGINT')
    with signals.at_once('compiling'):
      print('never')
except signals.Stopped as stopped:
  print(stopped)
try:
  with signals.deferred('kept'):
    print('went on')
except signals.Stopped as stopped:
  signals.leave(stopped)
""")
  assert (result.returncode, result.stdout) == (130, 'compiling\nwent on\n')


def test_an_ignored_signal_stays_ignored():
  result = _python("""
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from gtmm_jax.process import signals
signals.watch('nothing')
os.kill(os.getpid(), signal.SIGHUP)
time.sleep(0.1)
""")
  assert (result.returncode, result.stderr) == (0, '')


@pytest.mark.parametrize('manner', ['deferred', 'at_once'])
def test_a_closed_pipe_ends_a_program_quietly_once_it_has_saved(manner):
  reader, writer = os.pipe()
  os.close(reader)
  result = _python(
    f"""
import os, sys
from gtmm_jax.process import signals
signals.watch('nothing')
from gtmm_jax.process import command
try:
  with signals.{manner}('kept'):
    command.console().print('to nobody')
    command.console().print('nor this')
    os.write(2, b'saved')
except signals.Stopped as stopped:
  signals.leave(stopped)
""",
    stdout=writer,
  )
  os.close(writer)
  said = 'saved' if manner == 'deferred' else ''
  assert (result.returncode, result.stderr) == (141, said)


def test_signals_are_left_alone_where_nobody_watches():
  program = """
import signal, threading
from gtmm_jax.process import signals
thread = threading.Thread(target=signals.watch, args=('nothing',))
thread.start(); thread.join()
with signals.deferred('kept'), signals.at_once('compiling'):
  print(signals.received(), signal.getsignal(signal.SIGTERM).name)
"""
  result = _python(program, stdout=subprocess.PIPE)
  assert result.stdout == 'None SIG_DFL\n'
