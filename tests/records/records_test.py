"""Tests of the workdir: nothing half written, nothing lost, nothing NaN."""

import concurrent.futures
import json
import os
import pathlib

import numpy as np
import pytest

from gtmm_jax import figures, records
from gtmm_jax.figures import curves


def _evaluation(**changes):
  evaluation = {
    'step': 100,
    'episodes': 64,
    'negative_bound': [10.0, 12.0, 17.0],
    'log_likelihood': [[-4.0, -5.0]] * 3,
    'kl': [[1.0, 0.5]] * 3,
    'kl_last': [0.5, 0.25, 0.75],
    'kl_new': [1.0, 2.0, 4.0],
    'kl_predictable': [0.5, 0.5, 3.0],
    'failed_at': [None, None, None],
    'entropy_floor': 3.0,
    'predictable': [0.0, 1.0],
  }
  return evaluation | changes


def _strict(text):
  """Reads JSON as a strict reader, which refuses NaN."""

  def refuse(name):
    raise AssertionError(f'{name} is no JSON')

  return json.loads(text, parse_constant=refuse)


def _metrics_file(workdir):
  return pathlib.Path(workdir) / 'metrics.jsonl'


def test_config_is_read_as_written(tmp_path):
  workdir = tmp_path / 'new' / 'run'
  assert records.read_config(workdir) is None
  config = {
    'settings': {'batch': 10, 'rate': 1e-4, 'binarize': False, 'data': None},
    'versions': {'jax': '0.0'},
  }
  records.write_config(workdir, config)
  assert records.read_config(str(workdir)) == config
  records.write_config(workdir, {'settings': {}})
  assert records.read_config(workdir) == {'settings': {}}
  assert os.listdir(workdir) == ['config.json']


def test_config_takes_arrays_tuples_paths_and_infinities(tmp_path):
  records.write_config(
    tmp_path,
    {
      'a': (1, 2),
      'b': np.arange(4).reshape(2, 2),
      'c': pathlib.Path('x') / 'y',
      'd': float('inf'),
      'e': np.float32(0.5),
      'f': np.bool_(True),
      3: np.int64(7),
    },
  )
  text = (tmp_path / 'config.json').read_text()
  assert _strict(text) == {
    'a': [1, 2],
    'b': [[0, 1], [2, 3]],
    'c': os.path.join('x', 'y'),
    'd': 'inf',
    'e': 0.5,
    'f': True,
    '3': 7,
  }


@pytest.mark.parametrize(
  ('name', 'write', 'read'),
  [
    ('config.json', records.write_config, records.read_config),
    ('evaluation.json', records.write_evaluation, records.read_evaluation),
  ],
)
def test_a_document_is_replaced_wholly_or_not_at_all(
  tmp_path, monkeypatch, name, write, read
):
  assert read(tmp_path) is None
  write(tmp_path, {'step': 1})
  with pytest.raises(TypeError, match='object'):
    write(tmp_path, {'step': object()})
  assert read(tmp_path) == {'step': 1}

  def crash(*_):
    raise OSError('the disk is full')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', crash)
    with pytest.raises(OSError, match='full'):
      write(tmp_path, {'step': 2})
  with monkeypatch.context() as patch:
    patch.setattr(os, 'replace', crash)
    with pytest.raises(OSError, match='full'):
      write(tmp_path, {'step': 2})
  assert read(tmp_path) == {'step': 1}
  assert os.listdir(tmp_path) == [name]


def test_two_that_write_a_document_at_once_leave_it_whole(tmp_path):
  path = tmp_path / 'table.json'

  # As processes of two containers do, whose numbers are the same.
  def write(value):
    for _ in range(50):
      records.documents.replace_document(path, {'rows': [value] * 1000})
      assert len(set(records.documents.read_document(path)['rows'])) == 1

  with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(write, range(2)))
  assert [each.name for each in tmp_path.iterdir()] == ['table.json']


@pytest.mark.parametrize('text', ['', '{"step": 1', '[1]', '\x00\x00'])
def test_a_damaged_document_is_named(tmp_path, text):
  for name, read in (
    ('config.json', records.read_config),
    ('evaluation.json', records.read_evaluation),
  ):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
      read(tmp_path)


