"""Tests of the provenance in records: sources, commands, starts."""

import subprocess

import pytest

from gtmm_jax import records
from gtmm_jax.process import provenance
from gtmm_jax.runs import starts


def _git(folder, *words):
  who = ('-c', 'user.name=A', '-c', 'user.email=a@b.c')
  subprocess.run(['git', '-C', folder, *who, *words], check=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
  """Makes a repository with a package and programs to replace this one."""
  folder = tmp_path / 'project'
  files = {
    'gtmm_jax': folder / 'gtmm_jax' / '__init__.py',
    'experiments': folder / 'experiments' / 'program.py',
  }
  for file in files.values():
    file.parent.mkdir(parents=True)
    file.write_text('')
  _git(folder, 'init', '-q')
  _git(folder, 'add', '.')
  _git(folder, 'commit', '-qm', 'all')
  monkeypatch.setattr(provenance.gtmm_jax, '__file__', files['gtmm_jax'])
  return folder


def test_a_commit_is_told_with_whether_sources_are_as_committed(project):
  made = provenance.sources()
  assert len(made['commit']) == 40 and made['clean']
  # Neither a result nor what git ignores is a source.
  (project / 'experiments' / 'results.json').write_text('{}')
  assert provenance.sources() == made
  for name in ('experiments/new.py', 'gtmm_jax/__init__.py'):
    (project / name).write_text('1')
    assert provenance.sources() == {**made, 'clean': False}
    _git(project, 'stash', '-qu')
    assert provenance.sources() == made


def test_a_package_without_programs_beside_it_has_a_commit(project):
  _git(project, 'rm', '-qr', 'experiments')
  _git(project, 'commit', '-qm', 'alone')
  made = provenance.sources()
  assert len(made['commit']) == 40 and made['clean']
  # A program of somebody's own is none of its sources.
  (project / 'mine.py').write_text('')
  assert provenance.sources() == made
  (project / 'gtmm_jax' / 'new.py').write_text('')
  assert provenance.sources() == {**made, 'clean': False}


def test_no_repository_but_that_of_the_sources_counts(
  project, tmp_path, monkeypatch
):
  made = provenance.sources()
  other = tmp_path / 'other'
  installed = other / 'environment' / 'gtmm_jax' / '__init__.py'
  installed.parent.mkdir(parents=True)
  installed.write_text('')
  (other / 'mine.py').write_text('')
  _git(other, 'init', '-q')
  _git(other, 'add', 'mine.py')
  _git(other, 'commit', '-qm', 'mine')
  monkeypatch.chdir(other)
  monkeypatch.setenv('GIT_DIR', str(other / '.git'))
  assert provenance.sources() == made
  # Installed in an environment that lies in somebody's repository.
  monkeypatch.setattr(provenance.gtmm_jax, '__file__', installed)
  nothing = {'commit': None, 'clean': None}
  assert provenance.sources() == nothing
  monkeypatch.setenv('PATH', str(tmp_path))
  assert provenance.sources() == nothing


@pytest.mark.parametrize(
  'command, told',
  [
    (
      'python /a/b/experiments/run.py --task=rotation --workdir=mine',
      'python experiments/run.py --task=rotation --workdir=FOLDER',
    ),
    (
      "python run.py --data='files:/my data' -data_dir sets --seed 3",
      'python run.py --data=files:FOLDER -data_dir FOLDER --seed 3',
    ),
    (
      'python x/run.py --data files:a /b/c --without=age,content',
      'python x/run.py --data files:FOLDER FOLDER --without=age,content',
    ),
  ],
)
def test_folders_are_left_out_of_published_commands(command, told):
  assert provenance.without_folders(command) == told


def test_starts_are_recorded_beside_those_before(tmp_path):
  old = {'versions': {'jax': '0.0.1'}, 'device': {'kind': 'abacus'}}
  new = {'versions': {'jax': '0.0.3'}, 'device': {'kind': 'cpu'}}
  between = {**old, 'versions': {'jax': '0.0.2'}}
  assert starts.before(tmp_path) == []
  # As config.json was before there were starts in it.
  records.write_config(tmp_path, {**between, 'settings': 1, 'earlier': [old]})
  with starts.recorded(tmp_path, new, starts.before(tmp_path)):
    *earlier, start = records.read_config(tmp_path)['starts']
    assert earlier == [old, between]
    assert start['ended'] is None and start['host']
    assert start['versions'] == new['versions']
    assert start['command'].startswith('python ')
  with (
    pytest.raises(KeyboardInterrupt),
    starts.recorded(tmp_path, new, starts.before(tmp_path)),
  ):
    raise KeyboardInterrupt
  config = records.read_config(tmp_path)
  assert {**new, 'starts': config['starts']} == config
  assert len(config['starts']) == 4
  for start in config['starts'][2:]:
    assert '2' < start['began'] <= start['ended']
    assert start['ended'].endswith('+00:00')
    assert {'commit', 'clean'} <= start.keys()
