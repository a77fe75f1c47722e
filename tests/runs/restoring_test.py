"""Restoring: records that do not reach a checkpoint are never passed over."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

from gtmm_jax import checkpoints, records
from gtmm_jax.evaluation import metrics
from gtmm_jax.process import command
from gtmm_jax.records import history
from gtmm_jax.runs import restoring


class State(NamedTuple):
  step: Any
  failed_at: Any
  totals: Any
  gradient_norm: Any


def _state(step):
  # Two replicas of three frames; one stopped being finite at step 30.
  totals = metrics.Totals(
    np.full(2, 5, np.int32),
    *np.ones((2, 2, 3)),
    *np.ones((2, 2)),
    *np.ones((2, 2, 3)),
  )
  failed = np.array([-1, 30 if step >= 30 else -1], np.int32)
  return State(np.full(2, step, np.int32), failed, totals, np.ones(2))


def _line(step):
  return {'step': step, 'seconds': step / 10, 'kl': [[1.0] * 3] * 2}


@pytest.fixture
def workdir(tmp_path):
  """Writes a workdir with reports every 20 steps, checkpoints at 60 and 90."""
  _save(tmp_path, {60: [20, 40, 50, 60], 90: [20, 40, 50, 60, 80]})
  for step in (20, 40, 50, 60, 80):
    records.append_metrics(tmp_path, _line(step))
  return tmp_path


def _save(workdir, reported):
  directory = checkpoints.open_directory(workdir / 'checkpoints')
  for step, steps in reported.items():
    notes = {'reported': steps, 'seconds': step + 0.5} if steps else None
    checkpoints.save(directory, step, _state(step), notes)
  checkpoints.close(directory)


def _restore(workdir):
  return restoring.restore(workdir, 20, lambda: _state(0), command.console())


def _steps(workdir):
  return [line['step'] for line in records.read_metrics(workdir)]


def _rewrite(workdir, steps):
  text = ''.join(f'{json.dumps(_line(step))}\n' for step in steps)
  (workdir / 'metrics.jsonl').write_text(text)


def _kept(workdir):
  return sorted(path.name for path in workdir.glob('damaged-*'))


def test_records_that_are_whole_are_cut_back_to_the_checkpoint(workdir, capsys):
  # A line whose checkpoint was not written any more.
  records.append_metrics(workdir, _line(100))
  start = _restore(workdir)
  assert (start.state.step[0], start.seconds) == (90, 90.5)
  assert _steps(workdir) == [20, 40, 50, 60, 80]
  assert capsys.readouterr().out == 'Resuming from step 90.\n'
  assert _kept(workdir) == []


def test_lines_lost_at_the_end_are_made_again_from_the_checkpoint_before(
  workdir, capsys
):
  _rewrite(workdir, [20, 40, 50, 60])
  start = _restore(workdir)
  assert (start.state.step[0], start.seconds) == (60, 60.5)
  assert _steps(workdir) == [20, 40, 50, 60]
  out = capsys.readouterr().out
  assert 'lost lines before the checkpoint of step 90' in out
  assert 'Resuming from step 60' in out
  assert (workdir / 'checkpoints' / 'unwanted-90').is_dir()


@pytest.mark.parametrize(
  'steps, missing, words',
  [
    ([40, 50, 60, 80], [20], 'lines of step 20'),
    ([20, 80], [40, 50, 60], 'lines of steps 40, 50, 60'),
    ([], [20, 40, 50, 60, 80], 'lines of steps 20 to 80 (5 lines)'),
    # Out of order, too.
    ([60, 20, 40, 80], [50], 'lines of step 50'),
  ],
)
def test_lines_that_no_checkpoint_goes_back_to_are_marked_as_lost(
  workdir, capsys, steps, missing, words
):
  _rewrite(workdir, steps)
  before = (workdir / 'metrics.jsonl').read_bytes()
  assert _restore(workdir).state.step[0] == 90
  out = capsys.readouterr().out
  assert f'metrics.jsonl has lost the {words}; lines marked "lost"' in out
  lines = records.read_metrics(workdir)
  assert [line['step'] for line in lines] == [20, 40, 50, 60, 80]
  for line in lines:
    is_lost = line['step'] in missing
    assert line.get('lost', False) is is_lost
    assert np.shape(line['kl']) == (2, 3)
    if is_lost:
      failed_at = 30 if line['step'] >= 30 else None
      assert line['failed_at'] == [None, failed_at]
      assert line['seconds'] is None and line['kl'] == [[None] * 3] * 2
      # Readers of a mean over replicas find none.
      assert records.summarise(line)['kl_new'] is None
  assert _kept(workdir) == ['damaged-metrics.jsonl']
  kept = workdir / 'damaged-metrics.jsonl'
  assert kept.read_bytes() == before
  # It is told once; what is lost stays marked.
  _restore(workdir)
  assert 'lost' not in capsys.readouterr().out
  assert len(records.read_metrics(workdir)) == 5


@pytest.mark.parametrize(
  'steps', [[20, 60, 40, 50, 80], [20, 40, 40, 50, 60, 80]]
)
def test_lines_out_of_order_or_there_twice_are_put_in_order(
  workdir, capsys, steps
):
  _rewrite(workdir, steps)
  assert _restore(workdir).state.step[0] == 90
  assert 'out of order, or there twice' in capsys.readouterr().out
  assert _steps(workdir) == [20, 40, 50, 60, 80]
  assert _kept(workdir) == ['damaged-metrics.jsonl']


def test_a_checkpoint_without_notes_is_taken_to_be_made_at_a_report(workdir):
  _save(workdir, {100: None})
  records.append_metrics(workdir, _line(100))
  start = _restore(workdir)
  assert (start.state.step[0], start.seconds) == (100, 10.0)
  assert _steps(workdir) == [20, 40, 50, 60, 80, 100]


@pytest.mark.parametrize(
  'steps, until, expected',
  [
    ([20, 40, 60], 60, [20, 40, 60]),
    ([20, 40], 60, [20, 40, 60]),
    ([20, 80], 80, [20, 40, 60, 80]),
    ([60], 60, [20, 40, 60]),
    ([], 60, [20, 40, 60]),
    # The last step of a run that was of fewer steps once.
    ([20, 30, 40, 60], 60, [20, 30, 40, 60]),
    ([20, 30, 80], 80, [20, 30, 40, 60, 80]),
    # Reports were at every fortieth step once.
    ([40, 80, 120, 140, 160], 160, [40, 80, 120, 140, 160]),
    ([20, 40, 60], 40, [20, 40]),
  ],
)
def test_steps_that_were_reported_are_guessed_where_none_are_noted(
  steps, until, expected
):
  lines = [{'step': step} for step in steps]
  assert history.guess_expected(lines, 20, until) == expected
