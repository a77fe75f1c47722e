"""Grids: their cells, and what is refused before anything is made."""

import json
import pathlib
import re

import pytest

import run_settings
from gtmm_jax import presets
from gtmm_jax.runs import resolve
from studies import about, grid_file
from studies.about import About

ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def _one(**flags):
  """Makes a grid of one cell with these flags."""
  return {'cells': [{'flags': flags, 'over': {'model': ['ntm']}}]}


def test_cells_are_all_combinations_in_order(tmp_path):
  last = {
    'flags': {'steps': 4},
    'over': {'model': ['vrnn'], 'store': ['mean'], 'top_k': [2]},
  }
  grid = _grid(tmp_path, {'cells': [_block(['ntm', 'dnc']), last]})
  cells = grid_file.read(grid)
  assert list(cells) == [
    'perfect_recall-ntm',
    'perfect_recall-dnc',
    'navigation-ntm',
    'navigation-dnc',
    'vrnn-store=mean-top_k=2',
  ]
  assert cells['navigation-ntm'].flags == {
    'steps': 3,
    'task': 'navigation',
    'model': 'ntm',
  }
  assert cells['vrnn-store=mean-top_k=2'].flags == {
    'steps': 4,
    'model': 'vrnn',
    'store': 'mean',
    'top_k': 2,
  }


def test_rows_are_named_without_the_seed(tmp_path):
  block = {
    'flags': {},
    'over': {'model': ['ntm'], 'seed': [0, 1], 'top_k': [2]},
  }
  alone = {'flags': {'model': 'dnc'}, 'over': {'seed': [3]}}
  cells = grid_file.read(_grid(tmp_path, {'cells': [block, alone]}))
  assert {name: cell.row for name, cell in cells.items()} == {
    'ntm-seed=0-top_k=2': 'ntm-top_k=2',
    'ntm-seed=1-top_k=2': 'ntm-top_k=2',
    'seed=3': '',
  }


def test_names_have_no_colon(tmp_path):
  block = {'flags': {}, 'over': {'curriculum': ['none', '5:9,7:20']}}
  cells = grid_file.read(_grid(tmp_path, {'cells': [block]}))
  assert list(cells) == ['curriculum=none', 'curriculum=5=9,7=20']
  assert cells['curriculum=5=9,7=20'].flags == {'curriculum': '5:9,7:20'}


def test_what_over_sets_comes_on_top_of_what_flags_set(tmp_path):
  block = {
    'flags': {'model': 'dnc', 'set': ['read_heads=2', 'reads=before']},
    'over': {'set': ['latent_size=16', ['word_size=96', 'key_strength=2']]},
  }
  cells = grid_file.read(_grid(tmp_path, {'cells': [block]}))
  assert {name: cell.flags['set'] for name, cell in cells.items()} == {
    'latent_size=16': ['read_heads=2', 'reads=before', 'latent_size=16'],
    'word_size=96-key_strength=2': [
      'read_heads=2',
      'reads=before',
      'word_size=96',
      'key_strength=2',
    ],
  }
  for cell in cells.values():
    settings = run_settings.make(**cell.flags, preset='small')
    assert resolve.sized(settings).read_heads == 2
    assert settings.options == {'reads': 'before'}


