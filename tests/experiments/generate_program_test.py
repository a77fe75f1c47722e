"""The program that dreams: what it writes, and mistakes in its flags."""

import functools
import pathlib

import jax
import numpy as np
import pytest
from PIL import Image

import generate
import gtmm_jax
import program_flags
from gtmm_jax.process import compilation_cache
from gtmm_jax.runs import prepare
from gtmm_jax.tasks import navigation
from gtmm_jax.trained import dreams
from trained_runs import WALK, contents, digits, prepare_run, write


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Returns the folder of a run of navigation."""
  folder = tmp_path_factory.mktemp('run') / 'walk'
  write(prepare_run(folder, **WALK), {2: [-1, -1]})
  return folder


@pytest.fixture(autouse=True)
def flags(monkeypatch):
  """Defines the flags, and has the digits of the run."""
  monkeypatch.setattr(prepare.digit_images, 'load_digits', digits)
  monkeypatch.setattr(compilation_cache, 'use', lambda _: None)
  with program_flags.defined(generate.define_flags):
    yield


def _call(*arguments):
  return program_flags.exit_code(['generate.py', *arguments], generate.main)


def test_a_walk_is_dreamt_and_written_beside_the_run(workdir, capsys):
  before = contents(workdir)
  key = jax.random.split(jax.random.key(4))[0]
  drawn = dreams.draw(gtmm_jax.load(workdir, replica=1), key)
  last = navigation.LETTERS[int(drawn.condition[2, 0].argmax())]
  back = {'u': 'd', 'd': 'u', 'l': 'r', 'r': 'l'}[last]
  letters = back + last + back
  code = _call(
    f'--workdir={workdir}',
    '--observe=3',
    '--samples=2',
    f'--actions={letters}',
    '--replica=1',
    '--seed=4',
  )
  out = capsys.readouterr().out
  assert code == 0
  assert 'introspective on navigation (2 x 2, T 6), 2 steps, replica 1' in out
  assert 'observed 3 frames of 1 validation episode; dreamt 3 more' in out
  name = f'observe=3-samples=2-actions={letters}-replica=1-seed=4'
  folder = workdir / 'dreams' / name
  names = {f'dreams.{kind}' for kind in ('png', 'pdf', 'gif', 'npz')}
  assert {path.name for path in folder.iterdir()} == names
  assert all(str(folder / name) in out for name in names)
  with np.load(folder / 'dreams.npz') as file:
    arrays = dict(file)
  truth = arrays['truth'][0]
  np.testing.assert_array_equal(truth[:3], drawn.frames[:3, 0])
  np.testing.assert_array_equal(truth[3:], truth[[1, 2, 1]])
  assert arrays['frames'].shape == (1, 2, 3, 28, 28, 1)
  assert not np.allclose(arrays['frames'][0, 0], arrays['frames'][0, 1])
  assert str(arrays['actions'][0]).endswith(letters)
  known = [int(arrays[name]) for name in ('observed', 'replica', 'seed')]
  assert known == [3, 1, 4]
  with Image.open(folder / 'dreams.gif') as file:
    assert file.n_frames == 6
  after = contents(workdir)
  assert {path: after[path] for path in before} == before


@pytest.fixture(scope='module')
def loaded(workdir):
  """Returns the run, and a function that draws from it, each made once."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(prepare.digit_images, 'load_digits', digits)
    run = gtmm_jax.load(workdir, replica=0)
    drawn = dreams.draw(run, jax.random.key(0), 2)
  take = functools.partial(jax.tree.map)
  return run, lambda _run, _key, count=1, split=None: take(
    lambda leaf: leaf[:, :count], drawn
  )


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--samples=0'], '--samples is 0; it must be at least 1'),
    (['--episodes=0'], '--episodes is 0'),
    (['--length=0'], '--length is 0'),
    (['--seed=-1'], '--seed is -1'),
    (['--observe=-1'], '-1 frames cannot be observed'),
    (['--observe=7'], 'observe 0 (dream from nothing) to 6'),
    (['--observe=6'], 'All 6 frames of the episode are observed'),
    (['--length=9'], 'it must be at most'),
    (['--samples=100'], 'a sheet has room for 60'),
    (['--actions=ux'], "The actions 'ux' are no walk"),
    (['--actions=uu'], '(up) leaves the grid of 2 x 2'),
    (['--actions=u', '--length=2'], '--length means nothing with --actions'),
    (['--frames=no.npz', '--actions=u'], '--actions means nothing to --frames'),
    (['--frames=no.npz'], 'no.npz cannot be read'),
    (['--frames=small.npz'], 'this model takes [T, 28, 28, 1]'),
    (['--output=WORKDIR'], 'is the folder of a run; name another one'),
    (['--output=WORKDIR/figures'], 'is the folder of a run'),
    (['--output=small.npz/dreams'], 'cannot be written'),
  ],
)
def test_mistakes_are_told_and_nothing_is_written(
  workdir, loaded, tmp_path, monkeypatch, capsys, arguments, message
):
  monkeypatch.chdir(tmp_path)
  np.savez('small.npz', frames=np.zeros((4, 8, 8, 1)))
  run, draw = loaded
  monkeypatch.setattr(gtmm_jax, 'load', lambda *_: run, raising=False)
  monkeypatch.setattr(dreams, 'draw', draw)
  before = contents(workdir), contents(tmp_path)
  words = [each.replace('WORKDIR', str(workdir)) for each in arguments]
  line = program_flags.refused(
    capsys, ['generate.py', f'--workdir={workdir}', *words], generate.main
  )
  assert message in line
  assert (contents(workdir), contents(tmp_path)) == before


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], '--workdir is missing'),
    (['--workdir=nowhere'], 'There is no run in nowhere'),
    (['--workdir=WORKDIR', '--replica=2'], 'There is no replica 2'),
    (['--workdir=WORKDIR', '--step=3'], 'there are those of step 2'),
  ],
)
def test_a_run_that_is_not_there_is_told(
  workdir, tmp_path, monkeypatch, capsys, arguments, message
):
  monkeypatch.chdir(tmp_path)
  words = [each.replace('WORKDIR', str(workdir)) for each in arguments]
  line = program_flags.refused(capsys, ['generate.py', *words], generate.main)
  assert message in line
  assert not list(tmp_path.iterdir())


def test_frames_of_a_file_are_observed(loaded, tmp_path):
  run, _ = loaded
  frames = np.zeros((4, 28, 28, 1), np.uint8)
  file = pathlib.Path(tmp_path) / 'own.npz'
  np.savez(file, frames=frames, condition=np.zeros((4, 4)))
  request = generate.Request(
    str(run.workdir), frames=str(file), samples=1, observe=3
  )
  dreamt, what = generate.dream(run, request)
  assert what == str(file)
  assert dreamt.episode.frames.shape == (4, 1, 28, 28, 1)
  assert dreamt.frames.shape == (1, 1, 1, 28, 28, 1)
