"""Studies: cells checked, run, shared and resumed; signals; the table."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import program_flags
import slow_cases
import study_stand_ins as stand_ins
from gtmm_jax.process import locks
from studies import grid_file, outcomes, request

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module', autouse=True)
def _flags():
  """Defines the flags of study.py."""
  with program_flags.defined(request.define_flags):
    yield


def _start(folder, grid, run, *flags, **variables):
  """Starts study.py as a process, with a stand-in for run.py."""
  stand_ins.write(folder, run)
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
    'from studies import request\n'
    'request.RUN = pathlib.Path("run.py").absolute()\n'
    'request.define_flags()\n'
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
  grid = stand_ins.grid(tmp_path, stand_ins.block(['vrnn', 'dnc']))
  first = stand_ins.run(tmp_path, grid, '--jobs=2', draws=True)
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
  again = stand_ins.run(tmp_path, grid)
  assert again.returncode == 0, again.stderr
  assert '4 of 4 cells are complete' in again.stdout
  assert json.loads((folder / 'table.json').read_text()) == rows
  # Not even begun.
  for log in folder.glob('*.log'):
    assert log.read_text().count('hello') == 1
  # Figures that are missing are for the run to draw, which does no more.
  (folder / 'navigation-dnc' / 'figures').rmdir()
  assert stand_ins.run(tmp_path, grid).returncode == 0
  assert (folder / 'navigation-dnc' / 'figures').exists()
  # Where the table cannot be written, what was run is there still.
  (folder / 'table.md').unlink()
  (folder / 'table.md').mkdir()
  refused = stand_ins.run(tmp_path, grid)
  assert (refused.returncode, refused.stderr.count('\n')) == (2, 1)
  assert 'table.md' in refused.stderr and 'continues' in refused.stderr
  # A grid that changed is another one.
  other = stand_ins.run(
    tmp_path,
    stand_ins.grid(tmp_path, stand_ins.block(['vrnn', 'dnc'], steps=2)),
  )
  assert (other.returncode, other.stderr) == (
    2,
    'study.py: perfect_recall-vrnn and 3 more: other settings\n',
  )
  assert (folder / 'trained').read_text() == trained


def test_images_are_given_to_each_run(tmp_path):
  grid = stand_ins.grid(
    tmp_path,
    stand_ins.block(['dnc'], ['navigation']),
    stand_ins.block(['ntm'], ['perfect_recall'], data='x'),
  )
  result = stand_ins.run(tmp_path, grid, '--data=files:here and there')
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
  grid = stand_ins.grid(tmp_path, stand_ins.block(['dnc']))
  result = stand_ins.run(tmp_path, grid, f'--output={output}')
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert f'--output={output} has no name' in result.stderr
  assert not (tmp_path / 'runs').exists()


def test_a_folder_of_prepared_sets_is_given_to_runs_that_read_it(tmp_path):
  grid = stand_ins.grid(
    tmp_path,
    stand_ins.block(['dnc'], ['navigation']),
    stand_ins.block(['ntm'], ['perfect_recall'], data='bundled'),
  )
  result = stand_ins.run(tmp_path, grid, '--data=tfds', '--data_dir=there')
  assert result.returncode == 0, result.stderr
  logs = {log.stem: log.read_text() for log in tmp_path.glob('runs/grid/*.log')}
  assert '--data_dir=there' in logs['navigation-dnc']
  assert 'data_dir' not in logs['perfect_recall-ntm']
  result = stand_ins.run(tmp_path, grid, '--data_dir=there', '--folder=others')
  assert result.returncode == 2
  assert '--data_dir needs --data=tfds' in result.stderr


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path):
  grid = stand_ins.grid(tmp_path, stand_ins.block(['lru', 'dnc']))
  output = tmp_path / 'deep' / 'tasks'
  words = (f'--output={output}', '--folder=runs/here')
  result = stand_ins.run(tmp_path, grid, *words, draws=True)
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
  grid = stand_ins.grid(tmp_path, stand_ins.block(['dnc'], seeds=[0, 1]))
  assert stand_ins.run(tmp_path, grid).returncode == 0
  folder = tmp_path / 'runs' / 'grid'
  (folder / 'navigation-dnc-seed=0' / 'evaluation.json').write_text('{}')
  (folder / 'navigation-dnc-seed=1' / 'config.json').unlink()
  damaged = folder / 'perfect_recall-dnc-seed=0' / 'metrics.jsonl'
  damaged.write_text('x\n{}\n')
  result = stand_ins.run(tmp_path, grid)
  assert result.returncode == 2, result.stdout
  assert 'Traceback' not in result.stderr
  assert '3 of 4 cells failed' in result.stderr
  assert result.stdout.count('left damaged records') == 3
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == ['perfect_recall-dnc-seed=1']


def test_nothing_runs_where_a_cell_has_a_mistake(tmp_path):
  grid = stand_ins.grid(
    tmp_path, stand_ins.block(['dnc']), stand_ins.block(['ntm'], steps=0)
  )
  result = stand_ins.run(tmp_path, grid)
  assert result.returncode == 2
  assert result.stderr.splitlines() == [
    'study.py: perfect_recall-ntm and 1 more: too few steps'
  ]
  assert not (tmp_path / 'runs').exists()


def test_doubts_about_data_are_told_before_the_first_run(tmp_path):
  grid = stand_ins.grid(
    tmp_path,
    stand_ins.block(['lru'], steps=2),
    stand_ins.block(['dnc'], ['rotation']),
  )
  out = stand_ins.run(tmp_path, grid).stdout.splitlines()
  warning = 'warning  perfect_recall-lru and 1 more: is it so?'
  assert out.index(warning) < min(
    index for index, line in enumerate(out) if 'begins' in line
  )


def test_seeds_share_a_row(tmp_path):
  grid = stand_ins.grid(
    tmp_path,
    stand_ins.block(['dnc'], ['navigation'], seeds=[0, 1]),
    stand_ins.block(['ntm'], ['perfect_recall']),
  )
  result = stand_ins.run(tmp_path, grid, '--jobs=2')
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
  grid = stand_ins.grid(
    tmp_path, stand_ins.block(['dnc', 'ntm'], ['navigation'], seeds=[0, 1])
  )
  output = tmp_path / 'kept' / 'small'
  first = stand_ins.run(tmp_path, grid, f'--output={output}', draws=True)
  assert first.returncode == 0
  file = output.with_suffix('.json')
  whole = json.loads(file.read_text())
  text = output.with_suffix('.md').read_text()
  # Another machine has the records of three cells alone.
  gone = 'navigation-ntm-seed=0'
  file.write_text(json.dumps({n: r for n, r in whole.items() if n != gone}))
  words = (f'--output={output}', '--folder=new')
  elsewhere = stand_ins.run(tmp_path, grid, *words, draws=True)
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
  other = stand_ins.grid(
    tmp_path, stand_ins.block(['dnc'], ['navigation'], seeds=[0, 1])
  )
  result = stand_ins.run(
    tmp_path, other, f'--output={output}', '--folder=newer'
  )
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert 'navigation-ntm-seed=0, which is no cell' in result.stderr
  assert not (tmp_path / 'newer').exists()


@pytest.mark.slow
def test_two_studies_share_the_work(tmp_path):
  grid = stand_ins.grid(
    tmp_path, stand_ins.block(['dnc'], ['navigation'], seeds=[0, 1, 2])
  )
  folder = tmp_path / 'runs' / 'grid'
  process = _start(
    tmp_path, grid, stand_ins.RUN, '--output=tables/one', TRAINS='0.3'
  )
  _wait_for(folder / 'navigation-dnc-seed=0.log', process)
  # The other, in this process, begins while the first trains.
  other = stand_ins.run(tmp_path, grid, '--output=tables/other', program=None)
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
  grid = stand_ins.grid(tmp_path, stand_ins.block(['dnc'], seeds=[0, 1]))
  folder = tmp_path / 'runs' / 'grid'
  names = list(grid_file.read(grid))
  with locks.alone(folder / 'navigation-dnc-seed=1'):
    process = _start(tmp_path, grid, stand_ins.RUN)
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
for name in ('SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2'):
  signal.signal(getattr(signal, name), end)
pathlib.Path('begins').write_text(str(os.getpid()))
os.replace('begins', 'begun')
while True:
  time.sleep(0.05)
"""


