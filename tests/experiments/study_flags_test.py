"""Studies that flags change: dry runs, more cells, other settings, retries."""

import json
import shlex
import sys

import pytest

import program_flags
import study_stand_ins as stand_ins
from studies import grid_file, grid_flags, request
from studies.grid_flags import Additions


@pytest.fixture(scope='module', autouse=True)
def _flags():
  """Defines the flags of study.py."""
  with program_flags.defined(request.define_flags):
    yield


def _block(models, **flags):
  return stand_ins.block(models, ['navigation'], **flags)


def _trained(folder):
  return (folder / 'trained').read_text().split()


def _written(folder):
  """Returns when each file and folder was written, but for Python's caches."""
  return {
    path: path.stat().st_mtime_ns
    for path in folder.rglob('*')
    if '__pycache__' not in str(path)
  }


def test_a_study_that_grew_runs_what_is_new_and_a_dry_run_prints_it(tmp_path):
  first = stand_ins.run(tmp_path, stand_ins.grid(tmp_path, _block(['dnc'])))
  assert first.returncode == 0, first.stderr
  grown = stand_ins.grid(tmp_path, _block(['ntm', 'dnc']))
  before = _written(tmp_path)
  dry = stand_ins.run(tmp_path, grown, '--dry_run', program=None)
  assert (dry.returncode, dry.stderr) == (0, '')
  (line,) = dry.stdout.splitlines()
  assert shlex.split(line) == [
    sys.executable,
    str(tmp_path / 'run.py'),
    '--steps=3',
    '--task=navigation',
    '--model=ntm',
    '--workdir=runs/grid/navigation-ntm',
  ]
  assert _written(tmp_path) == before
  result = stand_ins.run(tmp_path, grown)
  assert result.returncode == 0, result.stderr
  assert '1 of 2 cells are complete' in result.stdout
  folder = tmp_path / 'runs' / 'grid'
  assert _trained(folder) == ['navigation-dnc', 'navigation-ntm']
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == ['navigation-ntm', 'navigation-dnc']


def test_flags_alone_make_a_study_and_name_its_folder(tmp_path):
  words = ['--over=task=navigation', '--over=model=ntm', '--steps=3']
  result = stand_ins.run(tmp_path, None, *words, '--over=seed=0,1')
  assert result.returncode == 0, result.stderr
  folder = tmp_path / 'runs' / 'over-task-model-seed-steps=3'
  names = [f'navigation-ntm-seed={seed}' for seed in (0, 1)]
  assert _trained(folder) == names
  text = (folder / 'table.md').read_text()
  assert 'instead of the grid: `--steps=3`.' in text and '| 4 |' in text


def test_settings_of_all_cells_are_recorded_and_have_a_folder(tmp_path):
  grid = stand_ins.grid(tmp_path, _block(['dnc']))
  assert stand_ins.run(tmp_path, grid).returncode == 0
  own = tmp_path / 'runs' / 'grid'
  before = (own / 'table.json').read_bytes()
  assert 'instead of the grid' not in (own / 'table.md').read_text()
  words = ('--preset=tiny', '--steps=4')
  refused = stand_ins.run(tmp_path, grid, *words, '--folder=runs/grid')
  assert (refused.returncode, refused.stderr) == (
    2,
    'study.py: navigation-dnc: other settings\n',
  )
  assert stand_ins.run(tmp_path, grid, *words).returncode == 0
  other = tmp_path / 'runs' / 'grid-preset=tiny-steps=4'
  settings = json.loads((other / 'table.json').read_text())['navigation-dnc'][
    'settings'
  ]
  assert (settings['preset'], settings['steps']) == ('tiny', 4)
  text = (other / 'table.md').read_text()
  assert 'instead of the grid: `--preset=tiny`, `--steps=4`.' in text
  assert (own / 'table.json').read_bytes() == before


