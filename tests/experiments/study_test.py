"""Studies: cells checked, run, shared and resumed; signals; the table."""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

import program_flags
import study
from gtmm_jax.runs import workdirs
from studies import grid_file, outcomes

ROOT = pathlib.Path(__file__).resolve().parents[2]

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
_RUN = (
  _CONFIG
  + """
import filelock

flags = dict(flag[2:].split('=', 1) for flag in sys.argv[1:])
folder = pathlib.Path(flags['workdir'])
print('hello', *sys.argv)
if flags['model'] == 'lru':
  print('run.py: no such luck', file=sys.stderr)
  sys.exit(2)
folder.mkdir(parents=True, exist_ok=True)
lock = filelock.FileLock(folder / 'lock', timeout=0)
try:
  lock.acquire()
except filelock.Timeout:
  print('run.py: Another program runs in', folder, file=sys.stderr)
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
for step, seconds in ((3 - 100, 7.0), (3, 7.5)):
  records.append_metrics(folder, {'step': step, 'seconds': seconds, **arrays})
records.write_evaluation(folder, {
  'step': 3, 'episodes': 20, 'split': 'validation', **arrays,
  'predictable': np.array([0.0, 0.0, 1.0]),
  'retrieval_ahead': np.array([0.5, 0.7]),
  'retrieval_free': np.array([np.nan, np.nan]),
  'retrieval_ahead_chance': np.array([0.1, 0.1]),
  'retrieval_free_chance': np.array([0.1, 0.1]),
})
"""
)


def _grid(folder, *blocks):
  file = folder / 'grid.json'
  file.write_text(json.dumps({'cells': blocks}))
  return file


def _block(models, tasks=('perfect_recall', 'navigation'), seeds=(), **flags):
  over = {'task': tasks, 'model': models, **({'seed': seeds} if seeds else {})}
  return {'flags': {'steps': 3, **flags}, 'over': over}


@pytest.fixture(scope='module', autouse=True)
def _flags():
  """Defines the flags of study.py."""
  with program_flags.defined(study.define_flags):
    yield


def _study(folder, grid, *words, run=_RUN, draws=False):
  """Runs study.py in this process, with the stand-ins; returns its results.

  Args:
    folder: where it runs.
    grid: its file.
    *words: further flags.
    run: the stand-in for run.py; None where the stand-ins are there.
    draws: whether it draws its figures, which takes most of its time.
  """
  if run:
    _write_stand_ins(folder, run)
  draw = study.drawing.draw if draws else lambda *_: []
  out, err = io.StringIO(), io.StringIO()
  with (
    contextlib.chdir(folder),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    mock.patch.object(study, '_RUN', folder / 'run.py'),
    mock.patch.object(study.drawing, 'draw', draw),
  ):
    code = program_flags.exit_code(
      ['study.py', f'--grid={grid}', *words], study.main
    )
  return subprocess.CompletedProcess((), code, out.getvalue(), err.getvalue())


def _write_stand_ins(folder, run):
  """Writes a stand-in for run.py, and what it answers about cells."""
  check = (
    'import sys\n'
    'if sys.argv[1:] == ["--check_cells"]:\n'
    '  import resolve\n'
    '  sys.exit()\n'
  )
  (folder / 'run.py').write_text(check + run)
  (folder / 'resolve.py').write_text(_RESOLVE)


def _start(folder, grid, run, *flags, **variables):
  """Starts study.py as a process, with a stand-in for run.py."""
  _write_stand_ins(folder, run)
  program = (
    f'import pathlib, sys; sys.path.insert(0, {str(ROOT / "experiments")!r})\n'
    'import atexit, signal, study\n'
    'from gtmm_jax.process import command, signals\n'
    # A shell has what it runs in the background ignore interrupts.
    'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
    # So does nohup with hangups.
    'signal.signal(signal.SIGHUP, signal.SIG_DFL)\n'
    'signals.watch(signals.GOES_ON)\n'
    # They would take a device's memory from its runs.
    'import jax\n'
    'from jax._src.xla_bridge import backends_are_initialized\n'
    'atexit.register(lambda: print("devices", backends_are_initialized()))\n'
    'from absl import app\n'
    'study._RUN = pathlib.Path("run.py").absolute()\n'
    'study.define_flags()\n'
    'app.run(study.main, flags_parser=command.parse_flags)\n'
  )
  paths = (str(ROOT), str(ROOT / 'experiments'))
  return subprocess.Popen(
    [sys.executable, '-c', program, f'--grid={grid}', *flags],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(paths), **variables},
  )


