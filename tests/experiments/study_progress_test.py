"""Progress of a study, on a terminal and elsewhere."""

import io
import json

import pytest
from rich.console import Console

from studies import progress, reports


def _shown(is_terminal):
  """Prints the progress of four of five cells, of which one is complete."""
  file = io.StringIO()
  console = Console(
    file=file,
    force_terminal=is_terminal,
    width=120,
    markup=False,
    highlight=False,
    color_system=None,
  )
  with progress.Shown(console, 5, 1) as shown:
    shown.begin('ntm', 3000, 'begins')
    shown.move('ntm', 1200, 3000)
    shown.leave('dnc')
    shown.leave('dnc')
    shown._bars.refresh()
    moving = file.getvalue()
    shown.end('ntm', 'KL 0.5', False)
    shown.begin('lru', 3000, 'begins')
    shown.end('lru', 'no luck', True)
    shown.end('dnc', 'KL 0.6', False)
  return moving, file.getvalue()


def test_a_terminal_shows_what_runs_how_far_and_how_many_are_left():
  moving, whole = _shown(True)
  assert '1200/3000' in moving
  assert '1 done, 3 left, 1 of them run by others' in moving
  assert '3 done, 1 failed, 1 left' in whole
  assert 'ntm: KL 0.5' in whole and 'lru: no luck' in whole


def test_elsewhere_there_are_plain_lines(monkeypatch):
  monkeypatch.setattr(progress, '_QUIET', 0.0)
  _, whole = _shown(False)
  assert whole.splitlines() == [
    'ntm: begins; 1 done, 3 left',
    'ntm: step 1,200 of 3,000',
    'dnc: another program runs it, and is waited for',
    'ntm: KL 0.5',
    'lru: begins; 2 done, 2 left, 1 of them run by others',
    'lru: no luck',
    'dnc: KL 0.6',
  ]


@pytest.mark.parametrize(
  'text, step',
  [
    ('', 0),
    ('{"step": 10}\n{"step": 20}\n', 20),
    # Torn, or damaged.
    ('{"step": 10}\n{"step": 2', 10),
    ('{"step": 10}\nx\n[]\n{"step": "many"}\n', 10),
    # The last line is longer than what is read.
    (json.dumps({'kl': [0.5] * 10**6, 'step': 20}) + '\n', 20),
  ],
  ids=['none', 'two', 'torn', 'damaged', 'long'],
)
def test_steps_are_those_of_the_last_report(tmp_path, text, step):
  assert reports.steps_done(tmp_path) == 0
  (tmp_path / 'metrics.jsonl').write_text(text)
  assert reports.steps_done(tmp_path) == step