def test_failed_cells_are_started_again_up_to_a_bound(tmp_path):
  run = stand_ins.RUN.replace(
    "print('hello', *sys.argv)",
    "print('hello', *sys.argv)\n"
    'count = folder.with_name(folder.name + ".count")\n'
    'tries = len(count.read_text()) if count.exists() else 0\n'
    'count.write_text("x" * (tries + 1))\n'
    "if flags['model'] == 'dnc' and not tries: sys.exit('bad luck')\n"
    "if flags['model'] == 'ntm': os.kill(os.getpid(), 9)\n",
  )
  grid = stand_ins.grid(tmp_path, _block(['lru', 'ntm', 'dnc']))
  result = stand_ins.run(tmp_path, grid, '--retry=2', program=run)
  assert result.returncode == 2
  folder = tmp_path / 'runs' / 'grid'
  counts = {path.stem: len(path.read_text()) for path in folder.glob('*.count')}
  assert counts == {
    # Its settings are wrong, code 2.
    'navigation-lru': 1,
    'navigation-ntm': 3,
    'navigation-dnc': 2,
  }
  assert '2 of 3 cells failed: navigation-lru, navigation-ntm (3 times);' in (
    result.stderr
  )
  out = result.stdout
  assert 'navigation-dnc: succeeded after it had failed once' in out
  assert 'navigation-dnc: ended with code 1: bad luck; retry 1 of 2' in out
  log = (folder / 'navigation-ntm.log').read_text()
  assert log.count('study.py: failed: was ended by SIGKILL') == 3


@pytest.mark.parametrize(
  'words, message',
  [
    (['--retry=-1'], '--retry is -1'),
    (['--status', '--dry_run'], '--status and --dry_run'),
    (['--over=seed'], '--over=seed must be NAME=VALUE'),
    (['--over=seed=0,,1'], '--over=seed=0,,1 must be NAME=VALUE'),
    (['--over=seed=0', '--over=seed=1'], '--over has seed twice'),
    (['--over=model=ntm'], 'sets model already'),
    (['--over=steps=3,4'], 'sets steps already'),
    (['--over=workdir=x'], 'workdir'),
    (['--over=data=/x'], 'no paths'),
    (['--over=seed=0,1', '--over=data=a --b'], 'contains another flag'),
  ],
)
def test_a_mistake_of_these_flags_is_one_line(tmp_path, words, message):
  grid = stand_ins.grid(tmp_path, _block(['dnc']))
  result = stand_ins.run(tmp_path, grid, *words)
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert message in result.stderr
  assert not (tmp_path / 'runs').exists()


def test_neither_grid_nor_over_is_a_mistake(tmp_path):
  result = stand_ins.run(tmp_path, None, program=None)
  assert result.returncode == 2 and '--grid is missing' in result.stderr


def test_flags_that_vary_multiply_the_cells_of_a_grid(tmp_path):
  grid = stand_ins.grid(tmp_path, _block(['ntm', 'dnc'], set='a=1'))
  additions = Additions({'seed': ['0', '1'], 'set': ['b=2']}, {'steps': 9})
  cells = grid_file.read(grid, additions)
  assert list(cells) == [
    f'navigation-{model}-seed={seed}-b=2'
    for model in ('ntm', 'dnc')
    for seed in (0, 1)
  ]
  cell = cells['navigation-dnc-seed=1-b=2']
  assert cell.row == 'navigation-dnc-b=2'
  assert cell.flags == {
    'steps': 9,
    'task': 'navigation',
    'model': 'dnc',
    'seed': '1',
    'set': ['a=1', 'b=2'],
  }
  varied = stand_ins.grid(tmp_path, _block(['ntm'], seeds=[0, 1]))
  with pytest.raises(ValueError, match='varies seed, so that --seed cannot'):
    grid_file.read(varied, Additions(fixed={'seed': 3}))
  assert grid_flags.suffix(additions) == 'over-seed-set-steps=9'