def _wait_for(path, process):
  """Waits until a file is there."""
  while not path.exists():
    time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def _is_running(pid):
  """Tells whether a process runs; a zombie does not."""
  try:
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return False
  return stat.rpartition(')')[2].split()[0] != 'Z'


def _has_ended(pid):
  """Waits for a killed process; tells whether it has ended."""
  until = time.monotonic() + 10
  while _is_running(pid) and time.monotonic() < until:
    time.sleep(0.05)
  return not _is_running(pid)


def test_a_study_runs_what_is_left_and_makes_the_table(tmp_path):
  grid = _grid(tmp_path, _block(['vrnn', 'dnc']))
  first = _study(tmp_path, grid, '--jobs=2', draws=True)
  assert first.returncode == 0, first.stderr
  folder = tmp_path / 'runs' / 'grid'
  trained = (folder / 'trained').read_text()
  assert sorted(trained.split()) == sorted(grid_file.read(grid))
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == list(grid_file.read(grid))
  row = rows['navigation-dnc']
  assert row['settings'].items() >= {'model': 'dnc', 'seed': 0}.items()
  assert (row['training_seconds'], row['episodes']) == (7.5, 20)
  assert row['replicas']['retrieval_free'] == [None, None]
  np.testing.assert_allclose(row['replicas']['ratio'], [0.5, 0.6])
  text = (folder / 'table.md').read_text()
  assert 'Sources: commit `c0ffee`.' in text
  # Half of what two values differ by, times 12.706.
  line = '| `dnc` | 2 | 1,001.0 [988.3, 1,013.7] | 10.000 [10.000, 10.000] |'
  assert text.count(line) == 2
  assert '| 0.550 [-0.085, 1.185] | 5.000 [-7.706, 17.706] |' in text
  assert '| 0.600 [-0.671, 1.871] | 2 of 2 |' in text
  assert first.stdout.count('predictable / new 0.550') == 4
  for task in ('perfect_recall', 'navigation'):
    assert (folder / f'table-{task}.png').stat().st_size > 10_000
  assert first.stdout.count('begins') == 4
  (folder / 'table.json').unlink()
  again = _study(tmp_path, grid)
  assert again.returncode == 0, again.stderr
  assert '4 of 4 cells are complete' in again.stdout
  assert json.loads((folder / 'table.json').read_text()) == rows
  # Not even begun.
  for log in folder.glob('*.log'):
    assert log.read_text().count('hello') == 1
  # Figures that are missing are for the run to draw, which does no more.
  (folder / 'navigation-dnc' / 'figures').rmdir()
  assert _study(tmp_path, grid).returncode == 0
  assert (folder / 'navigation-dnc' / 'figures').exists()
  # Where the table cannot be written, what was run is there still.
  (folder / 'table.md').unlink()
  (folder / 'table.md').mkdir()
  refused = _study(tmp_path, grid)
  assert (refused.returncode, refused.stderr.count('\n')) == (2, 1)
  assert 'table.md' in refused.stderr and 'continues' in refused.stderr
  # A grid that changed is another one.
  other = _study(tmp_path, _grid(tmp_path, _block(['vrnn', 'dnc'], steps=2)))
  assert (other.returncode, other.stderr) == (
    2,
    'study.py: perfect_recall-vrnn and 3 more: other settings\n',
  )
  assert (folder / 'trained').read_text() == trained


def test_images_are_given_to_each_run(tmp_path):
  grid = _grid(
    tmp_path,
    _block(['dnc'], ['navigation']),
    _block(['ntm'], ['perfect_recall'], data='x'),
  )
  result = _study(tmp_path, grid, '--data=files:here and there')
  assert result.returncode == 0, result.stderr
  logs = {log.stem: log.read_text() for log in tmp_path.glob('runs/grid/*.log')}
  assert 'files:here and there' in logs['navigation-dnc']
  assert 'data=x' in logs['perfect_recall-ntm']
  assert 'files' not in logs['perfect_recall-ntm']
  table = (tmp_path / 'runs' / 'grid' / 'table.json').read_text()
  row = json.loads(table)['navigation-dnc']
  data = row['data']
  assert data == {'source': 'drawn, from FOLDER: 3 digits', 'checksum': '0'}
  assert (row['commit'], row['clean']) == ('c0ffee', True)
  assert '--data=files:FOLDER' in row['command']
  assert '--workdir=FOLDER' in row['command']
  assert '--model=dnc' in row['command']
  for private in ('here', 'my machine', str(tmp_path)):
    assert private not in table


