"""What counts as moved between two measurements."""

import json

import pytest

import benchmark_comparison


def spread(median, width=0.02):
  return {
    'median': median,
    'min': median * (1 - 2 * width),
    'lower_quartile': median * (1 - width),
    'upper_quartile': median * (1 + width),
  }


def document(**row):
  row = {'replicas': 1, 'step_milliseconds': spread(10.0), **row}
  return {
    'settings': {'model': 'vrnn'},
    'device': {'platform': 'cpu'},
    'versions': {'jax': '1'},
    'rows': [row],
  }


@pytest.mark.parametrize(
  ('old', 'new', 'moved'),
  [
    (spread(10.0), spread(10.3), False),  # Quartiles overlap.
    (spread(10.0, 0.001), spread(10.4, 0.001), False),  # By less than 5%.
    (spread(10.0), spread(11.0), True),
    (spread(10.0), spread(9.0), True),
    (spread(10.0, 0.2), spread(13.0, 0.2), False),  # A noisy machine.
  ],
)
def test_a_median_moves_where_quartiles_lie_apart(old, new, moved):
  changes, count, notes = benchmark_comparison.compare(
    document(step_milliseconds=old), document(step_milliseconds=new)
  )
  assert (count, notes) == (1, [])
  expected = ('replicas 1', 'step_milliseconds', old['median'], new['median'])
  assert changes == ([expected] if moved else [])


@pytest.mark.parametrize(
  ('name', 'old', 'new', 'moved'),
  [
    ('compile_seconds', 10.0, 12.0, False),
    ('compile_seconds', 10.0, 13.0, True),
    ('process_peak_bytes', 1e9, 5e8, True),
    ('device_peak_bytes', None, 5e8, False),
    ('device_peak_bytes', 5e8, None, False),
    ('steps_timed', 100, 900, False),  # How long one looked tells nothing.
  ],
)
def test_numbers_without_quartiles_move_by_a_quarter(name, old, new, moved):
  changes, _, _ = benchmark_comparison.compare(
    document(**{name: old}), document(**{name: new})
  )
  assert [change.name for change in changes] == ([name] if moved else [])


def test_rows_are_matched_by_what_they_are_of():
  old, new = document(), document()
  old['rows'].append({'replicas': 4, 'step_milliseconds': spread(20.0)})
  new['rows'].insert(0, {'replicas': 4, 'step_milliseconds': spread(40.0)})
  new['rows'].append({'replicas': 8, 'step_milliseconds': spread(80.0)})
  new['device'] = {'platform': 'gpu'}
  changes, count, notes = benchmark_comparison.compare(old, new)
  assert changes == [('replicas 4', 'step_milliseconds', 20.0, 40.0)]
  assert count == 2
  assert notes == ['device: platform was cpu and is gpu']
  new['rows'] = new['rows'][-1:]
  with pytest.raises(ValueError, match='no row is in both'):
    benchmark_comparison.compare(old, new)


@pytest.mark.parametrize(
  'text', [None, '', '{', '[]', '{"rows": 3}', '{"rows": [1]}', '\xff']
)
def test_a_file_of_something_else_is_a_mistake(tmp_path, text):
  path = tmp_path / 'old.json'
  if text is not None:
    path.write_bytes(text.encode('latin-1'))
  with pytest.raises(ValueError, match=r'name a file|Name a file'):
    benchmark_comparison.read(str(path))
  path.write_text(json.dumps(document()))
  assert benchmark_comparison.read(str(path)) == document()
