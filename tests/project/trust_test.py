"""What is read runs no code, and nothing is written elsewhere."""

import ast
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import gtmm_jax
import program_flags
import trained_runs
from gtmm_jax import records
from gtmm_jax.trained import from_file
from studies import grid_file, results_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Modules and functions that run what they read.
_MODULES = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'joblib', 'marshal'}
_MODULES |= {'shelve', 'yaml', 'jsonpickle', 'code', 'codeop'}
_FUNCTIONS = {'eval', 'exec', 'compile', '__import__'}
# Files without these words are not parsed, which would take seconds.
_WORDS = re.compile(
  r'\b(eval|exec|compile|__import__|load)\(|shell=|_pickle'
  f'|\\b(import|from) ({"|".join(sorted(_MODULES))})\\b'
)


def _sources():
  for folder in ('gtmm_jax', 'experiments', 'launch'):
    yield from (ROOT / folder).rglob('*.py')


def _faults(path):
  """Returns the lines of a file that could run what is read."""
  text = path.read_text()
  for node in ast.walk(ast.parse(text)) if _WORDS.search(text) else ():
    names = []
    if isinstance(node, ast.Import):
      names = [each.name.partition('.')[0] for each in node.names]
    elif isinstance(node, ast.ImportFrom):
      names = [(node.module or '').partition('.')[0]]
    is_bad = bool(_MODULES & {*names})
    if isinstance(node, ast.Call):
      function = node.func
      is_bad |= isinstance(function, ast.Name) and function.id in _FUNCTIONS
      is_bad |= any(
        word.arg == 'shell'
        or (
          word.arg == 'allow_pickle'
          and not (
            isinstance(word.value, ast.Constant) and word.value.value is False
          )
        )
        for word in node.keywords
      )
      # NumPy's default is False; here it is said.
      if isinstance(function, ast.Attribute) and function.attr == 'load':
        is_numpy = getattr(function.value, 'id', '') in ('np', 'numpy')
        words = {word.arg for word in node.keywords}
        is_bad |= is_numpy and 'allow_pickle' not in words
    if is_bad:
      yield f'{path.relative_to(ROOT)}:{node.lineno}'


def test_no_source_unpickles_or_evaluates_what_it_reads():
  assert [line for path in _sources() for line in _faults(path)] == []


def test_such_sources_would_be_found(tmp_path, monkeypatch):
  monkeypatch.setitem(globals(), 'ROOT', tmp_path)
  path = tmp_path / 'bad.py'
  for line in (
    'import pickle',
    'from yaml import load',
    'eval(x)',
    'np.load(x)',
    'np.load(x, allow_pickle=True)',
    'subprocess.run(x, shell=True)',
  ):
    path.write_text(line)
    assert list(_faults(path)) == ['bad.py:1'], line
  path.write_text('np.load(x, allow_pickle=False); ast.literal_eval(x)')
  assert list(_faults(path)) == []


class _Bomb:
  """An object whose pickle makes a folder where it is read."""

  def __init__(self, marker):
    self._marker = marker

  def __reduce__(self):
    return os.mkdir, (str(self._marker),)


def _tried(function, *arguments):
  """Calls a function that may refuse what it reads."""
  try:
    function(*arguments)
  # What a damaged file makes it raise is tested elsewhere.
  except Exception:
    return


@pytest.mark.slow
def test_a_pickle_in_place_of_any_file_is_not_run(tmp_path):
  run = trained_runs.prepare_run(tmp_path / 'run', **trained_runs.WALK)
  trained_runs.write(run, {4: [-1, -1]})
  workdir, marker = run.workdir, tmp_path / 'exploded'
  loaded = gtmm_jax.load(workdir)
  bomb = pickle.dumps(_Bomb(marker))
  for name in ('metrics.jsonl', 'evaluation.json', 'evaluation.npz'):
    (workdir / name).touch()
  files = [path for path in workdir.rglob('*') if path.is_file()]
  assert len(files) > 8
  for path in files:
    content = path.read_bytes()
    path.write_bytes(bomb)
    _tried(gtmm_jax.load, workdir)
    for read in (
      records.read_config,
      records.read_metrics,
      records.read_evaluation,
      records.read_episodes,
    ):
      _tried(read, workdir)
    path.write_bytes(content)
  arrays = tmp_path / 'arrays.npz'
  np.savez(arrays, frames=np.array([_Bomb(marker)], object))
  _tried(from_file.read, loaded, arrays)
  grid = tmp_path / 'grid.json'
  for content in (bomb, json.dumps({'cells': bomb.hex()}).encode()):
    grid.write_bytes(content)
    _tried(grid_file.read, grid)
    _tried(results_file.read, grid)
  assert not marker.exists()
  pickle.loads(bomb)
  assert marker.exists()


# Notes each path that Python opens to write, or makes, below a folder.
_WATCH = """
import atexit, os, sys
paths = set()
def watch(event, values):
  if isinstance(values and values[0], int):
    return
  if event == 'open' and isinstance(values[1], str):
    if set(values[1]) & set('wax+'):
      paths.add(os.path.abspath(os.fspath(values[0])))
  elif event in ('os.mkdir', 'os.rename', 'os.remove'):
    paths.add(os.path.abspath(os.fspath(values[0])))
sys.addaudithook(watch)
def tell():
  print('WRITTEN', *sorted(paths), sep='\\n', file=sys.stderr)
atexit.register(tell)
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def _below(folder):
  return {path: path.lstat().st_mtime_ns for path in folder.rglob('*')}


@pytest.mark.slow
def test_a_run_writes_to_its_folder_and_the_compilation_cache_alone(tmp_path):
  folders = {name: tmp_path / name for name in ('home', 'tmp', 'here', 'runs')}
  for folder in folders.values():
    folder.mkdir()
  environment = {
    **program_flags.environment(),
    'PYTHONPATH': str(ROOT),
    'HOME': str(folders['home']),
    'TMPDIR': str(folders['tmp']),
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    # Compiled sources of Python are no part of it.
    'PYTHONDONTWRITEBYTECODE': '1',
  }
  for name in (
    *('XDG_CACHE_HOME', 'XDG_CONFIG_HOME', 'MPLCONFIGDIR'),
    'JAX_COMPILATION_CACHE_DIR',
  ):
    environment.pop(name, None)
  result = subprocess.run(
    [
      *(sys.executable, '-c', _WATCH),
      str(ROOT / 'experiments' / 'own_core.py'),
      *('--task=backward_recall', '--model=leaky', '--preset=small'),
      *('--set=latent_size=4', '--set=controller_size=8', '--replicas=2'),
      *('--batch_size=2', '--pre_recall=3', '--steps=4', '--report_every=2'),
      '--evaluation_episodes=2',
      f'--workdir={folders["runs"] / "run"}',
    ],
    cwd=folders['here'],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  cache = folders['home'] / '.cache' / 'gtmm_jax'
  assert cache.is_dir() and (folders['runs'] / 'run').is_dir()
  allowed = [cache, folders['runs'] / 'run']
  # Matplotlib keeps its list of fonts, which MPLCONFIGDIR moves.
  for name in ('.cache', '.config'):
    allowed.append(folders['home'] / name / 'matplotlib')
  written = result.stderr.partition('WRITTEN\n')[2].splitlines()
  found = {*_below(tmp_path), *map(pathlib.Path, written)}
  elsewhere = [
    path
    for path in sorted(found - {*folders.values()})
    if not any(path.is_relative_to(each) for each in allowed)
    and path not in (each.parent for each in allowed)
    and not path.is_relative_to('/dev')
    and not path.is_relative_to('/proc')
  ]
  assert elsewhere == []
