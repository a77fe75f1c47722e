"""The copy task: what is drawn, what is minimised, and the whole program."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags

import copy_task
import program_flags
from copying import session, training
from gtmm_jax import records
from gtmm_jax.process import command, jax_settings, locks

PROGRAM = (
  pathlib.Path(__file__).resolve().parents[2] / 'experiments' / 'copy_task.py'
)
FIELDS = ('inputs', 'targets', 'recalled')


def _run(folder, *flags):
  return subprocess.run(
    [sys.executable, str(PROGRAM), *flags],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, 'COLUMNS': '80'},
  )


def _prepare(*words):
  """Returns what the program makes of its flags, in this process."""
  values = flags.FlagValues()
  copy_task.define_flags(values)
  values(['copy_task.py', *words])
  return copy_task.prepare(values)


def _complete(*words):
  settings, problems, workdir = _prepare(*words)
  session.complete(problems, settings, workdir, command.console())


def _read(vectors, bits, longest):
  """Writes out the task for given vectors, step by step."""
  inputs, targets, recalled = [], [], []
  for vector in vectors:
    inputs.append([*vector, 0])
    targets.append([0] * bits)
    recalled.append(False)
  inputs.append([0] * bits + [1])
  targets.append([0] * bits)
  recalled.append(False)
  for vector in vectors:
    inputs.append([0] * bits + [0])
    targets.append(vector)
    recalled.append(True)
  while len(inputs) < 2 * longest + 1:
    inputs.append([0] * bits + [0])
    targets.append([0] * bits)
    recalled.append(False)
  return np.array(inputs), np.array(targets), np.array(recalled)


@pytest.mark.parametrize(
  ('bits', 'longest', 'length'),
  [(3, 5, 1), (3, 5, 4), (3, 5, 5), (1, 1, 1), (6, 2, 1)],
)
def test_an_episode_is_the_task_as_it_is_read(bits, longest, length):
  task = training.CopyTask(bits, longest)
  draw = jax.jit(task.episode)
  for seed in range(5):
    episode = draw(jax.random.key(seed), length)
    vectors = np.asarray(episode.inputs[:length, :bits])
    wanted = _read(vectors.tolist(), bits, longest)
    for name, value in zip(FIELDS, wanted, strict=True):
      got = np.asarray(getattr(episode, name))
      np.testing.assert_array_equal(got, value, err_msg=name)
    assert episode.inputs.dtype == episode.targets.dtype == jnp.float32
    assert episode.recalled.dtype == bool


def test_lengths_are_uniform_and_bits_are_fair_coins():
  task = training.CopyTask(bits=4, longest=5)
  keys = jax.random.split(jax.random.key(0), 5000)
  episodes = jax.jit(jax.vmap(task.sample))(keys)
  lengths = np.asarray(episodes.recalled).sum(axis=1)
  counts = np.bincount(lengths, minlength=6)
  assert counts[0] == 0
  assert len(counts) == 6
  # Five standard deviations of 1,000.
  np.testing.assert_allclose(counts[1:], 1000, atol=5 * np.sqrt(800))
  recalled = np.asarray(episodes.targets)[np.asarray(episodes.recalled)]
  error = 0.5 / np.sqrt(len(recalled))
  np.testing.assert_allclose(recalled.mean(axis=0), 0.5, atol=5 * error)
  # Bits of one vector, and neighbouring vectors, have nothing to do with each
  # other.
  first, second = recalled[:, 0] - 0.5, recalled[:, 1] - 0.5
  assert abs(np.mean(first * second)) < 5 * error / 2
  shown = np.asarray(episodes.inputs)[lengths >= 2]
  before, after = shown[:, 0, :4] - 0.5, shown[:, 1, :4] - 0.5
  assert abs(np.mean(before * after)) < 5 * 0.25 / np.sqrt(before.size)


def test_bits_equal_a_count_by_hand():
  task = training.CopyTask(bits=2, longest=3)
  keys = jax.random.split(jax.random.key(1), 7)
  episode = jax.jit(jax.vmap(task.sample, out_axes=1))(keys)
  assert len(set(np.asarray(episode.recalled).sum(axis=0))) > 1
  logits = 3 * jax.random.normal(jax.random.key(2), episode.targets.shape)
  got = training.bits_per_bit(logits, episode)
  logits, episode = np.asarray(logits, float), jax.tree.map(np.asarray, episode)
  total = count = 0
  for step, sequence, bit in np.ndindex(*logits.shape):
    if episode.recalled[step, sequence]:
      one = 1 / (1 + np.exp(-logits[step, sequence, bit]))
      probability = one if episode.targets[step, sequence, bit] else 1 - one
      total -= np.log2(probability)
      count += 1
  np.testing.assert_allclose(got, total / count, rtol=1e-5)


def test_guessing_costs_one_bit_and_what_is_not_recalled_nothing():
  task = training.CopyTask(5, 4)
  episode = jax.jit(task.sample)(jax.random.key(3))
  guess = jnp.zeros_like(episode.targets)
  assert training.bits_per_bit(guess, episode) == pytest.approx(1)
  elsewhere = guess + jnp.where(episode.recalled[:, None], 0.0, 1e4)
  bits, slope = jax.value_and_grad(training.bits_per_bit)(elsewhere, episode)
  assert bits == pytest.approx(1)
  assert not np.any(np.asarray(slope)[~np.asarray(episode.recalled)])
  sure = jnp.where(episode.targets > 0, 1e4, -1e4)
  assert training.bits_per_bit(sure, episode) == 0
  assert np.isfinite(training.bits_per_bit(-sure, episode))


def _problem(name, **sizes):
  sizes = {'slots': 8, 'word_size': 5, 'controller_size': 7, **sizes}
  core = training.build_core(name, bits=3, **sizes)
  return training.Problem(
    training.Copier(core, 3), training.CopyTask(3, 2), 4, 6, 1e-2
  )


def test_portions_of_steps_make_the_same_run():
  problem, key = _problem('lstm'), jax.random.key(5)
  whole, mean = training.train(
    problem, training.initial_state(problem, key), key, 5
  )
  state = training.initial_state(problem, key)
  parts = []
  for count in (2, 1, 2):
    state, bits = training.train(problem, state, key, count)
    parts.append(count * float(bits))
  assert int(state.step) == int(whole.step) == 5
  for one, other in zip(
    jax.tree.leaves(whole), jax.tree.leaves(state), strict=True
  ):
    np.testing.assert_array_equal(one, other)
  assert sum(parts) / 5 == pytest.approx(float(mean), rel=1e-5)


def test_the_evaluation_is_of_each_length_alone():
  """Evaluates a copier that knows only the bias of its last layer."""
  problem = _problem('lstm')
  variables = training.initial_state(problem, jax.random.key(0)).variables
  variables = jax.tree.map(jnp.zeros_like, variables)
  task = training.CopyTask(3, 5)
  bits = training.evaluate(
    problem.copier, variables, task, jax.random.key(1), 6
  )
  np.testing.assert_allclose(bits, np.ones(5), rtol=1e-6)
  # Sure of a one: half of the bits cost what the logit is in bits.
  bias = variables['params']['bits']['bias'] + 30.0
  variables['params']['bits']['bias'] = bias
  bits = np.asarray(
    training.evaluate(problem.copier, variables, task, jax.random.key(1), 6)
  )
  wrong = bits / (30 / np.log(2)) * 6 * 3 * np.arange(1, 6)
  np.testing.assert_allclose(wrong, np.round(wrong), atol=1e-3)
  assert np.all(np.abs(bits / (30 / np.log(2)) - 0.5) < 0.5)


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """Runs two cores with two seeds; returns the results and the output."""
  folder = tmp_path_factory.mktemp('copy')
  words = [
    'copy_task.py',
    '--core=introspective,lstm',
    '--seed=1,0,1',
    '--length=2',
    '--longest=3',
    '--bits=2',
    '--steps=5',
    '--report_every=2',
    '--batch_size=3',
    '--slots=6',
    '--word_size=4',
    '--controller_size=5',
    '--evaluation_episodes=4',
    '--workdir=results',
  ]
  printed = io.StringIO()
  with (
    program_flags.defined(copy_task.define_flags),
    contextlib.chdir(folder),
    mock.patch.dict(os.environ, COLUMNS='80'),
    contextlib.redirect_stdout(printed),
  ):
    code = program_flags.exit_code(words, copy_task.main)
  assert code == 0
  return folder / 'results', printed.getvalue()


def test_a_run_leaves_records_and_a_figure(written):
  folder, printed = written
  assert sorted(path.name for path in folder.iterdir()) == [
    'config.json',
    'copy_task.pdf',
    'copy_task.png',
    'evaluation.json',
    'lock',
    'metrics.jsonl',
  ]
  assert (folder / 'copy_task.png').stat().st_size > 10_000
  wanted = [
    (core, seed) for core in ('introspective', 'lstm') for seed in (1, 0)
  ]
  lines = records.read_metrics(folder)
  found = [(line['core'], line['seed'], line['step']) for line in lines]
  assert found == [(*run, step) for run in wanted for step in (2, 4, 5)]
  for line in lines:
    assert 0.5 < line['bits'] < 2
    assert line['seconds'] > 0
  content = records.read_evaluation(folder)
  assert content['settings']['seed'] == [1, 0]
  assert content['settings']['longest'] == 3
  assert content['versions']['jax'] == jax.__version__
  assert content['settings'] == records.read_config(folder)['settings']
  runs = content['runs']
  assert [(run['core'], run['seed']) for run in runs] == wanted
  for run in runs:
    one, two, three = run['bits_by_length']
    assert all(0.5 < bits < 2 for bits in (one, two, three))
    # Twice as many bits in a sequence of two vectors.
    assert run['bits'] == pytest.approx((one + 2 * two) / 3)
    assert run['learned_at'] is None
    row = next(
      row.split()
      for row in printed.splitlines()
      if row.split()[1:4:2] == [run['core'], str(run['seed'])]
    )
    assert [float(row[n]) for n in (7, 9, 11)] == pytest.approx(
      [run['bits'], two, three], abs=6e-5
    )


def test_the_same_command_gives_the_same_numbers_in_place_of_the_old(
  written, tmp_path
):
  folder, _ = written
  settings = records.read_config(folder)['settings']
  settings |= {'core': ['lstm'], 'seed': [0]}
  workdir = tmp_path / 'run'
  given = {**settings, 'core': 'lstm', 'seed': 0, 'workdir': workdir}
  # What jax is told is recorded, too, and no flag sets it here.
  for name in jax_settings.in_force():
    assert given.pop(name) == jax_settings.BEFORE[name]
  words = [f'--{name}={value}' for name, value in given.items()]
  old = {'core': 'dnc', 'seed': 7, 'step': 1, 'bits': 1.0}
  records.append_metrics(workdir, old)
  for config, told in ((None, 'something else'), ({'steps': 9}, 'steps (9')):
    if config:
      records.write_config(workdir, {'settings': {**settings, **config}})
    with pytest.raises(ValueError, match=re.escape(told)):
      _prepare(*words)
  records.write_config(workdir, {'settings': settings})
  with (
    locks.alone(workdir),
    pytest.raises(locks.CannotLock, match='Another program runs in'),
  ):
    _complete(*words)
  assert records.read_metrics(workdir) == [old]
  _complete(*words)
  found = [line['bits'] for line in records.read_metrics(workdir)]
  assert found == [
    line['bits']
    for line in records.read_metrics(folder)
    if (line['core'], line['seed']) == ('lstm', 0)
  ]
  # Where only the figure is missing, nothing is trained again.
  picture, metrics = workdir / 'copy_task.png', workdir / 'metrics.jsonl'
  before, trained = picture.read_bytes(), metrics.stat().st_mtime_ns
  picture.unlink()
  _complete(*words)
  assert picture.read_bytes() == before
  assert metrics.stat().st_mtime_ns == trained


@pytest.mark.parametrize(
  ('flag', 'told'),
  [
    ('--core=ntm,gru', 'introspective'),
    ('--core=', 'empty'),
    ('--seed=0,one', "'one'"),
    ('--seed=-1', 'from 0'),
    ('--seed=4294967296', '2^32 - 1'),
    ('--length=0', 'length'),
    ('--steps=2147483645', '[1, 2147483644]'),
    ('--longest=9', 'at least --length, 10'),
    ('--learning_rate=nan', 'between 0 and 1'),
    ('--slots=3', 'as many slots'),
    ('--length=100000000', 'takes at least'),
  ],
)
def test_a_mistake_says_what_is_allowed(monkeypatch, tmp_path, flag, told):
  monkeypatch.chdir(tmp_path)
  with pytest.raises((ValueError, flags.Error), match=re.escape(told)) as error:
    _prepare('--core=lru', flag)
  assert '\n' not in str(error.value)
  assert not list(tmp_path.iterdir())


def test_a_mistake_is_one_line(tmp_path):
  (tmp_path / 'file').write_text('')
  result = _run(tmp_path, '--core=lru', '--workdir=file/results')
  assert (result.returncode, result.stdout) == (2, '')
  assert result.stderr.startswith('copy_task.py: ')
  assert result.stderr.count('\n') == 1
  assert 'file' in result.stderr
  assert [path.name for path in tmp_path.iterdir()] == ['file']


@pytest.mark.slow
@pytest.mark.parametrize('core', ['ntm', 'dnc'])
def test_a_core_learns_to_copy(core, tmp_path):
  result = _run(tmp_path, f'--core={core}', '--seed=3')
  assert result.returncode == 0, result.stderr
  path = tmp_path / 'runs' / 'copy_task' / 'evaluation.json'
  (run,) = json.loads(path.read_text())['runs']
  assert run['bits'] < 0.05
  assert run['learned_at'] <= 1000
  # Sequences longer than any in training.
  assert run['bits_by_length'][11] < 0.05
