"""Files of figures: whole, and the same whatever matplotlib is told."""

import concurrent.futures
import os
import pathlib
import resource
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from gtmm_jax import figures
from read_figures import pixels

pytestmark = pytest.mark.filterwarnings('error')

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of a user who likes dark slides, in a program that a notebook started.
_HOSTILE = """
text.usetex: True
font.family: No Such Font
font.size: 30
axes.facecolor: black
axes.formatter.use_locale: True
figure.constrained_layout.use: True
image.interpolation: bicubic
pdf.fonttype: 3
savefig.bbox: tight
savefig.facecolor: black
savefig.transparent: True
"""
_NOTEBOOK = {'MPLBACKEND': 'module://matplotlib_inline.backend_inline'}


_FRAMES = np.linspace(0, 1, 6 * 28 * 28).reshape(6, 28, 28, 1)


def _strip():
  row = figures.Row('costs $1', _FRAMES, np.ones(6, bool), ['=1'] * 6)
  return figures.strip_figure([row], 'title', 'note')


def _draw(folder):
  """Draws a figure of each kind; returns the bytes of the files by name."""
  figures.save(_strip(), folder / 'strip')
  panel = figures.Panel('read', _FRAMES[:, 0, :, 0], 'slot', 'weight')
  figures.save(
    figures.memory_figure(_FRAMES, [panel], title='title'), folder / 'memory'
  )
  walk = np.array([[0, 0], [0, 1]] * 3)
  visits = np.array([0, 0, 1, 1, 2, 2])
  figures.save(
    figures.overlay_figure([('truth', _FRAMES)], walk, visits),
    folder / 'overlay',
  )
  line = {'step': 1, 'failed_at': [None], 'kl_last': [3], 'negative_bound': [2]}
  kl = {'kl': [[1, 2]], 'failed_at': [None], 'predictable': [0, 1]}
  figures.save(
    figures.results_figure([figures.Run('a', [line], kl)]), folder / 'results'
  )
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope='module')
def drawn(tmp_path_factory):
  return _draw(tmp_path_factory.mktemp('drawn'))


@pytest.mark.parametrize(
  ('settings', 'environment'),
  [
    (_HOSTILE.encode(), _NOTEBOOK),
    # Neither can be read, and matplotlib alone cannot be imported.
    pytest.param(
      b'lines.linewidth: 9\n\xff\xfe\n',
      {'LC_ALL': 'xx_YY'},
      marks=pytest.mark.slow,
    ),
  ],
)
def test_no_setting_changes_a_byte(drawn, tmp_path, settings, environment):
  (tmp_path / 'matplotlibrc').write_bytes(settings)
  program = (
    'import pathlib, sys\n'
    'from gtmm_jax import figures\n'
    'import appearance_test\n'
    'appearance_test._draw(pathlib.Path(sys.argv[1]))\n'
    "assert not {'matplotlib.pyplot', 'jax'} & set(sys.modules)\n"
  )
  paths = [str(_ROOT), str(_ROOT / 'tests'), str(pathlib.Path(__file__).parent)]
  folder = tmp_path / 'pictures'
  folder.mkdir()
  subprocess.run(
    [sys.executable, '-c', program, str(folder)],
    # Where matplotlib looks first.
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(paths), **environment},
    check=True,
  )
  assert {path.name: path.read_bytes() for path in folder.iterdir()} == drawn


def test_settings_of_a_program_stay_as_they_were(drawn, tmp_path):
  own = {'axes.facecolor': 'red', 'lines.linewidth': 9, 'savefig.dpi': 30}
  with matplotlib.rc_context(own):
    before = matplotlib.rcParams.copy()
    for path in figures.save(_strip(), tmp_path / 'strip'):
      assert path.read_bytes() == drawn[path.name]
    assert matplotlib.rcParams == before


def test_every_thread_draws_the_same(drawn, tmp_path):
  def draw(name):
    return [
      path.read_bytes() for path in figures.save(_strip(), tmp_path / name)
    ]

  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    for files in pool.map(draw, 'abc'):
      assert files == [drawn['strip.png'], drawn['strip.pdf']]


def test_letters_of_a_pdf_can_be_searched_and_edited(drawn):
  pages = [page for name, page in drawn.items() if name.endswith('.pdf')]
  assert len(pages) == 4
  for page in pages:
    assert b'/Type3' not in page and b'/CIDFontType2' in page


def test_a_full_disk_leaves_whole_pictures_and_no_others(tmp_path):
  before = b'a picture of the same name'
  (tmp_path / 'strip.png').write_bytes(before)
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
  try:
    with pytest.raises(OSError):
      _draw(tmp_path)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert [path.name for path in tmp_path.iterdir()] == ['strip.png']
  assert (tmp_path / 'strip.png').read_bytes() == before


def test_a_file_shows_the_figure_pixel_for_pixel(tmp_path):
  # A stem may hold dots, and its folder need not exist.
  stem = tmp_path / 'new' / 'l20.k5'
  paths = figures.save(_strip(), stem)
  assert [path.name for path in paths] == ['l20.k5.png', 'l20.k5.pdf']
  assert sorted(stem.parent.iterdir()) == sorted(paths)
  with Image.open(paths[0]) as picture:
    shown = np.asarray(picture.convert('RGB')) / 255
  np.testing.assert_array_equal(shown, pixels(_strip()))
  assert paths[1].read_bytes().startswith(b'%PDF')
