"""The choice of a setting that a grid names beforehand."""

import json

import pytest

import own_records
from studies import choice, tables
from studies.choice import Choice
from studies.purpose import Purpose

RATE = Choice('rate', 'negative_bound')


def _grid(folder, parts):
  file = folder / 'grid.json'
  over = {'task': ['navigation'], 'rate': [1, 2]}
  cells = [{'flags': {}, 'over': over}]
  file.write_text(json.dumps({'choice': parts, 'cells': cells}))
  return file


def test_a_grid_names_a_choice_or_none(tmp_path):
  file = _grid(tmp_path, {'setting': 'rate', 'metric': 'negative_bound'})
  assert choice.read(file) == RATE
  assert choice.read(_grid(tmp_path, None)) is None


@pytest.mark.parametrize(
  'parts, words',
  [
    ({'setting': 'size', 'metric': 'negative_bound'}, "'size', which not all"),
    ({'setting': 'rate', 'metric': 'beauty'}, "'beauty'; it must be one of"),
    ({'setting': ['rate'], 'metric': 'kl_new'}, 'must be texts'),
    ({'setting': 'rate'}, 'must be {"setting": NAME, "metric": METRIC}'),
    ('rate', 'must be {"setting"'),
  ],
)
def test_what_is_no_choice_is_refused(tmp_path, parts, words):
  with pytest.raises(ValueError, match=words) as caught:
    choice.read(_grid(tmp_path, parts))
  assert 'grid.json' in str(caught.value) and '\n' not in str(caught.value)


def _rows(bounds, split='validation'):
  """Returns rows of {(task, model, rate): bounds of the replicas}."""
  return own_records.rows(
    *(
      own_records.record(
        task,
        model,
        values,
        row=f'{task}-{rate}-{model}',
        settings={'task': task, 'model': model, 'rate': rate, 'seed': 0},
        split=split,
      )
      for (task, model, rate), values in bounds.items()
    )
  )


_BOUNDS = {
  ('navigation', 'dnc', 1): [100.0, 102.0],
  ('navigation', 'dnc', 2): [105.0, 105.0],
  ('navigation', 'dnc', 4): [99.0, 99.0],
  ('navigation', 'ntm', 1): [210.0, 210.0],
  ('navigation', 'ntm', 2): [200.0, 200.0],
  ('navigation', 'ntm', 4): [230.0, 230.0],
  ('rotation', 'dnc', 1): [50.0, 50.0],
  ('rotation', 'dnc', 2): [50.0, 50.0],
  ('rotation', 'dnc', 4): [50.0, 50.0],
  ('rotation', 'ntm', 1): [70.0, 70.0],
  ('rotation', 'ntm', 2): [76.0, 76.0],
  ('rotation', 'ntm', 4): [70.0, float('nan')],
}


def test_the_value_with_the_least_loss_of_the_worst_model_is_chosen():
  rows = list(_rows(_BOUNDS).values())
  # dnc loses 2, 6 and 0 on navigation; ntm 10, 0, 30, and on rotation 0, 6, 0.
  assert choice.losses(rows, RATE) == {
    1: {'dnc': 1.0, 'ntm': 5.0},
    2: {'dnc': 3.0, 'ntm': 3.0},
    4: {'dnc': 0.0, 'ntm': 15.0},
  }
  assert choice.chosen(choice.losses(rows, RATE)) == 2
  text = tables.document(_rows(_BOUNDS), Purpose(choice=RATE))
  assert '| `rate` | `dnc` | `ntm` | worst |\n' in text
  assert '| **2** | 3.00 | 3.00 | 3.00 |\n| 4 | 0.00 | 15.00 | 15.00 |' in text
  assert 'Chosen: rate = 2.' in text


def test_nothing_is_chosen_before_all_cells_are_there():
  fewer = {key: _BOUNDS[key] for key in list(_BOUNDS)[:-1]}
  rows = list(_rows(fewer).values())
  assert choice.losses(rows, RATE)[1] == {'dnc': 1.0, 'ntm': None}
  assert choice.chosen(choice.losses(rows, RATE)) is None
  text = tables.document(_rows(fewer), Purpose(choice=RATE))
  assert 'No value is chosen before all cells have finished.' in text


def test_test_episodes_choose_nothing():
  rows = list(_rows(_BOUNDS, split='test').values())
  assert choice.chosen(choice.losses(rows, RATE)) is None
