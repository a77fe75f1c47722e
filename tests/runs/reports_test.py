"""When checkpoints are due, so that they take a small share of the time."""

import types

import pytest

from gtmm_jax import checkpoints
from gtmm_jax.process import background
from gtmm_jax.runs import reports


def test_the_next_checkpoint_is_due_after_a_hundred_times_its_own_time():
  assert reports.next_due(100.0, 100.2) == pytest.approx(120.0)
  # However slow the disk is, no more than ten minutes are lost.
  assert reports.next_due(100.0, 1000.0) == 700.0


@pytest.fixture
def clock(monkeypatch):
  """Replaces the clock of reports, whose checkpoints take a second."""
  time = types.SimpleNamespace(now=50.0)
  monkeypatch.setattr(reports.time, 'perf_counter', lambda: time.now)
  saved = []

  def save(_, step, *__):
    saved.append(step)
    time.now += 1

  monkeypatch.setattr(checkpoints, 'save', save)
  monkeypatch.setattr(checkpoints, 'wait', lambda _: None)
  monkeypatch.setattr(reports.replicas, 'rows', lambda _, state: state)
  monkeypatch.setattr(reports, 'step_of', lambda state: state)
  time.saved = saved
  return time


def test_checkpoints_that_are_not_due_are_left_out(tmp_path, clock):
  lock = types.SimpleNamespace(require=lambda: None)
  directory = types.SimpleNamespace(steps=lambda: [4, 2])
  run = types.SimpleNamespace(workdir=tmp_path, layout=None)
  with background.opened(is_inline=True) as writer:
    made = reports.Reports(run, None, directory, None, lock, writer, 0.0)
    # The latest one is there already.
    made.save_if_due(4)
    for step in range(6, 14, 2):
      made.save_if_due(step)
      clock.now += 40
    # At the end, and where a signal ends the run.
    made.save(14)
    made.save(14)
  assert clock.saved == [6, 12, 14]
