"""Sheets and arrays of dreams: what stands where, and what it is called."""

import types

import numpy as np
import pytest

from gtmm_jax import figures, tasks
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.episode import Episode
from gtmm_jax.trained import sheets
from gtmm_jax.trained.dreams import Dreams

_LENGTH, _OBSERVED, _SAMPLES = 6, 4, 2


def _run(task='navigation', **sizes):
  sizes = sizes or {'rows': 2, 'columns': 3, 'length': _LENGTH}
  settings = Settings(task=task, model='dnc', episode=sizes)
  return types.SimpleNamespace(
    settings=settings, task=tasks.TASKS[task](**sizes), replica=1, step=70
  )


def _dreams(count=1, observed=_OBSERVED, width=4, **fields):
  """Makes walks to the right, and dreams that hold their numbers."""
  shape = _LENGTH, count
  frames = np.random.default_rng(0).uniform(0, 1, (*shape, 8, 8, 1))
  condition = np.zeros((*shape, width), np.float32)
  condition[1:, :, 3] = 1
  source = np.full(shape, -1)
  source[-1] = 0
  episode = Episode(
    frames, condition, source, source >= 0, np.full(shape, -1), **fields
  )
  dreamt = np.zeros((_SAMPLES, _LENGTH - observed, count, 8, 8, 1))
  numbers = np.arange(dreamt[..., 0, 0, 0].size)
  dreamt += numbers.reshape(dreamt.shape[:3])[..., None, None, None] / 100
  return Dreams(episode, observed, dreamt)


@pytest.fixture
def drawn(monkeypatch):
  """Collects the arguments of strips, which are not drawn."""
  calls = []
  monkeypatch.setattr(figures, 'strip_figure', lambda *all: calls.append(all))
  return calls


def test_dreams_stand_below_the_truth_and_after_what_was_observed(drawn):
  dreams = _dreams()
  sheets.sheet(_run(), dreams)
  ((rows, title, note, columns, turn, spans),) = drawn
  assert [row.name for row in rows] == ['truth', 'dream 1', 'dream 2']
  np.testing.assert_array_equal(rows[0].frames, dreams.episode.frames[:, 0])
  np.testing.assert_array_equal(rows[0].marks, dreams.episode.predictable[:, 0])
  assert list(rows[0].captions) == ['·', '→', '→', '→', '→', '→ =1']
  for sample, row in enumerate(rows[1:]):
    assert np.isnan(row.frames[:_OBSERVED]).all()
    np.testing.assert_array_equal(
      row.frames[_OBSERVED:], dreams.frames[sample, :, 0]
    )
  assert title == 'DNC on navigation, 2 x 3, T 6: dreams after frame 4'
  assert 'arrow' in note and columns == sheets.COLUMNS
  assert turn == _OBSERVED
  assert [(span.name, span.frames) for span in spans] == [
    ('observed', range(4)),
    ('dreamt', range(4, 6)),
  ]


def test_dreams_of_nothing_have_an_episode_beside_them_and_no_truth(drawn):
  sheets.sheet(_run(), _dreams(observed=0))
  ((rows, title, _, _, turn, spans),) = drawn
  assert [row.name for row in rows] == ['true episode', 'dream 1', 'dream 2']
  assert title.endswith('dreams from nothing') and turn is None
  ((name, frames, _),) = spans
  assert 'no frame observed' in name and frames == range(6)


def test_rows_of_a_mixture_name_the_task_and_end_with_it(drawn):
  sizes = {'pre_recall': 10, 'recall': 2, 'rows': 2, 'columns': 2}
  run = _run('mixture', **sizes, length=12)
  part = np.tile([0, 3], (_LENGTH, 1))
  mask = np.arange(_LENGTH)[:, None] < [5, 6]
  sheets.sheet(run, _dreams(count=2, width=8, mask=mask, part=part))
  rows = drawn[0][0]
  assert [row.name for row in rows] == [
    'truth 1, perfect recall',
    'dream 1',
    'dream 2',
    'truth 2, navigation',
    'dream 1',
    'dream 2',
  ]
  assert np.isnan(rows[1].frames[5]).all()
  assert not np.isnan(rows[4].frames[5]).any()
  # Only a walk has arrows.
  assert rows[0].captions[1] == '' and rows[3].captions[1] == '→'


def test_arrays_are_those_of_the_sheet(tmp_path):
  dreams = _dreams(count=2)
  path = sheets.save_arrays(_run(), dreams, tmp_path / 'a' / 'd.npz', seed=9)
  with np.load(path) as file:
    arrays = dict(file)
  assert arrays['frames'].shape == (2, _SAMPLES, 2, 8, 8, 1)
  np.testing.assert_array_equal(arrays['frames'][1, 0], dreams.frames[0, :, 1])
  for name, own in (
    ('truth', dreams.episode.frames),
    ('condition', dreams.episode.condition),
    ('predictable', dreams.episode.predictable),
  ):
    np.testing.assert_array_equal(arrays[name][1], own[:, 1])
  assert list(arrays['actions']) == ['rrrrr', 'rrrrr']
  known = {name: int(arrays[name]) for name in ('observed', 'replica', 'step')}
  assert known == {'observed': 4, 'replica': 1, 'step': 70}
  assert arrays['seed'] == 9