@pytest.mark.parametrize('output', ['.', '/', 'tables/..'])
def test_tables_have_names(tmp_path, output):
  grid = _grid(tmp_path, _block(['dnc']))
  result = _study(tmp_path, grid, f'--output={output}')
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert f'--output={output} has no name' in result.stderr
  assert not (tmp_path / 'runs').exists()


def test_a_folder_of_prepared_sets_is_given_to_runs_that_read_it(tmp_path):
  grid = _grid(
    tmp_path,
    _block(['dnc'], ['navigation']),
    _block(['ntm'], ['perfect_recall'], data='bundled'),
  )
  result = _study(tmp_path, grid, '--data=tfds', '--data_dir=there')
  assert result.returncode == 0, result.stderr
  logs = {log.stem: log.read_text() for log in tmp_path.glob('runs/grid/*.log')}
  assert '--data_dir=there' in logs['navigation-dnc']
  assert 'data_dir' not in logs['perfect_recall-ntm']
  result = _study(tmp_path, grid, '--data_dir=there', '--folder=others')
  assert result.returncode == 2
  assert '--data_dir needs --data=tfds' in result.stderr


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path):
  grid = _grid(tmp_path, _block(['lru', 'dnc']))
  output = tmp_path / 'deep' / 'tasks'
  words = (f'--output={output}', '--folder=runs/here')
  result = _study(tmp_path, grid, *words, draws=True)
  assert result.returncode == 2
  assert '2 of 4 cells failed' in result.stderr
  assert 'code 2: run.py: no such luck' in result.stdout
  rows = json.loads(pathlib.Path(f'{output}.json').read_text())
  assert list(rows) == ['perfect_recall-dnc', 'navigation-dnc']
  # One cell of a task is drawn by its own run.
  assert not list(output.parent.glob('*.png'))
  log = (tmp_path / 'runs' / 'here' / 'navigation-lru.log').read_text()
  assert 'hello' in log and 'no such luck' in log


def test_a_cell_whose_records_are_damaged_is_named(tmp_path):
  grid = _grid(tmp_path, _block(['dnc'], seeds=[0, 1]))
  assert _study(tmp_path, grid).returncode == 0
  folder = tmp_path / 'runs' / 'grid'
  (folder / 'navigation-dnc-seed=0' / 'evaluation.json').write_text('{}')
  (folder / 'navigation-dnc-seed=1' / 'config.json').unlink()
  damaged = folder / 'perfect_recall-dnc-seed=0' / 'metrics.jsonl'
  damaged.write_text('x\n{}\n')
  result = _study(tmp_path, grid)
  assert result.returncode == 2, result.stdout
  assert 'Traceback' not in result.stderr
  assert '3 of 4 cells failed' in result.stderr
  assert result.stdout.count('left damaged records') == 3
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == ['perfect_recall-dnc-seed=1']


def test_nothing_runs_where_a_cell_has_a_mistake(tmp_path):
  grid = _grid(tmp_path, _block(['dnc']), _block(['ntm'], steps=0))
  result = _study(tmp_path, grid)
  assert result.returncode == 2
  assert result.stderr.splitlines() == [
    'study.py: perfect_recall-ntm and 1 more: too few steps'
  ]
  assert not (tmp_path / 'runs').exists()


def test_doubts_about_data_are_told_before_the_first_run(tmp_path):
  grid = _grid(
    tmp_path, _block(['lru'], steps=2), _block(['dnc'], ['rotation'])
  )
  out = _study(tmp_path, grid).stdout.splitlines()
  warning = 'warning  perfect_recall-lru and 1 more: is it so?'
  assert out.index(warning) < min(
    index for index, line in enumerate(out) if 'begins' in line
  )


def test_seeds_share_a_row(tmp_path):
  grid = _grid(
    tmp_path,
    _block(['dnc'], ['navigation'], seeds=[0, 1]),
    _block(['ntm'], ['perfect_recall']),
  )
  result = _study(tmp_path, grid, '--jobs=2')
  assert result.returncode == 0, result.stderr
  folder = tmp_path / 'runs' / 'grid'
  runs = json.loads((folder / 'table.json').read_text())
  assert list(runs) == list(grid_file.read(grid))
  rows = outcomes.rows(runs)
  assert list(rows) == ['navigation-dnc', 'perfect_recall-ntm']
  row = rows['navigation-dnc']
  assert (row.n, row.seeds) == (4, ((0, 2), (1, 2)))
  np.testing.assert_allclose(row.values['ratio'], [0.5, 0.6, 0.6, 0.7])
  text = (folder / 'table.md').read_text()
  assert '| `dnc` | 4 |' in text and '| `ntm` | 2 |' in text


