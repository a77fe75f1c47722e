"""The tour runs from its first cell to its last, without any training."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np

from gtmm_jax import figures, records
from gtmm_jax.runs import prepare, session
from trained_runs import digits, write

_TOUR = pathlib.Path(__file__).resolve().parents[2] / 'experiments' / 'tour.py'
# Replaced, so that little is computed.
_TINY = {
  'STEPS = 800': 'STEPS = 2',
  'EPISODES = 50': 'EPISODES = 2',
  'SAMPLES = 20': 'SAMPLES = 2',
}


def test_every_cell_runs(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(prepare.digit_images, 'load_digits', digits)
  monkeypatch.setattr(session, 'complete', lambda run: write(run, {2: [-1]}))
  saved = []
  monkeypatch.setattr(
    figures, 'save', lambda figure, stem: saved.append((figure, stem))
  )
  text = _TOUR.read_text()
  for line, tiny in _TINY.items():
    assert text.count(f'\n{line}\n') == 1
    text = text.replace(line, tiny)
  exec(compile(text, str(_TOUR), 'exec'), {'__name__': '__main__'})
  out = capsys.readouterr().out
  assert 'introspective after 2 steps' in out
  for words in ('KL of new frames', 'elbo', 'iwae', 'particle', 'retrieval'):
    assert words in out
  assert 'nan' not in out
  settings = records.read_config(tmp_path / 'runs' / 'tour')['settings']
  assert (settings['task'], settings['replicas']) == ('perfect_recall', 1)
  assert all(isinstance(figure, figures.Figure) for figure, _ in saved)
  assert {stem.parent for _, stem in saved} == {
    pathlib.Path('runs/tour/pictures')
  }
  assert [stem.name for _, stem in saved] == [
    'episode',
    'read_weights',
    'memory',
    'kl',
    'dreams',
    'dreams_from_nothing',
  ]
  assert not plt.get_fignums()


def test_cells_are_short_and_each_is_told():
  cells = _TOUR.read_text().split('\n# %%')
  code = [cell for cell in cells[1:] if not cell.startswith(' [markdown]')]
  assert len(code) > 7
  # The first one has the imports and constants.
  assert np.median([cell.count('\n') for cell in code]) < 10
  assert max(cell.count('\n') for cell in code[1:]) < 20
  assert cells[0].startswith('# %% [markdown]\n"""')


def test_only_jax_matplotlib_and_the_package_are_needed():
  words = [line.split() for line in _TOUR.read_text().splitlines()]
  lines = [line for line in words if line[:1] in (['import'], ['from'])]
  names = {line[1].split('.')[0] for line in lines}
  assert names == {'pathlib', 'jax', 'matplotlib', 'gtmm_jax'}