def test_records_can_be_read_by_others(tmp_path):
  probe = tmp_path / 'probe'
  probe.write_text('')
  records.write_config(tmp_path, {})
  mode = (tmp_path / 'config.json').stat().st_mode
  assert mode == probe.stat().st_mode


def test_a_json_round_trip_makes_no_setting_differ(tmp_path):
  settings = {
    'widths': (3, 4),
    'nested': {'a': (1, (2,))},
    'clip': float('inf'),
    'odd': float('nan'),
    'rate': 1e-4,
    'steps': 100,
    'folder': pathlib.Path('data'),
    'size': np.int32(3),
    'none': None,
  }
  records.write_config(tmp_path, {'settings': settings})
  old = records.read_config(tmp_path)['settings']
  records.require_same_settings(old, settings, ())
  records.require_same_settings(old, settings | {'steps': 100.0}, ())


def test_every_differing_setting_is_named_with_both_values():
  old = {'batch': 10, 'rate': 0.1, 'gone': 'x', 'steps': 5, 'same': [1]}
  new = {'batch': 20, 'rate': 0.2, 'come': True, 'steps': 9, 'same': (1,)}
  with pytest.raises(records.SettingsDiffer) as caught:
    records.require_same_settings(old, new, {'steps'})
  message = str(caught.value)
  assert isinstance(caught.value, ValueError)
  assert 'batch (10 in the workdir, 20 now)' in message
  assert 'rate (0.1 in the workdir, 0.2 now)' in message
  assert "gone ('x' in the workdir, not set now)" in message
  assert 'come (not set in the workdir, True now)' in message
  assert 'steps' not in message and 'same (' not in message
  assert '--workdir' in message


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    (None, 0),
    (None, float('inf')),
    (float('inf'), float('-inf')),
    ('1', 1),
    ([1, 2], [2, 1]),
    ([1], 1),
    ({'a': 1}, {'a': 2}),
    (1e-4, 1.0000001e-4),
  ],
)
def test_unlike_values_differ(old, new):
  for one, other in ((old, new), (new, old)):
    with pytest.raises(records.SettingsDiffer, match='clip'):
      records.require_same_settings({'clip': one}, {'clip': other}, ())
    records.require_same_settings({'clip': one}, {'clip': other}, ['clip'])


def test_a_setting_free_to_differ_may_be_missing():
  records.require_same_settings({}, {'steps': 1}, ['steps'])
  records.require_same_settings({'steps': 1}, {}, ['steps'])


class _Array:
  """An array of a library that numpy knows nothing of."""

  def __array__(self, dtype=None, copy=None):
    return np.asarray([[1.5, np.nan], [-np.inf, 2.0]], dtype)


def test_metrics_keep_their_types_and_hold_no_nan(tmp_path):
  assert records.read_metrics(tmp_path) == []
  records.append_metrics(
    tmp_path,
    {
      'step': np.int64(5),
      'seconds': np.float32(0.25),
      'kl': _Array(),
      'failed_at': np.asarray([None, 3], object),
      'good': np.asarray([True, False]),
      'flag': True,
      'inf': float('inf'),
      'count': 2**40,
      'scalar': np.asarray(np.nan),
      'half': np.asarray([0.5], np.float16),
    },
  )
  text = _metrics_file(tmp_path).read_text()
  assert text.endswith('}\n') and text.count('\n') == 1
  line = _strict(text)
  assert line == {
    'step': 5,
    'seconds': 0.25,
    'kl': [[1.5, None], [None, 2.0]],
    'failed_at': [None, 3],
    'good': [True, False],
    'flag': True,
    'inf': None,
    'count': 2**40,
    'scalar': None,
    'half': [0.5],
  }
  assert type(line['step']) is int and type(line['flag']) is bool
  assert all(type(value) is bool for value in line['good'])
  assert records.read_metrics(tmp_path) == [line]


def test_jax_arrays_are_written_as_lists(tmp_path):
  jnp = pytest.importorskip('jax.numpy')
  records.append_metrics(
    tmp_path,
    {
      'step': jnp.asarray(3),
      'kl': jnp.asarray([[0.5, jnp.nan]]),
      'short': jnp.asarray([1.5, jnp.inf], jnp.bfloat16),
    },
  )
  assert records.read_metrics(tmp_path) == [
    {'step': 3, 'kl': [[0.5, None]], 'short': [1.5, None]}
  ]