def test_a_cell_with_a_record_is_done_without_its_workdir(tmp_path):
  grid = _grid(tmp_path, _block(['dnc', 'ntm'], ['navigation'], seeds=[0, 1]))
  output = tmp_path / 'kept' / 'small'
  first = _study(tmp_path, grid, f'--output={output}', draws=True)
  assert first.returncode == 0
  file = output.with_suffix('.json')
  whole = json.loads(file.read_text())
  text = output.with_suffix('.md').read_text()
  # Another machine has the records of three cells alone.
  gone = 'navigation-ntm-seed=0'
  file.write_text(json.dumps({n: r for n, r in whole.items() if n != gone}))
  words = (f'--output={output}', '--folder=new')
  elsewhere = _study(tmp_path, grid, *words, draws=True)
  assert elsewhere.returncode == 0, elsewhere.stderr
  assert '3 of 4 cells are complete' in elsewhere.stdout
  assert (tmp_path / 'new' / 'trained').read_text() == f'{gone} '
  again = json.loads(file.read_text())
  assert list(again) == list(whole)
  assert {n: r['replicas'] for n, r in again.items()} == {
    n: r['replicas'] for n, r in whole.items()
  }
  assert output.with_suffix('.md').read_text() == text
  # No curves without workdirs; the dots are made of records.
  drawn = {path.name for path in output.parent.glob('*.png')}
  assert drawn == {'small.png', 'small-navigation.png'}
  # The records are of these settings alone.
  other = _grid(tmp_path, _block(['dnc'], ['navigation'], seeds=[0, 1]))
  result = _study(tmp_path, other, f'--output={output}', '--folder=newer')
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert 'navigation-ntm-seed=0, which is no cell' in result.stderr
  assert not (tmp_path / 'newer').exists()


def test_two_studies_share_the_work(tmp_path):
  grid = _grid(tmp_path, _block(['dnc'], ['navigation'], seeds=[0, 1, 2]))
  folder = tmp_path / 'runs' / 'grid'
  process = _start(tmp_path, grid, _RUN, '--output=tables/one', TRAINS='0.3')
  _wait_for(folder / 'navigation-dnc-seed=0.log', process)
  # The other, in this process, begins while the first trains.
  other = _study(tmp_path, grid, '--output=tables/other', run=None)
  said = process.communicate(timeout=120)
  assert (process.returncode, other.returncode) == (0, 0), (said, other)
  trained = (folder / 'trained').read_text().split()
  assert sorted(trained) == sorted(grid_file.read(grid))
  one, other = (
    json.loads((tmp_path / 'tables' / f'{name}.json').read_text())
    for name in ('one', 'other')
  )
  assert one == other
  (row,) = outcomes.rows(one).values()
  assert row.n == 6


def test_a_cell_that_another_runs_is_left_to_it_and_waited_for(tmp_path):
  """Also checks that records are there before the study ends."""
  grid = _grid(tmp_path, _block(['dnc'], seeds=[0, 1]))
  folder = tmp_path / 'runs' / 'grid'
  names = list(grid_file.read(grid))
  with workdirs.alone(folder / 'navigation-dnc-seed=1'):
    process = _start(tmp_path, grid, _RUN)
    while (
      not (folder / 'table.md').exists()
      or len(json.loads((folder / 'table.json').read_text())) < 3
    ):
      time.sleep(0.05)
      assert process.poll() is None, process.communicate()
    time.sleep(0.5)
    # The others were done meanwhile.
    assert (folder / 'trained').read_text().split() == names[:3]
    runs = json.loads((folder / 'table.json').read_text())
    assert list(runs) == names[:3]
    text = (folder / 'table.md').read_text()
    assert '| `dnc` | 4 |' in text and '| `dnc` | 2 |' in text
    assert process.poll() is None
  # The owner ended, and left it undone.
  out, err = process.communicate(timeout=60)
  assert process.returncode == 0, err
  assert out.count('another program runs it') == 1 and 'devices False' in out
  assert list(json.loads((folder / 'table.json').read_text())) == names


