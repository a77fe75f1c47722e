"""Studies: grids read, cells run and resumed, tables made of what they left."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import preparation
import pytest
import settings
import study
import study_table
from rich.console import Console

from gtmm_jax import presets, records

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Stands for run.py: leaves the records of a run with the flags it was given,
# or fails on the model lru. Counts how often it trained.
_RUN = """
import pathlib, sys
import numpy as np
from gtmm_jax import records

flags = dict(flag[2:].split('=', 1) for flag in sys.argv[1:])
folder = pathlib.Path(flags['workdir'])
print('hello', *sys.argv)
if flags['model'] == 'lru':
  print('run.py: no such luck', file=sys.stderr)
  sys.exit(2)
if records.read_evaluation(folder) is not None:
  sys.exit(0)
with open(folder.parent / 'trained', 'a') as file:
  file.write(folder.name + ' ')
given = flags.get('data', 'bundled')
records.write_config(folder, {
  'settings': {'task': flags['task'], 'model': flags['model'],
               'steps': int(flags['steps'])},
  'versions': {'jax': '1.2.3'},
  'device': {'kind': 'cpu'},
  'data': {'source': 'drawn, from ' + given.partition(':')[2] + ': 3 digits',
           'checksum': '0', 'flag': given},
})
arrays = {
  'negative_bound': np.array([1000.0, 1002.0]),
  'log_likelihood': np.full((2, 3), -300.0),
  'kl': np.full((2, 3), 9.0),
  'kl_last': np.array([4.0, 6.0]),
  'kl_new': np.array([10.0, 10.0]),
  'kl_predictable': np.array([5.0, 6.0]),
  'failed_at': np.array([None, None], object),
}
records.append_metrics(folder, {'step': 3, 'seconds': 7.5, **arrays})
records.write_evaluation(folder, {
  'step': 3, 'episodes': 20, **arrays,
  'predictable': np.array([0.0, 0.0, 1.0]),
  'retrieval_ahead': np.array([0.5, 0.7]),
  'retrieval_free': np.array([np.nan, np.nan]),
  'retrieval_ahead_chance': np.array([0.1, 0.1]),
  'retrieval_free_chance': np.array([0.1, 0.1]),
})
"""

# Flags of run.py that are not given.
_ABSENT = {
  **dict.fromkeys(preparation.Request.__dataclass_fields__),
  'preset': 'small',
  'recompute': 'nothing',
  'precision': 'default',
  'binarize': False,
  'seed': 0,
  'evaluation_episodes': 500,
}


def _grid(folder, content):
  file = folder / 'grid.json'
  text = content if isinstance(content, str) else json.dumps(content)
  file.write_text(text)
  return file


def _block(models, **flags):
  return {
    'flags': {'steps': 3, **flags},
    'over': {'task': ['perfect_recall', 'navigation'], 'model': models},
  }


def _study(folder, grid, *flags):
  """What study.py says and ends with, given the stand-in for run.py."""
  process = _start(folder, grid, _RUN, *flags)
  out, err = process.communicate()
  return subprocess.CompletedProcess((), process.returncode, out, err)


def _start(folder, grid, run, *flags):
  """study.py, with a stand-in for run.py."""
  (folder / 'run.py').write_text(run)
  program = (
    f'import pathlib, sys; sys.path.insert(0, {str(ROOT / "experiments")!r})\n'
    'import command, signal, study\n'
    # A shell has what it runs in the background ignore interrupts.
    'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
    'from absl import app\n'
    'study._RUN = pathlib.Path("run.py").absolute()\n'
    'study.define_flags()\n'
    'app.run(study.main, flags_parser=command.parse_flags)\n'
  )
  return subprocess.Popen(
    [sys.executable, '-c', program, f'--grid={grid}', *flags],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )


def test_cells_are_all_combinations_in_order(tmp_path):
  last = {
    'flags': {'steps': 4},
    'over': {'model': ['vrnn'], 'store': ['mean'], 'top_k': [2]},
  }
  grid = _grid(tmp_path, {'cells': [_block(['ntm', 'dnc']), last]})
  cells = study.read(grid)
  assert list(cells) == [
    'perfect_recall-ntm',
    'perfect_recall-dnc',
    'navigation-ntm',
    'navigation-dnc',
    'vrnn-store=mean-top_k=2',
  ]
  assert cells['navigation-ntm'] == {
    'steps': 3,
    'task': 'navigation',
    'model': 'ntm',
  }
  assert cells['vrnn-store=mean-top_k=2'] == {
    'steps': 4,
    'model': 'vrnn',
    'store': 'mean',
    'top_k': 2,
  }


@pytest.mark.parametrize(
  'content, words',
  [
    ('{', 'not a grid'),
    ('[]', 'not a grid'),
    ({'cell': []}, 'not a grid'),
    ({'cells': [{'over': {'model': ['ntm']}}]}, 'not a grid'),
    ({'cells': [{'flags': {}, 'over': {'steps': 3}}]}, 'not a grid'),
    ({'cells': [{'flags': {}, 'over': ['model']}]}, 'not a grid'),
    ({'cells': []}, 'no cells'),
    ({'cells': [{'flags': {}, 'over': {'model': []}}]}, 'no cells'),
    ({'cells': [{'flags': {}, 'over': {}}]}, 'no name of its own'),
    ({'cells': [_block(['ntm']), _block(['ntm'], seed=1)]}, 'no name'),
    ({'cells': [_block(['ntm'], workdir='here')]}, 'workdir'),
    ({'cells': [{'flags': {}, 'over': {'data': ['files:/x']}}]}, 'no paths'),
    ({'cells': [{'flags': {}, 'over': {'data_dir': ['../x']}}]}, 'no paths'),
  ],
)
def test_what_is_no_grid_is_refused(tmp_path, content, words):
  with pytest.raises(ValueError, match=words) as caught:
    study.read(_grid(tmp_path, content))
  assert 'grid.json' in str(caught.value)


def test_committed_grids_name_what_there_is():
  grids = sorted((ROOT / 'experiments' / 'grids').glob('*.json'))
  assert grids
  for grid in grids:
    for flags in study.read(grid).values():
      assert flags['task'] in presets.TASKS
      assert flags['model'] in presets.MODELS
      given = {**_ABSENT, **flags}
      assert given.keys() == _ABSENT.keys()
      for name in ('workdir', 'data', 'data_dir', 'device_megabytes'):
        assert given.pop(name) is None
      settings.resolve(given.pop('preset'), {}, **given)


def test_a_study_runs_what_is_left_and_makes_the_table(tmp_path):
  grid = _grid(tmp_path, {'cells': [_block(['vrnn', 'dnc'])]})
  first = _study(tmp_path, grid, '--jobs=2')
  assert first.returncode == 0, first.stderr
  folder = tmp_path / 'runs' / 'grid'
  trained = (folder / 'trained').read_text()
  assert sorted(trained.split()) == sorted(study.read(grid))
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == list(study.read(grid))
  row = rows['navigation-dnc']
  assert row['settings'] == {'task': 'navigation', 'model': 'dnc', 'steps': 3}
  assert (row['training_seconds'], row['episodes']) == (7.5, 20)
  np.testing.assert_allclose(row['summary']['ratio'], [0.55, 0.05])
  assert row['summary']['retrieval_free'] is None
  np.testing.assert_allclose(row['replicas']['ratio'], [0.5, 0.6])
  text = (folder / 'table.md').read_text()
  assert '| `navigation` | 0.550 ± 0.050 | 0.550 ± 0.050 |' in text
  assert '1,001.0 ± 1.0 | 0.600 ± 0.100 | 0.100 ± 0.000 | - |' in text
  assert first.stdout.count('predictable / new 0.550') == 4
  for task in ('perfect_recall', 'navigation'):
    assert (folder / f'table-{task}.png').stat().st_size > 10_000
  again = _study(tmp_path, grid)
  assert again.returncode == 0, again.stderr
  assert (folder / 'trained').read_text() == trained


def test_images_are_given_to_each_run(tmp_path):
  grid = _grid(
    tmp_path, {'cells': [_block(['dnc']), _block(['ntm'], data='x')]}
  )
  result = _study(tmp_path, grid, '--data=files:here and there')
  assert result.returncode == 0, result.stderr
  logs = {log.stem: log.read_text() for log in tmp_path.glob('runs/grid/*.log')}
  assert 'files:here and there' in logs['navigation-dnc']
  assert 'data=x' in logs['navigation-ntm']
  assert 'files' not in logs['navigation-ntm']
  table = (tmp_path / 'runs' / 'grid' / 'table.json').read_text()
  data = json.loads(table)['navigation-dnc']['data']
  assert data == {'source': 'drawn, from FOLDER: 3 digits', 'checksum': '0'}
  assert 'here' not in table


@pytest.mark.parametrize('output', ['.', '/', 'tables/..'])
def test_tables_have_names(tmp_path, output):
  grid = _grid(tmp_path, {'cells': [_block(['dnc'])]})
  result = _study(tmp_path, grid, f'--output={output}')
  assert (result.returncode, result.stderr.count('\n')) == (2, 1)
  assert f'--output={output} has no name' in result.stderr
  assert not (tmp_path / 'runs').exists()


def test_a_folder_of_prepared_sets_is_given_to_runs_that_read_it(tmp_path):
  grid = _grid(
    tmp_path, {'cells': [_block(['dnc']), _block(['ntm'], data='bundled')]}
  )
  result = _study(tmp_path, grid, '--data=tfds', '--data_dir=there')
  assert result.returncode == 0, result.stderr
  logs = {log.stem: log.read_text() for log in tmp_path.glob('runs/grid/*.log')}
  assert '--data_dir=there' in logs['navigation-dnc']
  assert 'data_dir' not in logs['navigation-ntm']
  result = _study(tmp_path, grid, '--data_dir=there', '--folder=others')
  assert result.returncode == 2
  assert '--data_dir needs --data=tfds' in result.stderr


def test_a_folder_named_like_a_word_leaves_the_rest_as_it_is():
  recorded = {
    'flag': 'files:digits',
    'source': 'digits of ours, from digits: 3 digits',
    'checksum': '0',
  }
  told = study_table._data(recorded)['source']
  assert told == 'digits of ours, from FOLDER: 3 digits'


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path):
  grid = _grid(tmp_path, {'cells': [_block(['lru', 'dnc'])]})
  output = tmp_path / 'deep' / 'tasks'
  result = _study(tmp_path, grid, f'--output={output}', '--folder=runs/here')
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
  grid = _grid(tmp_path, {'cells': [_block(['vrnn', 'dnc'])]})
  assert _study(tmp_path, grid).returncode == 0
  folder = tmp_path / 'runs' / 'grid'
  (folder / 'navigation-dnc' / 'evaluation.json').write_text('{}')
  (folder / 'navigation-vrnn' / 'config.json').unlink()
  (folder / 'perfect_recall-dnc' / 'metrics.jsonl').write_text('x\n{}\n')
  result = _study(tmp_path, grid)
  assert result.returncode == 2, result.stdout
  assert 'Traceback' not in result.stderr
  assert '3 of 4 cells failed' in result.stderr
  assert result.stdout.count('left damaged records') == 3
  rows = json.loads((folder / 'table.json').read_text())
  assert list(rows) == ['perfect_recall-vrnn']


def test_an_interrupt_begins_no_further_cell(tmp_path):
  grid = _grid(tmp_path, {'cells': [_block(['vrnn', 'dnc'])]})
  # The first run is long, and tells when it has begun.
  waiting = 'import time\nopen("begun", "a").write("x")\ntime.sleep(60)\n'
  process = _start(tmp_path, grid, waiting)
  begun = tmp_path / 'begun'
  while not begun.exists():
    time.sleep(0.05)
    assert process.poll() is None
  # As the terminal does it: to all that it runs.
  os.killpg(process.pid, signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert 'goes on with what is left' in out
  assert 'Traceback' not in err
  assert begun.read_text() == 'x'


@pytest.mark.parametrize(
  'ending', ['sys.exit(130)', 'os.kill(os.getpid(), signal.SIGINT)']
)
def test_a_run_that_was_interrupted_is_the_last(tmp_path, ending):
  grid = _grid(tmp_path, {'cells': [_block(['vrnn', 'dnc'])]})
  run = f'import os, signal, sys\nopen("begun", "a").write("x")\n{ending}\n'
  process = _start(tmp_path, grid, run)
  out, _ = process.communicate(timeout=60)
  assert process.returncode == 130
  assert 'goes on with what is left' in out
  assert (tmp_path / 'begun').read_text() == 'x'


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--jobs=0'], '--jobs is 0'),
    (['--grid=nowhere.json'], 'nowhere.json'),
    (['--folder=grid.json/runs'], 'grid.json'),
  ],
)
def test_a_mistake_ends_in_one_line(tmp_path, flags, words):
  grid = _grid(tmp_path, {'cells': [_block(['dnc'])]})
  result = _study(tmp_path, grid.name, *flags)
  assert result.returncode == 2
  assert len(result.stderr.splitlines()) == 1 and words in result.stderr
  assert not (tmp_path / 'runs').exists()


def _rows(*names):
  """Cells of those names that have but a ratio, each its own."""
  return {
    name: {
      'settings': {'task': name.split('-')[0], 'model': 'dnc', 'steps': 3},
      'step': 3,
      'summary': {'ratio': (0.1 * index, None), 'kl_last': None},
    }
    for index, name in enumerate(names, start=1)
  }


def test_cells_of_a_model_are_told_apart_by_what_they_vary(tmp_path):
  rows = _rows('navigation-dnc-store=mean', 'navigation-top_k=2', 'navigation')
  text = _written(tmp_path / 'v1.5', rows)
  assert '| `dnc-store=mean` | 0.100 |\n| `top_k=2` | 0.200 |\n' in text
  assert '|  | `navigation` |\n' in text and '| `dnc` | 0.300 |' in text


def test_there_are_no_more_columns_than_lines(tmp_path):
  rows = _rows('navigation-dnc', 'rotation-dnc', 'rotation-top_k=2')
  text = _written(tmp_path / 'table', rows)
  assert '| task | `dnc` | `top_k=2` |' in text
  assert '| `navigation` | 0.100 |  |\n| `rotation` | 0.200 | 0.300 |' in text


def _written(stem, rows):
  console = Console(file=(stem.parent / 'printed').open('w'))
  _, path = study_table.write(rows, stem, console)
  assert path == stem.with_name(f'{stem.name}.md')
  return path.read_text()


def test_a_run_that_is_not_complete_has_no_cell(tmp_path):
  assert study_table.cell(tmp_path) is None
  assert records.read_evaluation(tmp_path) is None