def test_float32_comes_back_bit_for_bit(tmp_path):
  values = np.random.default_rng(0).normal(size=50).astype(np.float32)
  records.append_metrics(tmp_path, {'step': 1, 'kl': values})
  back = np.asarray(records.read_metrics(tmp_path)[0]['kl'], np.float32)
  np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize('step', [None, 1.5, True, 'x', float('nan'), [1]])
def test_a_line_without_a_step_is_refused(tmp_path, step):
  with pytest.raises(ValueError, match='whole number'):
    records.append_metrics(tmp_path, {'step': step})
  with pytest.raises(ValueError, match='whole number'):
    records.append_metrics(tmp_path, {'kl': 1})
  assert not _metrics_file(tmp_path).exists()


@pytest.mark.parametrize(
  'value', [object(), 1j, np.asarray([1j]), {1, 2}, np.asarray([object()])]
)
def test_what_no_record_holds_is_refused_unwritten(tmp_path, value):
  with pytest.raises(TypeError, match='cannot hold'):
    records.append_metrics(tmp_path, {'step': 1, 'kl': [value]})
  assert not _metrics_file(tmp_path).exists()


def test_a_crash_at_any_byte_loses_the_torn_line_alone(tmp_path):
  for step in (1, 2, 3):
    records.append_metrics(tmp_path, {'step': step, 'kl': None})
  whole = _metrics_file(tmp_path).read_bytes()
  starts = [0, *(i + 1 for i, byte in enumerate(whole) if byte == 10)]
  for length in range(len(whole) + 1):
    torn = whole[:length]
    # A line is there from the brace that closes it.
    complete = sum(start - 1 <= length for start in starts[1:])
    expected = list(range(1, complete + 1))
    _metrics_file(tmp_path).write_bytes(torn)
    steps = [line['step'] for line in records.read_metrics(tmp_path)]
    assert steps == expected
    records.append_metrics(tmp_path, {'step': 0})
    steps = [line['step'] for line in records.read_metrics(tmp_path)]
    assert steps == [*expected, 0]
    _metrics_file(tmp_path).write_bytes(torn)
    records.drop_metrics_after(tmp_path, 2)
    ends = starts[min(complete, 2)]
    assert _metrics_file(tmp_path).read_bytes() == whole[:ends]


@pytest.mark.parametrize(
  'tail', [b'\x00' * 9, b'\xff\xfe', b'{"step": "2"}', b'[1]', b'3', b'{}']
)
def test_a_tail_that_is_no_record_is_ignored_and_cut(tmp_path, tail):
  records.append_metrics(tmp_path, {'step': 1})
  with open(_metrics_file(tmp_path), 'ab') as file:
    file.write(tail)
  assert records.read_metrics(tmp_path) == [{'step': 1}]
  records.append_metrics(tmp_path, {'step': 2})
  assert records.read_metrics(tmp_path) == [{'step': 1}, {'step': 2}]


@pytest.mark.parametrize('bad', [b'{"step": 2, "kl', b'', b'null', b'\x00'])
def test_a_torn_line_in_the_middle_is_named(tmp_path, bad):
  text = b'{"step": 1}\n' + bad + b'\n{"step": 3}\n'
  _metrics_file(tmp_path).write_bytes(text)
  with pytest.raises(ValueError, match=r'metrics\.jsonl, line 2'):
    records.read_metrics(tmp_path)
  with pytest.raises(ValueError, match=r'metrics\.jsonl, line 2'):
    records.drop_metrics_after(tmp_path, 1)
  assert _metrics_file(tmp_path).read_bytes() == text


def test_later_lines_are_dropped_in_one_step(tmp_path, monkeypatch):
  records.drop_metrics_after(tmp_path, 3)
  assert not _metrics_file(tmp_path).exists()
  for step in (10, 20, 30):
    records.append_metrics(tmp_path, {'step': step})

  def crash(*_):
    raise OSError('the disk is full')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'replace', crash)
    with pytest.raises(OSError, match='full'):
      records.drop_metrics_after(tmp_path, 10)
  assert [line['step'] for line in records.read_metrics(tmp_path)] == [
    10,
    20,
    30,
  ]
  records.drop_metrics_after(tmp_path, 25)
  assert [line['step'] for line in records.read_metrics(tmp_path)] == [10, 20]
  records.drop_metrics_after(tmp_path, 20)
  assert [line['step'] for line in records.read_metrics(tmp_path)] == [10, 20]
  records.drop_metrics_after(tmp_path, 0)
  assert _metrics_file(tmp_path).read_bytes() == b''
  assert os.listdir(tmp_path) == ['metrics.jsonl']