@pytest.mark.parametrize(
  'content, words',
  [
    ('{', 'not a grid'),
    ('[]', 'not a grid'),
    ('\x80', 'not a grid'),
    ('9' * 5000, 'not a grid'),
    ({'cell': []}, 'not a grid'),
    ({'cells': [], 'comparisons': {}}, 'not a grid'),
    ({'cells': {}}, 'not a grid'),
    ({'cells': [3]}, 'not a grid'),
    ({'cells': [{'over': {'model': ['ntm']}}]}, 'not a grid'),
    ({'cells': [{'flags': [], 'over': {'model': ['ntm']}}]}, 'not a grid'),
    ({'cells': [{'flags': {}, 'over': {'steps': 3}}]}, 'not a grid'),
    ({'cells': [{'flags': {}, 'over': {'model': 'ntm'}}]}, 'not a grid'),
    ({'cells': [{'flags': {}, 'over': ['model']}]}, 'not a grid'),
    ({'cells': [{**_block(['ntm']), 'overs': {}}]}, 'not a grid'),
    ('{"cells": [{"flags": {"a": 1, "a": 2}, "over": {}}]}', "'a' is twice"),
    ({'cells': []}, 'no cells'),
    ({'cells': [{'flags': {}, 'over': {'model': []}}]}, 'no cells'),
    ({'cells': [_block(['ntm']), _block([])]}, 'block 2 has no cells'),
    ({'cells': [{'flags': {}, 'over': {}}]}, 'no unique name'),
    ({'cells': [_block(['ntm']), _block(['ntm'], seed=1)]}, 'no unique name'),
    ({'cells': [_block(['ntm'], workdir='here')]}, 'workdir'),
    ({'cells': [{'flags': {}, 'over': {'workdir': ['here']}}]}, 'workdir'),
    ({'cells': [{'flags': {}, 'over': {'data': ['files:/x']}}]}, 'no paths'),
    ({'cells': [{'flags': {}, 'over': {'data_dir': ['../x']}}]}, 'no paths'),
    # What would be another flag, or another word, on a command line.
    (_one(**{'steps=3 --workdir': 'x'}), 'not the name of a flag'),
    (_one(**{'workdir=/x': 3}), 'not the name of a flag'),
    (_one(**{'-workdir': '/x'}), 'not the name of a flag'),
    (_one(**{'': '/x'}), 'not the name of a flag'),
    (_one(data='bundled --workdir=x'), 'contains another flag'),
    (_one(data='--flagfile=x'), 'contains another flag'),
    (_one(data='bundled\n--workdir=x'), 'cannot be printed'),
    (_one(data='a\0b'), 'cannot be printed'),
    (_one(data='\ud800'), 'cannot be printed'),
    (_one(store=None), 'store is null'),
    (_one(without=['age']), 'without is a list'),
    (_one(set=[['a=1']]), 'set is a list'),
    (_one(set=['a=3', None]), 'set is null'),
    (_one(set=3), 'a value of set is 3; it must be a text'),
    ({'cells': [{'flags': {}, 'over': {'set': [3]}}]}, 'set is 3'),
    (_one(steps={'at': 3}), 'steps is an object'),
    ({'cells': [{'flags': {}, 'over': {'seed': [[0, 1]]}}]}, 'seed is a list'),
    (
      {'cells': [{'flags': {}, 'over': {n: [*range(99)] for n in 'abc'}}]},
      'more than 10,000 cells',
    ),
    # Deep, where the reader says so, and where it does not.
    ('[' * 100_000, 'not a grid'),
    ('[' * 500 + ']' * 500, 'not a grid'),
    ('{"cells":' * 1000 + '[]' + '}' * 1000, 'not a grid'),
    (
      '{"cells": [{"flags": {"steps": %s}, "over": {"model": ["ntm"]}}]}'
      % ('[' * 400 + ']' * 400),
      'steps is a list',
    ),
  ],
  ids=lambda value: value if str(value).isidentifier() else '',
)
def test_what_is_no_grid_is_refused(tmp_path, content, words):
  with pytest.raises(ValueError, match=words) as caught:
    grid_file.read(_grid(tmp_path, content))
  assert 'grid.json' in str(caught.value)
  assert len(str(caught.value)) < 500 and '\n' not in str(caught.value)


def test_a_name_is_no_longer_than_that_of_a_file(tmp_path):
  for length in (251, 252):
    over = {
      'model': ['x' * (length - len('-store=é'.encode()))],
      'store': ['é'],
    }
    grid = _grid(tmp_path, {'cells': [{'flags': {}, 'over': over}]})
    if length == 251:
      # Two bytes are one letter.
      (name,) = grid_file.read(grid)
      (tmp_path / f'{name}.log').touch()
    else:
      with pytest.raises(ValueError, match='takes 252 bytes'):
        grid_file.read(grid)


def test_committed_grids_name_what_there_is():
  grids = sorted((ROOT / 'experiments' / 'grids').glob('*.json'))
  assert grids
  for grid in grids:
    for flags, _ in grid_file.read(grid).values():
      assert flags['task'] in presets.TASKS
      assert flags['model'] in presets.MODELS
      assert not {'workdir', 'data', 'data_dir'} & flags.keys()
      resolve.resolve(run_settings.make(**flags), flags['preset'])


@pytest.mark.parametrize(
  'fields, words',
  [
    ({'about': 3}, '"about" must be a text'),
    ({'about': ' '}, '"about" must be a text'),
    ({'about': 'two\nlines'}, '"about" must be a text'),
    ({'minutes': '3'}, '"minutes" must be a number'),
    ({'minutes': True}, '"minutes" must be a number'),
    ({'minutes': 0}, '"minutes" must be a number'),
    ({'minutes': float('nan')}, '"minutes" must be a number'),
  ],
)
def test_what_a_grid_says_of_itself_is_checked(tmp_path, fields, words):
  grid = _grid(tmp_path, {**_one(steps=3), **fields})
  with pytest.raises(ValueError, match=words) as caught:
    about.read(grid)
  assert 'grid.json' in str(caught.value) and '\n' not in str(caught.value)


def test_a_grid_need_not_say_what_it_is_for(tmp_path):
  nothing = about.read(_grid(tmp_path, _one(steps=3)))
  assert (nothing, nothing.lines()) == (About(), [])
  half = about.read(_grid(tmp_path, {**_one(steps=3), 'minutes': 1.5}))
  assert half.lines() == ['About 1.5 minutes on two CPU cores.']


def test_committed_grids_say_of_themselves_what_the_table_of_programs_says():
  text = (ROOT / 'experiments' / 'README.md').read_text()
  lines = re.findall(
    r'^\| \[(\w+)\.json\]\(grids/.*?\) \| (.*?) \| `.*?` \| (\d+) \|',
    text,
    re.MULTILINE,
  )
  assert len(lines) > 10
  for name, words, minutes in lines:
    plain = re.sub(r'\[(.*?)\]\(.*?\)', r'\1', words).replace('`', '')
    grid = ROOT / 'experiments' / 'grids' / f'{name}.json'
    assert about.read(grid) == About(plain, int(minutes)), name