@pytest.mark.parametrize(
  'number, code',
  [
    (signal.SIGINT, 130),
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    pytest.param(signal.SIGUSR2, 128 + signal.SIGUSR2, marks=pytest.mark.slow),
  ],
)
def test_a_signal_ends_the_run_and_begins_no_further_one(
  tmp_path, number, code
):
  process = _start(
    tmp_path, stand_ins.grid(tmp_path, stand_ins.block(['dnc'])), _WAITING
  )
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


@pytest.mark.parametrize(
  'grace, times', slow_cases.but_for([('0.3', 1)], [('0.3', 1), ('60', 2)])
)
def test_a_run_that_does_not_end_is_killed(tmp_path, grace, times):
  process = _start(
    tmp_path,
    stand_ins.grid(tmp_path, stand_ins.block(['dnc'])),
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
  process = _start(
    tmp_path, stand_ins.grid(tmp_path, stand_ins.block(['dnc'])), _WAITING
  )
  _wait_for(tmp_path / 'begun', process)
  process.kill()
  process.communicate()
  until = time.monotonic() + 30
  while not (tmp_path / 'saved').exists() and time.monotonic() < until:
    time.sleep(0.05)
  assert (tmp_path / 'sent').read_text() == str(int(signal.SIGTERM))


def test_a_run_that_somebody_ends_is_a_failed_cell(tmp_path):
  run = stand_ins.RUN.replace(
    "if flags['model'] == 'lru':",
    "if 'navigation' in flags['workdir']: os.kill(os.getpid(), 15)\n"
    "if flags['task'] == 'perfect_recall' and flags['model'] == 'ntm':\n"
    '  sys.exit(130)\n'
    "if flags['model'] == 'lru':",
  )
  grid = stand_ins.grid(tmp_path, stand_ins.block(['ntm', 'dnc']))
  result = stand_ins.run(tmp_path, grid, program=run)
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
  grid = stand_ins.grid(tmp_path, stand_ins.block(['dnc']))
  result = stand_ins.run(tmp_path, grid.name, *flags)
  assert result.returncode == 2
  assert len(result.stderr.splitlines()) == 1 and words in result.stderr
  assert not (tmp_path / 'runs').exists()