def test_an_evaluation_is_read_as_written(tmp_path):
  evaluation = _evaluation(kl=np.asarray([[1.0, np.nan]] * 3))
  records.write_evaluation(tmp_path, evaluation)
  expected = _evaluation(kl=[[1.0, None]] * 3)
  assert records.read_evaluation(tmp_path) == expected
  assert _strict((tmp_path / 'evaluation.json').read_text()) == expected


def test_summary_is_the_mean_and_error_over_replicas():
  summary = records.summarise(_evaluation())
  # By hand: deviations -3, -1, 4 of a mean 13; 26 / 2 / 3 is the variance.
  assert summary['negative_bound'] == pytest.approx((13.0, (26 / 6) ** 0.5))
  assert summary['kl_new'] == pytest.approx((7 / 3, 0.8819171))
  assert summary['kl_predictable'] == pytest.approx((4 / 3, 5 / 6))
  assert summary['kl_last'] == pytest.approx((0.5, 0.25 / 3**0.5))
  # The mean of ratios 1/2, 1/4, 3/4, not the ratio of means, 4/7.
  assert summary['ratio'] == pytest.approx((0.5, 0.25 / 3**0.5))
  assert set(summary) == {
    'negative_bound',
    'kl_new',
    'kl_predictable',
    'kl_last',
    'ratio',
  }
  assert summary['ratio'].mean == summary['ratio'][0]


def test_summary_leaves_failed_replicas_out():
  evaluation = _evaluation(
    failed_at=[None, 40, None], negative_bound=[10.0, 1e9, 17.0]
  )
  alike = {
    name: value[::2] if isinstance(value, list) and len(value) == 3 else value
    for name, value in evaluation.items()
  }
  assert records.summarise(evaluation) == records.summarise(alike)
  assert records.summarise(evaluation)['negative_bound'].mean == 13.5
  assert records.failed_replicas(evaluation) == [(1, 40)]
  # A replica that failed at its very first step has failed as well.
  evaluation = _evaluation(failed_at=[0, 40, None])
  assert records.summarise(evaluation)['kl_last'] == (0.75, None)
  assert records.failed_replicas(evaluation) == [(0, 0), (1, 40)]
  assert records.failed_replicas(_evaluation()) == []


def test_summary_of_nothing_is_none():
  evaluation = _evaluation(failed_at=[1, 2, 3])
  assert set(records.summarise(evaluation).values()) == {None}
  for nothing in (None, [None] * 3, np.full(3, np.nan)):
    summary = records.summarise(_evaluation(kl_predictable=nothing))
    assert summary['kl_predictable'] is None and summary['ratio'] is None
    assert summary['kl_new'].mean == pytest.approx(7 / 3)


def test_summary_passes_over_single_nulls():
  summary = records.summarise(
    _evaluation(kl_new=[0.0, 2.0, 4.0], kl_last=[None, 1.0, 3.0])
  )
  assert summary['kl_last'] == pytest.approx((2.0, 1.0))
  # Nothing new was paid for by the first replica: it has no ratio.
  assert summary['ratio'] == pytest.approx((0.5, 0.25))


def test_summary_is_the_same_before_and_after_the_disk(tmp_path):
  arrays = {
    name: np.asarray(value, np.float32)
    if name.startswith(('kl', 'negative'))
    else value
    for name, value in _evaluation().items()
  }
  records.write_evaluation(tmp_path, arrays)
  read = records.read_evaluation(tmp_path)
  assert records.summarise(read) == records.summarise(arrays)


def test_summary_refuses_columns_of_unlike_lengths():
  with pytest.raises(ValueError):
    records.summarise(_evaluation(kl_last=[1.0]))


# KL of new frames of perfect recall, `introspective`, two replicas, as run.py
# reported it; beside it the ratio fell from 0.85 at step 200 to 0.31 at 700.
_LEARNING = {
  50: [9.42, 9.56],
  100: [4.89, 4.42],
  150: [7.12, 7.11],
  200: [9.95, 10.32],
  250: [11.47, 12.16],
  300: [12.26, 12.92],
  350: [12.85, 13.57],
  400: [13.36, 13.98],
  450: [13.72, 14.51],
}