# Notes that it runs, and what it is sent; ends on that as run.py does, or not.
_WAITING = """
import os, pathlib, signal, sys, time
def end(number, _):
  pathlib.Path('sent').write_text(str(number))
  if 'STUBBORN' in os.environ:
    return
  time.sleep(0.2)
  pathlib.Path('saved').touch()
  sys.exit(128 + number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
  signal.signal(number, end)
with open('begun', 'a') as file:
  file.write(str(os.getpid()))
while True:
  time.sleep(0.05)
"""


@pytest.mark.parametrize(
  'number, code',
  [
    (signal.SIGINT, 130),
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
  ],
)
def test_a_signal_ends_the_run_and_begins_no_further_one(
  tmp_path, number, code
):
  process = _start(tmp_path, _grid(tmp_path, _block(['dnc'])), _WAITING)
  _wait_for(tmp_path / 'begun', process)
  # As a terminal does it, which reaches the run once only.
  os.killpg(process.pid, number)
  out, err = process.communicate(timeout=60)
  assert process.returncode == code
  assert 'Ends perfect_recall-dnc' in out and 'killed' not in out
  name = number.name
  assert [line.partition(';')[0] for line in err.splitlines()] == [
    f'-c: {name}: finishes its current work',
    f'-c: {name}: the same command continues where it stopped.',
  ]
  assert (tmp_path / 'saved').exists()
  assert (tmp_path / 'sent').read_text() == str(int(number))
  assert _has_ended((tmp_path / 'begun').read_text())


@pytest.mark.parametrize('grace, times', [('0.3', 1), ('60', 2)])
def test_a_run_that_does_not_end_is_killed(tmp_path, grace, times):
  process = _start(
    tmp_path,
    _grid(tmp_path, _block(['dnc'])),
    _WAITING,
    f'--grace={grace}',
    STUBBORN='yes',
  )
  _wait_for(tmp_path / 'begun', process)
  process.send_signal(signal.SIGTERM)
  if times == 2:
    _wait_for(tmp_path / 'sent', process)
    # Sooner it would be the same one, sent twice.
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=30)
  assert process.returncode == 143
  assert 'continues where it stopped' in err
  assert ('1 did not end in 0.3 s, and were killed' in out) == (times == 1)
  assert _has_ended((tmp_path / 'begun').read_text())


@pytest.mark.skipif(sys.platform != 'linux', reason='other systems do not tell')
def test_no_run_outlives_a_study_that_is_killed(tmp_path):
  process = _start(tmp_path, _grid(tmp_path, _block(['dnc'])), _WAITING)
  _wait_for(tmp_path / 'begun', process)
  process.kill()
  process.communicate()
  until = time.monotonic() + 30
  while not (tmp_path / 'saved').exists() and time.monotonic() < until:
    time.sleep(0.05)
  assert (tmp_path / 'sent').read_text() == str(int(signal.SIGTERM))


def test_a_run_that_somebody_ends_is_a_failed_cell(tmp_path):
  run = _RUN.replace(
    "if flags['model'] == 'lru':",
    "if 'navigation' in flags['workdir']: os.kill(os.getpid(), 15)\n"
    "if flags['task'] == 'perfect_recall' and flags['model'] == 'ntm':\n"
    '  sys.exit(130)\n'
    "if flags['model'] == 'lru':",
  )
  grid = _grid(tmp_path, _block(['ntm', 'dnc']))
  result = _study(tmp_path, grid, run=run)
  assert result.returncode == 2
  assert '3 of 4 cells failed' in result.stderr
  assert result.stdout.count('was ended by SIGTERM') == 2
  assert 'perfect_recall-ntm: was ended by SIGINT' in result.stdout
  trained = (tmp_path / 'runs' / 'grid' / 'trained').read_text()
  assert trained == 'perfect_recall-dnc '


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--jobs=0'], '--jobs is 0'),
    (['--grace=-1'], '--grace is -1'),
    (['--grace=nan'], '--grace is nan'),
    (['--grid=nowhere.json'], 'nowhere.json'),
    (['--folder=grid.json/runs'], 'grid.json'),
  ],
)
def test_a_mistake_ends_in_one_line(tmp_path, flags, words):
  grid = _grid(tmp_path, _block(['dnc']))
  result = _study(tmp_path, grid.name, *flags)
  assert result.returncode == 2
  assert len(result.stderr.splitlines()) == 1 and words in result.stderr
  assert not (tmp_path / 'runs').exists()
