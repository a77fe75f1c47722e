"""Studies whose runs are stand-ins, which take no time and need no jax."""

import contextlib
import io
import json
import subprocess
from unittest import mock

import program_flags
import study
from gtmm_jax.runs import workdirs
from studies import drawing, request

# Given to both stand-ins: what config.json of a cell holds. They do not import
# JAX, which would take most of their time.
_CONFIG = f"""
import json, os, pathlib, shlex, signal, sys, time
import numpy as np
from gtmm_jax import records

# Settings that earlier runs did not record.
BEFORE = {workdirs.BEFORE!r}
"""
_CONFIG += """
def config(flags):
  given = flags.get('data', 'bundled')
  return {
    'settings': {**BEFORE,
                 'task': flags['task'], 'model': flags['model'],
                 'steps': int(flags['steps']),
                 'preset': flags.get('preset', 'small'),
                 'seed': int(flags.get('seed', 0)), 'device_megabytes': None},
    'option_defaults': {},
    'versions': {'jax': '1.2.3'},
    'device': {'kind': 'cpu'},
    'data': {'source': 'drawn, from ' + given.partition(':')[2] + ': 3 digits',
             'checksum': '0', 'flag': given},
    'starts': [{'commit': 'c0ffee', 'clean': True, 'host': 'my machine',
                'command': shlex.join(['python', *sys.argv])}],
  }
"""

# Stands for run.py --check_cells: refuses steps below 1, and settings other
# than those in the workdir.
_RESOLVE = (
  _CONFIG
  + """
asked, found = json.load(sys.stdin), {}
for name, flags in asked['cells'].items():
  own, workdir = config(flags), pathlib.Path(asked['folder']) / name
  old = records.read_config(workdir)
  done = records.read_evaluation(workdir) is not None
  drawn = (workdir / 'figures').exists()
  found[name] = {'config': own, 'steps': int(flags['steps']), 'episodes': 20,
                 'split': 'validation',
                 'is_evaluated': done, 'is_complete': done and drawn,
                 'doubts': ['is it so?'] if flags['steps'] == 2 else []}
  if int(flags['steps']) < 1:
    found[name] = {'problem': 'too few steps'}
  if old and old['settings'] != own['settings']:
    found[name] = {'problem': 'other settings'}
json.dump(found, sys.stdout)
"""
)

# Stands for run.py: leaves the records of a run with the flags it was given,
# or fails on the model lru. Counts how often it trained.
RUN = (
  _CONFIG
  + """
import atexit
from gtmm_jax.process import locks

flags = dict(flag[2:].split('=', 1) for flag in sys.argv[1:])
folder = pathlib.Path(flags['workdir'])
print('hello', *sys.argv)
if flags['model'] == 'lru':
  print('run.py: no such luck', file=sys.stderr)
  sys.exit(2)
folder.mkdir(parents=True, exist_ok=True)
lock = locks.alone(folder)
try:
  lock.__enter__()
  atexit.register(lock.__exit__, None, None, None)
except locks.CannotLock as error:
  print('run.py:', error, file=sys.stderr)
  sys.exit(2)
(folder / 'figures').mkdir(exist_ok=True)
if records.read_evaluation(folder) is not None:
  sys.exit(0)
time.sleep(float(os.environ.get('TRAINS', '0')))
with open(folder.parent / 'trained', 'a') as file:
  file.write(folder.name + ' ')
records.write_config(folder, config(flags))
seed = int(flags.get('seed', 0))
arrays = {
  'negative_bound': np.array([1000.0, 1002.0]),
  'log_likelihood': np.full((2, 3), -300.0),
  'kl': np.full((2, 3), 9.0),
  'kl_last': np.array([4.0, 6.0]),
  'kl_new': np.array([10.0, 10.0]),
  'kl_predictable': np.array([5.0, 6.0]) + seed,
  'failed_at': np.array([None, None], object),
}
# Far enough apart for a ratio to count, as if there had been steps before.
last = int(flags['steps'])
for step, seconds in ((last - 100, 7.0), (last, 7.5)):
  records.append_metrics(folder, {'step': step, 'seconds': seconds, **arrays})
records.write_evaluation(folder, {
  'step': last, 'episodes': 20, 'split': 'validation', **arrays,
  'predictable': np.array([0.0, 0.0, 1.0]),
  'retrieval_ahead': np.array([0.5, 0.7]),
  'retrieval_free': np.array([np.nan, np.nan]),
  'retrieval_ahead_chance': np.array([0.1, 0.1]),
  'retrieval_free_chance': np.array([0.1, 0.1]),
})
"""
)


def grid(folder, *blocks):
  file = folder / 'grid.json'
  file.write_text(json.dumps({'cells': blocks}))
  return file


def block(models, tasks=('perfect_recall', 'navigation'), seeds=(), **flags):
  over = {'task': tasks, 'model': models, **({'seed': seeds} if seeds else {})}
  return {'flags': {'steps': 3, **flags}, 'over': over}


def run(folder, grid, *words, program=RUN, draws=False):
  """Runs study.py in this process, with the stand-ins; returns its results.

  Args:
    folder: where it runs.
    grid: its file, None if flags make it.
    *words: further flags.
    program: the stand-in for run.py; None where the stand-ins are there.
    draws: whether it draws its figures, which takes most of its time.
  """
  if program:
    write(folder, program)
  draw = drawing.draw if draws else lambda *_: []
  out, err = io.StringIO(), io.StringIO()
  with (
    contextlib.chdir(folder),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    mock.patch.object(request, 'RUN', folder / 'run.py'),
    mock.patch.object(drawing, 'draw', draw),
  ):
    code = program_flags.exit_code(
      ['study.py', *([f'--grid={grid}'] if grid else []), *words], study.main
    )
  return subprocess.CompletedProcess((), code, out.getvalue(), err.getvalue())


def write(folder, program):
  """Writes a stand-in for run.py, and what it answers about cells."""
  check = (
    'import sys\n'
    'if sys.argv[1:] == ["--check_cells"]:\n'
    '  import resolve\n'
    '  sys.exit()\n'
  )
  (folder / 'run.py').write_text(check + program)
  (folder / 'resolve.py').write_text(_RESOLVE)