def _reports(kl_new):
  return [{'step': step, 'kl_new': kl} for step, kl in kl_new.items()]


def test_a_ratio_counts_once_the_kl_of_new_frames_has_settled():
  lines = _reports(_LEARNING)
  # 12.6 at step 300, 13.7 at step 400; 11.8 and 13.2 at 250 and 350.
  assert records.settled_at(lines) == 400
  assert records.settled_at(lines[1::2]) == 400
  assert records.settled_at(lines[:-2]) is None
  assert records.settled_at([]) is None
  # Later jumps of training take no ratio back.
  assert records.settled_at([*lines, *_reports({500: [30.0, 40.0]})]) == 400


@pytest.mark.parametrize(
  'kl_new, step',
  [
    ({1: [10.0], 100: [10.0]}, None),  # 99 steps apart.
    ({1: [10.0], 101: [10.9]}, 101),
    ({1: [10.0], 101: [11.1]}, None),
    ({1: [10.0], 101: [9.1]}, 101),
    ({1: [10.0], 101: [8.9]}, None),
    # Not that of step 1, but the latest that is far enough away.
    ({1: [10.0], 50: [20.0], 150: [10.0]}, None),
    ({1: [10.0], 50: [20.0], 149: [10.0], 150: [20.0]}, 149),
    # One replica fails: the other is compared with itself.
    ({1: [1.0, 10.0], 101: [None, 10.0]}, 101),
    ({1: [1.0], 101: [None]}, None),
    # Nothing new.
    ({1: None, 101: None}, None),
    ({1: [0.0], 101: [0.0]}, None),
  ],
)
def test_reports_are_compared_with_the_latest_far_enough_before(kl_new, step):
  assert records.settled_at(_reports(kl_new)) == step


def test_a_run_that_has_not_settled_has_no_ratio():
  summary = records.summarise(_evaluation(), has_settled=False)
  assert summary.pop('ratio') is None
  assert None not in summary.values()


@pytest.mark.parametrize('order', [1, -1])
def test_a_run_without_a_value_is_pooled_with_nulls(order):
  """Pools a lost line, and a metric that only one run has."""
  lost = {'step': 5, 'failed_at': [None], 'kl': None, 'lost': True}
  whole = {
    'step': 5,
    'failed_at': [None, 4],
    'kl': [[1.0, 2.0], [3.0, 4.0]],
    'dream_error': [0.1, 0.2],
    'held_out': {'episodes': 9, 'kl_last': [7.0, 8.0]},
    'predictable': [0.0, 1.0],
  }
  pooled = records.pool([whole, lost][::order])
  for values, of_whole, none in (
    (pooled['dream_error'], [0.1, 0.2], None),
    (pooled['held_out']['kl_last'], [7.0, 8.0], None),
    (pooled['kl'], whole['kl'], [None, None]),
  ):
    assert values == ([*of_whole, none] if order == 1 else [none, *of_whole])
  assert pooled['held_out']['episodes'] == 9 and pooled['lost']
  assert pooled['predictable'] == [0.0, 1.0]
  run = figures.Run('pooled', [pooled], None)
  np.testing.assert_array_equal(curves.held_out(run, 'kl_last').mean, [7.0])


def test_the_floor_of_a_perfect_read_is_summarised_where_there_is_one():
  with_one = _evaluation(kl_floor=[1.0, 2.0, 6.0], failed_at=[None, None, 7])
  assert records.summarise(with_one)['kl_floor'] == pytest.approx((1.5, 0.5))
  without = _evaluation(kl_floor=[None] * 3)
  assert records.summarise(without)['kl_floor'] is None
  assert 'kl_floor' not in records.summarise(_evaluation())
  both = records.by_replica(records.pool([with_one, without]))['kl_floor']
  np.testing.assert_array_equal(both, [1.0, 2.0, *[np.nan] * 4])


def test_quantiles_of_runs_are_pooled_by_replica():
  levels = {'5%': [1.0, 2.0, 3.0], '50%': [4.0, 5.0, 6.0]}
  run = _evaluation(quantiles={'kl_new': levels})
  pooled = records.pool([run, run])['quantiles']
  assert pooled == {'kl_new': {name: 2 * each for name, each in levels.items()}}
