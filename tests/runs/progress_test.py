"""Tests of a run's progress: steps, metrics, speed, time left."""

import io

import pytest
from rich.console import Console

from gtmm_jax.runs import progress


@pytest.fixture
def clock(monkeypatch):
  """Makes a clock that is set by hand."""
  now = [100.0]
  monkeypatch.setattr(progress.time, 'perf_counter', lambda: now[0])
  return now


def _training(first, last):
  file = io.StringIO()
  console = Console(file=file, force_terminal=False, width=200)
  return progress.Training(console, first, last), file


def test_a_line_tells_the_speed_and_what_is_left(clock):
  shown, file = _training(200, 1_200)
  with shown:
    clock[0] += 20
    shown.report(600, 'negative bound 12.0')
  assert file.getvalue().split('\n')[0] == (
    'step 600 of 1,200  negative bound 12.0  20.0 steps/s  30 s left'
  )


@pytest.mark.parametrize('is_terminal', [False, True])
def test_what_is_under_way_is_said_before_it_is_done(is_terminal):
  file = io.StringIO()
  console = Console(file=file, force_terminal=is_terminal, width=200)
  with progress.saying('compiling', console):
    assert is_terminal or file.getvalue() == 'compiling ...\n'
  assert 'compiling ...' in file.getvalue()
  # On a terminal it makes place for what comes of it.
  assert file.getvalue().endswith('compiling ...\n') != is_terminal


def test_lines_are_few_and_the_last_step_has_one(clock):
  shown, file = _training(0, 100)
  with shown:
    for step in range(10, 101, 10):
      clock[0] += 4
      shown.report(step, f'bound {step}')
  lines = file.getvalue().splitlines()
  assert [line.split()[1] for line in lines] == ['40', '80', '100']


@pytest.mark.parametrize('is_terminal', [False, True])
def test_what_is_under_way_between_two_steps_is_said(is_terminal, clock):
  file = io.StringIO()
  console = Console(file=file, force_terminal=is_terminal, width=200)
  with progress.Training(console, 0, 100) as shown:
    shown.say('compiling the evaluation')
  assert 'compiling the evaluation ...' in file.getvalue()


def test_a_terminal_has_a_bar_with_the_speed(clock):
  file = io.StringIO()
  console = Console(file=file, force_terminal=True, width=200)
  with progress.Training(console, 0, 100) as shown:
    clock[0] += 5
    shown.report(50, 'bound 7')
  text = file.getvalue()
  assert '50/100' in text and 'bound 7' in text and '10.0 steps/s' in text


@pytest.mark.parametrize('is_terminal', [False, True])
def test_held_out_episodes_have_a_line_once(clock, is_terminal):
  file = io.StringIO()
  console = Console(
    file=file, force_terminal=is_terminal, width=80, highlight=False
  )
  with progress.Training(console, 0, 300) as shown:
    for step, held_out in ((100, 'bound 8'), (200, ''), (300, 'bound 9')):
      clock[0] += 20
      shown.report(step, 'bound 7', held_out)
  lines = [
    line for line in file.getvalue().splitlines() if 'validation' in line
  ]
  assert len(lines) == 2
  assert 'step 100, validation  bound 8' in lines[0]
  assert 'step 300, validation  bound 9' in lines[1]


def test_a_class_is_retrieved_beside_no_chance():
  """Lines on the way leave out what no replica has, as chance of a class."""
  line = {
    'negative_bound': [1_439.5],
    'kl_new': [20.0],
    'kl_predictable': [14.0],
    'kl_last': [15.0],
    'failed_at': [None],
    'retrieval_ahead': [0.798],
    'retrieval_free': [0.794],
  }
  shown = progress.headline(line, has_settled=True)
  assert shown.startswith('negative bound 1,439.5  KL ratio 0.700  retrieved')
  assert shown.count('(- by chance)') == 2
